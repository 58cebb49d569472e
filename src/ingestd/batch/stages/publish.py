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
from typing import NoReturn

import structlog

from ingestd.batch.drive import Drive, stopped
from ingestd.batch.pinned import Published
from ingestd.batch.steps import Step, next_step, steps_of
from ingestd.batch.targets import Targets
from ingestd.model.errors import BadInput, IngestError, NotFound, Throttled
from ingestd.model.jobs import JobKind, JobState
from ingestd.model.preparation import Unmatched
from ingestd.ops import tracing
from ingestd.warehouse.errors import job_failure
from ingestd.warehouse.proof import prove_published

log = structlog.get_logger(__name__)


async def publish(drive: Drive) -> bool:
    """Take the next step; False when its job runs on without us."""
    parts, step = drive.parts, next_step(drive.record)
    assert step is not None
    ref = drive.record.publish_job(step.branch)
    with tracing.span("publish", job=ref.job_id, target=str(step.target)):
        job = await drive.job_of(ref)
        if job is None:
            if not await _complete(drive, step):
                await drive.land_again("the batch's own table does not hold what was loaded into it")
            if not step.counts:
                partitioned = step.target.decorator is not None or parts.destinations.partitioned(drive.record)
                await parts.governor.admit(step.target, partitioned=partitioned, key=ref.job_id)
            # After what has to be true of its target is.
            statement = await Targets(parts).statement(drive.record, step)
            what = "unmatched" if step.counts else "publish"
            job = await drive.submit(ref, statement.kind, dict(statement.configuration), step.target, what)
        done = await drive.ends({step.branch: job})
        if done is None:
            return False
        job = done[step.branch]
        if (problem := job_failure(job)) is not None:
            await _fail(drive, step, job, problem)
        rows = await _counted(drive, job) if step.counts else _proven_rows(drive, step, job)
        published = Published(step.branch, str(step.target), rows, job.ref.job_id)
        drive.advance(published=(*drive.progress.published, published))
    if step != steps_of(drive.record)[-1]:
        await drive.save()
    return True


async def _fail(drive: Drive, step: Step, job: JobState, problem: IngestError) -> NoReturn:
    """The next attempt has another id; landed rows stay, unless they are gone."""
    progress = replace(drive.progress, publishing=drive.progress.publishing + 1)
    drive.change(progress=progress, error=str(problem))
    if isinstance(problem, NotFound) and not await _complete(drive, step):
        await drive.land_again(str(problem))
    if isinstance(problem, Throttled):
        drive.feed_back(problem, step.target)
    if stopped(job):
        raise BadInput(f"publishing to {step.target} was stopped: {problem}")
    raise problem


def _proven_rows(drive: Drive, step: Step, job: JobState) -> int | None:
    return prove_published(job, _landed(drive, step) if job.kind is JobKind.COPY else None)


async def _counted(drive: Drive, job: JobState) -> int:
    """How many rows fit no mapping; where the rule refuses such rows, the batch ends here."""
    record = drive.record
    rows = await drive.parts.warehouse.rows(job.ref)
    count = int(rows[0]["unmatched"]) if rows else 0
    split = record.rule.spec.dest.schema_options.split
    if count and split is not None and split.unmatched is Unmatched.REFUSE:
        raise BadInput(f"{count} rows fit no mapping of Schema.Split, and the rule refuses such rows")
    if count:
        log.warning("batch.rows_unmatched", event_id=record.event_id, dest=record.dest, rows=count)
    return count


async def _complete(drive: Drive, step: Step) -> bool:
    return await drive.parts.landing.complete(drive.record, step.source, _landed(drive, step))


def _landed(drive: Drive, step: Step) -> int:
    """Rows that loads have written to the table the step reads."""
    progress = drive.progress
    return progress.pinned.landed(step.source) if progress.pinned else progress.rows
