"""What the daemon remembers for its console: recent batches, recent trouble, and samples for the plots.

All of it is memory of this process alone, bounded, and gone with it: the journal is the record. Thanks to it a page
refresh never lists a bucket. Invariant: nothing here grows beyond the sizes given, whatever happens.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b
from statistics import median

FILES_REMEMBERED = 100_000
RULES_REMEMBERED = 5_000
_FINE, _COARSE = 5, 60  # seconds between samples
_LATENCIES = 2_000  # of one interval: enough for a median


class TroubleKind(StrEnum):
    FAILED = "failed"  # a batch, or a part of it, for good
    BLOCKED = "blocked"  # a batch waits for its surroundings and will be tried again
    QUARANTINED = "quarantined"  # a file of a batch was set aside
    REFUSED = "refused"  # a file that no rule may take
    DEAD_LETTER = "dead_letter"  # a message nobody can read


@dataclass(frozen=True, slots=True)
class Ended:
    """A batch that has ended, as it is shown in lists."""

    event_id: str
    kind: str
    phase: str
    rule: str
    dest: str
    files: int
    rows: int
    size: int
    attempts: int
    created: datetime
    ended: datetime
    source: str  # its first file
    window: str
    error: str
    record: str  # URL of its record in the journal
    fates: Mapping[str, int]
    newest: datetime | None  # event time of its newest loaded file


@dataclass(frozen=True, slots=True)
class Trouble:
    at: datetime
    kind: TroubleKind
    subject: str
    reason: str
    rule: str = ""
    dest: str = ""
    event_id: str = ""
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """What is there at the moment of a sample."""

    windows: int = 0
    waiting: int = 0  # files in those windows
    active: int = 0
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One interval: what ended in it, and the levels at its end."""

    at: int  # Unix seconds
    files: int
    rows: int
    size: int
    troubles: int
    typical: float | None  # seconds from a file's event to its table, None when nothing was loaded
    slowest: float | None
    level: Level


@dataclass(slots=True)
class RuleTotals:
    """What a rule got done since this process started."""

    files: Counter[str] = field(default_factory=Counter)
    batches: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    size: int = 0
    last_ended: datetime | None = None
    newest: datetime | None = None  # event time of the newest file loaded
    last_error: str = ""


@dataclass(slots=True)
class _Interval:
    files: int = 0
    rows: int = 0
    size: int = 0
    troubles: int = 0
    latencies: list[float] = field(default_factory=list)
    slowest: float = 0.0

    def sample(self, at: int, level: Level) -> Sample:
        seen = self.latencies
        return Sample(
            at,
            self.files,
            self.rows,
            self.size,
            self.troubles,
            round(median(seen), 3) if seen else None,
            round(self.slowest, 3) if seen else None,
            level,
        )


class _Ring:
    """Samples of one resolution."""

    def __init__(self, seconds: int, count: int) -> None:
        self.seconds = seconds
        self.samples: deque[Sample] = deque(maxlen=count)
        self.interval = _Interval()

    def tick(self, now: int, level: Level) -> None:
        if self.samples and now - self.samples[-1].at < self.seconds:
            return
        self.samples.append(self.interval.sample(now, level))
        self.interval = _Interval()


class History:
    def __init__(self, size: int = 5_000) -> None:
        self.batches: deque[Ended] = deque(maxlen=size)
        self.troubles: deque[Trouble] = deque(maxlen=size)
        self.rules: dict[str, RuleTotals] = {}
        self.totals = RuleTotals()
        self.trouble_counts: Counter[str] = Counter(dict.fromkeys(TroubleKind, 0))
        self.batch_count = 0
        self._by_event: dict[str, Ended] = {}
        self._by_file: OrderedDict[bytes, str] = OrderedDict()
        self._fine, self._coarse = _Ring(_FINE, 720), _Ring(_COARSE, 1_440)

    def ended(self, batch: Ended, files: Iterable[str], latencies: Iterable[float]) -> None:
        """Remember a batch, and which batch these files (URLs) were in."""
        if len(self.batches) == self.batches.maxlen:
            dropped = self.batches[0]
            if self._by_event.get(dropped.event_id) is dropped:
                del self._by_event[dropped.event_id]
        self.batches.append(batch)
        self._by_event[batch.event_id] = batch
        self.batch_count += 1
        self.remember(batch.event_id, files)
        seconds = list(latencies)
        for ring in (self._fine, self._coarse):
            _count(ring.interval, batch, seconds)
        for totals in (self.totals, self._rule(batch.rule)):
            _add(totals, batch)

    def remember(self, event_id: str, files: Iterable[str]) -> None:
        """Which batch these files were in."""
        for url in files:
            key = _digest(url)
            self._by_file[key] = event_id
            self._by_file.move_to_end(key)
        while len(self._by_file) > FILES_REMEMBERED:
            self._by_file.popitem(last=False)

    def trouble(self, trouble: Trouble) -> None:
        """Remember it; a batch that is blocked over and over stays one line."""
        self.trouble_counts[trouble.kind] += 1
        for ring in (self._fine, self._coarse):
            ring.interval.troubles += 1
        if trouble.kind is TroubleKind.BLOCKED and trouble.event_id:
            self._forget_blocked(trouble.event_id)
        self.troubles.append(trouble)

    def batch(self, event_id: str) -> Ended | None:
        return self._by_event.get(event_id)

    def batch_of(self, url: str) -> Ended | None:
        """The batch that this file was last in, if that was recently and here."""
        event_id = self._by_file.get(_digest(url))
        return self._by_event.get(event_id) if event_id else None

    def recent(self) -> Iterator[Ended]:
        return reversed(self.batches)

    def recent_troubles(self) -> Iterator[Trouble]:
        return reversed(self.troubles)

    def tick(self, now: datetime, level: Level) -> None:
        """Close the intervals that are over; called every few seconds."""
        moment = int(now.timestamp())
        for ring in (self._fine, self._coarse):
            ring.tick(moment, level)

    def samples(self, minutes: int) -> tuple[int, list[Sample]]:
        """The samples of the last minutes, oldest first, and how many seconds each stands for."""
        ring = self._fine if minutes * 60 <= _FINE * 720 else self._coarse
        count = minutes * 60 // ring.seconds
        return ring.seconds, list(ring.samples)[-count:]

    def _rule(self, name: str) -> RuleTotals:
        known = self.rules.get(name)
        if known is None:
            if len(self.rules) >= RULES_REMEMBERED:
                del self.rules[next(iter(self.rules))]
            known = self.rules[name] = RuleTotals()
        return known

    def _forget_blocked(self, event_id: str) -> None:
        for index in range(len(self.troubles) - 1, max(-1, len(self.troubles) - 200), -1):
            one = self.troubles[index]
            if one.kind is TroubleKind.BLOCKED and one.event_id == event_id:
                del self.troubles[index]
                return


def _count(interval: _Interval, batch: Ended, latencies: list[float]) -> None:
    interval.files += batch.files
    interval.rows += batch.rows
    interval.size += batch.size
    if latencies:
        interval.slowest = max(interval.slowest, *latencies)
        interval.latencies += latencies[: max(0, _LATENCIES - len(interval.latencies))]


def _add(totals: RuleTotals, batch: Ended) -> None:
    totals.files.update(batch.fates)
    totals.batches[batch.phase] += 1
    totals.rows += batch.rows
    totals.size += batch.size
    totals.last_ended = batch.ended
    if batch.newest and (totals.newest is None or batch.newest > totals.newest):
        totals.newest = batch.newest
    if batch.error:
        totals.last_error = batch.error


def _digest(url: str) -> bytes:
    return blake2b(url.encode("utf-8", "surrogatepass"), digest_size=8).digest()
