"""Ordered tables: their batches commit one after the other, in the order of their paths, whoever runs and dies.

A table is moved on by whoever has a reason to look (an arrival, a batch that ended, a gesture, the sweep). Each step is
a compare-and-swap of the table's state, and the lock on the batch under way is the lease of its record:

| state                    | what is true                       | next, and who does it                                |
|--------------------------|------------------------------------|------------------------------------------------------|
| no batch, queue empty    | everything is committed            | an arrival puts a batch into the queue               |
| no batch, queue filled   | the first in the queue is next     | whoever looks writes it into the state               |
| batch, no record         | it is decided which batch is next  | whoever looks creates its record and drives it       |
| batch, record leased     | somebody is loading it             | its owner, or after the lease whoever looks          |
| batch, record waits      | it is tried again later            | the sweep of records, when its time has come         |
| batch, record ended well | its rows are committed             | whoever looks: state first, then the entry goes      |
| batch, record failed     | nothing of it is committed         | whoever looks holds the table                        |
| held                     | nothing of the table is loaded     | a person, by command or gesture (`interventions`)    |

A process that dies between any two of these leaves one of these states. The entry leaves the queue after the state has
moved on, so a batch is never forgotten; an entry whose record ended before is passed over, so a duplicate never blocks.
An arrival is in the queue before it looks at the state, and whoever ends a batch looks into the queue afterwards: one
of the two sees the other.
"""

from dataclasses import replace

import structlog
from prometheus_client import Counter, Gauge

from ingestd.batch.journal import Journal
from ingestd.batch.news import News
from ingestd.batch.phases import Phase
from ingestd.batch.record import Record
from ingestd.batch.runner import BatchRunner
from ingestd.collect.success.background import Background
from ingestd.collect.success.conventions import Conventions
from ingestd.collect.success.markers import BackfillFile, LockMarker
from ingestd.collect.success.planning import unresolved
from ingestd.collect.success.queue import Entry, Hold, OrderedTable, Queues, TableState
from ingestd.model.clock import Clock
from ingestd.model.objects import FileVersion, Generation, ObjectRef
from ingestd.ports import ObjectStore
from ingestd.settings import Convention, Late

log = structlog.get_logger(__name__)

ENDED = Counter("ingestd_ordered_batches", "Ordered batches that left their queue, by how.", ["how"])
HELD = Gauge("ingestd_ordered_tables_held", "Ordered tables that wait for a person, at the last look.")
WAITING = Gauge("ingestd_ordered_tables_waiting", "Ordered tables with batches in their queue, at the last look.")
for _how in ("loaded", "passed", "rejected", "duplicate"):
    ENDED.labels(_how)

_GOOD = frozenset({Phase.DONE, Phase.LOADED})


class Ordering:
    def __init__(
        self,
        *,
        queues: Queues,
        store: ObjectStore,
        journal: Journal,
        runner: BatchRunner,
        background: Background,
        news: News,
        conventions: Conventions,
        clock: Clock,
        project: str,
    ) -> None:
        self._queues = queues
        self._store = store
        self._journal = journal
        self._runner = runner
        self._background = background
        self._conventions = conventions
        self._clock = clock
        self._project = project
        self._marker = LockMarker(store)
        self._backfill = BackfillFile(store, queues)
        self._moving: dict[OrderedTable, bool] = {}  # tables this process is moving on; True: look once more
        self._held: set[OrderedTable] = set()
        news.ended.append(self.ended)

    async def enqueue(self, table: OrderedTable, success: FileVersion) -> bool:
        """Make an ordered batch durable; False when it waits already."""
        return await self._queues.put(table, success)

    def poke(self, table: OrderedTable) -> None:
        """Move the table on, in the background."""
        self._background.spawn(self.move_on(table), f"ordered:{table.key}")

    async def move_on(self, table: OrderedTable) -> None:
        """Bring the table as far as it goes now. Once per process and table: a second call makes the first look again.

        An `IngestError` leaves everything as it is, for the sweep to look at again.
        """
        if table in self._moving:
            self._moving[table] = True
            return
        self._moving[table] = True
        try:
            while self._moving[table]:
                self._moving[table] = False
                while await self._step(table):
                    pass
        finally:
            del self._moving[table]

    async def ended(self, record: Record) -> None:
        """A batch ended somewhere in this process: if it is an ordered one, its table goes on."""
        if record.success is not None and record.success.order:
            self.poke(_table_of(record))

    async def sweep(self) -> list[OrderedTable]:
        """Tables with batches in their queues: whatever woke nobody is found here."""
        found = await self._queues.survey()
        WAITING.set(len(found.waiting))
        # States of before carry no mark that a listing shows: those were met while moving their tables on.
        self._held &= set(found.waiting)
        HELD.set(len(self._held | set(found.held)))
        return list(found.waiting)

    async def _step(self, table: OrderedTable) -> bool:
        """One move; False when somebody or something else has to happen first."""
        state, generation = await self._queues.state(table)
        if state.hold:
            self._held.add(table)
            return await self._recovered(state, generation)
        self._held.discard(table)
        if state.success is not None:
            return await self._continue(state, generation, state.success)
        entry = await self._queues.first(table)
        if entry is None:
            return False
        convention = self._conventions.of(entry.success.ref)
        if convention is None:
            log.warning("ordered.no_convention", table=table.url, source=entry.success.ref.url)
            return False
        if entry.order in state.skipped or await self._was_loaded(state, entry):
            await self._leave(table, entry.order)
            ENDED.labels("duplicate").inc()
            return True
        return await self._begin(state, generation, entry, convention)

    async def _was_loaded(self, state: TableState, entry: Entry) -> bool:
        """Whether it is a duplicate of what ended before, or was committed right before somebody died."""
        if entry.order > state.committed:
            return False  # should it be one all the same, its record says so when it is begun
        known = await self._journal.known(self._stub(entry.success, entry.order))
        return known is not None and known.phase.final and known.phase is not Phase.FAILED

    async def _begin(self, state: TableState, over: Generation, entry: Entry, convention: Convention) -> bool:
        """The first of the queue is next, if nothing speaks against it."""
        table = state.table
        if entry.order < state.committed and entry.order not in state.allowed:
            why = f"{entry.success.ref} comes after {state.committed.rpartition('@')[0]}, which was committed"
            if convention.late is Late.REJECT:
                return await self._reject(table, entry, f"{why}; late batches are rejected (success.late)")
            if convention.late is Late.HOLD:
                return await self._hold(state.began(entry), over, Hold.LATE, why)
        if not state.open and not await self._gate_open(table, convention):
            log.debug("ordered.gated", table=table.url, waits_for=convention.start_backfill_filename)
            return False
        pause = entry.created + convention.order_grace - self._clock.now()
        if pause.total_seconds() > 0:
            await self._clock.sleep(min(pause, convention.order_grace))
            earliest = await self._queues.first(table)
            if earliest is None or earliest.order != entry.order:
                return True  # an earlier one came meanwhile
        await self._queues.save(replace(state.began(entry), open=True), over, self._clock.now())
        return True  # whoever was first: there is a batch under way now

    async def _continue(self, state: TableState, over: Generation, success: FileVersion) -> bool:
        """See what became of the batch under way, or drive it."""
        stub = self._stub(success, state.current)
        record = await self._journal.known(stub)
        if record is None:
            held = await self._runner.accept(stub)
            if held is None:
                return True
            await self._runner.drive(held, fresh=True)
            return held.record.phase.final
        if record.phase.final:
            return await self._concluded(state, over, record)
        now = self._clock.now()
        if self._runner.working_on(record.event_id) or record.stamp.leased(now):
            return False
        if record.wait.lasts(now) and not await self._queues.repeated(state.table, state.current):
            return False
        await self._runner.resume(self._journal.running(record))
        again = await self._journal.known(stub)
        return again is not None and again.phase.final

    async def _concluded(self, state: TableState, over: Generation, record: Record) -> bool:
        """The batch under way has ended: the state moves on first, then the queue's entry goes."""
        if record.phase is Phase.FAILED:
            return await self._hold(state, over, Hold.FAILED, record.error)
        how = "loaded" if record.phase in _GOOD else "passed"
        assert state.success is not None
        convention = self._conventions.of(state.success.ref)
        after = replace(state.ended(), committed=max(state.committed, state.current))
        if convention is not None and convention.wait_for_validation and how == "loaded":
            note = f"{state.current_url} was committed, and waits for somebody to look at it"
            after = replace(after, hold=Hold.VALIDATION, note=note)
        if await self._queues.save(after, over, self._clock.now()):
            ENDED.labels(how).inc()
            log.info("ordered.committed", table=state.table.url, source=state.current_url, how=how)
            await self._leave(state.table, state.current)
        return True

    async def _leave(self, table: OrderedTable, order: str) -> None:
        """The batch has ended: its entry goes, and with the last one `_BACKFILL`."""
        await self._backfill.drained(table, order)
        await self._queues.remove(table, order)

    async def _hold(self, state: TableState, over: Generation, why: Hold, note: str) -> bool:
        held = replace(state, hold=why, note=note)
        if await self._queues.save(held, over, self._clock.now()):
            self._held.add(state.table)
            log.error("ordered.held", table=state.table.url, why=why, source=state.current_url, note=note)
            await self._marker.put(held)
        return False

    async def _recovered(self, state: TableState, over: Generation) -> bool:
        """Nothing holds the table any more when its failed batch was replayed by other means, or uploaded again."""
        if state.hold is not Hold.FAILED or state.success is None:
            return False
        record = await self._journal.known(self._stub(state.success, state.current))
        free = replace(state, hold=Hold.NONE, note="")
        repeated = await self._queues.repeated(state.table, state.current)
        if repeated:
            free = state.without_current()
        elif record is None or record.phase is Phase.FAILED:
            return False
        seen = max(state.gesture, await self._marker.generation(state.table))
        if await self._queues.save(replace(free, gesture=seen), over, self._clock.now()):
            await self._marker.remove(state.table)
            if repeated:
                await self._queues.remove(state.table, state.current)
        return True

    async def _reject(self, table: OrderedTable, entry: Entry, error: str) -> bool:
        """A late batch that is not wanted fails, visibly, and the table goes on."""
        stub = self._stub(entry.success, entry.order).enter(Phase.FAILING, error=error)
        held = await self._runner.accept(stub)
        if held is not None:
            await self._runner.drive(held)
        ENDED.labels("rejected").inc()
        await self._leave(table, entry.order)
        return True

    async def _gate_open(self, table: OrderedTable, convention: Convention) -> bool:
        if not convention.start_backfill_filename:
            return True
        gate = ObjectRef(table.bucket, table.prefix) / convention.start_backfill_filename
        return await self._store.stat(gate) is not None

    def _stub(self, success: FileVersion, order: str) -> Record:
        return unresolved(success, project=self._project, clock=self._clock, order=order)


def _table_of(record: Record) -> OrderedTable:
    assert record.success is not None
    ref = ObjectRef.parse(record.success.url)
    below = record.success.order.rpartition("@")[0]
    return OrderedTable(ref.bucket, ref.name[: len(ref.name) - len(below)].rstrip("/"))
