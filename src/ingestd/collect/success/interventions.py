"""What a person can do about an ordered table: try again, leave a batch out, say that all is well.

By command (`ingestd ordered`) or by the gestures of old: deleting `_bqlock`, dropping `_BACKFILL`. Like every move of a
table each is one compare-and-swap of its state, after what it takes is done and can be done twice.
"""

from contextlib import suppress
from dataclasses import replace

import structlog

from ingestd.batch.journal import Held, Journal, LeaseLost
from ingestd.batch.phases import Phase
from ingestd.batch.record import Record
from ingestd.batch.stages.directory import shut
from ingestd.batch.wait import Wait
from ingestd.collect.success.markers import BackfillFile, LockMarker
from ingestd.collect.success.planning import unresolved
from ingestd.collect.success.queue import Hold, OrderedTable, Queues, TableState
from ingestd.model.clock import Clock
from ingestd.model.errors import PreconditionFailed
from ingestd.model.objects import Generation, ObjectRef
from ingestd.ports import ObjectStore, Warehouse

log = structlog.get_logger(__name__)

_MOVED = "was moved on by somebody else meanwhile; look again"
_JUST_ENDED = "has only just failed: try again in a moment"
_BEING_LOADED = "is being loaded right now: wait for its end"


class Interventions:
    def __init__(
        self,
        queues: Queues,
        journal: Journal,
        store: ObjectStore,
        warehouse: Warehouse,
        clock: Clock,
        *,
        project: str,
        staging: ObjectRef,
    ) -> None:
        self._queues = queues
        self._journal = journal
        self._warehouse = warehouse
        self._clock = clock
        self._project = project
        self._staging = staging
        self._marker = LockMarker(store)
        self._backfill = BackfillFile(store, queues)

    async def gesture(self, table: OrderedTable, generation: Generation) -> bool:
        """`_BACKFILL` was dropped, or the lock deleted: the table goes on. Each counts once; False: say it again."""
        state, over = await self._queues.state(table)
        if generation <= state.gesture:
            return True
        if not state.hold:
            await self._hurry(state)
        told = replace(state, gesture=max(generation, await self._marker.generation(table)))
        if not await self._go_on(told, over):
            return False
        if state.hold:
            await self._marker.remove(table)
            log.info("ordered.told_to_go_on", table=table.url, was=state.hold)
        await self._backfill.drained(table)
        return True

    async def retry(self, table: OrderedTable) -> str:
        """Try a held table's batch again, or go on after validation; what was done, in words."""
        state, over = await self._queues.state(table)
        if not state.hold:
            hurried = await self._hurry(state)
            return f"{state.current_url} is tried again now" if hurried else "is not held: nothing to do"
        told = replace(state, gesture=max(state.gesture, await self._marker.generation(table)))
        try:
            if not await self._go_on(told, over) and not await self._goes_on(state):
                return _MOVED
        except (PreconditionFailed, LeaseLost):
            return _JUST_ENDED
        await self._marker.remove(table)
        return "goes on" if state.hold is Hold.VALIDATION else f"{state.current_url} is tried again"

    async def skip(self, table: OrderedTable, by: str) -> str:
        """Leave the batch under way out, for good; what was done, in words."""
        state, over = await self._queues.state(table)
        if state.success is None:
            return "has no batch under way: nothing to skip"
        if why_not := await self._give_up(state, f"skipped by {by}"):
            return f"goes on with {state.current_url}, which {why_not}"
        told = replace(state.without_current(), gesture=max(state.gesture, await self._marker.generation(table)))
        if not await self._queues.save(told, over, self._clock.now()):
            return _MOVED
        await self._backfill.drained(table, state.current)
        await self._queues.remove(table, state.current)
        await self._marker.remove(table)
        log.warning("ordered.skipped", table=table.url, source=state.current_url, by=by)
        return f"{state.current_url} is left out"

    async def _go_on(self, state: TableState, over: Generation) -> bool:
        """Replace the state by one without its hold; False when somebody else was first.

        A failed batch is opened again before that, and let go of after it: should somebody have left it out in the
        meantime, it is closed again, and nobody has seen it open.
        """
        reopened = await self._reopened(state)
        free = replace(state, hold=Hold.NONE, note="")
        if state.hold is Hold.LATE:
            free = replace(free.ended(), allowed=(*state.allowed, state.current))
        first = await self._queues.save(free, over, self._clock.now())
        if reopened is not None:
            skipped = not first and state.current in (await self._queues.state(state.table))[0].skipped
            with suppress(LeaseLost):  # somebody is at it already
                if skipped:
                    await self._fail(reopened, f"left out: {state.note}")
                else:
                    await self._journal.save(reopened, claim=False)
        return first

    async def _goes_on(self, state: TableState) -> bool:
        """Whether the table is at the same batch, and held no more: a daemon saw that we had opened it."""
        now, _ = await self._queues.state(state.table)
        return now.current == state.current and not now.hold

    async def _reopened(self, state: TableState) -> Held | None:
        record = await self._record(state) if state.hold is Hold.FAILED else None
        if record is None or record.phase is not Phase.FAILED:
            return None
        return await self._journal.reopen(record.reopened(self._clock.now()), keep=True)

    async def _hurry(self, state: TableState) -> bool:
        """A batch that waits for its next try is tried now."""
        held = await self._waiting(state)
        if held is None:
            return False
        held.record = replace(held.record, wait=Wait(until=self._clock.now()))
        try:
            await self._journal.save(held, claim=False)
        except LeaseLost:
            return False  # somebody is trying it already
        return True

    async def _give_up(self, state: TableState, why: str) -> str:
        """Let the record of the batch under way say that it was left out; or why that would not be true, in words."""
        record = await self._record(state)
        if record is not None and record.phase.final:
            ended = "was loaded" if record.phase is Phase.DONE else f"ended as {record.phase}"
            return "" if record.phase is Phase.FAILED else f"{ended} by now"
        if record is not None and record.phase is Phase.LOADED:
            return "was loaded by now"
        held = await self._waiting(state) if record else await self._journal.open(self._stub(state), claim=True)
        if held is None or not await self._journal.claim(held):
            return _BEING_LOADED
        job = await shut(held.record, self._warehouse, self._staging)
        if job is not None:
            with suppress(LeaseLost):  # somebody is at it already
                await self._journal.save(held, claim=False)
            rows = "has committed its rows" if job.done else "may still commit its rows: wait for its end, or cancel it"
            return f"cannot be left out: job {job.ref.job_id} {rows}"
        try:
            first = await self._fail(held, f"{why}: {held.record.error or state.note}")
        except LeaseLost:
            return _BEING_LOADED
        return "" if first else "has ended by now: look again"

    async def _fail(self, held: Held, error: str) -> bool:
        """It ends as failed, and as left out: a replay of whatever failed passes it over.

        The running record says so first. Somebody whose clock is ahead may have taken the batch from us meanwhile, and
        loads it: then this fails. Whoever takes it afterwards finds it failing.
        """
        phase, mark = held.record.phase, held.record.success
        assert mark is not None
        failing = held.record if phase is Phase.FAILING else held.record.enter(Phase.FAILING, error=error)
        held.record = replace(failing, error=error, trigger=replace(mark, left_out=True))
        await self._journal.save(held)
        held.record = held.record.enter(Phase.FAILED)
        return await self._journal.end(held)

    async def _waiting(self, state: TableState) -> Held | None:
        """The record of the batch under way, if nobody is working on it."""
        held = await self._journal.find(self._stub(state)) if state.success else None
        if held is None or held.record.stamp.leased(self._clock.now()) or held.record.phase.final:
            return None
        return held

    async def _record(self, state: TableState) -> Record | None:
        return await self._journal.known(self._stub(state)) if state.success else None

    def _stub(self, state: TableState) -> Record:
        assert state.success is not None
        return unresolved(state.success, project=self._project, clock=self._clock, order=state.current)
