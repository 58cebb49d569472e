"""Writes down the names of finished batches (see `name_index`), a table and some days at a time.

Days that are over and not written down are taken together, from some hundred records or a week on; below that they are
listed as fast. What they are joined with: each segment before them that is at most twice as large as all that comes
after it, so that sizes double from one segment to the one before, there are few, and a name is written a few times in
its life. Whatever is joined is compared with the records that are there now: what a listing does not have any more is
dropped, and what nobody wrote down is added. So an index that lacks something (an older version left no mark) mends.

Of several replicas one does this: a note (`<JournalURL>/Names/round.json`) says until when nobody needs to look. If two
do it nevertheless, there are two segments of the same days, and either may be read.

| dies after       | what is there                  | then                                                      |
|------------------|--------------------------------|-----------------------------------------------------------|
| note written     | as before                      | another round begins when its time has come               |
| segment written  | it, and those it was made from | all are read; the next round removes those within another |

Costs: three listings per table and day, one read per record of several files, once (records of one file are told by
their listing), and a write per some hundred records. A round reads a few thousand records and leaves the rest to the
next one: a journal that was never written down is caught up with in the course of a day or so.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from datetime import date, datetime, timedelta
from urllib.parse import unquote

import orjson
import structlog
from prometheus_client import Counter

from ingestd.batch.journal import Journal
from ingestd.batch.late import EARLIEST, FOLDER
from ingestd.ledger.name_index import NameIndex
from ingestd.ledger.name_plan import MOST_NAMES, Listed, TablePlan, files_of
from ingestd.ledger.name_segments import Batch, Draft, Segment, hashes_of
from ingestd.model.aside import aside
from ingestd.model.bounded import bounded
from ingestd.model.clock import Clock
from ingestd.model.errors import NotFound, PreconditionFailed, UnreadableObject
from ingestd.model.objects import ABSENT, Generation, ObjectInfo, ObjectRef
from ingestd.model.stored import LARGEST, document, instant, reading
from ingestd.ops.survival import surviving
from ingestd.ports import FileStore

log = structlog.get_logger(__name__)

SEGMENTS = Counter("ingestd_name_segments_written", "Segments of the index of names that were written.")
READ = Counter("ingestd_name_records_read", "Finished records read for the index of names.")
FAILED = Counter("ingestd_name_round_errors", "Rounds of the index of names that failed and are repeated.")

_LOOK = timedelta(hours=1)
_SOON = timedelta(minutes=10)  # while there is more to do
_SELDOM = timedelta(hours=20)  # another day is over once a day
_MOST_RECORDS = 4_000  # of a round
_AT_ONCE = 4
_HEAVY = 20_000  # names that are counted, written and read beside the event loop
_DAY = timedelta(days=1)
_DIRECTORIES = "_success."  # folders of success files: what is in them is asked for by other ways


class NameKeeper:
    def __init__(self, store: FileStore, journal: Journal, index: NameIndex, clock: Clock) -> None:
        self._store = store
        self._journal = journal
        self._index = index
        self._clock = clock
        self._note = journal.folder(f"{FOLDER}/round.json")

    async def run(self) -> None:
        """Root task."""
        while True:
            await self._clock.sleep(_LOOK)
            with surviving("sweep:names", "names.round_failed", FAILED.inc):
                while await self.look():
                    await self._clock.sleep(_SOON)

    async def look(self) -> bool:
        """A round, if it is time and no other replica does it; whether there is more to do."""
        now = self._clock.now()
        until, generation = await self._until()
        if until is not None and now < until <= now + _SELDOM:  # one in the far future was a wrong clock's
            return False
        claimed = await self._tell(now + _LOOK, generation)
        if claimed is None:
            return False
        more = await self.round()
        await self._tell(self._clock.now() + (timedelta() if more else _SELDOM), claimed)
        return more

    async def round(self, most: int = _MOST_RECORDS) -> bool:
        """Write down what is over, reading about so many records; whether there is more to do."""
        today = self._clock.now().date()
        # Before anything under `Done/` is looked at: see `name_index`.
        running: defaultdict[str, set[Batch]] = defaultdict(set)
        async for entry in self._journal.entries():
            table, batch = _place(entry.ref, self._journal.folder("Running/"))
            if batch is not None:
                running[table].add(batch)
        left = most
        async for table, first in self._tables():
            with surviving("sweep:names", "names.table_failed", FAILED.inc, table=table):
                plan = TablePlan(table, await self._index.shelf(table), today, running[table])
                left -= await self._look_at(plan, first, left)
            if left <= 0:
                return True
        return False

    async def _tables(self) -> AsyncIterator[tuple[str, date]]:
        """Every table with finished records, and the first day of those."""
        root = self._journal.folder("Done/")
        start = ""
        while True:
            async for info in self._store.list(root, start=start):
                table, batch = _place(info.ref, root)
                if batch is None:
                    start = f"{info.ref.name}\0"  # not ours: the next name
                    continue
                start = f"{root.name}{table}0"  # which is what follows a slash
                if not table.startswith(_DIRECTORIES):
                    yield table, batch[0]
                break
            else:
                return

    async def _look_at(self, plan: TablePlan, first: date, most: int) -> int:
        """Bring one table up to date; how many records it took."""
        needless = plan.within_others()
        await self._remove([segment.info for segment in needless])
        plan.replace(needless)
        taken = 0
        for segment in plan.to_mend():
            taken += await self._write(plan, segment.first, segment.last, [segment])
        for start, end in plan.gaps(first):
            gap = await self._listed(plan.table, start, end, limit=most)
            taken += await self._write(plan, start, gap.end, [])
        while taken < most and (start := plan.tail(first)) <= plan.last:
            tail = await self._listed(plan.table, start, plan.last, limit=most)
            if not plan.worth_it(tail):
                break
            joined = plan.joined_with(tail.names)
            taken += await self._write(plan, joined[0].first if joined else start, tail.end, joined)
        await self._remove([mark.info for mark in plan.marks_over()])
        return taken

    async def _listed(self, table: str, first: date, last: date, *, limit: int | None = None) -> Listed:
        """Finished records of whole days: with a limit, of as many days as it takes to reach it."""
        root = self._journal.folder(f"Done/{table}/")
        found, names, day = Listed(last), 0, first
        bounds = {"start": f"{root.name}{first}", "end": f"{root.name}{last + _DAY}"}
        async for info in self._store.list(root, **bounds):
            before, day = day, max(day, _day(info.ref.name[len(root.name) :]) or day)
            if day > before and limit is not None and (len(found.records) >= limit or names >= MOST_NAMES):
                found.end = day - _DAY
                break
            _, batch = _place(info.ref, self._journal.folder("Done/"))
            if batch is None:
                found.odd.add(day)
            else:
                found.records[batch] = info
                names += files_of(info)
        return found

    async def _write(self, plan: TablePlan, first: date, last: date, joined: Sequence[Segment]) -> int:
        """A segment of these days, in place of those that it is joined from; how many records it took."""
        draft, known = Draft(first, last), dict[Batch, bytes]()
        for segment in joined:
            names, frequent = await self._content(segment)
            known |= names
            draft.frequent |= frequent
        found = await self._listed(plan.table, first, last)
        missing = {day for day, _ in plan.running - found.records.keys() if first <= day <= last}
        draft.left_out = found.odd | found.crowded() | missing
        wanted = {batch: info for batch, info in found.records.items() if batch[0] not in draft.left_out}
        draft.batches = {batch: known[batch] for batch in wanted if batch in known}
        unread = [batch for batch in wanted if batch not in known]

        async def read(batch: Batch) -> None:
            names = await self._names(wanted[batch])
            if names is None:
                draft.left_out.add(batch[0])
            else:
                draft.batches[batch] = names

        await bounded(unread, read, _AT_ONCE)
        draft.shorten()
        name, labels, data = await aside(draft.names > _HEAVY, draft.written, plan.today)
        ref = self._index.folder(plan.table) / name
        made = await self._store.create(
            ref, data, if_generation=ABSENT, content_type="application/octet-stream", metadata=labels
        )
        SEGMENTS.inc()
        log.info("names.written", table=plan.table, segment=name, batches=len(draft.batches), joined=len(joined))
        plan.replace(joined, Segment.of(ObjectInfo(ref, made, len(data), self._clock.now(), metadata=labels)))
        await self._remove([segment.info for segment in joined])
        return len(unread)

    async def _content(self, segment: Segment) -> tuple[dict[Batch, bytes], set[bytes]]:
        """What the segment has; nothing, if it cannot be read: then its records are read again."""
        try:
            data = await self._index.read(segment)
            return await aside(segment.names > _HEAVY, segment.all, data) if data is not None else ({}, set())
        except UnreadableObject as error:
            self._journal.strangers.met("names", segment.info.ref, error)
            return {}, set()

    async def _names(self, info: ObjectInfo) -> bytes | None:
        """The names of a record's files, as hashes; None when it cannot be read."""
        source = unquote(info.metadata.get("ingestd-source", "")).rpartition("#")[0]
        bucket, _, name = source.partition("/")
        if name and info.metadata.get("ingestd-files") == "1":
            return hashes_of([ObjectRef(bucket, name)])
        try:
            held = await self._journal.read(info.ref)
        except UnreadableObject:
            return None  # counted and told: `Journal.strangers` has it
        READ.inc()
        if held is None:
            return b""  # its time is over
        files = held.record.known_files
        return await aside(len(files) > _HEAVY, hashes_of, [file.ref for file in files])

    async def _remove(self, infos: Sequence[ObjectInfo]) -> None:
        for info in infos:
            try:
                await self._store.delete(info.ref, if_generation=info.generation)
            except PreconditionFailed:
                log.info("names.changed", object=info.ref.url)

    async def _until(self) -> tuple[datetime | None, Generation]:
        """Until when nobody needs to look; a note that cannot be read says nothing."""
        info: ObjectInfo | None = None
        try:
            data, info = await self._store.read(self._note, largest=LARGEST)
            with reading(self._note):
                return instant(document(data).get("Until")), info.generation
        except NotFound:
            return None, ABSENT
        except UnreadableObject as error:
            self._journal.strangers.met("names", self._note, error)
            info = info or await self._store.stat(self._note)
            return None, info.generation if info else ABSENT

    async def _tell(self, until: datetime, generation: Generation) -> Generation | None:
        """Write the note; None when somebody else did."""
        try:
            return await self._store.create(self._note, orjson.dumps({"Until": until}), if_generation=generation)
        except PreconditionFailed:
            return None


def _place(ref: ObjectRef, root: ObjectRef) -> tuple[str, Batch | None]:
    """The table and the batch of a record's place; None for what is no record's."""
    table, _, rest = ref.name[len(root.name) :].partition("/")
    name = rest[11:].removesuffix(".run")
    day = _day(rest)
    if day is None or rest[10:11] != "/" or not rest.endswith(".run") or not name.isascii() or not name.isdecimal():
        return table, None
    return table, (day, int(name)) if len(name) < 20 and str(int(name)) == name else None


def _day(path: str) -> date | None:
    """The day that a record's path begins with, after its table."""
    try:
        found = date.fromisoformat(path[:10]) if path[4:5] == "-" else None
    except ValueError:
        return None
    return found if found is not None and found >= EARLIEST else None
