"""Query jobs: hand the text to the SQL engine, keep its rows where clients can page through them.

A single statement's change commits together with the job's DONE row. A script commits statement by statement, as in
BigQuery, each change together with a marker of its job (see `commit_watch`), so that a script cut short is never run
twice; its statements become child jobs when it ends.
"""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, cast

import duckdb

from ingestd.formats.errors import BigQueryError, not_implemented
from ingestd.googlesql import words
from ingestd.localcloud.bigquery.catalog import Catalog
from ingestd.localcloud.bigquery.commit_watch import WatchedConnection
from ingestd.localcloud.bigquery.destination import Destination, Staged, WriteDisposition, write
from ingestd.localcloud.bigquery.execution import Outcome, Run, rollback
from ingestd.localcloud.bigquery.jobs import Job, JobKey, JobState, JobStore, JobType, QueryResult
from ingestd.localcloud.bigquery.legacy_sql import standard_sql
from ingestd.localcloud.bigquery.resources import Dataset, DatasetRef, Table, TableKind, TableRef
from ingestd.localcloud.bigquery.sql.engine import DryRun, SqlEngine, StatementResult, TableName
from ingestd.localcloud.bigquery.sql.parameters import parameters_from_rest
from ingestd.localcloud.bigquery.sql_surroundings import attach_definitions, surroundings
from ingestd.model.schema import Schema, schema_rest

ANONYMOUS_LIFETIME = timedelta(hours=24)


def validate(query: Mapping[str, Any], project: str) -> None:
    """What jobs.insert refuses at once."""
    if not str(query.get("query") or "").strip():
        raise BigQueryError("required", "Required parameter is missing: query")
    for feature in ("createSession", "continuous", "destinationEncryptionConfiguration"):
        if query.get(feature):
            raise not_implemented(f"query.{feature}")
    if query.get("destinationTable"):
        Destination.from_rest(query, project, WriteDisposition.EMPTY)
    standard_sql(query)
    parameters_from_rest(query.get("queryParameters"))


def run(run: Run) -> None:
    query = run.job.details
    sql = standard_sql(query)
    recorder = _Recorder(run)
    # A lone SELECT changes nothing: it runs beside the writer and takes the lock only to store its rows.
    reading = words.returns_rows(sql) and not words.is_script(sql)
    engine = _engine(run, None if reading else lambda statement: run.finish(_outcome(run, run.catalog, statement)))
    _check_bytes_billed(run, engine, sql)
    if query.get("destinationTable") and not reading:
        _refuse_destination(engine.dry_run(sql))
    with nullcontext() if reading else run.data_lock:
        run.check_cancelled()
        try:
            result = engine.run(sql)
        except BaseException:
            run.finished = None
            recorder.store_children(engine.results)
            raise
        if result.script:
            recorder.close_script(result.statements)
            return
    if run.finished is not None:
        return
    statement = result.statements[-1]
    with run.writing() as catalog:
        run.finish(_outcome(run, catalog, statement))


def _refuse_destination(planned: DryRun) -> None:
    """Before anything runs: what a statement has committed could not be taken back."""
    if planned.kind != "SELECT":
        raise BigQueryError("invalid", f"Cannot set destination table in jobs with {planned.kind} statements")


def dry_run(run: Run) -> Job:
    """What the query would do: its schema, its kind, the bytes it would read."""
    sql = standard_sql(run.job.details)
    plan = _engine(run).dry_run(sql)
    size = _bytes_of(run.catalog, plan)
    query: dict[str, Any] = {
        "statementType": plan.kind,
        "totalBytesProcessed": str(size),
        "totalBytesProcessedAccuracy": "PRECISE",
        "cacheHit": False,
    }
    if plan.schema:
        query["schema"] = schema_rest(plan.schema)
    if plan.referenced_tables:
        query["referencedTables"] = [table.rest() for table in plan.referenced_tables]
    return run.job.done(run.clock.now(), statistics={"totalBytesProcessed": str(size), "query": query})


def plan(run: Run, sql: str) -> DryRun:
    """Compile a statement without running it: the schema of a view, say."""
    return _engine(run).dry_run(sql)


def _engine(run: Run, committing: Callable[[StatementResult], None] | None = None) -> SqlEngine:
    query = run.job.details
    default = query.get("defaultDataset")
    default_ref = DatasetRef.from_rest(default, run.job.key.project) if default else None
    alone = not is_script(run.job)
    watch = WatchedConnection(run.conn, lambda: run.applying(last=alone))
    watched = cast("duckdb.DuckDBPyConnection", watch)
    return SqlEngine(
        watched,
        Catalog(watched, project=run.catalog.project, clock=run.clock, changes=run.catalog.changes),
        project=run.job.key.project,
        clock=run.clock,
        default_dataset=f"{default_ref.project}.{default_ref.dataset}" if default_ref else None,
        parameters=parameters_from_rest(query.get("queryParameters")),
        external=attach_definitions(run, query.get("tableDefinitions") or {}),
        surroundings=replace(
            surroundings(run, watch.note_change), before_statement=run.check_cancelled, committing=committing
        ),
    )


def _check_bytes_billed(run: Run, engine: SqlEngine, sql: str) -> None:
    limit = run.job.details.get("maximumBytesBilled")
    if not limit:
        return
    size = _bytes_of(run.catalog, engine.dry_run(sql))
    if size > int(limit):
        raise BigQueryError(
            "bytesBilledLimitExceeded",
            f"Query exceeded limit for bytes billed: {limit}. {size} or higher required.",
        )


@dataclass(slots=True)
class _Recorder:
    """Stores a script's statements as child jobs."""

    run: Run
    children: list[StatementResult] = field(default_factory=list)

    def store_children(self, statements: list[StatementResult]) -> None:
        """A script failed: what ran before the failure are child jobs all the same."""
        if not is_script(self.run.job) or not statements:
            return
        rollback(self.run.conn)
        self.run.conn.begin()
        self._store_missing(statements)
        self.run.conn.commit()

    def _store_missing(self, statements: list[StatementResult]) -> QueryResult | None:
        """One child per statement; the rows of the last one that has any."""
        result: QueryResult | None = None
        for statement in statements:
            child = self._store_child(statement, len(self.children))
            self.children.append(statement)
            result = child.result if statement.relation else result
        return result

    def close_script(self, statements: list[StatementResult]) -> None:
        """The script ran to its end: store its children and the parent."""
        run = self.run
        with run.writing() as catalog:
            result = self._store_missing(statements)
            size = _bytes_of(catalog, *statements)
            statistics: dict[str, Any] = {
                "numChildJobs": str(len(self.children)),
                "totalBytesProcessed": str(size),
                "query": {"statementType": "SCRIPT", "totalBytesProcessed": str(size), "cacheHit": False},
            }
            changed = [item.dml for item in statements if item.dml]
            if changed:
                statistics["query"]["numDmlAffectedRows"] = str(changed[-1].affected)
            run.finish(Outcome(statistics, result=result or QueryResult()))

    def _store_child(self, statement: StatementResult, index: int) -> Job:
        run = self.run
        outcome = _outcome(run, run.catalog, statement, suffix=str(index))
        parent = run.job
        digest = hashlib.md5(str(parent.key).encode(), usedforsecurity=False).hexdigest()
        frame = {"startLine": statement.line, "startColumn": 1, "endLine": statement.line, "text": statement.sql}
        statistics = dict(outcome.statistics)
        statistics["scriptStatistics"] = {"evaluationKind": "STATEMENT", "stackFrames": [frame]}
        child = Job(
            key=JobKey(parent.key.project, parent.key.location, f"script_job_{digest}_{index}"),
            type=JobType.QUERY,
            configuration=_child_configuration(parent, statement, outcome),
            created=statement.started or run.clock.now(),
            user=parent.user,
            state=JobState.RUNNING,
            started=statement.started,
            parent=parent.key.job_id,
        ).done(statement.ended or run.clock.now(), statistics=statistics, result=outcome.result)
        JobStore(run.conn).insert(child)
        run.known.add(child.key)
        return child


def is_script(job: Job) -> bool:
    """Whether a job's text has more than one statement, or control flow, so that it has child jobs."""
    return words.is_script(standard_sql(job.details))


def _child_configuration(parent: Job, statement: StatementResult, outcome: Outcome) -> Mapping[str, Any]:
    query = {"query": statement.sql, "useLegacySql": False, "priority": "INTERACTIVE"}
    if outcome.result and outcome.result.table:
        query["destinationTable"] = outcome.result.table.rest()
    configuration: dict[str, Any] = {"query": query}
    if parent.labels:
        configuration["labels"] = dict(parent.labels)
    return configuration


def _outcome(run: Run, catalog: Catalog, statement: StatementResult, suffix: str = "") -> Outcome:
    """Statistics and stored rows of one statement, in the open transaction."""
    size = _bytes_of(catalog, statement)
    query: dict[str, Any] = {
        "statementType": statement.kind,
        "totalBytesProcessed": str(size),
        "totalBytesBilled": str(size),
        "cacheHit": False,
        "billingTier": 1,
    }
    if statement.referenced_tables:
        query["referencedTables"] = [table.rest() for table in statement.referenced_tables]
    target: TableRef | None = None
    if statement.ddl_target:
        target = _ref(statement.ddl_target)
        key = "ddlTargetDataset" if not target.table else "ddlTargetTable"
        query[key] = statement.ddl_target.rest()
        query["ddlOperationPerformed"] = statement.ddl_operation
    result = QueryResult()
    if statement.dml is not None:
        query["numDmlAffectedRows"] = str(statement.dml.affected)
        query["dmlStats"] = {
            "insertedRowCount": str(statement.dml.inserted),
            "updatedRowCount": str(statement.dml.updated),
            "deletedRowCount": str(statement.dml.deleted),
        }
    if statement.relation is not None:
        result = _keep_rows(run, catalog, statement, suffix)
        target = result.table
        query["schema"] = schema_rest(result.schema)
    configuration = dict(run.job.configuration)
    if target is not None and target.table and not suffix:
        configuration["query"] = {
            "priority": "INTERACTIVE",
            "writeDisposition": "WRITE_TRUNCATE",
            **run.job.details,
            "destinationTable": run.job.details.get("destinationTable") or target.rest(),
        }
    return Outcome({"totalBytesProcessed": str(size), "query": query}, configuration=configuration, result=result)


def _keep_rows(run: Run, catalog: Catalog, statement: StatementResult, suffix: str) -> QueryResult:
    """Write a statement's rows to the destination the job names, or to an anonymous table for a day."""
    assert statement.relation is not None
    schema: Schema = statement.schema or ()
    details = run.job.details
    if details.get("destinationTable") and not suffix:
        destination = Destination.from_rest(details, run.job.key.project, WriteDisposition.EMPTY)
        existing = catalog.find_table(destination.ref)
        run.quotas.check_table(
            run.conn, destination.ref, partitioned=bool(existing and existing.partitioned), daily=True
        )
        written = write(catalog, destination, Staged(statement.relation, schema, declared=False, computed=True))
        run.quotas.record(run.conn, destination.ref, daily=True)
        return QueryResult(schema, written.table.ref, written.rows)
    table, rows = _anonymous(run, catalog, schema, statement.relation, suffix)
    return QueryResult(schema, table.ref, rows)


def _anonymous(run: Run, catalog: Catalog, schema: Schema, relation: str, suffix: str) -> tuple[Table, int]:
    now = run.clock.now()
    owner = f"{run.job.key.project}/{run.job.key.location}/{run.job.user}"
    dataset = DatasetRef(run.job.key.project, "_" + hashlib.sha1(owner.encode(), usedforsecurity=False).hexdigest())
    name = hashlib.sha1(f"{run.job.key}/{suffix}".encode(), usedforsecurity=False).hexdigest()
    table = Table(dataset.table(f"anon{name}"), schema, now, now, expiration=now + ANONYMOUS_LIFETIME)
    if catalog.find_dataset(dataset) is None:
        catalog.create_dataset(Dataset(dataset, run.job.key.location, now, now))
    return catalog.create_result(table, relation)


def _bytes_of(catalog: Catalog, *statements: StatementResult | DryRun) -> int:
    """Logical bytes of the stored tables that statements read; BigQuery would count the columns only."""
    total = 0
    for name in {table for item in statements for table in item.referenced_tables if table != item.unread}:
        table = catalog.find_table(_ref(name))
        if table is not None and table.kind in (TableKind.TABLE, TableKind.SNAPSHOT) and table.schema:
            total += catalog.measure(table)[1]
    return total


def _ref(name: TableName) -> TableRef:
    return TableRef(name.project, name.dataset, name.table)


def recovered(job: Job, committed: int, now: datetime) -> Job:
    """How a query job ends whose changes were committed when the process died before it was DONE.

    The change of a single statement is there, so the job succeeded; only its row counts are lost. Of a script it is not
    known whether more was to come.
    """
    if not is_script(job):
        return job.done(now, statistics={"query": {"cacheHit": False}}, result=QueryResult())
    message = f"The script was interrupted after {committed} changes had been committed; it was not run again."
    return job.done(
        now, error=BigQueryError("backendError", message), statistics={"query": {"statementType": "SCRIPT"}}
    )
