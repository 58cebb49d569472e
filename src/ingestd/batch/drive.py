"""One drive of one batch: its record as it changes, and what every stage does with it: pin, submit, await, let go.

A job is submitted only after the saved record says what it does, unless that follows from the record anyway; in
asynchronous batches its deferred task comes first. So whoever continues after a crash finds the same jobs.
"""

import asyncio
from collections.abc import Hashable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

import orjson
import structlog

from ingestd.batch.content import Fate, Progress, SetAside
from ingestd.batch.decide import Observed
from ingestd.batch.journal import Held, LeaseLost
from ingestd.batch.parts import Parts
from ingestd.batch.phases import IllegalTransition, Stage
from ingestd.batch.placement import Placement
from ingestd.batch.record import Record
from ingestd.batch.steps import Way, targets_of, way_of
from ingestd.batch.unsaved_loads import unsaved_loads
from ingestd.model.errors import BadInput, Fatal, IngestError, Throttled, Transient
from ingestd.model.jobs import JobKind, JobRef, JobRequest, JobState
from ingestd.model.tables import TableName
from ingestd.ops import tracing
from ingestd.rules.schema import DEFAULT_MAX_RELOAD
from ingestd.warehouse.jobs import count

log = structlog.get_logger(__name__)

IN_PLACE = timedelta(seconds=60)  # longer pauses let go of the batch; the sweep picks it up again

K = TypeVar("K", bound=Hashable)


class Drive:
    def __init__(self, parts: Parts, held: Held, *, fresh: bool = False) -> None:
        self.parts = parts
        self.held = held
        self.fresh = fresh  # the record was created a moment ago, so no job of it exists yet
        self.resumed = not fresh
        mark = held.record.success
        self.pinned = mark is None or (fresh and mark.resolved)  # it is known which files it is about, and how
        self.ready = False  # it is known where its jobs run, and who prepares its rows
        self.checked = False  # what was landed was looked at: it may be published
        self.heard = False  # no job runs that the record does not know of
        self.unsure: set[int] = set() if fresh else _next_jobs(held.record)  # that others may submit yet
        self.looked: dict[int, float] = {}  # when the files of a job were last looked at
        self.landing_ready = False
        self.ended: dict[JobRef, JobState] = {}
        self.job: JobState | None = None  # that the actions follow
        self.last_try = False  # actions that fail now fail for good
        self._followed = False
        self.stored()

    @property
    def record(self) -> Record:
        return self.held.record

    @property
    def progress(self) -> Progress:
        return self.held.record.progress

    def is_loaded(self) -> bool:
        """Whether it is known how the load ended."""
        return self.record.stage is Stage.ACT

    @property
    def way(self) -> Way:
        return way_of(self.record, self.parts.settings.engine)

    @property
    def max_reload(self) -> int:
        return int(self.record.rule.document.get("MaxReload", DEFAULT_MAX_RELOAD))

    async def observe(self) -> Observed:
        """What the next command depends on beside the record."""
        looking = self.record.stage is Stage.LOOK
        if not (self.pinned and self.ready):
            return Observed(Way.DIRECT, pinned=self.pinned, ready=self.ready)
        way = self.way
        exists = False
        if looking and self.resumed and way in (Way.DIRECT, Way.STATEMENTS):
            exists = await self.job_of(self.record.load_job(self.progress.jobs + 1)) is not None
        return Observed(way, exists=exists, checked=self.checked, heard=self.heard)

    def become(self, record: Record) -> None:
        """The batch as it is from now on; a step that no batch may take is a bug and raises."""
        before, after = self.record.stage, record.stage
        if not before.may_become(after):
            raise IllegalTransition(before, after)
        self.held.record = record

    def change(self, **changes: Any) -> None:
        self.become(replace(self.record, **changes))

    def advance(self, **changes: Any) -> None:
        """Change where its files stand."""
        self.change(progress=replace(self.progress, **changes))

    def set_aside(self, found: Mapping[int, SetAside]) -> None:
        self.advance(aside={**self.progress.aside, **found})

    async def job_of(self, ref: JobRef) -> JobState | None:
        return await self.parts.warehouse.get_job(ref)

    async def followed(self) -> JobState | None:
        """The job that the batch's actions follow: the one that published it, or its last load."""
        record, progress = self.record, self.progress
        ref: JobRef | None = None
        if record.trigger_job is not None:
            ref = record.trigger_job
        elif done := [one for one in progress.published if one.job_id]:
            ref = record.own_job(done[-1].job_id)
        elif record.lands_apart and progress.loads:
            ref = record.publish_job()
        elif progress.loads:
            ref = record.load_job(progress.loads[-1].job)
        elif earlier := progress.with_fate(Fate.READ_EARLIER):
            ref = record.own_job(progress.aside[earlier[0]].job_id)
        elif progress.jobs:
            ref = record.load_job()
        if ref is None:
            return None
        return self.ended.get(ref) or await self.job_of(ref)

    async def follow(self) -> JobState | None:
        """The job that the actions follow, asked for once, when the load is over."""
        if not self._followed:
            self.job = await self.followed()
            self.last_try = self.parts.given_up(self.record)
            self._followed = True
        return self.job

    async def unaccounted(self) -> JobRef | None:
        """A job whose rows may be in a table, or get there yet, and the record does not know of it.

        A batch that is given up beside such a job would be told to have failed, and a replay would load it twice.
        """
        record, progress = self.record, self.progress
        if not record.load or not record.placement.location:
            return None
        loads = [record.load_job(chunk.job) for chunk in progress.chunks]
        if progress.pinned:
            loads += [record.load_job(pour.job) for pour in progress.pinned.pours if not pour.done]
        if not progress.begun:
            loads += [job.ref for job in await unsaved_loads(record, self.parts.warehouse)]
        apart = record.lands_apart
        targets = targets_of(record) if apart else ()
        publishing = [record.publish_job(branch) for branch in targets if not progress.has(branch)]
        for ref in loads + publishing:
            job = await self.job_of(ref)
            if job is None or job.failed:
                continue
            harmless = ref in self.ended or (apart and ref in loads)  # judged, or in a table that is dropped
            if not job.done or not harmless:
                return ref
        return None

    def stored(self) -> None:
        """The record as it is now is what the journal has."""
        self._saved = _decided(self.record)
        self._chosen = _chosen(self.record)

    async def pin(self) -> None:
        """Save what the next jobs do, unless the record says so already."""
        if _decided(self.record) != self._saved and not self._follows():
            await self.save()

    async def save(self) -> None:
        state = _decided(self.record)
        await self.parts.journal.save(self.held)
        self._saved = state

    def _follows(self) -> bool:
        """Whether the jobs follow from the record as it was created: one for all of its files, as they are."""
        record, progress = self.record, self.progress
        if self.way not in (Way.DIRECT, Way.STATEMENTS) or _chosen(record) != self._chosen:
            return False
        if len(record.files) == 1 and not progress.published:
            return True
        return not (progress.aside or progress.loads or progress.staged) and [
            (chunk.job, len(chunk.files)) for chunk in progress.chunks
        ] == [(1, len(record.files))]

    async def submit(
        self, ref: JobRef, kind: JobKind, configuration: dict[str, Any], target: TableName, what: str
    ) -> JobState:
        """Submit the job, or adopt it: what it does is pinned, and its continuation durable."""
        asked, parts = request(self.record, ref, kind, configuration, what), self.parts
        await self.pin()
        await parts.journal.confirm(self.held)
        record = self.record
        if record.asynchronous:
            await parts.tasks.put(record, parts.journal.running(record), ref)
        try:
            with tracing.span("submit", job=ref.job_id, kind=kind):
                job = await parts.jobs.submit(asked)
        except Throttled as problem:
            self.feed_back(problem, target)
            raise
        except BadInput as problem:
            if not await self._take_back(ref):
                raise
            config = ", ".join(one.rpartition("#")[0] for one in record.success.config) if record.success else ""
            raise Fatal(f"BigQuery takes no such job: {problem}; mend {config or '_config/load.json'}") from None
        log.info("batch.submitted", event_id=record.event_id, job=ref.job_id, dest=record.dest, kind=kind)
        # The record of a window or directory has its files and its jobs already; a note beside it doubles its cost.
        if record.window is None and record.success is None:
            await parts.journal.note(parts.journal.beside(record, "tail-job.json", ref.job_id), job_document(job))
        return job

    async def _take_back(self, ref: JobRef) -> bool:
        """Undo the decision for the jobs of a directory, the first of which BigQuery refused to take.

        That is about how it was asked to load, and not about what is in the files: the batch waits, and is pinned anew
        with the configuration as it is then. False where a job exists already, or there is no configuration to mend.
        """
        record, progress = self.record, self.progress
        given = [chunk.job for chunk in progress.chunks]
        given += [pour.job for pour in progress.pinned.pours] if progress.pinned else []
        if record.success is None or progress.loads or not given or ref != record.load_job(min(given)):
            return False
        if record.lands_apart:
            await self.parts.landing.drop(record)
        self.change(progress=replace(progress.take_back(min(given)), staged=False))
        return True

    async def ends(self, jobs: Mapping[K, JobState]) -> dict[K, JobState] | None:
        """The jobs that are done, after waiting for all of them; None when they run on without us."""
        parts = self.parts
        if self.record.asynchronous:
            done = {key: job for key, job in jobs.items() if job.done}
            if jobs and not done:
                await self.let_go()
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
        self.ended |= {job.ref: job for job in done.values()}
        return done

    async def rest(self, event: str, problem: IngestError, pause: timedelta) -> None:
        """Pause before the next try; raises the problem where that is not for this drive to sit out."""
        if isinstance(problem, Fatal) or pause > IN_PLACE:
            raise problem
        log.warning(event, event_id=self.record.event_id, error=str(problem), pause=pause)
        await self.parts.clock.sleep(pause)

    def feed_back(self, problem: Throttled, target: TableName) -> None:
        until = self.parts.clock.now() + self.parts.pause(problem, 1)
        self.parts.governor.throttled(target, until, quota=problem.quota)

    async def _claim(self) -> None:
        if not self.record.stamp.owner and not await self.parts.journal.claim(self.held):
            raise LeaseLost(f"record {self.record.event_id} is held by another replica")

    async def let_go(self) -> None:
        """The jobs run on their own: whoever sees a completion continues."""
        if self.record.stamp.owner:
            await self.parts.journal.save(self.held, claim=False)

    def begin_again(self, why: str, then: str, **changes: Any) -> NoReturn:
        """What the loads had read or landed is gone: from the start, under the numbers that are left."""
        if self.progress.reloads >= self.max_reload:
            raise BadInput(f"{why}, {self.max_reload} times")
        self.advance(chunks=(), loads=(), pinned=None, reloads=self.progress.reloads + 1, **changes)
        raise Transient(f"{why}; {then}")

    async def land_again(self, why: str) -> NoReturn:
        """Somebody dropped what was landed, or it expired. What is not published yet is landed again."""
        await self.parts.landing.drop(self.record)
        self.begin_again(why, "it is loaded again")


def request(record: Record, ref: JobRef, kind: JobKind, configuration: dict[str, Any], what: str) -> JobRequest:
    labels = record.success.labels if record.success else {}
    return JobRequest(ref, kind, configuration, {**labels, "ingestd": what, "ingestd_event": record.event_id})


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


def stopped(job: JobState) -> bool:
    """Somebody stopped the job on purpose: running it again would defy them."""
    return job.error is not None and job.error.reason == "stopped"


def _next_jobs(record: Record) -> set[int]:
    """The numbers of the load jobs that whoever holds the record may submit next."""
    progress = record.progress
    return {chunk.job for chunk in progress.chunks} if progress.begun else {progress.jobs + 1}


def _chosen(record: Record) -> Placement:
    """What was chosen for it; its location follows from its table."""
    return replace(record.placement, location="")


def _decided(record: Record) -> tuple[Progress, Placement]:
    """What decides about the jobs to come."""
    return record.progress, _chosen(record)
