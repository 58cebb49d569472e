"""How much of BigQuery's quotas one table has used, and how fast it may go on: arithmetic on times in seconds.

BigQuery counts changes of a table over any ten seconds and over any day, failed ones included. What is used is kept in
a few hundred slots, so that a budget costs the same whatever its size.

Others (replicas beside this one, replicas before it) spend the same budget. What they have used counts as soon as it
is known; until it is known again, this process spends at most its part of what was left.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

DAY = 86_400.0
SLOT = 300.0
PLENTY = 1.2  # having used this much more than an even pace would have is no reason to slow down yet,
SHORT = 1.5  # and from here on the pace is what the rest of the budget allows
MOST = 1000.0
LOOK_EVERY = 60.0  # how often it is learned what others have used


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
    """At most `limit` changes within any day, whoever makes them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._slots: dict[int, int] = {}
        self._others: dict[int, int] = {}
        self._ration = math.inf  # how many more may be taken before it is learned what others took meanwhile

    def used(self, now: float) -> int:
        """Of the day up to `now`, and what is promised for later."""
        self._forget(now)
        return sum(self._slots.values()) + sum(self._others.values())

    def own(self, now: float) -> dict[float, int]:
        """What was used through this budget and still counts: when (never too early), and how many."""
        self._forget(now)
        return {
            min((slot + 1) * SLOT, now): count for slot, count in self._slots.items() if count > 0 and slot * SLOT < now
        }

    def learn(self, others: Mapping[float, int], share: float, now: float) -> None:
        """What others have used by now, and this process's part of the rest."""
        self._others = {}
        for moment, count in others.items():
            slot = int(moment // SLOT)
            self._others[slot] = self._others.get(slot, 0) + count
        left = self.limit - self.used(now)
        self._ration = math.inf if share >= 1 else max(1.0, left * share)

    def blind(self, now: float) -> bool:
        """Whether this process has spent its part, and must learn what others did before it spends more."""
        return self._ration < 1 and self.used(now) < self.limit

    def next(self, now: float) -> float:
        """The earliest time for one more."""
        used = self.used(now)
        if used < self.limit:
            return now
        for released, count in releases([*self._slots.items(), *self._others.items()]):
            used -= count
            if used < self.limit:
                return max(now, released)
        return now

    def take(self, moment: float, count: int = 1) -> None:
        slot = int(moment // SLOT)
        self._slots[slot] = self._slots.get(slot, 0) + count
        self._ration -= count

    def give_back(self, moment: float) -> None:
        slot = int(moment // SLOT)
        if self._slots.get(slot, 0) > 0:
            self._slots[slot] -= 1
            self._ration += 1

    def stretch(self, now: float, window: float | None = None) -> float:
        self._forget(now)
        used = releases([*self._slots.items(), *self._others.items()])
        return stretch(self.limit, [(at - now, count) for at, count in used], window)

    def _forget(self, now: float) -> None:
        for slots in (self._slots, self._others):
            for slot in [slot for slot in slots if _release(slot) <= now]:
                del slots[slot]


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
