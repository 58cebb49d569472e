"""What running a batch takes: the ports, and the parts that the composition root puts together."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from ingestd.batch.journal import Held, Journal
from ingestd.batch.record import Record
from ingestd.batch.register import Register
from ingestd.batch.tasks import DeferredTasks
from ingestd.batch.trails import Trails
from ingestd.batch.underway import UnderWay
from ingestd.model.clock import Clock
from ingestd.model.errors import IngestError, Throttled, Transient
from ingestd.model.jobs import JobState
from ingestd.ports import ObjectStore, Preparer, SparkSql, Warehouse
from ingestd.settings import Settings
from ingestd.warehouse.governor import QuotaGovernor
from ingestd.warehouse.jobs import JobRunner


class Preparation(Protocol):
    """What has to be true of the destination before a load, and the complete load configuration."""

    async def prepare(self, record: Record) -> Record: ...

    def partitioned(self, record: Record) -> bool:
        """Whether the destination is known to be partitioned: such a table may be changed more often."""
        ...


class Acting(Protocol):
    """Runs a batch's post-actions, resuming after those already recorded in the held record."""

    async def on_success(self, held: Held, job: JobState | None, *, last_try: bool) -> None: ...

    async def on_failure(self, held: Held, job: JobState | None, error: str, *, last_try: bool) -> None: ...

    async def on_blocked(self, held: Held, error: str, *, patient: bool) -> None:
        """Tell that the batch waits for a person; never raises for an action. `patient`: it has waited a while."""
        ...

    def guarded(self, record: Record, metadata: Mapping[str, str]) -> bool:
        """Whether this object was put there by this very rule."""
        ...

    async def quarantine(self, held: Held) -> None:
        """Put the files that are at fault where they belong, with the reason beside them."""
        ...


class Directories(Protocol):
    """Fills in the record of a success file's directory: where it goes, what lies in it, how it is loaded."""

    async def resolve(self, record: Record) -> Record:
        """The record, complete and pinned, or ended when there is nothing to load."""
        ...


@dataclass(slots=True)
class Parts:
    store: ObjectStore
    warehouse: Warehouse
    journal: Journal
    tasks: DeferredTasks
    jobs: JobRunner
    governor: QuotaGovernor
    register: Register
    underway: UnderWay
    trails: Trails
    preparation: Preparation
    acting: Acting
    clock: Clock
    settings: Settings
    preparer: Preparer | None = None  # prepares rows before the load; None: this daemon has no Spark
    statements: SparkSql | None = None  # runs Spark SQL over a batch; None as above
    directories: Directories | None = None

    def pause(self, error: IngestError, times: int) -> timedelta:
        """How long to wait before the next try, after that many in a row."""
        pause: timedelta
        jobs, recovery = self.settings.jobs, self.settings.recovery
        if isinstance(error, Throttled):
            if error.until is not None:
                return max(error.until - self.clock.now(), timedelta(seconds=1))
            return jobs.quota_pause if error.quota else jobs.throttle_pause
        if isinstance(error, Transient):
            pause = jobs.retry_pause * 2 ** min(times, 10)
        else:
            pause = recovery.retry_first * 2 ** min(times - 1, 10)
        return min(pause, recovery.retry_longest)

    def given_up(self, record: Record) -> bool:
        return self.clock.now() - record.created > self.settings.recovery.give_up_after
