"""Which way a batch's rows take into their tables."""

from typing import Protocol

from ingestd.batch.attempts import Loading
from ingestd.batch.directory import DirectoryLoader
from ingestd.batch.journal import Held
from ingestd.batch.parts import Parts
from ingestd.batch.prepared import PreparedLoading
from ingestd.batch.record import Kind, Record
from ingestd.batch.steps import Way, way_of
from ingestd.model.jobs import JobRef, JobState


class Loader(Protocol):
    """One drive of one batch from its files to its tables; like everything about a batch, resumable anywhere."""

    async def run(self, *, fresh: bool) -> bool:
        """Bring the rows where they belong, and the record to the phase that says how it went.

        False: jobs run on without us, and whoever sees their completion continues. `fresh`: the record was
        created a moment ago, so no job of it exists yet.
        """
        ...

    async def job(self) -> JobState | None:
        """The job that the batch's actions follow."""
        ...

    async def unaccounted(self) -> JobRef | None:
        """A job that may bring rows the record does not know of: the batch cannot be given up beside it."""
        ...


def loader_for(parts: Parts, held: Held) -> Loader:
    if held.record.success is not None:
        return DirectoryLoader(parts, held)
    return PreparedLoading(parts, held) if is_prepared(parts, held.record) else Loading(parts, held)


def is_prepared(parts: Parts, record: Record) -> bool:
    """Whether the batch's rows are prepared before the load."""
    if record.success is not None:
        return record.success.spark
    return record.kind is Kind.LOAD and way_of(record, parts.settings.engine) is Way.PREPARED
