"""Driving a batch from acceptance to its end, resumably.

Every effect is idempotent: records and tasks are created once, jobs have deterministic ids (409 adopts), deletes carry
generations. So each method may be interrupted anywhere and run again by anyone:

| dies after            | what is there            | who goes on, and how                                          |
|-----------------------|--------------------------|---------------------------------------------------------------|
| nothing               | unacknowledged message   | Pub/Sub delivers it again                                     |
| record created        | record                   | sweep: looks at the source, submits                           |
| in a stage            | see `stages`             | whoever continues: decides by the record, and goes on         |
| told of a long wait   | record with those steps  | the same: does not tell again, goes on trying                 |
| given up              | record that says so      | the same: runs `OnFailure`, loads nothing any more            |
| `Done/` written       | both records             | sweep: removes `Running/`                                     |
| `Running/` removed    | task                     | poll: finds the batch finished, removes the task              |
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace

import structlog
from prometheus_client import Counter, Gauge

from ingestd.batch.decide import Command, decide
from ingestd.batch.drive import Drive, job_document
from ingestd.batch.journal import Held, LeaseLost
from ingestd.batch.news import News
from ingestd.batch.outcome import abandoned
from ingestd.batch.parts import Parts
from ingestd.batch.phases import Phase
from ingestd.batch.record import Kind, Record
from ingestd.batch.report import begin_trace, count_loaded, report, traced
from ingestd.batch.stages import act, directory, pour, prove, publish, query, ready
from ingestd.batch.stages.act import told
from ingestd.batch.stages.land import Land
from ingestd.batch.stages.look import Look, adopt
from ingestd.batch.stages.prepare import Prepare, batch_folder
from ingestd.batch.steps import Way, submitted_jobs, way_of
from ingestd.batch.wait import Wait
from ingestd.model.errors import BadInput, Fatal, IngestError, Throttled, Transient, UnreadableObject, leading
from ingestd.model.fair import FairSlots
from ingestd.model.jobs import JobState
from ingestd.model.objects import ObjectRef, event_id
from ingestd.model.segments import cut
from ingestd.ops import tracing

log = structlog.get_logger(__name__)

BLOCKED = Counter("ingestd_batches_blocked", "Times a batch had to wait for its surroundings, by kind.", ["error"])
LEASES_LOST = Counter("ingestd_leases_lost", "Batches that another replica took over while this one worked on them.")
ACTIVE = Gauge("ingestd_batches_active", "Batches this process is working on.")
_SALTS = 8


class BatchRunner:
    def __init__(self, parts: Parts, news: News) -> None:
        self._parts = parts
        self._news = news
        self._active: dict[str, asyncio.Event] = {}  # each is set when this process lets go of the batch
        self._slots = FairSlots(parts.settings.jobs.max_running)
        # Batches that wait for Spark (which may be starting, or down) never keep the others waiting.
        self._prepared_slots = FairSlots(parts.settings.jobs.max_running)
        self._held: dict[str, Held] = {}
        look = Look(parts)
        self._stages: dict[Command, Callable[[Drive], Awaitable[bool]]] = {
            Command.REOPEN: act.reopen,
            Command.PIN: directory.pin,
            Command.READY: ready.ready,
            Command.ADOPT: adopt,
            Command.LOOK: look,
            Command.PREPARE: Prepare(look),
            Command.LAND: Land(look),
            Command.POUR: pour.pour_all,
            Command.QUERY: query.query,
            Command.HEAR: prove.hear,
            Command.CHECK: prove.check,
            Command.PUBLISH: publish.publish,
            Command.CONCLUDE: prove.conclude,
            Command.SUCCEED: act.succeed,
            Command.FAIL: act.fail,
        }

    @property
    def active(self) -> list[Record]:
        """What this process works on now, as far as it got."""
        return [held.record for held in self._held.values()]

    def must_wait(self, record: Record) -> bool:
        """Whether the batch would have to wait for its table's turn."""
        return self._slots_for(record).busy(_table(record))

    def working_on(self, event_id: str) -> bool:
        return event_id in self._active

    async def released(self, event_id: str) -> None:
        """Wait until this process does not work on the batch (any more)."""
        while (done := self._active.get(event_id)) is not None:
            await done.wait()

    async def accept(self, record: Record) -> Held | None:
        """Make the batch durable; None when it is already known (running or finished), thus a duplicate."""
        for salt in range(_SALTS):
            if salt:
                # Two identities share an event id: once in billions of files, and then this one takes the next.
                record = replace(record, event_id=event_id(record.identity, salt))
            # An asynchronous batch is let go of as soon as its job is submitted, and nobody else takes a new one for
            # the length of a lease. Should submitting take longer, it is claimed (see `_renew`).
            if tracing.on():
                record = replace(record, trace=tracing.context_of(record.event_id))
            held = await self._parts.journal.open(record, claim=not record.asynchronous)
            # `Done/` is written before `Running/` goes: looked for in this order, one of them is always found.
            try:
                running = None if held else await self._parts.journal.find(record)
                other = running.record if running else await self._parts.journal.finished(record)
            except UnreadableObject:
                if held is not None:
                    await self.forget(held)  # what is there is not for us to judge: the message comes again
                raise
            if held is not None:
                if other is None:
                    begin_trace(record)
                    return held
                await self.forget(held)
            if other is None:
                raise Transient(f"record {record.event_id} is being finished by another replica")
            if other.identity == record.identity:
                return None
        raise Fatal(f"no free event id for {record.identity}")

    async def drive(self, held: Held, *, fresh: bool = False, its_turn: bool = False) -> None:
        """Bring the batch as far as it goes now: to its end, to its job's completion, or to a later retry.

        It waits for a slot first, unless the caller has one and `its_turn` has come.
        """
        event_id, slots = held.record.event_id, self._slots_for(held.record)
        if event_id in self._active:
            return
        slot: AbstractAsyncContextManager[object] = nullcontext() if its_turn else slots.slot(_table(held.record))
        released = self._active[event_id] = asyncio.Event()
        self._held[event_id] = held
        try:
            async with self._keeping(held), slot:
                with ACTIVE.track_inprogress(), traced(held.record):
                    await self._advance(held, fresh=fresh)
                    if held.record.error:
                        tracing.failed(held.record.error)
        except ExceptionGroup as failures:
            # The lease's keeper and the work fail together; callers know the errors themselves, not groups of them.
            lost, others = failures.split(LeaseLost)
            if others is not None:
                raise leading(others) from failures
            assert lost is not None
            LEASES_LOST.inc()
            log.info("batch.lease_lost", event_id=event_id)
            await self.tidy(held.record)
        finally:
            del self._active[event_id], self._held[event_id]
            released.set()
            for listener in self._news.released:
                listener(held.record)

    def _slots_for(self, record: Record) -> FairSlots:
        prepared = record.kind is Kind.LOAD and way_of(record, self._parts.settings.engine) is Way.PREPARED
        return self._prepared_slots if prepared else self._slots

    async def resume(self, ref: ObjectRef) -> None:
        """Take over a running record that nobody holds. It is left free, for any replica, until it is its turn here."""
        held = await self._resumable(ref)
        if held is None:
            return
        slots, seen, table = self._slots_for(held.record), held.generation, _table(held.record)
        if slots.busy(table):
            held = None  # its turn may be far away, and thousands may wait like it
        async with slots.slot(table):
            held = held or await self._resumable(ref)
            # Somebody else may have been faster, and have found that it has to wait.
            if held is None or (held.generation != seen and held.record.wait.lasts(self._parts.clock.now())):
                return
            if await self._parts.journal.claim(held):
                log.info("batch.resumed", event_id=held.record.event_id, phase=held.record.phase)
                await self.drive(held, its_turn=True)

    async def _resumable(self, ref: ObjectRef) -> Held | None:
        """The record, unless this process works on it, or it turns out to be finished."""
        held = await self._parts.journal.read(ref)
        if held is None or self.working_on(held.record.event_id):
            return None
        if await self._parts.journal.is_finished(held.record):
            await self.leave(held)
            return None
        return held

    async def leave(self, held: Held) -> None:
        """Part with the running record of a batch that turned out to be finished."""
        try:
            await self._parts.journal.leave(held)
        except LeaseLost:
            log.info("batch.lease_lost", event_id=held.record.event_id)

    async def tidy(self, record: Record) -> None:
        """Drop the table of its own that a replica which came late made for a batch after its end.

        No job of the batch runs then: whoever ended it has heard its jobs, or used up their ids (see `stages.fence`).
        """
        if record.kind is not Kind.LOAD or not record.load or not record.lands_apart:
            return
        try:
            if await self._parts.journal.is_finished(record):
                await self._parts.landing.drop(record)
        except IngestError as error:
            log.warning("batch.tidying_failed", event_id=record.event_id, error=str(error))

    async def forget(self, held: Held) -> None:
        """Remove the running record of a finished batch, unless somebody else is at it."""
        try:
            await self._parts.journal.forget(held)
        except LeaseLost:
            log.info("batch.lease_lost", event_id=held.record.event_id)

    async def _advance(self, held: Held, *, fresh: bool) -> None:
        """Command by command, to the batch's end; whatever is raised becomes a wait, an end, or a giving up."""
        drive = Drive(self._parts, held, fresh=fresh)
        try:
            if not drive.is_loaded() and drive.record.kind is Kind.LOAD:
                with tracing.span("load"):
                    while not drive.is_loaded():
                        if not await self._stages[decide(drive.record, await drive.observe())](drive):
                            return  # its jobs run on without us
                count_loaded(drive.record)
            while (command := decide(drive.record, await drive.observe())) is not Command.END:
                await self._stages[command](drive)
            await drive.follow()
        except BadInput as error:
            if held.record.phase is Phase.ACCEPTED:
                await self._give_up(drive, error)
                return
            # An action refuses for good: the load stands, its sources are kept, and a person has to look.
            held.record = held.record.enter(Phase.FAILED, error=told(held.record, error))
        except IngestError as error:
            await self._block(drive, error)
            return
        except LeaseLost:
            raise
        except Exception as error:
            # A bug, most likely: whoever looks at the batch shall see it, and the batch waits as for anything else.
            log.exception("batch.broke", event_id=held.record.event_id)
            await self._block(drive, Fatal(f"{type(error).__name__}: {error}"))
            return
        await self._end(held, drive.job)

    async def _block(self, drive: Drive, error: IngestError) -> None:
        """Keep the batch and try again later; after `give_up_after` its failure becomes final."""
        held = drive.held
        if not self._parts.given_up(held.record):
            await self._wait(held, error)
        elif held.record.phase is Phase.ACCEPTED:
            await self._give_up(drive, error)
        else:
            held.record = held.record.enter(Phase.FAILED, error=told(held.record, error))
            await self._end(held, None)

    async def _give_up(self, drive: Drive, error: IngestError) -> None:
        """The batch fails for good, unless a job of it may bring rows after all: then it is heard first."""
        held = drive.held
        try:
            job = await drive.unaccounted()
        except IngestError as problem:
            await self._wait(held, problem)
            return
        if job is not None:
            await self._wait(held, Transient(f"{error}; yet job {job} may bring rows, so its end comes first"))
            return
        held.record = abandoned(held.record, str(error))
        if not held.record.phase.final:
            # `OnFailure` takes files away: whoever goes on after us must not take up loading them again.
            await self._parts.journal.save(held)
        await self._advance(held, fresh=False)

    async def _wait(self, held: Held, error: IngestError) -> None:
        parts = self._parts
        if isinstance(error, Fatal) and held.record.kind is Kind.LOAD:
            unloaded = held.record.phase is Phase.ACCEPTED
            patient = unloaded and parts.clock.now() - held.record.created >= parts.settings.recovery.tell_after
            # Before the record is let go of: what was told is saved with it, step by step.
            await parts.actions.on_blocked(held, str(error), patient=patient)
        record = held.record
        times = record.wait.times + 1
        pause = parts.pause(error, times)
        held.record = replace(record, error=told(record, error), wait=Wait(times, parts.clock.now() + pause))
        await parts.journal.save(held, claim=False)
        BLOCKED.labels(type(error).__name__).inc()
        tell = log.info if isinstance(error, Throttled) else log.error  # waiting one's turn is no trouble
        tell(
            "batch.blocked", event_id=record.event_id, dest=record.dest, error=str(error), again_in=pause,
            sources=[file.ref.url for file in record.files[:3]],
        )  # fmt: skip

    async def _end(self, held: Held, job: JobState | None) -> None:
        parts = self._parts
        if held.record.phase is not Phase.DONE:
            # That nothing came of it can only be said by who holds it: another, whose clock is ahead, may have taken it
            # over, loaded it, and deleted what we found missing. This fails then, before anything is thrown away.
            await parts.journal.save(held)
        record = held.record
        if record.kind is Kind.LOAD and record.asynchronous and job is not None and record.window is None:
            note = parts.journal.beside(record, "dispatch-job.json", job.ref.job_id)
            await parts.journal.note(note, job_document(job))
        if record.load and record.lands_apart:
            await parts.landing.drop(record)
        if record.progress.preparing and parts.preparer is not None:
            await parts.preparer.discard(batch_folder(parts.settings.staging, record))
        if record.phase is Phase.FAILED:
            await parts.store.create(
                parts.settings.errors / f"{cut(record.dest)}/{record.event_id}.err", record.error.encode()
            )
        await parts.journal.finish(held)
        if record.kind is Kind.LOAD and record.asynchronous:
            for one in submitted_jobs(record):
                await parts.tasks.drop(one.job_id)
        now = parts.clock.now()
        await report(record, now)
        await self._tell(record)

    async def _tell(self, record: Record) -> None:
        """What others tidy up after a batch they would also find by looking: a failure here costs nothing."""
        for listener in self._news.ended:
            try:
                await listener(record)
            except IngestError as error:
                log.warning("batch.tidying_failed", event_id=record.event_id, error=str(error))

    @asynccontextmanager
    async def _keeping(self, held: Held) -> AsyncIterator[None]:
        """Renew the lease at half-life while working; losing it cancels the work, being cancelled gives it back."""
        async with asyncio.TaskGroup() as group:
            keeper = group.create_task(self._renew(held), name=f"lease:{held.record.event_id}")
            try:
                yield
            except asyncio.CancelledError:
                if not keeper.done() and held.record.stamp.owner:
                    await self._hand_over(held)
                raise
            finally:
                keeper.cancel()

    async def _renew(self, held: Held) -> None:
        while True:
            await self._parts.clock.sleep(self._parts.journal.lease / 2)
            if not held.record.phase.final:
                await self._parts.journal.save(held)

    async def _hand_over(self, held: Held) -> None:
        """Shutting down in the middle: let another replica adopt the batch now instead of after the lease."""
        try:
            async with asyncio.timeout(5):
                await self._parts.journal.save(held, claim=False)
        except (TimeoutError, IngestError, LeaseLost) as error:
            log.warning("batch.hand_over_failed", event_id=held.record.event_id, error=str(error))


def _table(record: Record) -> str:
    """Who shares slots: the destination, whatever its partition; while that is not known, the folder."""
    if record.unresolved and record.success is not None:
        return record.success.url.rpartition("/")[0]
    return record.dest.partition("$")[0]
