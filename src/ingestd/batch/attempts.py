"""The loads of one batch: submitted, adopted, awaited, judged, repeated, until every file is loaded or set aside.

A round submits the job of every chunk that has none yet (or adopts it: ids are deterministic), waits for them or lets
go of the batch, and judges those that are done; `recovery` decides what is loaded next. Which files a job loads is in
the saved record before the job is submitted, unless it follows from the record anyway (one job for all files). So
whoever continues after a crash finds the same jobs with the same files. What landed in a table of the batch's own is
published at the end (see `publishing`).
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import structlog

from ingestd.batch import recovery
from ingestd.batch.content import Chunk, Fate, Members, Progress, SetAside
from ingestd.batch.driving import IN_PLACE, concluded_phase, one_format, request, stopped, unloaded
from ingestd.batch.journal import Held
from ingestd.batch.landing import landing_load, landing_table, lands_apart, truncates
from ingestd.batch.overwrites import Changed, changed
from ingestd.batch.parts import Parts
from ingestd.batch.publishing import Publishing
from ingestd.batch.record import Record
from ingestd.batch.rule import rule_of
from ingestd.batch.sources import describe
from ingestd.model.errors import BadInput, Fatal, IngestError, Throttled, Transient
from ingestd.model.jobs import JobKind, JobState
from ingestd.model.preparation import BadData
from ingestd.warehouse.blame import Blame, about_content, blames, unnamed
from ingestd.warehouse.errors import job_failure
from ingestd.warehouse.proof import loaded_bytes, loaded_rows, missing_source, prove

log = structlog.get_logger(__name__)

_GONE = (Fate.SUPERSEDED, Fate.MISSING)
_JUST_NOW = 2.0  # seconds for which a look at the sources holds


class Loading(Publishing):
    """One drive of one batch through the loads of its files as they are."""

    def __init__(self, parts: Parts, held: Held) -> None:
        super().__init__(parts, held)
        self._looked: dict[int, float] = {}  # when the files of a job were last looked at
        self._landing_ready = False

    @property
    def _all_or_nothing(self) -> bool:
        return rule_of(self._record).on_bad_data is BadData.FAIL

    async def run(self, *, fresh: bool) -> bool:
        """Bring the loads to their end, and the record to the phase that says how it went.

        False: jobs run on without us, and whoever sees their completion continues. `fresh`: the record was
        created a moment ago, so no job of it exists yet.
        """
        await self._ready()
        resumed = not fresh
        if not self._record.progress.begun:
            await self._begin(fresh=fresh)
        while self._record.progress.chunks or await self._outrun(resumed=resumed):
            if not await self._round(fresh=fresh):
                return False
            fresh = False
        return await self._conclude()

    async def _outrun(self, *, resumed: bool) -> bool:
        """Whether a job runs although all of its files dropped out before it was submitted.

        Whoever held the batch before us may have looked at the sources before they changed, and be about to submit the
        job. So its id is used up, by a job that reads nothing; if it was taken already, that job is heard.

        Nobody held it before the one who made it; but one whose clock is ahead may have taken it over meanwhile. The
        record is written, which fails then; and who takes it over from now on finds what we have found.
        """
        record, parts = self._record, self._parts
        gone = [index for index, one in record.progress.aside.items() if one.fate in _GONE and not one.job_id]
        if record.progress.loads or record.success or not gone or lands_apart(record):
            return False  # what lands apart without being published is dropped, whoever landed it
        if not resumed:
            await self._save()
            return False
        nothing = (parts.settings.staging / f"{record.event_id}/1/nothing").url
        for number in (record.progress.jobs, record.progress.jobs + 1):
            if number < 1:
                continue
            ref = record.load_job(number)
            job = await parts.warehouse.get_job(ref)
            if job is None:
                load = {**landing_load(record), "sourceUris": [nothing], "createDisposition": "CREATE_NEVER"}
                job = await parts.warehouse.insert_job(request(record, ref, JobKind.LOAD, load, "load"))
            sources = job.configuration.get("sourceUris") or ()
            if nothing in sources or job.failed:
                continue
            log.warning("batch.outrun", event_id=record.event_id, job=ref.job_id)
            aside = {index: one for index, one in record.progress.aside.items() if index not in gone}
            chunk = Chunk(number, tuple(index for index in gone if record.files[index].ref.url in sources))
            rest = {index: record.progress.aside[index] for index in gone if index not in chunk.files}
            progress = replace(
                record.progress, aside={**aside, **rest}, chunks=(chunk,), jobs=max(number, record.progress.jobs)
            )
            self._held.record = replace(record, progress=progress)
            return bool(chunk.files)
        return False

    async def _begin(self, *, fresh: bool) -> None:
        """Decide which jobs load the files. A job that exists although nothing was saved is the one job for all."""
        record, limits = self._record, self._parts.settings.jobs
        everything = recovery.JobLimits(files=len(record.files) + 1, size=2**62)
        first = record.progress.jobs + 1
        exists = not fresh and await self._parts.warehouse.get_job(record.load_job(first)) is not None
        if exists:
            sizes = [0] * len(record.files)
            self._held.record = replace(self._record, progress=recovery.begin(record.progress, sizes, everything))
            return
        one_format(record)
        indexes = [index for index in range(len(record.files)) if index not in record.progress.aside]
        self._set_aside(await self._entered(indexes))
        await self._look([index for index in indexes if index not in self._record.progress.aside], self._set_aside)
        record = self._record
        sizes = [file.size for file in record.files]
        progress = recovery.begin(record.progress, sizes, recovery.JobLimits(limits.max_files, limits.max_bytes))
        self._looked = {chunk.job: self._parts.clock.monotonic() for chunk in progress.chunks}
        self._held.record = replace(record, progress=progress, staged=record.staged or len(progress.chunks) > 1)

    async def _round(self, *, fresh: bool) -> bool:
        """Submit, await and judge the jobs of all chunks; False when they run on without us."""
        jobs: dict[int, JobState] = {}
        for chunk in self._record.progress.chunks:
            job = None if fresh else await self._parts.warehouse.get_job(self._record.load_job(chunk.job))
            if job is None:
                job = await self._submit(chunk)
            if job is not None:
                jobs[chunk.job] = job
        done = await self._ends(jobs)
        if done is None:
            return False
        await self._judge_all(done)
        return True

    async def _submit(self, chunk: Chunk) -> JobState | None:
        """Submit the chunk's job; None when none of its files is left."""
        parts = self._parts
        ref = self._record.load_job(chunk.job)
        target = landing_table(self._record)
        await parts.governor.admit(target, partitioned=parts.preparation.partitioned(self._record), key=ref.job_id)
        if parts.clock.monotonic() - self._looked.get(chunk.job, -_JUST_NOW) >= _JUST_NOW:
            await self._look(list(chunk.files), partial(self._leave_out, chunk.job))
        current = self._chunk(chunk.job)
        if current is None:
            return None
        if lands_apart(self._record) and not self._landing_ready:
            await self._landing.ensure(self._record)
            self._landing_ready = True
        record = self._record
        load = {**landing_load(record), "sourceUris": [record.files[index].ref.url for index in current.files]}
        return await self._insert(request(record, ref, JobKind.LOAD, load, "load"), target)

    def _chunk(self, job: int) -> Chunk | None:
        return next((one for one in self._record.progress.chunks if one.job == job), None)

    def _leave_out(self, job: int, found: Mapping[int, SetAside]) -> None:
        chunk = self._chunk(job)
        if chunk is not None and found:
            progress = recovery.left_out(self._record.progress, chunk, found)
            self._held.record = replace(self._record, progress=progress)

    def _follows(self, record: Record) -> bool:
        """One job for all of its files: that is how every batch begins."""
        progress = record.progress
        if (record.project, record.settled) != self._settled:
            return False
        if len(record.files) == 1 and not progress.published:
            return True
        return not (progress.aside or progress.loads or record.staged) and [
            (chunk.job, len(chunk.files)) for chunk in progress.chunks
        ] == [(1, len(record.files))]

    async def _judge_all(self, jobs: Mapping[int, JobState]) -> None:
        """Judge finished jobs, then pause or stop where one of them asks for it."""
        problems: list[tuple[IngestError, int]] = []
        for number, job in jobs.items():
            chunk = next(one for one in self._record.progress.chunks if one.job == number)
            problem = await self._judge(chunk, job)
            if problem is not None:
                problems.append((problem, max(1, chunk.failures + 1)))
        if not problems:
            return
        pauses = [(self._parts.pause(problem, times), problem) for problem, times in problems]
        stop = next((problem for problem, _ in problems if isinstance(problem, Fatal)), None)
        pause, longest = max(pauses, key=lambda one: one[0])
        if stop is not None or pause > IN_PLACE:
            raise stop or longest
        log.warning("batch.load_retried", event_id=self._record.event_id, error=str(longest), pause=pause)
        await self._parts.clock.sleep(pause)

    async def _judge(self, chunk: Chunk, job: JobState) -> IngestError | None:
        """Take a finished job's outcome into the record; the problem, when the same files need another attempt."""
        record, limits = self._record, self._parts.settings.jobs
        problem = job_failure(job)
        if problem is None:
            await self._proven(chunk, job)
            return None
        if missing_source(job):
            if gone := (await self._seen(list(chunk.files))).aside:
                progress = recovery.taken_out(self._record.progress, chunk, gone, self._max_reload)
                self._held.record = replace(self._record, progress=progress)
                return None
            problem = Transient(f"{problem}; yet its files are there")
        failures = chunk.failures + (1 if isinstance(problem, Transient) else 0)
        why = SetAside(Fate.FAILED, str(problem), job.ref.job_id)
        if isinstance(problem, BadInput):
            progress = self._refused(chunk, job, why)
        elif failures >= limits.max_attempts or stopped(job) or self._parts.given_up(record):
            progress = recovery.given_up(record.progress, chunk, why)
        else:
            if isinstance(problem, Throttled):
                self._feed_back(problem, landing_table(record))
            progress = recovery.repeated(record.progress, chunk, failures=failures)
            self._held.record = replace(self._record, progress=progress, error=str(problem))
            return problem
        self._held.record = replace(self._record, progress=progress, error=str(problem))
        return None

    async def _proven(self, chunk: Chunk, job: JobState) -> None:
        record = self._record
        chunk = _as_submitted(record, chunk, job)
        prove(job, [record.files[index] for index in chunk.files])
        # What lands apart is not committed yet, and looked at when all of it has landed.
        moved = Changed() if lands_apart(record) else await self._changed(chunk.files, job)
        await self._parts.trails.note(record, moved.notes)
        aside = {index: one for index, one in record.progress.aside.items() if index not in chunk.files}
        aside |= {index: SetAside(Fate.SUPERSEDED, why, job.ref.job_id) for index, why in moved.unread.items()}
        kept = tuple(index for index in chunk.files if index not in moved.unread)
        progress = recovery.loaded(
            replace(record.progress, aside=aside),
            replace(chunk, files=kept),
            loaded_rows(job) if kept else 0,  # all of them are others' rows, who claim them
            loaded_bytes(job) if kept else 0,
            self._max_reload,
            cumulative=bool(record.load.get("maxBadRecords")),
        )
        self._held.record = replace(record, progress=progress, error="")
        if moved:
            await self._save()  # actions take sources away, and with them what this was seen by

    async def _changed(self, indexes: Members, job: JobState) -> Changed:
        """What the job may have read instead of what it was given; nothing if all is as it was."""
        files = {index: self._record.files[index] for index in indexes}
        return changed(job, files, await describe(self._parts.store, [file.ref for file in files.values()]))

    async def _landed_as_pinned(self) -> None:
        """Landed rows may be other content than the batch's: then they are thrown away, and landed again.

        Files that were overwritten drop out for good, so this comes to an end. Once a publishing step may have begun,
        nothing is found here any more: what was overwritten since was overwritten after the loads had ended.
        """
        progress = self._record.progress
        moved = 0
        for load in progress.loads:
            ref = self._record.load_job(load.job)
            job = self._ended.get(ref) or await self._parts.warehouse.get_job(ref)
            if job is not None:
                found = await self._changed(load.files, job)
                moved += len(found.notes.keys() | {self._record.files[index].ref for index in found.unread})
        if not moved:
            return
        await self._landing.drop(self._record)
        self._held.record = replace(self._record, progress=replace(progress, loads=()))
        raise Transient(f"{moved} files were overwritten while they were loaded; the others are loaded again")

    def _refused(self, chunk: Chunk, job: JobState, why: SetAside) -> Progress:
        """A load that BigQuery refused for what it read: find the files at fault."""
        record = self._record
        if self._all_or_nothing:
            return recovery.given_up(record.progress, chunk, why)
        urls = {record.files[index].ref.url: index for index in chunk.files}
        named = {urls[url]: _verdict(blame, job) for url, blame in blames(job, urls).items() if not blame.missing}
        if named:
            return recovery.taken_out(record.progress, chunk, named, self._max_reload)
        if not about_content(job):
            return recovery.given_up(record.progress, chunk, why)
        if len(chunk.files) > 1 and truncates(record) and not lands_apart(record):
            # Several loads would overwrite one another.
            self._held.record = replace(record, staged=True)
        return recovery.suspected(record.progress, chunk, _verdict(unnamed(job), job), self._max_reload)

    async def _conclude(self) -> bool:
        """Everything is loaded or set aside: publish what landed apart, and enter the phase that follows."""
        record = self._record
        progress = recovery.concluded(record.progress, len(record.files))
        self._held.record = record = replace(record, progress=progress)
        apart = lands_apart(record)
        whole = truncates(record) or self._all_or_nothing  # a part of the batch must not replace the whole table
        if apart and progress.loads and whole and progress.with_fate(Fate.FAILED):
            progress = unloaded(progress, SetAside(Fate.FAILED, record.error or "the batch was not complete"))
            self._held.record = record = replace(record, progress=progress)
        if apart and progress.loads and not progress.published:
            await self._landed_as_pinned()
        if apart and progress.loads and not await self._publish():
            return False
        self._held.record = concluded_phase(self._record)
        return True


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
