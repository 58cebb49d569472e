"""What is known of names that were overwritten around a load: one small object per destination and name, if at all.

Almost no file has a trail. One is begun when a load ends after its source was overwritten, and when a batch sets a
generation aside (a newer one took its name, or it was deleted) that such a load may have read. Who comes later asks the
trail instead of looking for batches: those may be finished, expired, or have come in any order.

A trail is written before the record that says the same thing, so whoever finds a batch decided finds its notes here.
Notes are facts about what happened, kept by generation and job: writing one twice changes nothing.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, Self

import orjson

from ingestd.batch.journal import Journal
from ingestd.batch.landing import destination
from ingestd.batch.record import Record
from ingestd.batch.sources import MANY_FILES
from ingestd.model.aside import aside
from ingestd.model.bounded import bounded
from ingestd.model.errors import NotFound, PreconditionFailed, Transient
from ingestd.model.objects import ABSENT, FileVersion, Generation, ObjectRef
from ingestd.model.segments import segment
from ingestd.model.shared import SharedLook
from ingestd.model.stored import LARGEST, document, reading
from ingestd.ports import ObjectStore

FOLDER = "Trail"
_VERSION = 1
_AT_ONCE = 16
_FEW = 25  # names that are looked for one by one: a listing costs as much as a dozen of them
_TRIES = 10
_MOST = 200  # notes of each kind that a name keeps, the newest


@dataclass(frozen=True, slots=True)
class Version:
    """A generation that was never to be loaded, since it was not there any more."""

    generation: Generation
    size: int
    crc32c: str
    overwrote: Generation

    @classmethod
    def of(cls, file: FileVersion) -> Self:
        return cls(file.generation, file.size, file.crc32c, file.overwrote)


@dataclass(frozen=True, slots=True)
class Reading:
    """A load that was committed, and during or before which its source was overwritten."""

    job_id: str
    generation: Generation  # the one it was meant for
    size: int
    crc32c: str
    started: datetime | None
    ended: datetime | None
    read: int | None  # bytes that it read of this file, where they can be told from those of its other files
    rows: int | None = None  # where it read nothing else


@dataclass(frozen=True, slots=True)
class Trail:
    versions: tuple[Version, ...] = ()
    readings: tuple[Reading, ...] = ()

    def with_notes(self, other: "Trail") -> "Trail":
        """Both; what was noted first stays, as it was seen closer to the event."""
        versions = {one.generation: one for one in (*other.versions, *self.versions)}
        readings = {(one.job_id, one.generation): one for one in (*other.readings, *self.readings)}
        return Trail(
            tuple(versions[key] for key in sorted(versions)[-_MOST:]),
            tuple(sorted(readings.values(), key=lambda one: (one.generation, one.job_id))[-_MOST:]),
        )

    def to_json(self, ref: ObjectRef) -> bytes:
        written = {
            "schema_version": _VERSION,
            "URL": ref.url,
            "Versions": [
                {
                    "Generation": str(one.generation),
                    "Size": one.size,
                    "CRC32C": one.crc32c,
                    "Overwrote": str(one.overwrote),
                }
                for one in self.versions
            ],
            "Readings": [
                {
                    "JobID": one.job_id,
                    "Generation": str(one.generation),
                    "Size": one.size,
                    "CRC32C": one.crc32c,
                    "Started": one.started,
                    "Ended": one.ended,
                    "Read": one.read,
                    "Rows": one.rows,
                }
                for one in self.readings
            ],
        }
        return orjson.dumps(written, option=orjson.OPT_INDENT_2)

    @classmethod
    def from_json(cls, data: bytes) -> "Trail":
        found = document(data, version=_VERSION)
        return cls(
            tuple(
                Version(
                    Generation(int(one["Generation"])), one["Size"], one["CRC32C"], Generation(int(one["Overwrote"]))
                )
                for one in found["Versions"]
            ),
            tuple(_reading(one) for one in found["Readings"]),
        )


def _reading(one: Mapping[str, Any]) -> Reading:
    def instant(text: str | None) -> datetime | None:
        return datetime.fromisoformat(text) if text else None

    return Reading(
        one["JobID"],
        Generation(int(one["Generation"])),
        one["Size"],
        one["CRC32C"],
        instant(one["Started"]),
        instant(one["Ended"]),
        one["Read"],
        one["Rows"],
    )


class Trails:
    def __init__(self, store: ObjectStore, journal: Journal) -> None:
        self._store = store
        self._journal = journal
        self._listed: SharedLook[ObjectRef, frozenset[ObjectRef]] = SharedLook(self._list)

    async def of(self, record: Record, refs: Iterable[ObjectRef]) -> dict[ObjectRef, Trail]:
        """The trails of these names at the batch's destination; most have none."""
        names, folder = list(refs), self._folder(record)
        there: frozenset[ObjectRef] | None = None
        if len(names) > _FEW:
            there = await self._listed.now(folder)
            if not there:
                return {}  # nearly always, and what a name's place would be is not worked out
        places = await aside(len(names) > MANY_FILES, _places, folder, names, there)
        found: dict[ObjectRef, Trail] = {}

        async def read(place: ObjectRef) -> None:
            trail, generation = await self._read(place)
            if generation != ABSENT:
                found[places[place]] = trail

        await bounded(places, read, _AT_ONCE)
        return found

    async def _list(self, folder: ObjectRef) -> frozenset[ObjectRef]:
        return frozenset([info.ref async for info in self._store.list(folder / "")])

    async def note(self, record: Record, notes: Mapping[ObjectRef, Trail]) -> None:
        """Add these notes; once this returns, they are found by everyone."""

        async def add(item: tuple[ObjectRef, Trail]) -> None:
            await self._add(record, *item)

        await bounded(list(notes.items()), add, _AT_ONCE)

    async def _add(self, record: Record, ref: ObjectRef, notes: Trail) -> None:
        place = _place(self._folder(record), ref)
        for _ in range(_TRIES):
            before, generation = await self._read(place)
            after = before.with_notes(notes)
            if after == before:
                return
            try:
                await self._store.create(place, after.to_json(ref), if_generation=generation)
            except (PreconditionFailed, NotFound):
                continue  # another replica adds to it
            return
        raise Transient(f"{place} is changed by others all the time")

    async def _read(self, place: ObjectRef) -> tuple[Trail, Generation]:
        try:
            data, info = await self._store.read(place, largest=LARGEST)
        except NotFound:
            return Trail(), ABSENT
        with reading(place):
            return Trail.from_json(data), info.generation

    def _folder(self, record: Record) -> ObjectRef:
        """That of the table as BigQuery names it, whatever the rule calls it."""
        return self._journal.folder(f"{FOLDER}/{segment(str(destination(record).partition(None)))}")


def _places(
    folder: ObjectRef, names: Iterable[ObjectRef], there: Collection[ObjectRef] | None
) -> dict[ObjectRef, ObjectRef]:
    """Where the trails of these names are, or would be; given those that are `there`, only those."""
    places = ((_place(folder, ref), ref) for ref in names)
    return {place: ref for place, ref in places if there is None or place in there}


def _place(folder: ObjectRef, ref: ObjectRef) -> ObjectRef:
    return folder / f"{sha256(ref.url.encode()).hexdigest()[:32]}.json"


def versions_trail(files: Iterable[FileVersion]) -> dict[ObjectRef, Trail]:
    """These generations, as notes on their names."""
    notes: dict[ObjectRef, Trail] = {}
    for file in files:
        known = notes.get(file.ref, Trail())
        notes[file.ref] = replace(known, versions=(*known.versions, Version.of(file)))
    return notes
