"""From a batch's own table to the tables its rows belong to: ordered steps, each one job, each done once.

| dies after          | what is there                 | who goes on, and how                                |
|---------------------|-------------------------------|-----------------------------------------------------|
| rows landed         | record, the batch's own table | whoever continues: submits the first step's job     |
| step's job inserted | the same, the job             | finds the job by its id (or 409 adopts it), goes on |
| step's job failed   | the same, nothing published   | the next attempt has another id; landed rows stay   |
| step's job done     | the same, rows in its target  | finds the job, proves it: never appends twice       |
| step recorded       | the same, `Published`         | goes on with the next step                          |
| every step done     | everything published          | actions run, then the batch's own table is dropped  |

A failed step is tried again with growing pauses until it succeeds or the batch is given up; a statement that BigQuery
finds wrong in itself is given up at once. Which targets have their rows by then is in the record and in `$Error`, and a
replay leaves those alone.
"""

from dataclasses import replace

import structlog

from ingestd.batch.driving import Drive, request, stopped
from ingestd.batch.pinned import Published
from ingestd.batch.rule import rule_of
from ingestd.batch.steps import Step, steps_of
from ingestd.batch.targets import Targets
from ingestd.model.errors import BadInput, NotFound, Throttled
from ingestd.model.jobs import JobKind, JobRef, JobRequest, JobState
from ingestd.model.preparation import Unmatched
from ingestd.ops import tracing
from ingestd.warehouse.errors import job_failure
from ingestd.warehouse.proof import prove_published

log = structlog.get_logger(__name__)


class Publishing(Drive):
    """A drive that can publish what it landed."""

    async def _publish(self) -> bool:
        """Take every step that is not taken yet; False when a job runs on without us."""
        steps = steps_of(self._record)
        for step in steps:
            if self._record.progress.has(step.branch):
                continue
            if not await self._take(step):
                return False
            if step is not steps[-1]:
                await self._save()
        return True

    async def _take(self, step: Step) -> bool:
        ref = self._record.publish_job(step.branch)
        with tracing.span("publish", job=ref.job_id, target=str(step.target)):
            return await self._run(step, ref)

    async def _run(self, step: Step, ref: JobRef) -> bool:
        parts = self._parts
        job = await parts.warehouse.get_job(ref)
        if job is None:
            if not await self._complete(step):
                await self._land_again("the batch's own table does not hold what was loaded into it")
            if not step.counts:
                partitioned = step.target.decorator is not None or parts.preparation.partitioned(self._record)
                await parts.governor.admit(step.target, partitioned=partitioned, key=ref.job_id)
            job = await self._insert(await self._request(step), step.target)
        done = await self._ends({step.branch: job})
        if done is None:
            return False
        await self._judge_step(step, done[step.branch])
        return True

    async def _judge_step(self, step: Step, job: JobState) -> None:
        problem = job_failure(job)
        if problem is None:
            self._taken(step, job, await self._counted(job) if step.counts else self._proven_rows(step, job))
            return
        progress = replace(self._record.progress, publishing=self._record.progress.publishing + 1)
        self._held.record = replace(self._record, progress=progress, error=str(problem))
        if isinstance(problem, NotFound) and not await self._complete(step):
            await self._land_again(str(problem))
        if isinstance(problem, Throttled):
            self._feed_back(problem, step.target)
        if stopped(job):
            raise BadInput(f"publishing to {step.target} was stopped: {problem}")
        raise problem

    def _proven_rows(self, step: Step, job: JobState) -> int | None:
        return prove_published(job, self._landed(step) if job.kind is JobKind.COPY else None)

    def _taken(self, step: Step, job: JobState, rows: int | None) -> None:
        done = Published(step.branch, str(step.target), rows, job.ref.job_id)
        progress = replace(self._record.progress, published=(*self._record.progress.published, done))
        self._held.record = replace(self._record, progress=progress)

    async def _counted(self, job: JobState) -> int:
        """How many rows fit no mapping; where the rule refuses such rows, the batch ends here."""
        rows = await self._parts.warehouse.rows(job.ref)
        count = int(rows[0]["unmatched"]) if rows else 0
        split = rule_of(self._record).dest.schema_options.split
        if count and split is not None and split.unmatched is Unmatched.REFUSE:
            raise BadInput(f"{count} rows fit no mapping of Schema.Split, and the rule refuses such rows")
        if count:
            log.warning("batch.rows_unmatched", event_id=self._record.event_id, dest=self._record.dest, rows=count)
        return count

    async def _request(self, step: Step) -> JobRequest:
        """The step's job, after what has to be true of its target is."""
        record = self._record
        statement = await Targets(self._parts).statement(record, step)
        what = "unmatched" if step.counts else "publish"
        return request(record, record.publish_job(step.branch), statement.kind, dict(statement.configuration), what)

    async def _complete(self, step: Step) -> bool:
        return await self._landing.complete(self._record, step.source, self._landed(step))

    def _landed(self, step: Step) -> int:
        """Rows that loads have written to the table the step reads."""
        progress = self._record.progress
        return progress.pinned.landed(step.source) if progress.pinned else progress.rows
