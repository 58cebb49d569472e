"""Before rows are published, and when all of them are where they belong: is that so, and what did the batch come to?

| dies after              | what is there                | who goes on, and how                                     |
|-------------------------|------------------------------|----------------------------------------------------------|
| a job's id was used up  | record, a job that failed    | finds that job (see `fence`)                             |
| landed rows were thrown | record with its loads        | finds no landed rows (see `publish`): loads them again   |
| rejected rows were kept | the same, the kept rows      | keeps them again, or finds that their folder was emptied |
| concluded               | record as it was before that | concludes again: jobs' ends and record say the same      |
"""

from dataclasses import replace

import structlog

from ingestd.batch import recovery
from ingestd.batch.content import Chunk, Fate, Load, SetAside
from ingestd.batch.decide import gone_unread
from ingestd.batch.drive import Drive
from ingestd.batch.landing import truncates
from ingestd.batch.outcome import concluded_phase, unloaded
from ingestd.batch.pinned import Pinned
from ingestd.batch.record import Record
from ingestd.batch.stages.fence import reads_nothing, use_up
from ingestd.batch.stages.land import all_or_nothing, changed_since
from ingestd.model.errors import NotFound, Transient
from ingestd.model.objects import ObjectRef
from ingestd.model.segments import cut

log = structlog.get_logger(__name__)


async def hear(drive: Drive) -> bool:
    """Find out whether a job runs although all of its files dropped out before it was submitted.

    Whoever held the batch before us may be about to submit it: its id is used up, or it is heard (see `fence`).

    Nobody held it before the one who made it; but one whose clock is ahead may have taken it over meanwhile. The
    record is written, which fails then; and who takes it over from now on finds what we have found.
    """
    record = drive.record
    drive.heard = True
    if not drive.resumed:
        await drive.save()
        return True
    gone = gone_unread(record)
    for number in (record.progress.jobs, record.progress.jobs + 1):
        if number < 1:
            continue
        job = await drive.job_of(record.load_job(number)) or await use_up(drive, number)
        if reads_nothing(drive, job) or job.failed:
            continue
        if record.lands_apart:
            if not job.done:
                raise Transient(f"job {job.ref} still writes to the batch's own table, which is dropped after it")
            continue
        sources = job.configuration.get("sourceUris") or ()
        log.warning("batch.outrun", event_id=record.event_id, job=job.ref.job_id)
        chunk = Chunk(number, tuple(index for index in gone if record.files[index].ref.url in sources))
        aside = {index: one for index, one in record.progress.aside.items() if index not in chunk.files}
        jobs = max(number, record.progress.jobs)
        drive.advance(aside=aside, chunks=(chunk,) if chunk.files else (), jobs=jobs)
        break
    return True


async def check(drive: Drive) -> bool:
    """Whether what was landed apart may be published: all of it, and as it was pinned."""
    drive.checked = True
    if drive.progress.pinned is not None:
        await _empty_tables(drive, drive.progress.pinned)
        return True
    record, progress = drive.record, recovery.concluded(drive.progress, len(drive.record.files))
    failed = progress.with_fate(Fate.FAILED)
    # A part of the batch must not replace the whole table, nor stand for a directory.
    if failed and (record.success is not None or truncates(record) or all_or_nothing(record)):
        incomplete = SetAside(Fate.FAILED, record.error or "the batch was not complete")
        progress = unloaded(progress, incomplete if record.success is None else progress.aside[failed[0]])
    drive.change(progress=progress)
    if progress.loads and not progress.published and record.success is None:
        await _landed_as_pinned(drive)
    return True


async def _landed_as_pinned(drive: Drive) -> None:
    """Landed rows may be other content than the batch's: then they are thrown away, and landed again.

    Files that were overwritten drop out for good, so this comes to an end. Once a publishing step may have begun,
    nothing is found here any more: what was overwritten since was overwritten after the loads had ended.
    """
    record = drive.record
    moved = 0
    for load in record.progress.loads:
        ref = record.load_job(load.job)
        job = drive.ended.get(ref) or await drive.job_of(ref)
        if job is not None:
            found = await changed_since(drive, load.files, job)
            moved += len(found.notes.keys() | {record.files[index].ref for index in found.unread})
    if not moved:
        return
    await drive.parts.landing.drop(drive.record)
    drive.advance(loads=())
    raise Transient(f"{moved} files were overwritten while they were loaded; the others are loaded again")


async def _empty_tables(drive: Drive, pinned: Pinned) -> None:
    """A target that is replaced by no rows needs its empty table."""
    for output in pinned.prepared.outputs:
        if not output.uris and not drive.progress.has(output.branch):
            await drive.parts.landing.ensure_prepared(drive.record, output.branch, pinned.prepared.schema)


async def conclude(drive: Drive) -> bool:
    """Everything is where it belongs, or set aside: enter the phase that follows."""
    record, pinned = drive.record, drive.progress.pinned
    if pinned is not None:
        await _keep_rejected(drive, pinned)
        if loaded := tuple(index for index in range(len(record.files)) if index not in record.progress.aside):
            last = max((pour.job for pour in pinned.pours), default=0)
            size = sum(record.files[index].size for index in loaded)
            drive.advance(loads=(Load(last, loaded, pinned.rows, size),))
    progress = recovery.concluded(drive.progress, len(record.files))
    drive.become(concluded_phase(replace(drive.record, progress=progress)))
    return True


async def _keep_rejected(drive: Drive, pinned: Pinned) -> None:
    """Rows that were left out of loaded files lie in the attempt's folder, which goes; they are kept as errors."""
    record, parts = drive.record, drive.parts
    for url, kept in zip(pinned.prepared.rejected, rejected_rows(parts.settings.errors, record), strict=True):
        try:
            await parts.store.copy(ObjectRef.parse(url), kept)
        except NotFound:
            if await parts.store.stat(kept) is None:
                log.error("batch.bad_rows_lost", event_id=record.event_id, lost=url, kept=kept.url)  # noqa: TRY400
            else:  # whoever was here before kept it, and died after the folder was emptied
                log.info("batch.rejected_kept_before", event_id=record.event_id, kept=kept.url)
    if pinned.prepared.rows_left_out:
        left = dict(pinned.prepared.rows_left_out)
        log.info("batch.rows_left_out", event_id=record.event_id, dest=record.dest, **left)


def rejected_rows(errors: ObjectRef, record: Record) -> list[ObjectRef]:
    """Where the rows are kept that were left out of loaded files."""
    pinned = record.progress.pinned
    names = [url.rpartition("/")[2] for url in pinned.prepared.rejected] if pinned else []
    return [errors / f"{cut(record.dest)}/{record.event_id}.rejected/{name}" for name in names]
