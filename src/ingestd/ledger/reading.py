"""Asking the load-state table: what failed, how fresh tables are, what became of a file.

Every question reads as few days and columns as it can, since BigQuery charges by what it reads (10 MB at least). A
table that does not exist yet has no answers, which is no error.
"""
# ruff: noqa: S608 - a TableName holds nothing that could leave its back-ticks, values are parameters

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ingestd.batch.record import UNRESOLVED
from ingestd.ledger.columns import latest_sql, tables_sql
from ingestd.model.clock import Clock
from ingestd.model.errors import NotFound, Transient
from ingestd.model.jobs import JobKind, JobRef, JobRequest
from ingestd.model.objects import Generation, ObjectRef
from ingestd.model.tables import TableName
from ingestd.ports import Warehouse
from ingestd.warehouse.errors import job_failure

_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(milliseconds=20), timedelta(seconds=1)
_PATIENCE = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class BatchState:
    """A batch as the load-state table knows it."""

    event_id: str
    revision: int
    state: str
    final: bool
    updated_at: datetime
    created_at: datetime | None
    origin: str
    batch_key: str
    rule: str
    source_prefix: str
    destination: str
    partition_id: str
    window_name: str
    files: int
    files_loaded: int
    files_set_aside: int
    bytes: int
    rows_loaded: int | None
    job_project: str
    job_location: str
    job_ids: tuple[str, ...]
    attempt: int
    retry_at: datetime | None
    error: str
    actor: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as the load-state table knows it."""

    destination: str
    fresh_until: datetime | None
    last_loaded_at: datetime | None
    batches_done: int
    batches_failed: int
    batches_open: int
    rows_loaded: int | None
    bytes: int
    last_event_id: str
    last_state: str
    last_error: str

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


_BATCH = ", ".join(BatchState.__slots__)


class LoadStateReader:
    def __init__(self, warehouse: Warehouse, name: TableName, clock: Clock) -> None:
        self.name = name.in_project(warehouse.project)
        self._warehouse = warehouse
        self._clock = clock

    async def batches(
        self,
        *,
        since: datetime,
        until: datetime | None = None,
        state: str = "",
        rule: str = "",
        destination: str = "",
        limit: int = 100,
    ) -> list[BatchState]:
        """The latest state of batches that changed in that time, newest first."""
        conditions = {"state": state, "rule": rule, "destination": destination}
        chosen = {key: value for key, value in conditions.items() if value}
        later = "" if until is None else "AND updated_at < @until "
        sql = (
            f"SELECT {_BATCH} FROM ({latest_sql(self.name, 'updated_at >= @since')}) "
            f"WHERE TRUE {later}{''.join(f'AND `{key}` = @{key} ' for key in chosen)}"
            f"ORDER BY updated_at DESC LIMIT {limit:d}"
        )
        found = await self._ask(sql, {"since": since, **({"until": until} if until else {}), **chosen})
        return [_batch(row) for row in found]

    async def tables(self, *, since: datetime) -> list[TableState]:
        """Every table that got something in that time."""
        sql = f"{tables_sql(self.name, 'updated_at >= @since')} ORDER BY destination"
        names = TableState.__slots__
        return [
            TableState(**{name: _text_if_none(name, row[name]) for name in names})
            for row in await self._ask(sql, {"since": since})
        ]

    async def of_file(self, ref: ObjectRef, *, since: datetime) -> list[tuple[Generation, BatchState]]:
        """The ended batches that had any generation of the object."""
        latest = latest_sql(self.name, "updated_at >= @since AND final")
        sql = (
            f"SELECT uri, {_BATCH} FROM ({latest}), UNNEST(uris) AS uri WHERE STARTS_WITH(uri, @uri) "
            "ORDER BY updated_at"
        )
        found = await self._ask(sql, {"uri": f"{ref.url}#", "since": since})
        return [(Generation(int(row["uri"].rpartition("#")[2])), _batch(row)) for row in found]

    async def loaded(self, uris: Sequence[str], *, since: datetime) -> dict[str, bool]:
        """Which of these (`gs://bucket/object#generation`) must not be loaded again, and whether all is well with them.

        A batch that failed after a part of it was loaded keeps all of its files: which of them are in the table is not
        told here. One that failed as a whole keeps none.
        """
        if not uris:
            return {}
        sql = (
            f"SELECT uri, LOGICAL_OR(state != 'failed') AS well FROM {self.name.sql}, UNNEST(uris) AS uri "
            "WHERE updated_at >= @since AND uri IN UNNEST(@uris) "
            "AND (state IN ('done', 'superseded', 'ignored') OR (state = 'failed' AND files_loaded > 0)) GROUP BY uri"
        )
        return {row["uri"]: row["well"] for row in await self._ask(sql, {"since": since, "uris": list(uris)})}

    async def _ask(self, sql: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        assert self.name.project is not None
        location = await self._warehouse.dataset_location(self.name.project, self.name.dataset)
        if location is None:
            return []
        request = JobRequest(
            JobRef(self._warehouse.project, location, f"ingestd_ledger_{uuid.uuid4().hex}"),
            JobKind.QUERY,
            {
                "query": sql,
                "useLegacySql": False,
                "parameterMode": "NAMED",
                "queryParameters": [_parameter(name, value) for name, value in parameters.items()],
            },
            {"ingestd": "ledger"},
        )
        try:
            return await self._run(request)
        except NotFound:
            return []

    async def _run(self, request: JobRequest) -> list[dict[str, Any]]:
        job = await self._warehouse.insert_job(request)
        pause = _FIRST_PAUSE
        try:
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                while not job.done:
                    await self._clock.sleep(pause)
                    pause = min(pause * 1.5, _LONGEST_PAUSE)
                    job = await self._warehouse.get_job(job.ref) or job
        except TimeoutError:
            raise Transient(f"job {job.ref}, which asks {self.name}, is not done after {_PATIENCE}") from None
        if problem := job_failure(job):
            raise problem
        return await self._warehouse.rows(job.ref)


def _batch(row: Mapping[str, Any]) -> BatchState:
    values = {name: _text_if_none(name, row[name]) for name in BatchState.__slots__}
    destination = row["destination"] or UNRESOLVED
    return BatchState(**{**values, "destination": destination, "job_ids": tuple(row["job_ids"])})


_NOT_TEXT = frozenset({
    "updated_at", "created_at", "retry_at", "rows_loaded", "fresh_until", "last_loaded_at",
})  # fmt: skip
_NUMBERS = frozenset({"files", "files_loaded", "files_set_aside", "bytes", "attempt"})


def _text_if_none(name: str, value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    if value is not None or name in _NOT_TEXT:
        return value
    return 0 if name in _NUMBERS else ""


def _parameter(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, datetime):
        kind, shown = "TIMESTAMP", value.isoformat(sep=" ")
    elif isinstance(value, list):
        items = [{"value": item} for item in value]
        return {
            "name": name,
            "parameterType": {"type": "ARRAY", "arrayType": {"type": "STRING"}},
            "parameterValue": {"arrayValues": items},
        }
    else:
        kind, shown = "STRING", str(value)
    return {"name": name, "parameterType": {"type": kind}, "parameterValue": {"value": shown}}
