"""What every way into the tables has in common: looking at the sources, pinning decisions, jobs, and the ending.

A job is submitted only after the saved record says what it does, unless that follows from the record anyway; in
asynchronous batches its deferred task comes first. So whoever continues after a crash finds the same jobs.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import NoReturn, TypeVar

import orjson
import structlog

from ingestd.batch.content import Fate, Progress, SetAside
from ingestd.batch.journal import Held, LeaseLost
from ingestd.batch.landing import Landing, destination, lands_apart
from ingestd.batch.loading import source_format
from ingestd.batch.overwrites import Overwrites
from ingestd.batch.parts import Parts
from ingestd.batch.pinned import HOME, UNMATCHED
from ingestd.batch.record import Phase, Record
from ingestd.batch.register import batch_name
from ingestd.batch.rule import rule_of
from ingestd.batch.settling import recount, settle
from ingestd.batch.sources import MANY_FILES, Looked, look
from ingestd.model.aside import aside
from ingestd.model.errors import BadInput, Fatal, Throttled, Transient
from ingestd.model.jobs import JobKind, JobRef, JobRequest, JobState
from ingestd.model.tables import TableName
from ingestd.ops import tracing
from ingestd.rules.schema import DEFAULT_MAX_RELOAD
from ingestd.warehouse.jobs import count

log = structlog.get_logger(__name__)

IN_PLACE = timedelta(seconds=60)  # longer pauses let go of the batch; the sweep picks it up again

K = TypeVar("K", bound=Hashable)


class Drive:
    """One drive of one batch; the ways differ in `run`."""

    def __init__(self, parts: Parts, held: Held) -> None:
        self._parts = parts
        self._held = held
        self._landing = Landing(parts)
        self._overwrites = Overwrites(parts.underway, parts.trails, parts.journal, parts.clock)
        self._saved = _decided(held.record)
        self._settled = held.record.project, held.record.settled  # as stored
        self._ended: dict[JobRef, JobState] = {}

    @property
    def _record(self) -> Record:
        return self._held.record

    @property
    def _max_reload(self) -> int:
        return int(self._record.rule.get("MaxReload", DEFAULT_MAX_RELOAD))

    async def _ready(self) -> None:
        """Know where jobs run, in which project, and who prepares rows; what was chosen stays chosen."""
        if not self._record.load or not self._record.location:
            self._held.record = await self._parts.preparation.prepare(self._record)
        await recount(self._record, self._parts.jobs.slots)
        self._held.record = settle(self._record, self._parts.settings.engine, self._parts.jobs.slots)

    async def job(self) -> JobState | None:
        """The job that the batch's actions follow: the one that published it, or its last load."""
        record, progress = self._record, self._record.progress
        ref: JobRef | None = None
        if record.trigger_job is not None:
            ref = record.trigger_job
        elif done := [one for one in progress.published if one.job_id]:
            ref = record.own_job(done[-1].job_id)
        elif lands_apart(record) and progress.loads:
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

    async def unaccounted(self) -> JobRef | None:
        """A job whose rows may be in a table, or get there yet, and the record does not know of it.

        A batch that is given up beside such a job would be told to have failed, and a replay would load it twice.
        """
        record, progress = self._record, self._record.progress
        if not record.load or not record.location:
            return None
        loads = [record.load_job(chunk.job) for chunk in progress.chunks]
        if progress.pinned:
            loads += [record.load_job(pour.job) for pour in progress.pinned.pours if not pour.done]
        if not progress.begun:
            loads.append(record.load_job(progress.jobs + 1))  # submitted, and dead before anything was saved
        apart = lands_apart(record)
        targets = _targets(record) if apart else ()
        publishing = [record.publish_job(branch) for branch in targets if not progress.has(branch)]
        for ref in loads + publishing:
            job = await self._parts.warehouse.get_job(ref)
            if job is None or job.failed:
                continue
            harmless = ref in self._ended or (apart and ref in loads)  # judged, or in a table that is dropped
            if not job.done or not harmless:
                return ref
        return None

    async def _entered(self, indexes: list[int]) -> dict[int, SetAside]:
        """Enter these files into the register; those that another batch has are its to load.

        Before the first look at them, and so before any job: see `register`. A success file's directory is loaded as
        often as its producer says so.
        """
        record, parts = self._record, self._parts
        if record.success is not None:
            return {}
        files = [record.files[index] for index in indexes]
        name = batch_name(parts.journal.place(record), record.born)
        others = await parts.register.enter(destination(record), name, files)
        known = {index: others[file.key] for index, file in zip(indexes, files, strict=True) if file.key in others}
        return {index: SetAside(Fate.IGNORED, f"in batch {place} already") for index, place in known.items()}

    async def _look(self, indexes: list[int], drop: Callable[[Mapping[int, SetAside]], None]) -> None:
        """Look at these sources, and ask what earlier loads have read; `drop` takes files out of the record."""
        looked = await self._seen(indexes)
        files = self._record.files
        described = await aside(len(files) > MANY_FILES, looked.described, files)
        self._held.record = replace(self._record, files=described)
        drop(looked.aside)

        async def give_up() -> None:
            # Others may wait to learn that these are not loaded, while we wait for theirs.
            await self._pin(self._record)

        drop(await self._overwrites.check(self._record, looked, give_up, self._seen))

    def _set_aside(self, found: Mapping[int, SetAside]) -> None:
        progress = self._record.progress
        self._held.record = replace(self._record, progress=replace(progress, aside={**progress.aside, **found}))

    async def _seen(self, indexes: list[int]) -> Looked:
        """What is there of these sources; generations that are not leave a note on their name where it may matter."""
        parts, record = self._parts, self._record
        looked = await look(parts.store, record, indexes, lambda marks: parts.acting.guarded(record, marks))
        gone = [index for index, one in looked.aside.items() if one.fate in (Fate.SUPERSEDED, Fate.MISSING)]
        await self._overwrites.note_gone(record, [record.files[index] for index in gone])
        return looked

    async def _pin(self, record: Record) -> None:
        """Save what the next jobs do, unless the record says so already."""
        self._held.record = record
        if _decided(record) == self._saved or self._follows(record):
            return
        await self._save()

    async def _save(self) -> None:
        state = _decided(self._record)
        await self._parts.journal.save(self._held)
        self._saved = state

    def _follows(self, record: Record) -> bool:
        """Whether the jobs follow from the record as it was created."""
        return False

    async def _insert(self, request: JobRequest, target: TableName) -> JobState:
        """Submit the job, or adopt it: what it does is pinned, and its continuation durable."""
        parts, name = self._parts, request.ref.job_id
        await self._pin(self._record)
        await parts.journal.confirm(self._held)
        record = self._record
        if record.asynchronous:
            await parts.tasks.put(record, parts.journal.running(record), request.ref)
        try:
            with tracing.span("submit", job=name, kind=request.kind):
                job = await parts.jobs.submit(request)
        except Throttled as problem:
            self._feed_back(problem, target)
            raise
        except BadInput as problem:
            if not self._take_back(request):
                raise
            config = ", ".join(one.rpartition("#")[0] for one in record.success.config) if record.success else ""
            raise Fatal(f"BigQuery takes no such job: {problem}; mend {config or '_config/load.json'}") from None
        log.info("batch.submitted", event_id=record.event_id, job=name, dest=record.dest, kind=request.kind)
        # The record of a window or directory has its files and its jobs already; a note beside it doubles its cost.
        if record.window is None and record.success is None:
            await parts.journal.note(parts.journal.beside(record, "tail-job.json", name), job_document(job))
        return job

    def _take_back(self, request: JobRequest) -> bool:
        """Undo the decision for the jobs of a directory, the first of which BigQuery refused to take.

        That is about how it was asked to load, and not about what is in the files: the batch waits, and is pinned anew
        with the configuration as it is then. False where a job exists already, or there is no configuration to mend.
        """
        record, progress = self._record, self._record.progress
        given = [chunk.job for chunk in progress.chunks]
        given += [pour.job for pour in progress.pinned.pours] if progress.pinned else []
        if record.success is None or progress.loads or not given or request.ref != record.load_job(min(given)):
            return False
        self._held.record = replace(record, progress=progress.take_back(min(given)), staged=False)
        return True

    async def _ends(self, jobs: Mapping[K, JobState]) -> dict[K, JobState] | None:
        """The jobs that are done, after waiting for all of them; None when they run on without us."""
        parts = self._parts
        if self._record.asynchronous:
            done = {key: job for key, job in jobs.items() if job.done}
            if jobs and not done:
                await self._let_go()
                return None
            if done:
                await self._claim()
            for job in done.values():
                count(job)
                parts.jobs.seen(job)
        else:
            waits = {key: asyncio.ensure_future(parts.jobs.wait(job)) for key, job in jobs.items()}
            try:
                await asyncio.gather(*waits.values())
            finally:
                for wait in waits.values():
                    wait.cancel()
            done = {key: wait.result() for key, wait in waits.items()}
        self._ended |= {job.ref: job for job in done.values()}
        return done

    def _feed_back(self, problem: Throttled, target: TableName) -> None:
        until = self._parts.clock.now() + self._parts.pause(problem, 1)
        self._parts.governor.throttled(target, until, quota=problem.quota)

    async def _claim(self) -> None:
        if not self._record.owner and not await self._parts.journal.claim(self._held):
            raise LeaseLost(f"record {self._record.event_id} is held by another replica")

    async def _let_go(self) -> None:
        """The jobs run on their own: whoever sees a completion continues."""
        if self._record.owner:
            await self._parts.journal.save(self._held, claim=False)

    async def _land_again(self, why: str) -> NoReturn:
        """Somebody dropped what was landed, or it expired. What is not published yet is landed again."""
        await self._landing.drop(self._record)
        progress = self._record.progress
        if progress.reloads >= self._max_reload:
            raise BadInput(f"{why}, {self._max_reload} times")
        again = replace(progress, chunks=(), loads=(), pinned=None, reloads=progress.reloads + 1)
        self._held.record = replace(self._record, progress=again)
        raise Transient(f"{why}; it is loaded again")


def unloaded(progress: Progress, why: SetAside) -> Progress:
    """What was landed and never published was not loaded."""
    landed = {index: why for load in progress.loads for index in load.files}
    return replace(progress, loads=(), aside={**progress.aside, **landed})


def concluded_phase(record: Record) -> Record:
    """The record in the phase that follows from what became of its files."""
    progress = record.progress
    if progress.loaded:
        return record.enter(Phase.LOADED, rows=progress.claimed, error="" if not progress.wrong else record.error)
    why = next((progress.aside[index].why for index in (*progress.wrong, *sorted(progress.aside))), record.error)
    if progress.wrong:
        return record.enter(Phase.FAILING, error=record.error or why)
    for fate, phase in ((Fate.SUPERSEDED, Phase.SUPERSEDED), (Fate.IGNORED, Phase.IGNORED)):
        if progress.with_fate(fate):
            return record.enter(phase, error=why)
    return record.enter(Phase.MISSING, error=why)


def abandoned(record: Record, error: str) -> Record:
    """A batch that is given up in the middle: what is not committed by now fails, and it is said what is."""
    progress = record.progress
    if there := ", ".join(str(one) for one in progress.published if one.branch != UNMATCHED):
        error = f"{error}; these tables have got their rows: {there}"
    why = SetAside(Fate.FAILED, error)
    if lands_apart(record):
        progress = unloaded(progress, why)
    settled = {*progress.loaded, *progress.aside}
    left = (index for index in range(len(record.files)) if index not in settled)
    progress = replace(progress, chunks=(), aside={**progress.aside, **dict.fromkeys(left, why)})
    return concluded_phase(replace(record, progress=progress, error=error))


def submitted_jobs(record: Record) -> list[JobRef]:
    """Every job that the batch may have submitted on its way."""
    jobs = [record.load_job(number) for number in range(1, record.attempt + 1)]
    if record.load and lands_apart(record):
        attempts = range(1, record.progress.publishing + 1)
        jobs += [record.publish_job(branch, attempt) for branch in _targets(record) for attempt in attempts]
    return jobs


def _targets(record: Record) -> tuple[int, ...]:
    """What the batch may publish to, and what it counts."""
    split = rule_of(record).dest.schema_options.split
    return (HOME, UNMATCHED, *range(len(split.mapping))) if split else (HOME,)


def one_format(record: Record) -> None:
    """Files of several formats cannot share a job: BigQuery would read them all as the first one's."""
    dest = record.rule.get("Dest") or {}
    formats = {source_format(file.ref.name) for file in record.files} - {None}
    if len(formats) > 1 and not (dest.get("SourceFormat") or dest.get("sourceFormat")):
        raise BadInput(f"the batch mixes {', '.join(sorted(str(one) for one in formats))}: one format per batch")


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


def request(record: Record, ref: JobRef, kind: JobKind, configuration: dict[str, object], what: str) -> JobRequest:
    labels = record.success.labels if record.success else {}
    return JobRequest(ref, kind, configuration, {**labels, "ingestd": what, "ingestd_event": record.event_id})


def stopped(job: JobState) -> bool:
    """Somebody stopped the job on purpose: running it again would defy them."""
    return job.error is not None and job.error.reason == "stopped"


def _decided(record: Record) -> tuple[Progress, bool, str, bool]:
    """What decides about the jobs to come."""
    return record.progress, record.staged, record.project, record.settled
