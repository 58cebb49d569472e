"""How much of BigQuery's quotas one table has used, and how fast it may go on: arithmetic on times in seconds.

BigQuery counts changes of a table over any ten seconds and over any day, failed ones included. What is used is kept in
a few hundred slots, so that a budget costs the same whatever its size.
"""

from collections import deque
from collections.abc import Iterable, Sequence

DAY = 86_400.0
SLOT = 300.0
PLENTY = 1.2  # having used this much more than an even pace would have is no reason to slow down yet,
SHORT = 1.5  # and from here on the pace is what the rest of the budget allows
MOST = 1000.0


class Pace:
    """At most `count` changes within any `span` seconds."""

    def __init__(self, count: int, span: float) -> None:
        self._span = span
        self._times: deque[float] = deque(maxlen=count)  # in order, perhaps ahead of now

    @property
    def count(self) -> int:
        assert self._times.maxlen is not None
        return self._times.maxlen

    def next(self, now: float) -> float:
        """The earliest time for one more."""
        return now if len(self._times) < self.count else max(now, self._times[0] + self._span)

    def take(self, moment: float) -> None:
        # Kept in order: a time before one that is promised already counts as that one, which errs on the slow side.
        self._times.append(max(moment, self._times[-1]) if self._times else moment)

    def widened(self, count: int) -> "Pace":
        """The same history under another number."""
        pace = Pace(count, self._span)
        pace._times.extend(self._times)
        return pace


class Budget:
    """At most `limit` changes within any day."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._slots: dict[int, int] = {}

    def used(self, now: float) -> int:
        """Of the day up to `now`, and what is promised for later."""
        self._forget(now)
        return sum(self._slots.values())

    def next(self, now: float) -> float:
        """The earliest time for one more."""
        used = self.used(now)
        if used < self.limit:
            return now
        for released, count in releases(self._slots.items()):
            used -= count
            if used < self.limit:
                return max(now, released)
        return now

    def take(self, moment: float, count: int = 1) -> None:
        slot = int(moment // SLOT)
        self._slots[slot] = self._slots.get(slot, 0) + count

    def give_back(self, moment: float) -> None:
        slot = int(moment // SLOT)
        if self._slots.get(slot, 0) > 0:
            self._slots[slot] -= 1

    def stretch(self, now: float, window: float | None = None) -> float:
        self._forget(now)
        return stretch(self.limit, [(at - now, count) for at, count in releases(self._slots.items())], window)

    def _forget(self, now: float) -> None:
        for slot in [slot for slot in self._slots if _release(slot) <= now]:
            del self._slots[slot]


def releases(slots: Iterable[tuple[int, int]]) -> list[tuple[float, int]]:
    """When how many of the used changes stop counting, in order."""
    return [(_release(slot), count) for slot, count in sorted(slots) if count > 0]


def _release(slot: int) -> float:
    return (slot + 1) * SLOT + DAY


def sustainable(limit: int, used: Sequence[tuple[float, int]]) -> float:
    """The fastest steady rate (per second) that never meets the limit within the coming day.

    `used`: in how many seconds how many changes stop counting, in order. The rate is bounded at each moment just before
    some are released, when the most is spent and the least has come back.
    """
    available = limit - sum(count for _, count in used)
    rate = limit / DAY
    for seconds, count in used:
        if seconds > 0:
            rate = min(rate, max(available, 0) / seconds)
        available += count
    return rate


def stretch(limit: int, used: Sequence[tuple[float, int]], window: float | None = None) -> float:
    """By how much a window (by default one of the even pace over the day) should widen for the budget to last.

    1.0 while there is plenty. Beyond that it grows until windows are as far apart as the sustainable rate has it, and
    then nothing ever waits for the daily quota.
    """
    even = DAY / limit
    window = window or even
    rate = sustainable(limit, used)
    if rate <= 0:
        return MOST
    ahead = 1 / rate / even
    weight = min(1.0, max(0.0, (ahead - PLENTY) / (SHORT - PLENTY)))
    wanted = window + weight * max(0.0, 1 / rate - window)
    return min(wanted / window, MOST)
