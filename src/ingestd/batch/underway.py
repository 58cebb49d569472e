"""Which batches under way have an earlier generation of a name: their loads may read what took the name since.

One look at the destination's running records answers that for every batch that asks while it is made, so there is at
most one per batch, and at most two per second however many files come in. It has to begin after the question: whoever
asks knows its own generation exists, and a batch that could still read it looked at its sources before that.

Records lie under the table as their rule spells it, and rules are edited: a look is a listing per spelling (two, if the
table is in our own project, which need not be named).

Names are compared by going through the fewer, theirs or ours, so that it costs as little to be a large batch among many
small ones as the other way round; and the event loop has its turn after every so many of them.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field, replace
from datetime import timedelta
from urllib.parse import unquote

from ingestd.batch.journal import Entry, Journal
from ingestd.batch.landing import destination
from ingestd.batch.record import Record
from ingestd.batch.sources import MANY_FILES
from ingestd.model.aside import aside
from ingestd.model.clock import Clock
from ingestd.model.errors import UnreadableObject
from ingestd.model.objects import FileVersion, Generation, ObjectRef
from ingestd.model.stored import number

_NOT_BEFORE = 0.5  # seconds between two listings of one table
_SHARE = 0.1  # of the time may be spent on listing, at most
_REMEMBERED = 2500  # files of a record whose names are kept for the next question
_AT_A_STRETCH = 2000  # names that are compared between two turns of the event loop
_TABLES = 1000  # that are remembered; tables named after a day come and go

Names = Mapping[ObjectRef, Generation]


@dataclass(slots=True)
class _Seen:
    """The running records of one destination, at some moment after `began`."""

    began: float = float("-inf")
    took: float = 0.0
    alone: dict[ObjectRef, list[tuple[Generation, Entry]]] = field(default_factory=dict)
    several: list[Entry] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class UnderWay:
    def __init__(self, journal: Journal, clock: Clock, *, project: str) -> None:
        self._journal = journal
        self._clock = clock
        self._project = project
        self._seen: dict[tuple[str, ...], _Seen] = defaultdict(_Seen)
        self._names: dict[ObjectRef, Names] = {}  # of records with several files, which never change

    async def earlier(self, batch: Record, names: Names) -> dict[ObjectRef, set[ObjectRef]]:
        """The running records of other batches, and of which of these names they have an earlier generation."""
        seen = await self._now(self._spellings(batch))
        alone, several = seen.alone, seen.several  # another look makes them anew
        compared = _fewer(names, alone)
        found = await aside(compared > MANY_FILES, _earlier_alone, names, alone, batch.event_id)
        for entry in several:
            if entry.event_id == batch.event_id:
                continue
            theirs = await self._names_of(entry)
            fewer = _fewer(names, theirs)
            if both := await aside(fewer > MANY_FILES, _earlier, names, theirs):
                found[entry.ref] = both
            compared += fewer
            if compared > _AT_A_STRETCH:
                compared = 0
                await asyncio.sleep(0)
        return found

    def _spellings(self, batch: Record) -> tuple[str, ...]:
        """The folders in which batches of the same destination may be."""
        if batch.success is not None:
            return (batch.home,)
        table = destination(batch).partition(None)
        return (str(table), str(replace(table, project=None))) if table.project == self._project else (str(table),)

    async def _now(self, table: tuple[str, ...]) -> _Seen:
        asked = self._clock.monotonic()
        if len(self._seen) > _TABLES:
            self._seen = defaultdict(_Seen, {name: one for name, one in self._seen.items() if one.lock.locked()})
        seen = self._seen[table]
        while seen.began < asked:
            async with seen.lock:
                if seen.began >= asked:
                    break
                rest = max(_NOT_BEFORE, seen.took / _SHARE) - (self._clock.monotonic() - seen.began)
                if rest > 0:
                    await self._clock.sleep(timedelta(seconds=rest))
                await self._list(table, seen)
        return seen

    async def _list(self, table: tuple[str, ...], seen: _Seen) -> None:
        began = self._clock.monotonic()
        alone: dict[ObjectRef, list[tuple[Generation, Entry]]] = defaultdict(list)
        several: list[Entry] = []

        async def look(spelling: str) -> None:
            async for entry in self._journal.under_way(spelling):
                one = _only_file(entry)
                if one is None:
                    several.append(entry)
                else:
                    alone[one[0]].append((one[1], entry))

        await asyncio.gather(*map(look, table))
        seen.alone, seen.several = alone, several
        seen.began, seen.took = began, self._clock.monotonic() - began
        there = {entry.ref for one in self._seen.values() for entry in one.several}
        self._names = {ref: names for ref, names in self._names.items() if ref in there}

    async def _names_of(self, entry: Entry) -> Names:
        known = self._names.get(entry.ref)
        if known is not None:
            return known
        try:
            held = await self._journal.read(entry.ref)
        except UnreadableObject:
            return {}  # the sweep says so, and leaves it alone
        if held is None:
            return {}  # it has ended since: what it had to say is in the trail of the name
        names = await aside(len(held.record.files) > MANY_FILES, _earliest, held.record.files)
        if len(names) <= _REMEMBERED:
            self._names[entry.ref] = names
        return names


def _fewer(one: Sized, other: Sized) -> int:
    return min(len(one), len(other))


def _common(one: Collection[ObjectRef], other: Collection[ObjectRef]) -> Iterator[ObjectRef]:
    """The names that are in both."""
    fewer, more = (one, other) if len(one) <= len(other) else (other, one)
    return (ref for ref in fewer if ref in more)


def _earlier(names: Names, theirs: Names) -> set[ObjectRef]:
    """The names of which they have an earlier generation."""
    return {ref for ref in _common(names.keys(), theirs.keys()) if theirs[ref] < names[ref]}


def _earlier_alone(
    names: Names, alone: Mapping[ObjectRef, list[tuple[Generation, Entry]]], event_id: str
) -> dict[ObjectRef, set[ObjectRef]]:
    """The same of records with one file each."""
    found: defaultdict[ObjectRef, set[ObjectRef]] = defaultdict(set)
    for ref in _common(names.keys(), alone.keys()):
        for other, entry in alone[ref]:
            if other < names[ref] and entry.event_id != event_id:
                found[entry.ref].add(ref)
    return dict(found)


def _earliest(files: Iterable[FileVersion]) -> Names:
    """The names of a record's files, each with the earliest of its generations."""
    names: dict[ObjectRef, Generation] = {}
    for file in files:
        names[file.ref] = min(file.generation, names.get(file.ref, file.generation))
    return names


def _only_file(entry: Entry) -> tuple[ObjectRef, Generation] | None:
    """The file of a record that has one, as its listing tells; None when the record has to be read."""
    key, _, generation = unquote(entry.source).rpartition("#")
    bucket, _, name = key.partition("/")
    known = number(generation)
    if entry.files != 1 or not name or not known:
        return None
    return ObjectRef(bucket, name), Generation(known)
