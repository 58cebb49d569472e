"""How many jobs of a kind may be in flight per project: a true limit, over everything this process has submitted.

A job takes its slot before it is submitted and gives it back when somebody here sees that it is done. Jobs that run on
without us (asynchronous batches, whose completion another replica may handle) are asked after whenever somebody waits
for a slot, so that none is lost for good. The same books tell which project has the fewest jobs (`in_flight`).

A table never gets all slots: its share is that of `model.fair`, so jobs that stay pending keep only their own table
waiting.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta

import structlog
from prometheus_client import Gauge

from ingestd.model.clock import Clock
from ingestd.model.errors import IngestError
from ingestd.model.fair import admits
from ingestd.model.jobs import JobKind, JobRef
from ingestd.ports import Warehouse

log = structlog.get_logger(__name__)

WAITING = Gauge("ingestd_jobs_waiting", "Jobs waiting for one of the project's slots, by kind.", ["kind"])
for _kind in (JobKind.LOAD, JobKind.QUERY):
    WAITING.labels(_kind)

_FORGOTTEN = timedelta(hours=6).total_seconds()  # no load runs longer
_UNKNOWN = 60.0  # seconds after which a job that BigQuery does not know was never submitted
_MANY = 1000


@dataclass(frozen=True, slots=True)
class _Job:
    ref: JobRef
    since: float
    table: str


@dataclass(slots=True)
class _Project:
    jobs: dict[str, _Job] = field(default_factory=dict)
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    asked: float = 0.0

    def room(self, limit: int, table: str) -> bool:
        free = limit - len(self.jobs)
        if not table:
            return free > 0
        return admits(sum(job.table == table for job in self.jobs.values()), free)


class JobSlots:
    def __init__(
        self,
        warehouse: Warehouse,
        clock: Clock,
        *,
        loads: int = 0,
        queries: int = 0,
        ask_every: timedelta = timedelta(seconds=5),
    ) -> None:
        self._warehouse = warehouse
        self._clock = clock
        self._limits = {JobKind.LOAD: loads, JobKind.QUERY: queries}
        self._ask_every = ask_every
        self._projects: dict[tuple[str, JobKind], _Project] = defaultdict(_Project)

    def in_flight(self, project: str, kind: JobKind) -> int:
        """Jobs of the kind that run in the project, as far as this process knows."""
        return len(self._projects[project, kind].jobs)

    async def take(self, ref: JobRef, kind: JobKind, table: str = "") -> None:
        """Return when the job may be submitted; one that has its slot already keeps it."""
        own, limit = self._projects[ref.project, kind], self._limits.get(kind, 0)
        if limit and ref.job_id not in own.jobs and not own.room(limit, table):
            with WAITING.labels(kind).track_inprogress():
                while not own.room(limit, table):
                    await self._wait(own)
        own.jobs.setdefault(ref.job_id, _Job(ref, self._clock.monotonic(), table))
        if len(own.jobs) > _MANY:
            self._forget(own)

    def release(self, ref: JobRef, kind: JobKind) -> None:
        """The job is done, or was never submitted."""
        own = self._projects[ref.project, kind]
        if own.jobs.pop(ref.job_id, None) is not None:
            own.freed.set()

    async def ask(self, project: str, kind: JobKind) -> None:
        """Look which of the jobs that we believe to run are done."""
        await self._ask(self._projects[project, kind], kind)

    async def _wait(self, own: _Project) -> None:
        """Until a slot was freed, or for a while; then whoever comes first asks after the others' jobs."""
        own.freed.clear()
        ring = asyncio.ensure_future(own.freed.wait())
        timer = asyncio.ensure_future(self._clock.sleep(self._ask_every))
        try:
            await asyncio.wait((ring, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ring.cancel()
            timer.cancel()
        if not own.freed.is_set() and self._clock.monotonic() - own.asked >= self._ask_every.total_seconds():
            kind = next(kind for (_, kind), one in self._projects.items() if one is own)
            await self._ask(own, kind)

    async def _ask(self, own: _Project, kind: JobKind) -> None:
        own.asked = self._clock.monotonic()
        for known in list(own.jobs.values()):
            try:
                job = await self._warehouse.get_job(known.ref)
            except IngestError as error:
                log.warning("slots.unanswered", job=str(known.ref), error=str(error))
                return
            if (job is None and self._clock.monotonic() - known.since > _UNKNOWN) or (job is not None and job.done):
                self.release(known.ref, kind)

    def _forget(self, own: _Project) -> None:
        """Nobody waits, so nobody asked: jobs that must be over by now are struck off."""
        now = self._clock.monotonic()
        own.jobs = {name: one for name, one in own.jobs.items() if now - one.since < _FORGOTTEN}
