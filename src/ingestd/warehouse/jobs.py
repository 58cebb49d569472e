"""Running BigQuery jobs: submitted once under deterministic ids, awaited by wake-up and by poll.

An audit event only wakes the waiter; `jobs.get` tells the truth. Since log routing promises nothing, every wait also
polls, quickly at first and slowly later: as long as events come, a few seconds later than where none do. An event that
comes before somebody waits for it is remembered.
"""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from datetime import timedelta

import structlog
from prometheus_client import Counter, Gauge, Histogram

from ingestd.model.clock import Clock
from ingestd.model.errors import IngestError, Throttled, Transient
from ingestd.model.jobs import JobRequest, JobState
from ingestd.ports import Warehouse
from ingestd.warehouse.errors import job_failure
from ingestd.warehouse.slots import JobSlots

log = structlog.get_logger(__name__)

JOBS = Counter("ingestd_jobs", "BigQuery jobs that ended, by kind and outcome.", ["kind", "outcome"])
JOB_SECONDS = Histogram(
    "ingestd_job_seconds",
    "Seconds from a BigQuery job's creation to its end.",
    ["kind"],
    buckets=(0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21600),
)
OPEN_JOBS = Gauge("ingestd_jobs_awaited", "BigQuery jobs this process is waiting for.")

_FIRST_POLL = timedelta(milliseconds=500)
_FIRST_POLL_IF_TOLD = timedelta(seconds=4)  # a poll before the event costs a call, and is mostly in vain
_TOLD_LATELY = timedelta(minutes=2)
_EARLY = 1_000  # events that nobody waited for; of other people's jobs, too


class Completions:
    """The bell that audit events ring: one waiter or many per job id."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._early: OrderedDict[str, None] = OrderedDict()

    def announce(self, job_id: str) -> bool:
        """Wake whoever waits for the job; False when nobody does."""
        waiters = self._waiters.get(job_id)
        for event in waiters or ():
            event.set()
        if not waiters:
            self._early[job_id] = None
            if len(self._early) > _EARLY:
                self._early.popitem(last=False)
        return bool(waiters)

    async def wait(self, job_id: str, clock: Clock, at_most: timedelta) -> bool:
        """Until the bell rings, or for so long; whether it rang."""
        if job_id in self._early:
            del self._early[job_id]
            return True
        event = asyncio.Event()
        self._waiters[job_id].add(event)
        ring = asyncio.ensure_future(event.wait())
        timer = asyncio.ensure_future(clock.sleep(at_most))
        try:
            await asyncio.wait((ring, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ring.cancel()
            timer.cancel()
            waiters = self._waiters[job_id]
            waiters.discard(event)
            if not waiters:
                del self._waiters[job_id]
        return event.is_set()


class JobRunner:
    """Submits a job and waits for it; failed attempts that may succeed later get a next attempt under a next id."""

    def __init__(
        self,
        warehouse: Warehouse,
        completions: Completions,
        clock: Clock,
        *,
        poll_every: timedelta = timedelta(seconds=30),
        max_attempts: int = 5,
        pause: timedelta = timedelta(seconds=5),
        throttle_pause: timedelta = timedelta(seconds=30),
        slots: JobSlots | None = None,
    ) -> None:
        self._warehouse = warehouse
        self._completions = completions
        self._clock = clock
        self._poll_every = poll_every
        self._max_attempts = max_attempts
        self._pause = pause
        self._throttle_pause = throttle_pause
        self._told_until = 0.0
        self.slots = slots or JobSlots(warehouse, clock)

    async def run(self, make: Callable[[int], JobRequest]) -> JobState:
        """The job of the last attempt, `DONE`: succeeded, or failed for good (look at its `error`)."""
        attempt = 1
        while True:
            job = await self.wait(await self.submit(make(attempt)))
            problem = job_failure(job)
            retriable = isinstance(problem, Transient) or (isinstance(problem, Throttled) and not problem.quota)
            if not retriable or attempt >= self._max_attempts:
                return job
            pause = self._throttle_pause if isinstance(problem, Throttled) else self._pause
            log.warning("job.retried", job=str(job.ref), attempt=attempt, error=str(problem), pause=pause)
            await self._clock.sleep(pause * attempt)
            attempt += 1

    async def submit(self, request: JobRequest) -> JobState:
        """Submit the job (or adopt it, if its id is taken) as soon as its project has room for it."""
        await self.slots.take(request.ref, request.kind, _table(request))
        try:
            job = await self._warehouse.insert_job(request)
        except IngestError:
            self.slots.release(request.ref, request.kind)
            raise
        self.seen(job)
        return job

    def seen(self, job: JobState) -> None:
        """Somebody has learnt the job's state: one that is done makes room."""
        if job.done:
            self.slots.release(job.ref, job.kind)

    async def wait(self, job: JobState) -> JobState:
        """Wait until the job is done: by wake-up, or by polls that grow slower."""
        pause = self._first_poll()
        with OPEN_JOBS.track_inprogress():
            while not job.done:
                rang = await self._completions.wait(job.ref.job_id, self._clock, pause)
                pause = _FIRST_POLL if rang else min(pause * 2, self._poll_every)  # an event may come a moment early
                if rang:
                    self._told_until = self._clock.monotonic() + _TOLD_LATELY.total_seconds()
                fresh = await self._warehouse.get_job(job.ref)
                if fresh is None:
                    raise Transient(f"job {job.ref} was submitted but BigQuery does not know it")
                job = fresh
        self.seen(job)
        count(job)
        return job

    def _first_poll(self) -> timedelta:
        told = self._clock.monotonic() < self._told_until
        return max(_FIRST_POLL, min(_FIRST_POLL_IF_TOLD, self._poll_every)) if told else _FIRST_POLL


def _table(request: JobRequest) -> str:
    """The table it writes, whatever the partition; empty when its configuration names none."""
    target = request.configuration.get("destinationTable") or {}
    name = target.get("tableId", "").partition("$")[0]
    return f"{target.get('projectId', '')}.{target.get('datasetId', '')}.{name}" if name else ""


def count(job: JobState) -> None:
    """Count a finished job in the metrics."""
    JOBS.labels(job.kind, "failed" if job.failed else "succeeded").inc()
    if job.created and job.ended:
        JOB_SECONDS.labels(job.kind).observe((job.ended - job.created).total_seconds())
