"""The loads of a batch's files as they are: submitted, adopted, awaited, judged, until every file is loaded or aside.

A round submits the job of every chunk that has none yet (or adopts it: ids are deterministic), waits for them or lets
go of the batch, and judges those that are done; `recovery` decides what is loaded next. Which files a job loads is in
the saved record before the job is submitted, unless it follows from the record anyway (one job for all files).

| dies after            | what is there            | who goes on, and how                                          |
|-----------------------|--------------------------|---------------------------------------------------------------|
| pinned                | record with its chunks   | submits                                                       |
| table of its own made | the same, table          | submits; the table is dropped at the end                      |
| task written          | record, task             | sweep: submits                                                |
| job inserted          | record, task, job        | completion or sweep: adopts the job (409), goes on            |
| job done              | the same                 | completion, poll or sweep: proves it                          |
| files set aside       | record, jobs             | the same: jobs' ends and record lead to the same decisions    |
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import structlog

from ingestd.batch import recovery
from ingestd.batch.content import Chunk, Fate, SetAside
from ingestd.batch.drive import Drive, stopped
from ingestd.batch.landing import landing_load, landing_table, truncates
from ingestd.batch.overwrites import Changed, changed
from ingestd.batch.record import Record
from ingestd.batch.sources import MANY_FILES, describe
from ingestd.batch.stages import directory
from ingestd.batch.stages.fence import reads_nothing, use_up
from ingestd.batch.stages.look import Look
from ingestd.model.aside import aside as beside
from ingestd.model.errors import BadInput, Fatal, IngestError, Throttled, Transient
from ingestd.model.jobs import JobKind, JobState
from ingestd.model.preparation import BadData
from ingestd.warehouse.blame import Blame, about_content, blames, unnamed
from ingestd.warehouse.errors import job_failure
from ingestd.warehouse.proof import loaded_bytes, loaded_rows, missing_source, prove

log = structlog.get_logger(__name__)

_JUST_NOW = 2.0  # seconds for which a look at the sources holds


class Land:
    def __init__(self, look: Look) -> None:
        self._look = look

    async def __call__(self, drive: Drive) -> bool:
        """Submit, await and judge the jobs of all chunks; False when they run on without us."""
        jobs: dict[int, JobState] = {}
        for chunk in drive.progress.chunks:
            job = None if drive.fresh else await drive.job_of(drive.record.load_job(chunk.job))
            if job is not None:
                jobs[chunk.job] = job
            elif submitted := await self._submit(drive, chunk.job):
                jobs |= submitted
        drive.fresh = drive.heard = False
        done = await drive.ends(jobs)
        if done is None:
            return False
        problems: list[tuple[IngestError, int]] = []
        for number, job in done.items():
            chunk = next(one for one in drive.progress.chunks if one.job == number)
            problem = job_failure(job)
            if problem is None:
                await _proven(drive, chunk, job)
            elif (again := await self._failed(drive, chunk, job, problem)) is not None:
                problems.append((again, max(1, chunk.failures + 1)))
        if problems:
            await _rest(drive, problems)
        return True

    async def _submit(self, drive: Drive, number: int) -> dict[int, JobState]:
        """Submit the job of the chunk with this number; nothing when none of its files is left."""
        parts = drive.parts
        target = landing_table(drive.record)
        while (chunk := _chunk(drive, number)) is not None:
            ref = drive.record.load_job(number)
            await parts.governor.admit(target, partitioned=parts.destinations.partitioned(drive.record), key=ref.job_id)
            just_now = parts.clock.monotonic() - drive.looked.get(number, -_JUST_NOW) < _JUST_NOW
            if just_now or drive.record.success is not None:  # a directory is loaded as it was pinned
                break
            if await self._look.at(drive, chunk.files, partial(_leave_out, drive, number), number):
                break
            job = await use_up(drive, number)
            if not reads_nothing(drive, job):
                return {number: job}
            # What is given up is out of the record before it waits for another turn: whoever goes on then finds it so.
            drive.change(progress=recovery.repeated(drive.progress, chunk, failures=chunk.failures))
            number = drive.progress.jobs
            await self._look.at(drive, chunk.files, partial(_leave_out, drive, number))
        current = _chunk(drive, number)
        if current is None:
            return {}
        if drive.record.lands_apart and not drive.landing_ready:
            await drive.pin()  # whoever goes on knows of the table, and drops it
            await drive.parts.landing.ensure(drive.record)
            drive.landing_ready = True
        record = drive.record
        load = {**landing_load(record), "sourceUris": [record.files[index].ref.url for index in current.files]}
        return {number: await drive.submit(ref, JobKind.LOAD, load, target, "load")}

    async def _failed(self, drive: Drive, chunk: Chunk, job: JobState, problem: IngestError) -> IngestError | None:
        """Take a job's failure into the record; the problem, when the same files need another attempt."""
        if reads_nothing(drive, job):
            # Somebody else has held the batch: should it be theirs yet, or have been left out, this fails.
            await drive.save()
            drive.change(progress=recovery.repeated(drive.progress, chunk, failures=chunk.failures))
            return None
        if missing_source(job):
            if drive.record.success is not None:
                await directory.pin_anew(drive, str(problem))
            if gone := (await self._look.seen(drive, chunk.files)).aside:
                drive.change(progress=recovery.taken_out(drive.progress, chunk, gone, drive.max_reload))
                return None
            problem = Transient(f"{problem}; yet its files are there")
        failures = chunk.failures + (1 if isinstance(problem, Transient) else 0)
        why = SetAside(Fate.FAILED, str(problem), job.ref.job_id)
        if isinstance(problem, BadInput):
            _refused(drive, chunk, job, why)
        elif failures >= drive.parts.settings.jobs.max_attempts or stopped(job) or drive.parts.given_up(drive.record):
            drive.change(progress=recovery.given_up(drive.progress, chunk, why), error=why.why)
        else:
            if isinstance(problem, Throttled):
                drive.feed_back(problem, landing_table(drive.record))
            drive.change(progress=recovery.repeated(drive.progress, chunk, failures=failures), error=why.why)
            return problem
        return None


async def _rest(drive: Drive, problems: Sequence[tuple[IngestError, int]]) -> None:
    """Pause, or stop, where one of the jobs asks for it."""
    stop = next((problem for problem, _ in problems if isinstance(problem, Fatal)), None)
    if stop is not None:
        raise stop
    pauses = [(drive.parts.pause(problem, times), problem) for problem, times in problems]
    pause, longest = max(pauses, key=lambda one: one[0])
    await drive.rest("batch.load_retried", longest, pause)


def _chunk(drive: Drive, job: int) -> Chunk | None:
    return next((one for one in drive.progress.chunks if one.job == job), None)


def _leave_out(drive: Drive, job: int, found: Mapping[int, SetAside]) -> None:
    chunk = _chunk(drive, job)
    if chunk is not None and found:
        drive.change(progress=recovery.left_out(drive.progress, chunk, found))


async def _proven(drive: Drive, chunk: Chunk, job: JobState) -> None:
    """Take into the record what a job without an error has loaded, as soon as it is proven that it did."""
    if drive.record.success is not None:
        chunk = directory.as_read(drive, chunk, job)
    chunk = _as_submitted(drive.record, chunk, job)
    record = drive.record
    prove(job, [record.files[index] for index in chunk.files])
    # What lands apart is not committed yet, and looked at when all of it has landed; a directory is loaded as it is.
    as_it_is = record.lands_apart or record.success is not None
    moved = Changed() if as_it_is else await changed_since(drive, chunk.files, job)
    await drive.parts.trails.note(record, moved.notes)
    aside = {index: one for index, one in record.progress.aside.items() if index not in chunk.files}
    aside |= {index: SetAside(Fate.SUPERSEDED, why, job.ref.job_id) for index, why in moved.unread.items()}
    kept = tuple(index for index in chunk.files if index not in moved.unread)
    progress = recovery.loaded(
        replace(record.progress, aside=aside),
        replace(chunk, files=kept),
        loaded_rows(job) if kept else 0,  # all of them are others' rows, who claim them
        loaded_bytes(job) if kept else 0,
        drive.max_reload,
        cumulative=bool(record.load.get("maxBadRecords")),
    )
    drive.change(progress=progress, error="")
    if moved:
        await drive.save()  # actions take sources away, and with them what this was seen by


async def changed_since(drive: Drive, indexes: Sequence[int], job: JobState) -> Changed:
    """What the job may have read instead of what it was given; nothing if all is as it was."""
    files = {index: drive.record.files[index] for index in indexes}
    live = await describe(drive.parts.store, [file.ref for file in files.values()])
    return await beside(len(files) > MANY_FILES, changed, job, files, live)


def _refused(drive: Drive, chunk: Chunk, job: JobState, why: SetAside) -> None:
    """A load that BigQuery refused for what it read: find the files at fault, unless it is all or nothing."""
    record = drive.record
    if record.success is not None:
        why = directory.with_fault(record, chunk, job, why)
    urls = {record.files[index].ref.url: index for index in chunk.files}
    named = {urls[url]: _verdict(blame, job) for url, blame in blames(job, urls).items() if not blame.missing}
    if record.success is not None or all_or_nothing(record) or not (named or about_content(job)):
        progress = recovery.given_up(record.progress, chunk, why)
    elif named:
        progress = recovery.taken_out(record.progress, chunk, named, drive.max_reload)
    else:
        # Several loads that replace the table would overwrite one another.
        apart = len(chunk.files) > 1 and truncates(record) and not record.lands_apart
        progress = recovery.suspected(record.progress, chunk, _verdict(unnamed(job), job), drive.max_reload)
        progress = replace(progress, staged=progress.staged or apart)
    drive.change(progress=progress, error=why.why)


def all_or_nothing(record: Record) -> bool:
    return record.rule.spec.on_bad_data is BadData.FAIL


def _as_submitted(record: Record, chunk: Chunk, job: JobState) -> Chunk:
    """The chunk with the files its job really read.

    A replica that was paused between looking at the sources and submitting may have submitted files that another one
    found to be gone or overwritten meanwhile: they were read all the same.
    """
    sources = job.configuration.get("sourceUris")
    own = {record.files[index].ref.url for index in chunk.files}
    if sources is None or set(sources) == own or not own <= set(sources):
        return chunk
    extra = {url: index for index, file in enumerate(record.files) if (url := file.ref.url) in sources}
    log.warning("batch.read_more", event_id=record.event_id, job=job.ref.job_id, files=len(extra) - len(own))
    return replace(chunk, files=tuple(sorted({*chunk.files, *extra.values()})))


def _verdict(blame: Blame, job: JobState) -> SetAside:
    fate = Fate.INVALID_SCHEMA if blame.schema else Fate.CORRUPTED
    return SetAside(fate, blame.message, job.ref.job_id, blame.row, blame.position, blame.column)
