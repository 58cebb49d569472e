"""The local BigQuery as the measure of what Spark computes: the same expression over the same rows on both."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
from tests.support.local_sql import local_cursor
from tests.support.manual_clock import ManualClock

from ingestd.googlesql.types import SqlType, array_of
from ingestd.localcloud.bigquery.catalog import Catalog
from ingestd.localcloud.bigquery.sql.engine import QueryParameter, SqlEngine
from ingestd.model.schema import Schema
from ingestd.spark.sql.types import from_field, spark_sql
from ingestd.warehouse.statements import rest_parameter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOW = datetime(2024, 5, 6, 22, 8, 9, tzinfo=UTC)


class LocalBigQuery:
    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor
        self._clock = ManualClock(NOW)
        self._catalog = Catalog(cursor, project="p", clock=self._clock)
        self.run("CREATE SCHEMA d")

    def run(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        bound = [rest_parameter(name, value) for name, value in (parameters or {}).items() if f"@{name}" in sql]
        typed = [QueryParameter(item["name"], item["parameterType"], item["parameterValue"]) for item in bound]
        engine = SqlEngine(self._cursor, self._catalog, project="p", clock=self._clock, parameters=typed)
        result = engine.run(sql).last_rows
        return [] if result is None else self._cursor.execute(f"SELECT * FROM {result.relation}").fetchall()

    def create(self, table: str, schema: Schema, rows: Sequence[Mapping[str, Any]]) -> None:
        columns = ", ".join(f"`{field.name}` {from_field(field)}" for field in schema)
        self.run(f"CREATE OR REPLACE TABLE {table} ({columns})")
        for start in range(0, len(rows), 200):
            values = ", ".join(
                "(" + ", ".join(google(row.get(field.name), from_field(field)) for field in schema) + ")"
                for row in rows[start : start + 200]
            )
            self.run(f"INSERT INTO {table} VALUES {values}")


@contextmanager
def local_bigquery() -> Iterator[LocalBigQuery]:
    with local_cursor() as cursor:
        yield LocalBigQuery(cursor)


def google(value: Any, kind: SqlType) -> str:
    """A value as GoogleSQL writes it."""
    if kind.element is not None:
        return f"{kind}[" + ", ".join(google(item, kind.element) for item in value or ()) + "]"
    if value is None:
        return "NULL"
    if kind.kind == "STRUCT":
        members = value.values() if isinstance(value, Mapping) else value
        inner = (google(item, member) for item, (_, member) in zip(members, kind.fields, strict=True))
        return f"{kind}(" + ", ".join(inner) + ")"
    match value:
        case bool():
            return str(value).upper()
        case float():
            return f"CAST('{value!r}' AS FLOAT64)"
        case bytes():
            return "b'" + "".join(f"\\x{byte:02x}" for byte in value) + "'"
        case datetime():
            stamp = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
            suffix = "+00" if value.tzinfo else ""
            return f"{kind} '{stamp.isoformat(' ')}{suffix}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case Decimal():
            return f"NUMERIC '{value:f}'"
        case str():
            return json.dumps(value, ensure_ascii=True)
    return str(value)


def spark_frame(session: "SparkSession", schema: Schema, rows: Sequence[Mapping[str, Any]]) -> "DataFrame":
    """The rows on Spark. Times are given as UTC's, whatever the zone of this process is."""
    ddl = ", ".join(f"`{field.name}` {_loading(from_field(field))}" for field in schema)
    data = [tuple(_plain(row.get(field.name)) for field in schema) for row in rows]
    frame = session.createDataFrame(data, ddl)
    for field in schema:
        kind = from_field(field)
        if _loading(kind) != spark_sql(kind):
            frame = frame.withColumn(field.name, frame[field.name].cast(spark_sql(kind)))
    return frame


def _loading(kind: SqlType) -> str:
    return spark_sql(kind).replace("TIMESTAMP_NTZ", "TIMESTAMP").replace("TIMESTAMP", "TIMESTAMP_NTZ")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, Mapping):
        return tuple(map(_plain, value.values()))
    return [_plain(item) for item in value] if isinstance(value, list) else value


def outcome(sql: str, kind: SqlType) -> str:
    """What to select on Spark so that a TIMESTAMP comes back as UTC's."""
    if kind.kind == "TIMESTAMP":
        return f"CAST({sql} AS TIMESTAMP_NTZ)"
    return f"CAST({sql} AS {_loading(kind)})"


def normal(value: Any, kind: SqlType) -> Any:
    """One form for what either of them answers."""
    if value is None:
        return [] if kind.kind == "ARRAY" else None
    if kind.element is not None:
        return [normal(item, kind.element) for item in value]
    if kind.kind == "STRUCT":
        members = list(value.values()) if isinstance(value, Mapping) else list(value)
        return tuple(normal(item, inner) for item, (_, inner) in zip(members, kind.fields, strict=True))
    match value:
        case datetime():
            return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        case time():
            return value.isoformat()
        case bytearray() | memoryview():
            return bytes(value)
        case Decimal():
            return value.normalize()
        case float():
            return value if math.isfinite(value) else repr(value)
    return json.loads(value) if kind.kind == "JSON" else value


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-12)
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return type(ours) is type(theirs) and bool(ours == theirs)


__all__ = ["LocalBigQuery", "array_of", "google", "local_bigquery", "normal", "outcome", "same", "spark_frame"]
