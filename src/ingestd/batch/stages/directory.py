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
from typing import NoReturn

import structlog

from ingestd.batch.content import Chunk, SetAside
from ingestd.batch.drive import Drive, request
from ingestd.batch.landing import destination
from ingestd.batch.phases import Phase
from ingestd.batch.record import Record
from ingestd.batch.stages.fence import nothing_of
from ingestd.batch.unsaved_loads import unsaved_loads
from ingestd.model.errors import BadInput, Fatal
from ingestd.model.jobs import JobKind, JobState
from ingestd.model.objects import ABSENT, FileVersion, ObjectRef
from ingestd.ports import Warehouse
from ingestd.warehouse.blame import blames

log = structlog.get_logger(__name__)


async def pin(drive: Drive) -> bool:
    """Know what to load, unless that was resolved a moment ago (see `Drive.pinned`).

    Where there is nothing (any more), or it cannot be told, the record's phase says so.
    """
    drive.pinned = True
    mark, begun = drive.record.success, drive.record.progress.begun
    assert mark is not None
    try:
        if not begun and not (mark.resolved and await _submitted(drive)):
            await _resolve(drive)
    except BadInput as error:
        drive.become(drive.record.enter(Phase.FAILING, error=str(error)))
    return True


async def _resolve(drive: Drive) -> None:
    record, parts = drive.record, drive.parts
    if parts.directories is None:
        raise Fatal("this daemon has no conventions for success files")
    found = await parts.directories.resolve(record)
    if found.phase.final:
        drive.become(found)
    elif (found.files, found.load, found.success) != (record.files, record.load, record.success):
        drive.become(await parts.journal.with_files(replace(found.located(""), files_url="")))
        await drive.save()
        drive.stored()


async def _submitted(drive: Drive) -> bool:
    """Whether a job of the batch as it is pinned exists: then the directory may change, and the batch may not."""
    record, warehouse = drive.record, drive.parts.warehouse
    location = await _location(record, warehouse)
    if not location:
        return False
    first = record.located(location).load_job(record.progress.jobs + 1)
    return await warehouse.get_job(first) is not None


async def _location(record: Record, warehouse: Warehouse) -> str | None:
    table = destination(record)
    return record.placement.location or await warehouse.dataset_location(table.project or "", table.dataset)


async def pin_anew(drive: Drive, why: str) -> NoReturn:
    """A file went away between the look and the load. Nothing is committed, so the directory is pinned anew."""
    if drive.record.lands_apart:
        await drive.parts.landing.drop(drive.record)
    drive.begin_again(why, "the directory is looked at again", staged=False)


def as_read(drive: Drive, chunk: Chunk, job: JobState) -> Chunk:
    """The chunk with what its job has read: that is what the batch consists of.

    A replica that was paused may have pinned the directory before us, and its one job was the first.
    """
    sources, record = job.configuration.get("sourceUris"), drive.record
    own = [record.files[index].ref.url for index in chunk.files]
    if sources is None or sorted(sources) == sorted(own) or len(own) != len(record.files):
        return chunk
    known = {file.ref.url: file for file in record.files}
    files = tuple(known.get(url) or FileVersion(ObjectRef.parse(url), ABSENT) for url in sources)
    log.warning("batch.read_as_pinned_before", event_id=record.event_id, job=job.ref.job_id, files=len(files))
    drive.change(files=files, files_url="")
    return replace(chunk, files=tuple(range(len(files))))


def with_fault(record: Record, chunk: Chunk, job: JobState, why: SetAside) -> SetAside:
    """Say which file BigQuery found fault with: whoever mends the directory wants to know."""
    named = blames(job, [record.files[index].ref.url for index in chunk.files])
    said = "".join(f"; {url}: {blame.message}" for url, blame in list(named.items())[:3])
    return replace(why, why=f"{why.why}{said}")


async def shut(record: Record, warehouse: Warehouse, staging: ObjectRef) -> JobState | None:
    """See to it that no job brings rows of the batch any more; where one has, or still may, it is that one.

    Whoever holds the batch by a clock that is behind may be about to submit a job: one that the record tells of, or
    the next. So each is asked for once, and the id of whichever is not there is used up: a job that comes in between
    has it, and is found. Nobody goes on beyond such a job without writing the record (see `stages.land`), which fails.
    """
    location = await _location(record, warehouse) if record.load else None
    if not location:
        return None
    located, progress = record.located(location), record.progress
    refs = [located.load_job(number) for number in range(1, progress.jobs + 1)]
    if record.lands_apart:
        refs += [located.publish_job(attempt=attempt) for attempt in range(1, progress.publishing + 1)]
    known = {ref: await warehouse.get_job(ref) for ref in refs}
    unsaved = await unsaved_loads(located, warehouse)
    for job in [*known.values(), *unsaved]:
        if job is not None and _may_commit(record, job):
            return job
    nothing = nothing_of(record, staging).url
    load = {
        "destinationTable": destination(record).rest,
        "sourceUris": [nothing],
        "createDisposition": "CREATE_NEVER",
    }
    following = located.load_job(progress.jobs + len(unsaved) + 1)
    for ref in [*(ref for ref in refs if known[ref] is None), following]:
        job = await warehouse.insert_job(request(located, ref, JobKind.LOAD, load, "load"))
        if nothing not in (job.configuration.get("sourceUris") or ()):
            return job
    return None


def _may_commit(record: Record, job: JobState) -> bool:
    """Whether it has committed rows of the batch, or still may: nobody can say any more that they are not there."""
    table = destination(record).rest
    target = job.configuration.get("destinationTable") or table
    own = job.done and target["tableId"] != table["tableId"]  # the batch's own table, which is dropped
    return not (job.failed or own)
