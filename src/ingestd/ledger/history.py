"""The journal's records about one object, found without going through all records of its table.

A record's place follows from its table, the day of the file's generation (or of its window) and the batch's id. The
load-state table knows generation and batch of everything that ended, so what it remembers is read where it lies.
Records under way are few, and are listed. Only where the load state is not kept, knows nothing of the object, or has
not been told everything yet, the table's finished records are gone through: by what a listing tells of each (see
`names`), several days at a time, reading only those that may be about the object.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import quote, unquote

from ingestd.batch.journal import SOURCE_SAFE, Journal
from ingestd.batch.names import may_have
from ingestd.batch.record import Record
from ingestd.ledger.reading import BatchState
from ingestd.model.bounded import bounded
from ingestd.model.clock import Clock
from ingestd.model.errors import UnreadableObject
from ingestd.model.objects import Generation, ObjectInfo, ObjectRef, generation_time
from ingestd.ports import ObjectStore

PUT_AWAY = "LoadState"  # rows that the load-state table has not got yet
_DAYS = 31  # listed each by itself
_MONTHS = 12  # before those, the same; what is older still is mostly gone, and listed together
_AT_ONCE = 16
_DAY = timedelta(days=1)

Remembered = Sequence[tuple[Generation, BatchState]]


class FileRecords:
    def __init__(self, journal: Journal, store: ObjectStore, clock: Clock) -> None:
        self._journal = journal
        self._store = store
        self._clock = clock

    async def about(
        self, ref: ObjectRef, template: Record, remembered: Remembered | None
    ) -> list[tuple[ObjectRef, Record]]:
        """Every record of the template's table that has the object in any generation; those under `Done/` come last.

        `remembered`: what the load state knows of the object; None when it cannot be asked.
        """
        table = self._journal.table_folder(template)
        mark = _Mark.of(ref)
        running = self._store.list(self._journal.folder(f"Running/{table}/"))
        places = [info.ref async for info in running if mark.fits(info)]
        if remembered and await self._everything_told():
            done = [
                self._journal.folder(f"Done/{table}/{day:%Y-%m-%d}/{batch.event_id}.run")
                for generation, batch in remembered
                # A window may have begun the day before its file came.
                for day in (generation_time(generation), generation_time(generation) - _DAY)
            ]
        else:
            done = await self._gone_through(mark, f"Done/{table}/")
        return [*await self._read(places, ref), *await self._read(done, ref)]

    async def _everything_told(self) -> bool:
        async for _ in self._store.list(self._journal.folder(f"{PUT_AWAY}/")):
            return False
        return True

    async def _gone_through(self, mark: "_Mark", folder: str) -> list[ObjectRef]:
        root = self._journal.folder(folder)
        today = self._clock.now()
        back = [*(_DAYS + 30 * month for month in range(_MONTHS, 0, -1)), *range(_DAYS, -1, -1)]
        days = [f"{root.name}{today - _DAY * number:%Y-%m-%d}" for number in back]
        bounds = list(zip(["", *days], [*days, ""], strict=True))  # from a day on, and before the next

        async def look(bound: tuple[str, str]) -> list[ObjectRef]:
            listed = self._store.list(root, start=bound[0], end=bound[1])
            return [info.ref async for info in listed if mark.fits(info)]

        return [place for found in await bounded(bounds, look, _AT_ONCE) for place in found]

    async def _read(self, places: Sequence[ObjectRef], ref: ObjectRef) -> list[tuple[ObjectRef, Record]]:
        found: dict[ObjectRef, Record] = {}

        async def read(place: ObjectRef) -> None:
            try:
                held = await self._journal.read(place)
            except UnreadableObject:
                return  # counted and told: `Journal.strangers` has it
            if held is not None and any(file.ref == ref for file in held.record.known_files):
                found[place] = held.record

        await bounded(places, read, _AT_ONCE)
        return [(place, found[place]) for place in places if place in found]


@dataclass(frozen=True, slots=True)
class _Mark:
    """How records about the object are marked: thousands are looked at for one that is."""

    ref: ObjectRef
    plain: str
    quoted: str

    @classmethod
    def of(cls, ref: ObjectRef) -> "_Mark":
        plain = f"{ref.bucket}/{ref.name}#"
        return cls(ref, plain, quote(plain, safe=SOURCE_SAFE))

    def fits(self, info: ObjectInfo) -> bool:
        """Whether the record may have the object. Of a window's files the first is named, the others are hinted at.

        Whether the rule has windows now says nothing: it may have had them then, or the table's pace gave it some.
        """
        source = info.metadata.get("ingestd-source", "")
        if source.startswith(self.quoted):
            return True
        if info.metadata.get("ingestd-files") != "1":
            names = info.metadata.get("ingestd-names", "")  # not there while it runs, nor of very many files
            return info.ref.name.endswith(".run") and (not names or may_have(names, self.ref))
        return "%23" in source and unquote(source).startswith(self.plain)
