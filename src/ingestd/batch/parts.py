"""What running a batch takes: the ports, and the parts that the composition root puts together."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from ingestd.batch.destinations import Destinations
from ingestd.batch.journal import Journal
from ingestd.batch.landing import Landing
from ingestd.batch.post_actions import PostActions
from ingestd.batch.record import Record
from ingestd.batch.register import Register
from ingestd.batch.tasks import DeferredTasks
from ingestd.batch.trails import Trails
from ingestd.batch.underway import UnderWay
from ingestd.model.clock import Clock
from ingestd.model.errors import IngestError, Throttled, Transient
from ingestd.ports import ObjectStore, Preparer, SparkSql, Warehouse
from ingestd.settings import Settings
from ingestd.warehouse.governor import QuotaGovernor
from ingestd.warehouse.jobs import JobRunner


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
    destinations: Destinations
    actions: PostActions
    clock: Clock
    settings: Settings
    preparer: Preparer | None = None  # prepares rows before the load; None: this daemon has no Spark
    spark_sql: SparkSql | None = None  # runs Spark SQL over a batch; None as above
    directories: Directories | None = None

    @property
    def landing(self) -> Landing:
        return Landing(self.warehouse, self.clock, self.settings)

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

    def patient(self, record: Record) -> bool:
        """Whether the files of the batch wait for those of them that cannot be read for now."""
        recovery = self.settings.recovery
        return self.clock.now() - record.created < min(recovery.retry_longest, recovery.give_up_after)

    def given_up(self, record: Record) -> bool:
        return self.clock.now() - record.created > self.settings.recovery.give_up_after
