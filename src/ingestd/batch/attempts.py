"""The loads of one batch: submitted, adopted, awaited, judged, repeated, until every file is loaded or set aside.

A round submits the job of every chunk that has none yet (or adopts it: ids are deterministic), waits for them or lets
go of the batch, and judges those that are done; `recovery` decides what is loaded next. Which files a job loads is in
the saved record before the job is submitted, unless it follows from the record anyway (one job for all files). So
whoever continues after a crash finds the same jobs with the same files.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import NoReturn

import orjson
import structlog

from ingestd.batch import recovery
from ingestd.batch.content import Chunk, Fate, Progress, SetAside
from ingestd.batch.journal import Held, LeaseLost
from ingestd.batch.loading import source_format
from ingestd.batch.parts import Parts
from ingestd.batch.record import Phase, Record
from ingestd.batch.sources import Looked, Overwrites, look
from ingestd.batch.staging import Staging, destination, staged_load, staging_table, truncates
from ingestd.model.errors import BadInput, Fatal, IngestError, NotFound, Throttled, Transient
from ingestd.model.jobs import JobKind, JobRef, JobRequest, JobState
from ingestd.model.tables import TableName
from ingestd.rules.schema import DEFAULT_MAX_RELOAD
from ingestd.warehouse.blame import Blame, about_content, blames, unnamed
from ingestd.warehouse.errors import job_failure
from ingestd.warehouse.jobs import count
from ingestd.warehouse.proof import loaded_bytes, loaded_rows, missing_source, prove, prove_published

log = structlog.get_logger(__name__)

_IN_PLACE = timedelta(seconds=60)  # longer pauses let go of the batch; the sweep picks it up again
_JUST_NOW = 2.0  # seconds for which a look at the sources holds


class Loading:
    """One drive of one batch through its loads."""

    def __init__(self, parts: Parts, held: Held) -> None:
        self._parts = parts
        self._held = held
        self._staging = Staging(parts)
        self._overwrites = Overwrites(parts.earlier, parts.warehouse, parts.clock)
        self._saved = (held.record.progress, held.record.staged)
        self._looked: dict[int, float] = {}  # when the files of a job were last looked at
        self._staging_ready = False
        self._ended: dict[JobRef, JobState] = {}

    @property
    def _record(self) -> Record:
        return self._held.record

    @property
    def _max_reload(self) -> int:
        return int(self._record.rule.get("MaxReload", DEFAULT_MAX_RELOAD))

    async def run(self, *, fresh: bool) -> bool:
        """Bring the loads to their end, and the record to the phase that says how it went.

        False: jobs run on without us, and whoever sees their completion continues. `fresh`: the record was
        created a moment ago, so no job of it exists yet.
        """
        if not self._record.load or not self._record.location:
            self._held.record = await self._parts.preparation.prepare(self._record)
        if not self._record.progress.begun:
            await self._begin(fresh=fresh)
        while self._record.progress.chunks:
            if not await self._round(fresh=fresh):
                return False
            fresh = False
        return await self._conclude()

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
        _one_format(record)
        indexes = [index for index in range(len(record.files)) if index not in record.progress.aside]
        aside = await self._look(indexes)
        record = self._record
        progress = replace(record.progress, aside={**record.progress.aside, **aside})
        sizes = [file.size for file in record.files]
        progress = recovery.begin(progress, sizes, recovery.JobLimits(limits.max_files, limits.max_bytes))
        self._looked = {chunk.job: self._parts.clock.monotonic() for chunk in progress.chunks}
        self._held.record = replace(record, progress=progress, staged=record.staged or len(progress.chunks) > 1)

    async def _look(self, indexes: list[int]) -> dict[int, SetAside]:
        """Look at these sources; the files that drop out."""
        parts, record = self._parts, self._record
        looked = await look(parts.store, record, indexes, lambda marks: parts.acting.guarded(record, marks))
        self._held.record = replace(self._record, files=looked.described(record.files))
        return {**looked.aside, **await self._overwritten(looked)}

    async def _overwritten(self, looked: Looked) -> dict[int, SetAside]:
        if not any(self._record.files[index].overwrote for index in looked.present):
            return {}
        if looked.aside and len(self._record.files) > 1:
            # Others may wait to learn that these are not loaded, while we wait for theirs.
            progress = self._record.progress
            held = replace(progress, aside={**progress.aside, **looked.aside})
            await self._pin(replace(self._record, progress=held))
            self._held.record = replace(self._record, progress=progress)
        return await self._overwrites.check(self._record, looked)

    async def _round(self, *, fresh: bool) -> bool:
        """Submit, await and judge the jobs of all chunks; False when they run on without us."""
        parts = self._parts
        jobs: dict[int, JobState] = {}
        for chunk in self._record.progress.chunks:
            job = None if fresh else await parts.warehouse.get_job(self._record.load_job(chunk.job))
            if job is None:
                job = await self._submit(chunk)
            if job is not None:
                jobs[chunk.job] = job
        if self._record.asynchronous:
            done = {number: job for number, job in jobs.items() if job.done}
            if jobs and not done:
                await self._let_go()
                return False
            if done:
                await self._claim()
            for job in done.values():
                count(job)
        else:
            waits = {number: asyncio.ensure_future(parts.jobs.wait(job)) for number, job in jobs.items()}
            try:
                await asyncio.gather(*waits.values())
            finally:
                for wait in waits.values():
                    wait.cancel()
            done = {number: wait.result() for number, wait in waits.items()}
        await self._judge_all(done)
        return True

    async def _submit(self, chunk: Chunk) -> JobState | None:
        """Submit the chunk's job; None when none of its files is left."""
        parts = self._parts
        ref = self._record.load_job(chunk.job)
        target = staging_table(self._record) if self._record.staged else destination(self._record)
        await parts.governor.admit(target, partitioned=parts.preparation.partitioned(self._record), key=ref.job_id)
        if parts.clock.monotonic() - self._looked.get(chunk.job, -_JUST_NOW) >= _JUST_NOW:
            aside = await self._look(list(chunk.files))
            if aside:
                progress = recovery.left_out(self._record.progress, chunk, aside)
                self._held.record = replace(self._record, progress=progress)
        current = next((one for one in self._record.progress.chunks if one.job == chunk.job), None)
        if current is None:
            return None
        if self._record.staged and not self._staging_ready:
            await self._staging.ensure(self._record)
            self._staging_ready = True
        record = self._record
        load = staged_load(record) if record.staged else record.load
        load = {**load, "sourceUris": [record.files[index].ref.url for index in current.files]}
        labels = {"ingestd": "load", "ingestd_event": record.event_id}
        return await self._insert(JobRequest(ref, JobKind.LOAD, load, labels), target)

    async def _insert(self, request: JobRequest, target: TableName) -> JobState:
        parts, name = self._parts, request.ref.job_id
        await self._pin(self._record)
        record = self._record
        if record.asynchronous:
            await parts.tasks.put(record, parts.journal.running(record), request.ref)
        try:
            job = await parts.warehouse.insert_job(request)
        except Throttled as problem:
            self._feed_back(problem, target)
            raise
        log.info("batch.submitted", event_id=record.event_id, job=name, dest=record.dest)
        if record.window is None:  # a window's job has its thousands of files in the record already
            await parts.journal.note(parts.journal.beside(record, "tail-job.json", name), job_document(job))
        return job

    async def _pin(self, record: Record) -> None:
        """Save which files the next jobs load, unless the record says so already."""
        self._held.record = record
        state = (record.progress, record.staged)
        if len(record.files) == 1 or state == self._saved or _follows(record):
            return
        await self._parts.journal.save(self._held)
        self._saved = state

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
        if stop is not None or pause > _IN_PLACE:
            raise stop or longest
        log.warning("batch.load_retried", event_id=self._record.event_id, error=str(longest), pause=pause)
        await self._parts.clock.sleep(pause)

    async def _judge(self, chunk: Chunk, job: JobState) -> IngestError | None:
        """Take a finished job's outcome into the record; the problem, when the same files need another attempt."""
        self._ended[job.ref] = job
        record, limits = self._record, self._parts.settings.jobs
        problem = job_failure(job)
        if problem is None:
            self._proven(chunk, job)
            return None
        if missing_source(job):
            if gone := await self._look(list(chunk.files)):
                progress = recovery.taken_out(self._record.progress, chunk, gone, self._max_reload)
                self._held.record = replace(self._record, progress=progress)
                return None
            problem = Transient(f"{problem}; yet its files are there")
        failures = chunk.failures + (1 if isinstance(problem, Transient) else 0)
        why = SetAside(Fate.FAILED, str(problem), job.ref.job_id)
        if isinstance(problem, BadInput):
            progress = self._refused(chunk, job, why)
        elif failures >= limits.max_attempts or _cancelled(job) or self._parts.given_up(record):
            progress = recovery.given_up(record.progress, chunk, why)
        else:
            if isinstance(problem, Throttled):
                target = staging_table(record) if record.staged else destination(record)
                self._feed_back(problem, target)
            progress = recovery.repeated(record.progress, chunk, failures=failures)
            self._held.record = replace(self._record, progress=progress, error=str(problem))
            return problem
        self._held.record = replace(self._record, progress=progress, error=str(problem))
        return None

    def _proven(self, chunk: Chunk, job: JobState) -> None:
        record = self._record
        chunk = _as_submitted(record, chunk, job)
        prove(job, [record.files[index] for index in chunk.files])
        aside = {index: one for index, one in record.progress.aside.items() if index not in chunk.files}
        progress = recovery.loaded(
            replace(record.progress, aside=aside),
            chunk,
            loaded_rows(job),
            loaded_bytes(job),
            self._max_reload,
            cumulative=bool(record.load.get("maxBadRecords")),
        )
        self._held.record = replace(record, progress=progress, error="")

    def _refused(self, chunk: Chunk, job: JobState, why: SetAside) -> Progress:
        """A load that BigQuery refused for what it read: find the files at fault."""
        record = self._record
        urls = {record.files[index].ref.url: index for index in chunk.files}
        named = {urls[url]: _verdict(blame, job) for url, blame in blames(job, urls).items() if not blame.missing}
        if named:
            return recovery.taken_out(record.progress, chunk, named, self._max_reload)
        if not about_content(job):
            return recovery.given_up(record.progress, chunk, why)
        if len(chunk.files) > 1 and truncates(record) and not record.staged:
            # Several loads would overwrite one another.
            self._held.record = replace(record, staged=True)
        return recovery.suspected(record.progress, chunk, _verdict(unnamed(job), job), self._max_reload)

    def _feed_back(self, problem: Throttled, target: TableName) -> None:
        until = self._parts.clock.now() + self._parts.pause(problem, 1)
        self._parts.governor.throttled(target, until, quota=problem.quota)

    async def _conclude(self) -> bool:
        """Everything is loaded or set aside: publish what is staged, and enter the phase that follows."""
        record = self._record
        progress = recovery.concluded(record.progress, len(record.files))
        self._held.record = record = replace(record, progress=progress)
        if record.staged and progress.loads and truncates(record) and progress.with_fate(Fate.FAILED):
            # A part of the batch must not replace the whole table.
            progress = unloaded(progress, SetAside(Fate.FAILED, record.error or "the batch was not complete"))
            self._held.record = record = replace(record, progress=progress)
        if record.staged and progress.loads and not await self._publish():
            return False
        self._held.record = concluded_phase(self._record)
        return True

    async def _publish(self) -> bool:
        """Publish the staged rows in one commit; False when the copy runs on without us."""
        parts = self._parts
        job = await parts.warehouse.get_job(self._record.publish_job())
        if job is None and not await self._staging.complete(self._record):
            await self._load_again("the staging table does not hold what was loaded into it")
        if job is None:
            name = self._record.publish_job().job_id
            partitioned = parts.preparation.partitioned(self._record)
            await parts.governor.admit(destination(self._record), partitioned=partitioned, key=name)
            request = await self._staging.publish(self._record)
            job = await self._insert(request, destination(self._record))
        if not job.done:
            if self._record.asynchronous:
                await self._let_go()
                return False
            job = await parts.jobs.wait(job)
        elif self._record.asynchronous:
            count(job)
            await self._claim()
        problem = job_failure(job)
        if problem is None:
            prove_published(job, self._record.progress.rows)
            self._ended[job.ref] = job
            return True
        progress = replace(self._record.progress, publishing=self._record.progress.publishing + 1)
        self._held.record = replace(self._record, progress=progress, error=str(problem))
        if isinstance(problem, NotFound) and not await self._staging.complete(self._record):
            await self._load_again(str(problem))
        if isinstance(problem, Throttled):
            self._feed_back(problem, destination(self._record))
        raise problem

    async def _load_again(self, why: str) -> NoReturn:
        """Somebody dropped the staging table, or it expired. Nothing was published, so everything is loaded again."""
        await self._staging.drop(self._record)
        progress = self._record.progress
        if progress.reloads >= self._max_reload:
            raise BadInput(f"{why}, {self._max_reload} times")
        again = replace(progress, chunks=(), loads=(), reloads=progress.reloads + 1)
        self._held.record = replace(self._record, progress=again)
        raise Transient(f"{why}; it is loaded again")

    async def job(self) -> JobState | None:
        """The job that the batch's actions follow: the one that published it, or its last load."""
        record, progress = self._record, self._record.progress
        ref: JobRef | None = None
        if record.trigger_job is not None:
            ref = record.trigger_job
        elif record.staged and progress.loads:
            ref = record.publish_job()
        elif progress.loads:
            ref = record.load_job(progress.loads[-1].job)
        elif earlier := progress.with_fate(Fate.READ_EARLIER):
            ref = record.own_job(progress.aside[earlier[0]].job_id)
        elif progress.jobs:
            ref = record.load_job()
        if ref is None:
            return None
        return self._ended.get(ref) or await self._parts.warehouse.get_job(ref)

    async def _claim(self) -> None:
        if not self._record.owner and not await self._parts.journal.claim(self._held):
            raise LeaseLost(f"record {self._record.event_id} is held by another replica")

    async def _let_go(self) -> None:
        """The jobs run on their own: whoever sees a completion continues."""
        if self._record.owner:
            await self._parts.journal.save(self._held, claim=False)


def concluded_phase(record: Record) -> Record:
    """The record in the phase that follows from what became of its files."""
    progress = record.progress
    if progress.loaded:
        return record.enter(Phase.LOADED, rows=progress.rows, error="" if not progress.wrong else record.error)
    why = next((progress.aside[index].why for index in (*progress.wrong, *sorted(progress.aside))), record.error)
    if progress.wrong:
        return record.enter(Phase.FAILING, error=record.error or why)
    for fate, phase in ((Fate.SUPERSEDED, Phase.SUPERSEDED), (Fate.IGNORED, Phase.IGNORED)):
        if progress.with_fate(fate):
            return record.enter(phase, error=why)
    return record.enter(Phase.MISSING, error=why)


def abandoned(record: Record, error: str) -> Record:
    """A batch that is given up in the middle: what is not committed by now fails."""
    progress = record.progress
    why = SetAside(Fate.FAILED, error)
    if not progress.begun:
        left = (index for index in range(len(record.files)) if index not in progress.aside)
        progress = replace(progress, aside={**progress.aside, **dict.fromkeys(left, why)})
    for chunk in progress.chunks:
        progress = recovery.given_up(progress, chunk, why)
    if record.staged:
        progress = unloaded(progress, why)
    return concluded_phase(replace(record, progress=progress, error=error))


def unloaded(progress: Progress, why: SetAside) -> Progress:
    """What was staged and never published was not loaded."""
    staged = {index: why for load in progress.loads for index in load.files}
    return replace(progress, loads=(), aside={**progress.aside, **staged})


def job_document(job: JobState) -> bytes:
    document = {
        "jobReference": {"projectId": job.ref.project, "jobId": job.ref.job_id, "location": job.ref.location},
        "configuration": {job.kind.value: job.configuration, "labels": job.labels},
        "status": {
            "state": job.state,
            "errorResult": {"reason": job.error.reason, "message": job.error.message} if job.error else None,
        },
        "statistics": job.statistics,
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2, default=str)


def _follows(record: Record) -> bool:
    """Whether the jobs follow from the record as it was created: one job for all of its files."""
    progress = record.progress
    return not (progress.aside or progress.loads or record.staged) and [
        (chunk.job, len(chunk.files)) for chunk in progress.chunks
    ] == [(1, len(record.files))]


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


def _one_format(record: Record) -> None:
    """Files of several formats cannot share a job: BigQuery would read them all as the first one's."""
    dest = record.rule.get("Dest") or {}
    formats = {source_format(file.ref.name) for file in record.files} - {None}
    if len(formats) > 1 and not (dest.get("SourceFormat") or dest.get("sourceFormat")):
        raise BadInput(f"the batch mixes {', '.join(sorted(str(one) for one in formats))}: one format per batch")


def _verdict(blame: Blame, job: JobState) -> SetAside:
    fate = Fate.INVALID_SCHEMA if blame.schema else Fate.CORRUPTED
    return SetAside(fate, blame.message, job.ref.job_id, blame.row, blame.position, blame.column)


def _cancelled(job: JobState) -> bool:
    """Somebody stopped the job on purpose: running it again would defy them."""
    return job.error is not None and job.error.reason == "stopped"
