"""Batches whose rows come in by a query over a temporary external table: one job, submitted once, awaited, judged.

The query says itself where rows go, so nothing but its end tells whether they got there. A single statement commits
or does not. A script commits statement by statement unless it uses a transaction: one that failed after a statement was
committed is never run again by itself, since that would repeat the committed part.

| dies after   | what is there | who goes on, and how                                    |
|--------------|---------------|---------------------------------------------------------|
| job inserted | record, job   | finds the job by its id: it is the batch's              |
| job done     | the same      | the same, and judges it                                 |
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from ingestd.batch import recovery
from ingestd.batch.content import Chunk, Fate, Load, SetAside
from ingestd.batch.drive import Drive, stopped
from ingestd.batch.landing import destination
from ingestd.batch.marks import SuccessMark
from ingestd.googlesql.words import transactions
from ingestd.model.errors import BadInput, Throttled, Transient
from ingestd.model.jobs import JobKind, JobState
from ingestd.model.objects import EPOCH
from ingestd.warehouse.errors import job_failure

log = structlog.get_logger(__name__)

TEMP_EXT = "temp_ext"

_MARKS = frozenset({"BEGIN_TRANSACTION", "COMMIT_TRANSACTION", "ROLLBACK_TRANSACTION"})
_DML = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE"})
_HARMLESS = frozenset({"", "SELECT", "ASSERT", "SCRIPT"})


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of the query that was run, and what it changed."""

    number: int
    kind: str
    rows: int | None
    failed: bool
    changes: bool  # something that outlives the script
    line: int = 0  # where it begins in the script; 0 when not told
    in_transaction: bool = False


async def query(drive: Drive) -> bool:
    """Submit or adopt the query, await it and judge it; False when it runs on without us."""
    [chunk] = drive.progress.chunks
    job = None if drive.fresh else await drive.job_of(drive.record.load_job(chunk.job))
    drive.fresh = False
    if job is None:
        job = await _submit(drive, chunk)
    done = await drive.ends({chunk.job: job})
    if done is None:
        return False
    await _judge(drive, chunk, done[chunk.job])
    return True


async def _submit(drive: Drive, chunk: Chunk) -> JobState:
    record = drive.record
    assert record.success is not None
    body = {
        "query": record.success.sql,
        "useLegacySql": False,
        "tableDefinitions": {TEMP_EXT: record.success.external},
    }
    return await drive.submit(record.load_job(chunk.job), JobKind.QUERY, body, destination(record), "query")


async def _judge(drive: Drive, chunk: Chunk, job: JobState) -> None:
    """Take the job's outcome into the record; pauses or raises where it shall be tried again."""
    parts, mark = drive.parts, drive.record.success
    assert mark is not None
    statements = await _statements(drive, job)
    problem = job_failure(job) or _changed_nothing(mark, statements)
    if problem is None:
        rows = sum(one.rows or 0 for one in statements)
        done = Load(chunk.job, chunk.files, rows, sum(file.size for file in drive.record.files))
        drive.change(progress=replace(drive.progress, chunks=(), loads=(*drive.progress.loads, done)), error="")
        return
    done_before = committed(statements, mark.sql) if job.failed else ()
    failures = chunk.failures + (1 if isinstance(problem, Transient) else 0)
    final = (
        isinstance(problem, BadInput)
        or done_before
        or stopped(job)
        or failures >= parts.settings.jobs.max_attempts
        or parts.given_up(drive.record)
    )
    if final:
        text = f"{problem}{_already(done_before)}"
        why = SetAside(Fate.FAILED, text, job.ref.job_id)
        drive.change(progress=recovery.given_up(drive.progress, chunk, why), error=text)
        return
    drive.change(progress=recovery.repeated(drive.progress, chunk, failures=failures), error=str(problem))
    if isinstance(problem, Throttled):
        drive.feed_back(problem, destination(drive.record))
    await drive.rest("batch.query_retried", problem, parts.pause(problem, max(1, failures)))


async def _statements(drive: Drive, job: JobState) -> list[Statement]:
    """Every statement that was run; the children of a script, or the one that the job is."""
    own = _query_statistics(job)
    children = int(job.statistics.get("numChildJobs") or 0)
    if not children and own.get("statementType") not in (None, "SCRIPT"):
        return [_statement(1, job)]
    found = await drive.parts.warehouse.child_jobs(job.ref)
    # Statements that take no time are created in the same millisecond: their lines tell which was first.
    found.sort(key=lambda child: (child.created or EPOCH, _line(child), len(child.ref.job_id), child.ref.job_id))
    return [_statement(number, child) for number, child in enumerate(found, 1)]


def _changed_nothing(mark: SuccessMark, statements: Sequence[Statement]) -> BadInput | None:
    idle = [one for one in statements if one.kind in _DML and one.rows == 0]
    if not idle or not mark.zero_rows_fail:
        return None
    which = f"statement {idle[0].number} ({idle[0].kind})" if len(statements) > 1 else f"its {idle[0].kind}"
    return BadInput(
        f"the transformation ran, and {which} changed no row, which counts as a failure "
        f"(success.fail_on_zero_dml_rows){_already(tuple(one for one in statements if one.changes))}"
    )


def committed(statements: Sequence[Statement], sql: str = "") -> tuple[Statement, ...]:
    """The statements whose effects stay, although the script they belong to failed.

    What a transaction did stays if it was committed. BigQuery marks its statements; where it does not tell where the
    transaction begins and ends, the script's lines do.
    """
    marked = any(one.kind in _MARKS for one in statements)
    lines = () if marked else transactions(sql)
    reached = max((one.line for one in statements), default=0)
    kept: list[Statement] = []
    open_since: int | None = None
    for one in statements:
        if one.kind == "BEGIN_TRANSACTION":
            open_since = len(kept)
        elif one.kind == "COMMIT_TRANSACTION" and not one.failed:
            open_since = None
        elif one.kind == "ROLLBACK_TRANSACTION" and open_since is not None:
            kept, open_since = kept[:open_since], None
        elif one.changes and not one.failed:
            undone = any(begin < one.line and not end < reached for begin, end in lines if one.line <= end)
            if not undone and (marked or lines or not one.in_transaction):
                kept.append(one)
    return tuple(kept if open_since is None else kept[:open_since])


def _already(done: Sequence[Statement]) -> str:
    if not done:
        return ""
    which = ", ".join(f"{one.number} ({one.kind})" for one in done)
    return (
        f"; committed before that, and not undone: statement {which}. Put the script between BEGIN TRANSACTION and "
        "COMMIT TRANSACTION to have all or nothing of it"
    )


def _statement(number: int, job: JobState) -> Statement:
    query = _query_statistics(job)
    kind = str(query.get("statementType") or "")
    affected = query.get("numDmlAffectedRows")
    made = str((query.get("ddlTargetTable") or {}).get("datasetId") or "")
    changes = kind not in _HARMLESS and not (kind in _DML and affected == "0") and not made.startswith("_")
    return Statement(
        number=number,
        kind=kind,
        rows=int(affected) if affected is not None else None,
        failed=job.failed,
        changes=changes,
        line=_line(job),
        in_transaction=bool(job.statistics.get("transactionInfo")),
    )


def _line(job: JobState) -> int:
    frames = (job.statistics.get("scriptStatistics") or {}).get("stackFrames") or [{}]
    return int(frames[-1].get("startLine") or 0)


def _query_statistics(job: JobState) -> dict[str, Any]:
    found = job.statistics.get("query")
    return found if isinstance(found, dict) else {}
