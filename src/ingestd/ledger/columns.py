"""The load-state table: its columns, its two views, and the row that a batch's record becomes.

One row per state of a batch that was seen for a while; the row of its end is always there (see `writer`). Rows may be
there twice, since writing is at-least-once: (`event_id`, `revision`) tells the same row, and the view `…_latest` shows
one row per batch. Columns are only ever added; `schema_version` says which of them a row knew of.
"""
# ruff: noqa: S608 - a TableName holds nothing that could leave its back-ticks

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Any

from ingestd.batch.record import Record
from ingestd.model.objects import FileVersion
from ingestd.model.schema import Field, Mode, Type, schema_rest
from ingestd.model.tables import TableName

SCHEMA_VERSION = 1
PARTITIONED_BY = "updated_at"
CLUSTERED_BY = ("destination", "state", "event_id")
_INT64 = 2**63 - 1
_MAX_LISTED = 1_000_000  # bytes of file names in a row: a streamed row may have ten million, a request no more


class Origin(StrEnum):
    RULE = "rule"
    CONVENTION = "convention"  # a success file


def _column(name: str, kind: str, meaning: str, mode: str = "NULLABLE") -> Field:
    return Field(name, Type.of(kind), Mode(mode), description=meaning)


COLUMNS = (
    _column("event_id", "STRING", "The batch: the same in journal, job ids and logs.", "REQUIRED"),
    _column("revision", "INTEGER", "Grows with every change of the batch's record.", "REQUIRED"),
    _column("state", "STRING", "accepted, loaded, failing, done, failed, superseded, missing or ignored.", "REQUIRED"),
    _column("final", "BOOLEAN", "Whether the batch has ended.", "REQUIRED"),
    _column("updated_at", "TIMESTAMP", "When it came to this state. The table is partitioned by its day.", "REQUIRED"),
    _column("created_at", "TIMESTAMP", "When the batch was accepted (or opened again)."),
    _column("recorded_at", "TIMESTAMP", "When this row was made."),
    _column("origin", "STRING", "rule, or convention (a success file)."),
    _column("batch_key", "STRING", "What the batch stands for: a file's generation, a window, a success file."),
    _column("rule", "STRING", "The rule's name."),
    _column("rule_url", "STRING", "Where the rule is from."),
    _column("rule_hash", "STRING", "The rule's content, as pinned with the batch."),
    _column("source_prefix", "STRING", "The folder that all files of the batch share."),
    _column("destination", "STRING", "project.dataset.table; NULL while it is not known which."),
    _column("partition_id", "STRING", "The partition, where the batch names one."),
    _column("window_name", "STRING", "The batch window."),
    _column("files", "INTEGER", "Files of the batch."),
    _column("files_loaded", "INTEGER", "Of those, loaded and proven."),
    _column("files_set_aside", "INTEGER", "Of those, not loaded for a reason of their own."),
    _column("bytes", "INTEGER", "Size of its files."),
    _column("rows_loaded", "INTEGER", "Rows loaded and proven."),
    _column("first_event_at", "TIMESTAMP", "When the oldest of its files was written."),
    _column("last_event_at", "TIMESTAMP", "When the newest of its files was written."),
    _column("job_project", "STRING", "Where its jobs are."),
    _column("job_location", "STRING", "Where its jobs are."),
    _column("job_ids", "STRING", "Its load jobs, and the one that published them.", "REPEATED"),
    _column("attempt", "INTEGER", "The number of its latest load job."),
    _column("waits", "INTEGER", "Times in a row it had to wait for its surroundings."),
    _column("retry_at", "TIMESTAMP", "When it is tried again."),
    _column("error", "STRING", "What went wrong, last."),
    _column("uris", "STRING", "Its files as gs://bucket/object#generation, once it has ended.", "REPEATED"),
    _column("replica", "STRING", "Who wrote this row."),
    _column("actor", "STRING", "Who asked for a replay."),
    _column("reason", "STRING", "Why."),
    _column("schema_version", "INTEGER", "Of this row."),
)


def table_resource() -> dict[str, Any]:
    return {
        "schema": schema_rest(COLUMNS),
        "timePartitioning": {"type": "DAY", "field": PARTITIONED_BY},
        "clustering": {"fields": list(CLUSTERED_BY)},
        "description": "What became of every batch, written by ingestd; see docs/ledger.md.",
        "labels": {"ingestd": "load-state", "schema_version": str(SCHEMA_VERSION)},
    }


def latest_view(table: TableName) -> TableName:
    return TableName(table.project, table.dataset, f"{table.table}_latest")


def tables_view(table: TableName) -> TableName:
    return TableName(table.project, table.dataset, f"{table.table}_tables")


def latest_sql(table: TableName, where: str = "TRUE") -> str:
    """One row per batch: its latest state among the rows that qualify."""
    return (
        f"SELECT * FROM {table.sql} WHERE {where} "
        "QUALIFY ROW_NUMBER() OVER (PARTITION BY event_id ORDER BY revision DESC, recorded_at DESC) = 1"
    )


def tables_sql(table: TableName, where: str = "TRUE") -> str:
    """One row per table: how fresh it is, and what happened to it last."""
    return (
        "SELECT destination, "
        "MAX(IF(rows_loaded IS NOT NULL, last_event_at, NULL)) AS fresh_until, "
        "MAX(IF(rows_loaded IS NOT NULL, updated_at, NULL)) AS last_loaded_at, "
        "COUNTIF(state = 'done') AS batches_done, COUNTIF(state = 'failed') AS batches_failed, "
        "COUNTIF(NOT final) AS batches_open, "
        "SUM(files_loaded) AS files_loaded, SUM(rows_loaded) AS rows_loaded, "
        "SUM(IF(rows_loaded IS NOT NULL, bytes, 0)) AS bytes, "
        "ARRAY_AGG(event_id ORDER BY updated_at DESC LIMIT 1)[OFFSET(0)] AS last_event_id, "
        "ARRAY_AGG(state ORDER BY updated_at DESC LIMIT 1)[OFFSET(0)] AS last_state, "
        "ARRAY_AGG(COALESCE(error, '') ORDER BY updated_at DESC LIMIT 1)[OFFSET(0)] AS last_error, "
        "MAX(updated_at) AS updated_at "
        f"FROM ({latest_sql(table, where)}) WHERE destination IS NOT NULL GROUP BY destination"
    )


def view_resource(sql: str, meaning: str) -> dict[str, Any]:
    return {
        "view": {"query": sql, "useLegacySql": False},
        "description": meaning,
        "labels": {"ingestd": "load-state"},
    }


def row_id(row: dict[str, Any]) -> str:
    """Tells a repeated row: BigQuery drops one it has just seen, the views drop the others."""
    return f"{row['event_id']}-{row['revision']}"


def row_of(record: Record, *, replica: str, recorded: datetime, actor: str = "", reason: str = "") -> dict[str, Any]:
    """The row of a batch as its record is now, in the form that `insertAll` takes."""
    progress, final = record.progress, record.phase.final
    reference = record.load.get("destinationTable") or {}
    times = [file.event_time for file in record.files]
    row: dict[str, Any] = {
        "event_id": record.event_id,
        "revision": record.stamp.revision,
        "state": str(record.phase),
        "final": final,
        "updated_at": record.stamp.updated,
        "created_at": record.created,
        "recorded_at": recorded,
        "origin": str(origin_of(record)),
        "batch_key": record.identity,
        "rule": record.rule.name,
        "rule_url": record.rule.url,
        "rule_hash": record.rule.content_hash,
        "source_prefix": _source(record),
        "destination": _destination(record),
        "partition_id": str(reference.get("tableId", "")).partition("$")[2] or None,
        "window_name": record.window.name if record.window else None,
        "files": len(record.files),
        "files_loaded": len(progress.loaded),
        "files_set_aside": len(progress.aside),
        "bytes": min(sum(file.size for file in record.files), _INT64),
        "rows_loaded": record.rows,
        "first_event_at": min(times) if times else None,
        "last_event_at": max(times) if times else None,
        "job_project": record.placement.project,
        "job_location": record.placement.location or None,
        "job_ids": _jobs(record),
        "attempt": record.attempt,
        "waits": record.wait.times,
        "retry_at": record.wait.until,
        "error": record.error or None,
        "uris": list(_listed(record)) if final else [],
        "replica": replica,
        "actor": actor or None,
        "reason": reason or None,
        "schema_version": SCHEMA_VERSION,
    }
    return {key: value.isoformat() if isinstance(value, datetime) else value for key, value in row.items()}


def uri_of(file: FileVersion) -> str:
    return f"{file.ref.url}#{file.generation}"


def origin_of(record: Record) -> Origin:
    return Origin.CONVENTION if record.success else Origin.RULE


def common_folder(files: Iterable[FileVersion]) -> str:
    """`gs://bucket/folder/` that all files share; empty when they are of several buckets."""
    folders = {(file.ref.bucket, file.ref.name.rpartition("/")[0]) for file in files}
    buckets = {bucket for bucket, _ in folders}
    if len(buckets) != 1:
        return ""
    first, *others = sorted(folder.split("/") for _, folder in folders)
    last = others[-1] if others else first  # whatever the first and the last of a sorted list share, all share
    shared = []
    for one, other in zip(first, last, strict=False):
        if one != other:
            break
        shared.append(one)
    folder = "/".join(shared)
    return f"gs://{buckets.pop()}/{folder}{'/' if folder else ''}"


def _source(record: Record) -> str:
    return f"{record.success.url.rpartition('/')[0]}/" if record.success else common_folder(record.files)


def _destination(record: Record) -> str | None:
    reference = record.load.get("destinationTable")
    if not reference:
        return None if record.unresolved else record.dest
    table = str(reference["tableId"]).partition("$")[0]
    return f"{reference.get('projectId') or record.placement.project}.{reference['datasetId']}.{table}"


def _jobs(record: Record) -> list[str]:
    if not record.progress.jobs:
        return []
    jobs = [record.load_job(number).job_id for number in range(1, record.attempt + 1)]
    return [*jobs, record.publish_job().job_id] if record.progress.staged else jobs


def _listed(record: Record) -> Iterable[str]:
    room = _MAX_LISTED
    if record.success:
        yield f"{record.success.url}#{record.success.generation}"
    for uri in map(uri_of, record.files):
        room -= len(uri)
        if room < 0:
            return
        yield uri
