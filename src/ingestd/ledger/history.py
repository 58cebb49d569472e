"""The journal's records about one object, found without going through all records of its table.

A record's place follows from its table, the day of the file's generation (or of its window) and the batch's id. The
load-state table knows generation and batch of everything that ended, so what it remembers is read where it lies.
Records under way are few, and are listed. Only where the load state is not kept, knows nothing of the object, or has
not been told everything yet, the index of names is asked (`name_index`). Finished records of days that it does not have
are gone through by what a listing tells of each (see `names`), several days at a time, reading only those that may be
about the object.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from urllib.parse import quote, unquote

from ingestd.batch.journal import SOURCE_SAFE, Journal
from ingestd.batch.names import may_have
from ingestd.batch.record import Record
from ingestd.ledger.name_index import Days, NameIndex
from ingestd.ledger.reading import BatchState
from ingestd.model.bounded import bounded
from ingestd.model.clock import Clock
from ingestd.model.errors import UnreadableObject
from ingestd.model.objects import Generation, ObjectInfo, ObjectRef, generation_time
from ingestd.ports import FileStore

PUT_AWAY = "LoadState"  # rows that the load-state table has not got yet
_DAYS = 31  # listed each by itself
_MONTHS = 12  # before those, the same; what is older still is mostly gone, and listed together
_AT_ONCE = 16
_DAY = timedelta(days=1)

Remembered = Sequence[tuple[Generation, BatchState]]


class FileRecords:
    def __init__(self, journal: Journal, store: FileStore, clock: Clock) -> None:
        self._journal = journal
        self._index = NameIndex(store, journal.folder(""), journal.strangers)
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
            done = await self._looked_for(mark, table)
        return [*await self._read(places, ref), *await self._read(done, ref)]

    async def _everything_told(self) -> bool:
        async for _ in self._store.list(self._journal.folder(f"{PUT_AWAY}/")):
            return False
        return True

    async def _looked_for(self, mark: "_Mark", table: str) -> list[ObjectRef]:
        answer = await self._index.look_up(table, mark.ref)
        root = self._journal.folder(f"Done/{table}/")
        known = [root / f"{day.isoformat()}/{batch}.run" for day, batch in answer.batches]
        bounds = [bound for days in answer.unknown for bound in self._bounds(days)]

        async def look(bound: tuple[str, str]) -> list[ObjectRef]:
            start, end = (f"{root.name}{day}" if day else "" for day in bound)
            listed = self._store.list(root, start=start, end=end)
            return [info.ref async for info in listed if mark.fits(info)]

        listed = [place for found in await bounded(bounds, look, _AT_ONCE) for place in found]
        return list(dict.fromkeys([*known, *listed]))

    def _bounds(self, days: Days) -> list[tuple[str, str]]:
        """The days in pieces to be listed at once: from a day on, and before the next."""
        first, end = (day.isoformat() if day else "" for day in days)
        if first or not end:  # before what is written down there is hardly anything
            today = self._clock.now().date()
            back = [*(_DAYS + 30 * month for month in range(_MONTHS, 0, -1)), *range(_DAYS, -1, -1)]
            cuts = [day for number in back if first < (day := _before(today, number)) and (not end or day < end)]
        else:
            cuts = []
        return list(zip([first, *cuts], [*cuts, end], strict=True))

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


def _before(today: date, days: int) -> str:
    return (today - _DAY * days).isoformat()


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
