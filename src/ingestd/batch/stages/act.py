"""What follows from a load: bad files are put aside, and the rule's actions run.

| dies after              | what is there                 | who goes on, and how                                    |
|-------------------------|-------------------------------|---------------------------------------------------------|
| loaded, nothing saved   | record as it was before that  | proves the jobs again, goes on                          |
| some actions done       | the same, their effects       | sweep after the lease: repeats what is not recorded,    |
|                         |                               | in vain                                                 |
| files moved to their    | the same, the files there     | the same: finds them moved                              |
| quarantine              |                               |                                                         |
| `OnFailure` began       | record that says `failing`    | runs `OnFailure` on, loads nothing any more             |
"""

from ingestd.batch.content import Fate
from ingestd.batch.drive import Drive
from ingestd.batch.phases import Phase
from ingestd.batch.record import Kind, Record
from ingestd.model.errors import BadInput
from ingestd.ops import tracing

_THEN = "; then OnFailure did not finish: "


async def reopen(drive: Drive) -> bool:
    """A route that is replayed: its job has ended long ago, well or badly."""
    route, job = drive.record, await drive.followed()
    if job is None:
        raise BadInput(f"job {route.trigger_job} is not known any more")
    error = job.error.message if job.error else ""
    drive.become(route.enter(Phase.FAILING if job.failed else Phase.LOADED, error=error))
    return True


async def succeed(drive: Drive) -> bool:
    acting, held = drive.parts.actions, drive.held
    job = await drive.follow()
    await acting.quarantine(held)
    with tracing.span("actions", when="OnSuccess"):
        await acting.on_success(held, job, last_try=drive.last_try)
    error = _failed_part(drive.record)
    drive.become(drive.record.enter(Phase.FAILING if error else Phase.DONE, error=error))
    return True


async def fail(drive: Drive) -> bool:
    acting, held = drive.parts.actions, drive.held
    job = await drive.follow()
    with tracing.span("actions", when="OnFailure"):
        await acting.on_failure(held, job, cause(drive.record), last_try=drive.last_try)
    await acting.quarantine(held)
    last = Phase.FAILED if drive.record.kind is Kind.LOAD else Phase.DONE
    drive.become(drive.record.enter(last, error=cause(drive.record)))
    return True


def cause(record: Record) -> str:
    """Why the batch failed, without what its `OnFailure` met afterwards."""
    return record.error.partition(_THEN)[0] if record.phase is Phase.FAILING else record.error


def told(record: Record, error: Exception) -> str:
    """What to say of an error: where the batch has failed already, it stands behind the reason for that."""
    before = cause(record) if record.phase is Phase.FAILING else ""
    return f"{before}{_THEN}{error}" if before else str(error)


def _failed_part(record: Record) -> str:
    """Why a part of the batch failed although the rest loaded; empty when it did not."""
    failed = record.progress.with_fate(Fate.FAILED)
    return f"{len(failed)} of {len(record.files)} files: {record.progress.aside[failed[0]].why}" if failed else ""
