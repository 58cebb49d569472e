"""Batches whose rows come in by a query over a temporary external table: one job, submitted once, awaited, judged.

The query says itself where rows go, so nothing but its end tells whether they got there. A single statement commits
or does not. A script commits statement by statement unless it uses a transaction: one that failed after a statement was
committed is never run again by itself, since that would repeat the committed part.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from ingestd.batch import recovery
from ingestd.batch.content import Chunk, Fate, Load, SetAside
from ingestd.batch.driving import IN_PLACE, Drive, concluded_phase, request, stopped
from ingestd.batch.landing import destination
from ingestd.batch.loading import missing_dataset
from ingestd.googlesql.words import transactions
from ingestd.model.errors import BadInput, Fatal, IngestError, NotFound, Throttled, Transient
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


class Querying(Drive):
    async def run(self, *, fresh: bool) -> bool:
        await self._locate()
        if not self._record.progress.begun:
            everything = recovery.JobLimits(files=len(self._record.files) + 1, size=2**62)
            sizes = [0] * len(self._record.files)
            progress = recovery.begin(self._record.progress, sizes, everything)
            self._held.record = replace(self._record, progress=progress)
        while chunks := self._record.progress.chunks:
            job = None if fresh else await self._parts.warehouse.get_job(self._record.load_job(chunks[0].job))
            fresh = False
            if job is None:
                job = await self._submit(chunks[0])
            done = await self._ends({chunks[0].job: job})
            if done is None:
                return False
            await self._judge(chunks[0], done[chunks[0].job])
        self._held.record = concluded_phase(self._record)
        return True

    @property
    def _sql(self) -> str:
        return self._record.success.sql if self._record.success else ""

    async def _locate(self) -> None:
        """Know where the job runs; the table itself may be the query's to make."""
        if self._record.location:
            return
        table = destination(self._record)
        location = await self._parts.warehouse.dataset_location(table.project or "", table.dataset)
        if location is None:
            raise NotFound(missing_dataset(self._record, table))
        self._held.record = replace(self._record, location=location)

    async def _submit(self, chunk: Chunk) -> JobState:
        record = self._record
        assert record.success is not None
        body: dict[str, Any] = {
            "query": record.success.sql,
            "useLegacySql": False,
            "tableDefinitions": {TEMP_EXT: record.success.external},
        }
        asked = request(record, record.load_job(chunk.job), JobKind.QUERY, body, "query")
        return await self._insert(asked, destination(record))

    async def _judge(self, chunk: Chunk, job: JobState) -> None:
        """Take the job's outcome into the record; pauses or raises where it shall be tried again."""
        record, limits = self._record, self._parts.settings.jobs
        statements = await self._statements(job)
        problem = job_failure(job) or self._changed_nothing(statements)
        if problem is None:
            rows = sum(one.rows or 0 for one in statements)
            done = Load(chunk.job, chunk.files, rows, sum(file.size for file in record.files))
            progress = replace(record.progress, chunks=(), loads=(*record.progress.loads, done))
            self._held.record = replace(record, progress=progress, error="")
            return
        done_before = committed(statements, self._sql) if job.failed else ()
        failures = chunk.failures + (1 if isinstance(problem, Transient) else 0)
        final = (
            isinstance(problem, BadInput)
            or done_before
            or stopped(job)
            or failures >= limits.max_attempts
            or self._parts.given_up(record)
        )
        if final:
            text = f"{problem}{_already(done_before)}"
            progress = recovery.given_up(record.progress, chunk, SetAside(Fate.FAILED, text, job.ref.job_id))
            self._held.record = replace(record, progress=progress, error=text)
            return
        progress = recovery.repeated(record.progress, chunk, failures=failures)
        self._held.record = replace(record, progress=progress, error=str(problem))
        await self._pause(problem, max(1, failures))

    async def _pause(self, problem: IngestError, times: int) -> None:
        if isinstance(problem, Throttled):
            self._feed_back(problem, destination(self._record))
        pause = self._parts.pause(problem, times)
        if isinstance(problem, Fatal) or pause > IN_PLACE:
            raise problem
        log.warning("batch.query_retried", event_id=self._record.event_id, error=str(problem), pause=pause)
        await self._parts.clock.sleep(pause)

    async def _statements(self, job: JobState) -> list[Statement]:
        """Every statement that was run; the children of a script, or the one that the job is."""
        own = _query_statistics(job)
        children = int(job.statistics.get("numChildJobs") or 0)
        if not children and own.get("statementType") not in (None, "SCRIPT"):
            return [_statement(1, job)]
        found = await self._parts.warehouse.child_jobs(job.ref)
        # Statements that take no time are created in the same millisecond: their lines tell which was first.
        found.sort(key=lambda child: (child.created or EPOCH, _line(child), len(child.ref.job_id), child.ref.job_id))
        return [_statement(number, child) for number, child in enumerate(found, 1)]

    def _changed_nothing(self, statements: Sequence[Statement]) -> BadInput | None:
        mark = self._record.success
        idle = [one for one in statements if one.kind in _DML and one.rows == 0]
        if not idle or mark is None or not mark.zero_rows_fail:
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
