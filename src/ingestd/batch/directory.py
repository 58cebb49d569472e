"""The directory of a success file: one batch, all of it or nothing.

Other than a rule's files, these do not stand for themselves: the producer said that they belong together. So no file is
set aside and none is searched for; a load that is refused fails the batch, nothing of it is committed (several jobs
land in a table of the batch's own first), and everything is kept for another try.

| dies after            | what is there                   | who goes on, and how                                       |
|-----------------------|---------------------------------|------------------------------------------------------------|
| record, not resolved  | record of the success file      | sweep: looks at `_config/` and the directory, pins both    |
| resolved, no job      | record with files               | sweep: looks again, since nothing was loaded; pins, loads  |
| job inserted          | the same, job                   | the job is found by its id: its files are the batch's      |
| landed, not published | the same, landed rows           | as for every batch                                         |
"""

from dataclasses import replace

import structlog

from ingestd.batch import recovery
from ingestd.batch.attempts import Loading
from ingestd.batch.content import Chunk, Fate, Members, Progress, SetAside
from ingestd.batch.driving import unloaded
from ingestd.batch.journal import Held
from ingestd.batch.landing import Landing, destination, lands_apart
from ingestd.batch.overwrites import Changed
from ingestd.batch.parts import Parts
from ingestd.batch.querying import Querying
from ingestd.batch.record import Phase, Record
from ingestd.batch.sources import Looked
from ingestd.batch.transforming import SparkTransforming
from ingestd.model.errors import BadInput, Fatal, IngestError, Transient
from ingestd.model.jobs import JobRef, JobState
from ingestd.model.objects import ABSENT, FileVersion, ObjectRef
from ingestd.ports import Warehouse
from ingestd.warehouse.blame import blames
from ingestd.warehouse.errors import job_failure
from ingestd.warehouse.proof import missing_source

log = structlog.get_logger(__name__)


class DirectoryLoader:
    """Pins the directory, then loads it the way its `_config/` says."""

    def __init__(self, parts: Parts, held: Held) -> None:
        self._parts = parts
        self._held = held
        self._loader: DirectoryLoading | Querying | SparkTransforming | None = None

    async def run(self, *, fresh: bool) -> bool:
        try:
            if not await self._resolved(fresh=fresh):
                return True
        except BadInput as error:
            self._held.record = self._held.record.enter(Phase.FAILING, error=str(error))
            return True
        return await self._way().run(fresh=fresh)

    async def job(self) -> JobState | None:
        return await self._way().job() if self._held.record.load else None

    async def unaccounted(self) -> JobRef | None:
        return await self._way().unaccounted() if self._held.record.load else None

    def _way(self) -> "DirectoryLoading | Querying | SparkTransforming":
        if self._loader is None:
            mark = self._held.record.success
            way = DirectoryLoading if not mark or not mark.sql else SparkTransforming if mark.spark else Querying
            self._loader = way(self._parts, self._held)
        return self._loader

    async def _resolved(self, *, fresh: bool) -> bool:
        """Know what to load; False when there is nothing (any more), which the record's phase says."""
        record, parts = self._held.record, self._parts
        assert record.success is not None
        if record.progress.begun or (fresh and record.success.resolved):
            return True
        if record.success.resolved and await self._submitted():
            return True
        if parts.directories is None:
            raise Fatal("this daemon has no conventions for success files")
        found = await parts.directories.resolve(record)
        if found.phase.final:
            self._held.record = found
            return False
        if (found.files, found.load, found.success) != (record.files, record.load, record.success):
            self._held.record = await parts.journal.with_files(replace(found, files_url="", location=""))
            await parts.journal.save(self._held)
        return True

    async def _submitted(self) -> bool:
        """Whether a job of the batch as it is pinned exists: then the directory may change, and the batch may not."""
        record, parts = self._held.record, self._parts
        table = destination(record)
        location = record.location or await parts.warehouse.dataset_location(table.project or "", table.dataset)
        if not location:
            return False
        first = replace(record, location=location).load_job(record.progress.jobs + 1)
        return await parts.warehouse.get_job(first) is not None


async def committing(record: Record, warehouse: Warehouse) -> JobState | None:
    """A job that has committed rows of the batch, or still may: it cannot be said any more that they are not there."""
    if not record.load:
        return None
    table = destination(record)
    location = record.location or await warehouse.dataset_location(table.project or "", table.dataset)
    if not location:
        return None
    located, progress = replace(record, location=location), record.progress
    refs = [located.load_job(number) for number in range(1, progress.jobs + 2)]
    if lands_apart(record):
        refs += [located.publish_job(attempt=attempt) for attempt in range(1, progress.publishing + 1)]
    for ref in refs:
        job = await warehouse.get_job(ref)
        if job is None or job.failed:
            continue
        target = job.configuration.get("destinationTable") or table.rest
        if not job.done or target["tableId"] == table.rest["tableId"]:  # others are the batch's own, and are dropped
            return job
    return None


class DirectoryLoading(Loading):
    _said = ""  # what BigQuery found fault with

    async def _seen(self, indexes: list[int]) -> Looked:
        """The directory was looked at when it was pinned. What is overwritten since is loaded as it is."""
        return Looked()

    async def _judge(self, chunk: Chunk, job: JobState) -> IngestError | None:
        problem = job_failure(job)
        if problem is not None and missing_source(job):
            await self._look_again(str(problem))
        self._said = ""
        again = await super()._judge(chunk, job)
        if self._said:
            self._held.record = replace(self._record, error=self._said)
        return again

    async def _look_again(self, why: str) -> None:
        """A file went away between the look and the load. Nothing is committed, so the directory is pinned anew."""
        record = self._record
        if lands_apart(record):
            await Landing(self._parts).drop(record)
        progress = record.progress
        if progress.reloads >= self._max_reload:
            raise BadInput(f"{why}, {self._max_reload} times")
        again = replace(progress, chunks=(), loads=(), reloads=progress.reloads + 1)
        self._held.record = replace(record, progress=again, staged=False)
        raise Transient(f"{why}; the directory is looked at again")

    async def _changed(self, indexes: Members, job: JobState) -> Changed:
        return Changed()

    async def _proven(self, chunk: Chunk, job: JobState) -> None:
        sources = job.configuration.get("sourceUris")
        record = self._record
        own = [record.files[index].ref.url for index in chunk.files]
        if sources is not None and sorted(sources) != sorted(own) and len(own) == len(record.files):
            # A replica that was paused had pinned the directory before us, and its one job was the first: what that
            # job has read is what the batch consists of.
            known = {file.ref.url: file for file in record.files}
            files = tuple(known.get(url) or FileVersion(ObjectRef.parse(url), ABSENT) for url in sources)
            log.warning("batch.read_as_pinned_before", event_id=record.event_id, job=job.ref.job_id, files=len(files))
            self._held.record = replace(record, files=files, files_url="")
            chunk = replace(chunk, files=tuple(range(len(files))))
        await super()._proven(chunk, job)

    def _refused(self, chunk: Chunk, job: JobState, why: SetAside) -> Progress:
        """Say which file BigQuery found fault with: whoever mends the directory wants to know."""
        named = blames(job, [self._record.files[index].ref.url for index in chunk.files])
        said = "".join(f"; {url}: {blame.message}" for url, blame in list(named.items())[:3])
        self._said = f"{why.why}{said}"
        return recovery.given_up(self._record.progress, chunk, replace(why, why=self._said))

    async def _conclude(self) -> bool:
        progress = self._record.progress
        if progress.loads and progress.with_fate(Fate.FAILED):
            why = next(progress.aside[index] for index in progress.with_fate(Fate.FAILED))
            self._held.record = replace(self._record, progress=unloaded(progress, why))
        return await super()._conclude()
