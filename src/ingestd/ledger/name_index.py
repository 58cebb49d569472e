"""Which finished batches have a name: asked of a few objects, whatever the age of the journal.

A name alone does not tell when its file came. Each finished record tells by a filter in its listing whether it may have
the name (`batch.names`), but listings grow with the records. So the names of days that are over are written down, in
segments (`name_segments`) that a name is looked up in by one ranged read each; `name_keeper` writes them and joins
them to larger ones, so that there are few: their sizes grow by doubling.

    <JournalURL>/Names/<table>/<first day>.<last day>.<written>-<random>.idx

The index is never the truth, and no answer hangs on it: days that it does not have are listed as before. Those are

- the last days, which are not over;
- days of segments that are gone, damaged or of a newer version, and days that a segment leaves out;
- days in which a batch began after they were written down (`batch.late`), or a frequent name's.

Why nothing is missed: a segment is written from what is under `Done/`, after a look at `Running/`. A record that is
finished afterwards was under `Running/` at that look (then its day is left out), or it began later (then there is a
mark of that date or a later one). What the index knows of records that are gone meanwhile is found to be gone.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, timedelta

from ingestd.batch.late import FOLDER
from ingestd.ledger.name_segments import Batch, Segment, hash_of
from ingestd.model.bounded import bounded
from ingestd.model.errors import UnreadableObject
from ingestd.model.objects import ObjectInfo, ObjectRef
from ingestd.model.stored import placeholder, reading
from ingestd.ops.strangers import Strangers
from ingestd.ports import FileStore

_LATE = re.compile(r"(\d{4}-\d\d-\d\d)\.(\d{4}-\d\d-\d\d)\.late")
_DAY = timedelta(days=1)
SKEW = _DAY  # between the clocks of those who write marks and segments
_AT_ONCE = 16

Days = tuple[date | None, date | None]  # from the first on, before the second; None: no bound


@dataclass(frozen=True, slots=True)
class LateMark:
    info: ObjectInfo
    day: date
    began: date


@dataclass(slots=True)
class Shelf:
    """What is written down of one table."""

    segments: list[Segment] = field(default_factory=list)
    marks: list[LateMark] = field(default_factory=list)

    def add(self, info: ObjectInfo, strangers: Strangers) -> None:
        base = info.ref.name.rpartition("/")[2]
        try:
            if base.endswith(".late"):
                self.marks.append(_mark(info, base))
            elif not placeholder(info):
                self.segments.append(Segment.of(info))
        except UnreadableObject as error:
            strangers.met("names", info.ref, error)

    def stale(self, segment: Segment) -> set[date]:
        """Days in which batches began that the segment cannot have."""
        return {mark.day for mark in self.marks if segment.covers(mark.day) and mark.began >= segment.written - SKEW}


@dataclass(frozen=True, slots=True)
class Answer:
    """The batches that have the name, as far as they are written down; and the days for which that is unknown."""

    batches: tuple[Batch, ...]
    unknown: tuple[Days, ...]


class NameIndex:
    def __init__(self, store: FileStore, root: ObjectRef, strangers: Strangers) -> None:
        self._store = store
        self._root = root
        self._strangers = strangers

    def folder(self, table: str) -> ObjectRef:
        return self._root / f"{FOLDER}/{table}/"

    async def shelf(self, table: str) -> Shelf:
        shelf = Shelf()
        async for info in self._store.list(self.folder(table)):
            shelf.add(info, self._strangers)
        return shelf

    async def look_up(self, table: str, ref: ObjectRef) -> Answer:
        shelf, hashed = await self.shelf(table), hash_of(ref)

        async def ask(segment: Segment) -> list[Batch] | None:
            at = segment.bucket_of(hashed) * segment.slot
            try:
                data = await self._store.fetch(
                    segment.info.ref, generation=segment.info.generation, start=at, end=at + segment.slot
                )
                return segment.matches(data, hashed) if data is not None else None  # joined to another meanwhile
            except UnreadableObject as error:
                self._strangers.met("names", segment.info.ref, error)
                return None

        batches: dict[Batch, None] = {}
        known: list[tuple[Segment, set[date]]] = []
        for segment, found in zip(shelf.segments, await bounded(shelf.segments, ask, _AT_ONCE), strict=True):
            if found is not None:
                batches |= dict.fromkeys(found)
                known.append((segment, shelf.stale(segment)))
        return Answer(tuple(batches), tuple(gaps(known)))

    async def read(self, segment: Segment) -> bytes | None:
        """All of it."""
        return await self._store.fetch(segment.info.ref, generation=segment.info.generation)


def gaps(known: Iterable[tuple[Segment, set[date]]]) -> list[Days]:
    """The days that no segment covers (each with days for which it does not count), in order."""
    # Days that one segment leaves out may be in another: each is asked for.
    covering = list(known)
    out = {day for segment, stale in covering for day in {*stale, *segment.left_out}}
    unsure = [day for day in sorted(out) if not any(one.covers(day) and day not in stale for one, stale in covering)]
    spans = sorted((segment.first, segment.last) for segment, _ in covering)
    found: list[Days] = []
    at: date | None = None
    for first, last in spans:
        if at is None or first > at:
            found.append((at, first))
        at = max(at or first, last + _DAY)
    found.append((at, None))
    return sorted([*found, *((day, day + _DAY) for day in unsure)], key=lambda days: days[0] or date.min)


def _mark(info: ObjectInfo, base: str) -> LateMark:
    with reading(info.ref):
        named = _LATE.fullmatch(base)
        if named is None:
            raise ValueError("a name that no mark has")
        return LateMark(info, *map(date.fromisoformat, named.groups()))
