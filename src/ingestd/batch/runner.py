"""Driving a batch from acceptance to its end, resumably.

Every effect is idempotent: records and tasks are created once, jobs have deterministic ids (409 adopts), deletes carry
generations. So each method may be interrupted anywhere and run again by anyone:

| dies after            | what is there            | who goes on, and how                                          |
|-----------------------|--------------------------|---------------------------------------------------------------|
| nothing               | unacknowledged message   | Pub/Sub delivers it again                                     |
| record created        | record                   | sweep: looks at the source, submits                           |
| task written          | record, task             | sweep: submits                                                |
| job inserted          | record, task, job        | completion or sweep: adopts the job (409), goes on            |
| job done              | the same                 | completion, poll or sweep: proves it, runs the actions        |
| some actions done     | the same, their effects  | sweep after the lease: repeats what is not recorded, in vain  |
| `Done/` written       | both records             | sweep: removes `Running/`                                     |
| `Running/` removed    | task                     | poll: finds the batch finished, removes the task              |
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol

import orjson
import structlog
from prometheus_client import Counter, Gauge, Histogram

from ingestd.batch.journal import Held, Journal, LeaseLost
from ingestd.batch.record import Kind, Phase, Record
from ingestd.batch.sources import Gone, loaded_with_earlier, look
from ingestd.batch.tasks import DeferredTasks
from ingestd.model.clock import Clock
from ingestd.model.errors import BadInput, Fatal, IngestError, Throttled, Transient
from ingestd.model.jobs import JobKind, JobRequest, JobState
from ingestd.model.objects import ObjectRef, event_id
from ingestd.ports import ObjectStore, Warehouse
from ingestd.settings import Settings
from ingestd.warehouse.errors import job_failure
from ingestd.warehouse.jobs import JobRunner, count
from ingestd.warehouse.proof import loaded_bytes, loaded_rows, missing_source, prove

log = structlog.get_logger(__name__)

BATCHES = Counter("ingestd_batches", "Batches that reached their end, by kind and phase.", ["kind", "phase"])
ROWS = Counter("ingestd_rows_loaded", "Rows loaded and proven.")
BYTES = Counter("ingestd_bytes_loaded", "Source bytes loaded and proven.")
FILES = Counter("ingestd_files", "Files whose batch ended, by phase.", ["phase"])
BLOCKED = Counter("ingestd_batches_blocked", "Times a batch had to wait for its surroundings, by kind.", ["error"])
ACTIVE = Gauge("ingestd_batches_active", "Batches this process is working on.")
LATENCY = Histogram(
    "ingestd_file_latency_seconds",
    "Seconds from a file's event to the end of its batch.",
    buckets=(1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400),
)
LAST_LOADED = Gauge("ingestd_last_loaded_timestamp_seconds", "When a batch last ended well.")
for _phase in Phase:
    if _phase.final:
        BATCHES.labels(Kind.LOAD, _phase)
        FILES.labels(_phase)

_SALTS = 8
_IN_PLACE = timedelta(seconds=60)  # longer pauses let go of the batch; the sweep picks it up again


class Preparation(Protocol):
    """What has to be true of the destination before a load, and the complete load configuration."""

    async def prepare(self, record: Record) -> Record: ...


class Acting(Protocol):
    """Runs a batch's post-actions, resuming after those already recorded in the held record."""

    async def on_success(self, held: Held, job: JobState | None, *, last_try: bool) -> None: ...

    async def on_failure(self, held: Held, job: JobState | None, error: str, *, last_try: bool) -> None: ...

    def guarded(self, record: Record, metadata: Mapping[str, str]) -> bool:
        """Whether this object was put there by this very rule."""
        ...

    async def quarantine(self, held: Held, job: JobState | None) -> None: ...


@dataclass(slots=True)
class Parts:
    """What the runner works with."""

    store: ObjectStore
    warehouse: Warehouse
    journal: Journal
    tasks: DeferredTasks
    jobs: JobRunner
    preparation: Preparation
    acting: Acting
    clock: Clock
    settings: Settings


class BatchRunner:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._active: dict[str, asyncio.Event] = {}  # each is set when this process lets go of the batch
        self._slots = asyncio.Semaphore(parts.settings.jobs.max_running)
        self.endings: list[Callable[[Record], Awaitable[None]]] = []  # told when a batch has ended

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
            held = await self._parts.journal.open(record, claim=not record.asynchronous)
            # `Done/` is written before `Running/` goes: looked for in this order, one of them is always found.
            running = None if held else await self._parts.journal.find(record)
            other = running.record if running else await self._parts.journal.finished(record)
            if held is not None:
                if other is None:
                    return held
                await self.forget(held)
            if other is None:
                raise Transient(f"record {record.event_id} is being finished by another replica")
            if other.identity == record.identity:
                return None
        raise Fatal(f"no free event id for {record.identity}")

    async def drive(self, held: Held, *, fresh: bool = False) -> None:
        """Bring the batch as far as it goes now: to its end, to its job's completion, or to a later retry."""
        event_id = held.record.event_id
        if event_id in self._active:
            return
        released = self._active[event_id] = asyncio.Event()
        try:
            async with self._slots, self._keeping(held):
                with ACTIVE.track_inprogress():
                    await self._advance(held, fresh=fresh)
        except* LeaseLost:
            log.info("batch.lease_lost", event_id=event_id)
        finally:
            del self._active[event_id]
            released.set()

    async def resume(self, ref: ObjectRef) -> None:
        """Take over a running record that nobody holds."""
        held = await self._parts.journal.read(ref)
        if held is None or self.working_on(held.record.event_id):
            return
        if await self._parts.journal.is_finished(held.record):
            await self.forget(held)
            return
        if await self._parts.journal.claim(held):
            log.info("batch.resumed", event_id=held.record.event_id, phase=held.record.phase)
            await self.drive(held)

    async def forget(self, held: Held) -> None:
        """Remove the running record of a finished batch, unless somebody else is at it."""
        try:
            await self._parts.journal.forget(held)
        except LeaseLost:
            log.info("batch.lease_lost", event_id=held.record.event_id)

    async def _advance(self, held: Held, *, fresh: bool) -> None:
        job: JobState | None = None
        try:
            if held.record.phase is Phase.ACCEPTED:
                job = await self._load(held, fresh=fresh)
                if held.record.phase is Phase.ACCEPTED:
                    return
            else:
                job = await self._parts.warehouse.get_job(held.record.trigger_job or held.record.load_job())
            if held.record.phase is Phase.LOADED:
                await self._parts.acting.on_success(held, job, last_try=self._given_up(held.record))
                held.record = held.record.enter(Phase.DONE, error="")
            elif held.record.phase is Phase.FAILING:
                await self._parts.acting.on_failure(held, job, held.record.error, last_try=self._given_up(held.record))
                await self._parts.acting.quarantine(held, job)
                held.record = held.record.enter(Phase.FAILED if held.record.kind is Kind.LOAD else Phase.DONE)
        except BadInput as error:
            if held.record.phase is Phase.ACCEPTED:
                held.record = held.record.enter(Phase.FAILING, error=str(error))
                await self._advance(held, fresh=False)
                return
            # An action refuses for good: the load stands, its sources are kept, and a person has to look.
            held.record = held.record.enter(Phase.FAILED, error=str(error))
        except IngestError as error:
            await self._block(held, error)
            return
        await self._end(held, job)

    async def _load(self, held: Held, *, fresh: bool) -> JobState | None:
        """Submit and await (or adopt) the load; the phase says how it went, ACCEPTED that its completion continues."""
        parts = self._parts
        if not held.record.load or not held.record.location:
            held.record = await parts.preparation.prepare(held.record)
        while True:
            record = held.record
            job = None if fresh else await parts.warehouse.get_job(record.load_job())
            fresh = False
            if job is None:
                earlier = await self._look(held)
                if held.record.phase.final:
                    return None
                if earlier is not None:
                    self._loaded(held, earlier, prove_files=False)
                    return earlier
                job = await self._submit(held)
            if not job.done:
                if record.asynchronous:
                    await self._let_go(held)
                    return job
                job = await parts.jobs.wait(job)
            elif record.asynchronous:
                count(job)
                if not held.record.owner and not await parts.journal.claim(held):
                    raise LeaseLost(f"record {record.event_id} is held by another replica")
            if not await self._retry(held, job):
                return job

    async def _look(self, held: Held) -> JobState | None:
        """Check that the source is what was announced; ends the batch when it is not."""
        parts, record = self._parts, held.record
        present = await look(parts.store, record.files[0])
        if isinstance(present, Gone):
            held.record = record.enter(present.phase, error=present.why)
            return None
        if parts.acting.guarded(record, present.info.metadata):
            held.record = record.enter(Phase.IGNORED, error="moved here by the same rule")
            return None
        held.record = replace(record, files=(present.file, *record.files[1:]))
        return await loaded_with_earlier(held.record, present, parts.journal, parts.warehouse, parts.clock)

    async def _submit(self, held: Held) -> JobState:
        record = held.record
        if record.asynchronous:
            await self._parts.tasks.put(record, self._parts.journal.running(record))
        labels = {"ingestd": "load", "ingestd_event": record.event_id}
        request = JobRequest(record.load_job(), JobKind.LOAD, record.load, labels)
        job = await self._parts.warehouse.insert_job(request)
        log.info("batch.submitted", event_id=record.event_id, job=job.ref.job_id, dest=record.dest)
        await self._parts.journal.note(self._parts.journal.beside(record, "tail-job.json"), _job_document(job))
        return job

    async def _retry(self, held: Held, job: JobState) -> bool:
        """Judge a finished job: True to go on with the next attempt (after a pause), False when decided."""
        record, limits = held.record, self._parts.settings.jobs
        problem = job_failure(job)
        if problem is None:
            self._loaded(held, job)
            return False
        if missing_source(job):
            gone = await look(self._parts.store, record.files[0])
            if isinstance(gone, Gone):
                held.record = record.enter(gone.phase, error=gone.why)
                return False
        failures = record.failures + (1 if isinstance(problem, Transient) else 0)
        final = isinstance(problem, BadInput) or failures >= limits.max_attempts or _cancelled(job)
        if final or self._given_up(record):
            held.record = record.enter(Phase.FAILING, error=str(problem))
            return False
        held.record = replace(record, attempt=record.attempt + 1, failures=failures, error=str(problem))
        if isinstance(problem, Fatal):
            raise problem
        pause = self._pause(problem, failures)
        if pause > _IN_PLACE:
            raise problem
        log.warning("batch.load_retried", event_id=record.event_id, attempt=record.attempt, error=str(problem))
        await self._parts.clock.sleep(pause)
        return True

    def _loaded(self, held: Held, job: JobState, *, prove_files: bool = True) -> None:
        if prove_files:
            prove(job, held.record.files)
        rows, size = loaded_rows(job), loaded_bytes(job)
        held.record = held.record.enter(Phase.LOADED, rows=rows, error="")
        ROWS.inc(rows)
        BYTES.inc(size)

    async def _block(self, held: Held, error: IngestError) -> None:
        """Keep the batch and try again later; after `give_up_after` its failure becomes final."""
        record, parts = held.record, self._parts
        if self._given_up(record):
            if record.phase is Phase.ACCEPTED:
                held.record = record.enter(Phase.FAILING, error=str(error))
                await self._advance(held, fresh=False)
            else:
                held.record = record.enter(Phase.FAILED, error=str(error))
                await self._end(held, None)
            return
        pause = self._pause(error, record.waits + 1)
        retry_at = parts.clock.now() + pause
        held.record = replace(record, error=str(error), waits=record.waits + 1, retry_at=retry_at)
        await parts.journal.save(held, claim=False)
        BLOCKED.labels(type(error).__name__).inc()
        log.error(
            "batch.blocked", event_id=record.event_id, dest=record.dest, error=str(error), again_in=pause,
            sources=record.sources[:3],
        )  # fmt: skip

    def _pause(self, error: IngestError, times: int) -> timedelta:
        pause: timedelta
        jobs, recovery = self._parts.settings.jobs, self._parts.settings.recovery
        if isinstance(error, Throttled):
            if error.until is not None:
                return max(error.until - self._parts.clock.now(), timedelta(seconds=1))
            return jobs.quota_pause if error.quota else jobs.throttle_pause
        if isinstance(error, Transient):
            pause = jobs.retry_pause * 2 ** min(times, 10)
        else:
            pause = recovery.retry_first * 2 ** min(times - 1, 10)
        return min(pause, recovery.retry_longest)

    def _given_up(self, record: Record) -> bool:
        return self._parts.clock.now() - record.created > self._parts.settings.recovery.give_up_after

    async def _let_go(self, held: Held) -> None:
        """The job runs on its own: whoever sees its completion continues."""
        if held.record.owner:
            await self._parts.journal.save(held, claim=False)

    async def _end(self, held: Held, job: JobState | None) -> None:
        record, parts = held.record, self._parts
        if record.kind is Kind.LOAD and record.asynchronous and job is not None:
            await parts.journal.note(parts.journal.beside(record, "dispatch-job.json"), _job_document(job))
        if record.phase is Phase.FAILED:
            await parts.store.create(
                parts.settings.errors / f"{record.dest}/{record.event_id}.err", record.error.encode()
            )
        await parts.journal.finish(held)
        if record.kind is Kind.LOAD and record.asynchronous:
            for attempt in range(1, record.attempt + 1):
                await parts.tasks.drop(record.load_job(attempt).job_id)
        self._report(record)
        await self._tell(record)

    async def _tell(self, record: Record) -> None:
        """What others tidy up after a batch they would also find by looking: a failure here costs nothing."""
        for ending in self.endings:
            try:
                await ending(record)
            except IngestError as error:
                log.warning("batch.tidying_failed", event_id=record.event_id, error=str(error))

    def _report(self, record: Record) -> None:
        """The canonical line: one per batch, with everything a person asks first."""
        now = self._parts.clock.now()
        BATCHES.labels(record.kind, record.phase).inc()
        FILES.labels(record.phase).inc(len(record.files))
        for file in record.files:
            LATENCY.observe(max(0.0, (now - file.event_time).total_seconds()))
        if record.phase is Phase.DONE:
            LAST_LOADED.set(now.timestamp())
        write = log.error if record.phase is Phase.FAILED else log.info
        write(
            f"batch.{record.phase}",
            event_id=record.event_id,
            rule=record.rule_url,
            dest=record.dest,
            files=len(record.files),
            source=record.sources[0] if record.sources else "",
            rows=record.rows,
            attempts=record.attempt,
            seconds=round((now - record.created).total_seconds(), 3),
            **({"error": record.error} if record.error else {}),
        )

    @asynccontextmanager
    async def _keeping(self, held: Held) -> AsyncIterator[None]:
        """Renew the lease at half-life while working; losing it cancels the work, being cancelled gives it back."""
        async with asyncio.TaskGroup() as group:
            keeper = group.create_task(self._renew(held), name=f"lease:{held.record.event_id}")
            try:
                yield
            except asyncio.CancelledError:
                if not keeper.done() and held.record.owner:
                    await self._hand_over(held)
                raise
            finally:
                keeper.cancel()

    async def _renew(self, held: Held) -> None:
        while True:
            await self._parts.clock.sleep(self._parts.journal.lease / 2)
            if held.record.owner and not held.record.phase.final:
                await self._parts.journal.save(held)

    async def _hand_over(self, held: Held) -> None:
        """Shutting down in the middle: let another replica adopt the batch now instead of after the lease."""
        try:
            async with asyncio.timeout(5):
                await self._parts.journal.save(held, claim=False)
        except (TimeoutError, IngestError, LeaseLost) as error:
            log.warning("batch.hand_over_failed", event_id=held.record.event_id, error=str(error))


def _cancelled(job: JobState) -> bool:
    """Somebody stopped the job on purpose: running it again would defy them."""
    return job.error is not None and job.error.reason == "stopped"


def _job_document(job: JobState) -> bytes:
    document = {
        "jobReference": {"projectId": job.ref.project, "jobId": job.ref.job_id, "location": job.ref.location},
        "configuration": {job.kind.value: job.configuration, "labels": job.labels},
        "status": {
            "state": job.state,
            "errorResult": {"reason": job.error.reason, "message": job.error.message} if job.error else None,
        },
        "statistics": job.statistics,
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2, default=str)
