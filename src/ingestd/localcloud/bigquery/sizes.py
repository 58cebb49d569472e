"""Logical bytes of rows, by BigQuery's rules (https://cloud.google.com/bigquery/pricing#data_size_calculation)."""
# ruff: noqa: S608 - identifiers go through `quote`

from collections.abc import Iterable, Mapping
from typing import Any

import duckdb

from ingestd.localcloud.bigquery.duckdb_types import quote
from ingestd.model.schema import Field, Mode, Schema, Type

_FIXED = {
    Type.INT64: 8,
    Type.FLOAT64: 8,
    Type.NUMERIC: 16,
    Type.BIGNUMERIC: 32,
    Type.BOOL: 1,
    Type.TIMESTAMP: 8,
    Type.DATE: 8,
    Type.TIME: 8,
    Type.DATETIME: 8,
    Type.INTERVAL: 16,
    Type.RANGE: 16,
}


def measure(conn: duckdb.DuckDBPyConnection, relation: str, schema: Schema) -> tuple[int, int]:
    """Rows and logical bytes of a relation that has these columns."""
    aggregates, weights = ["count(*)"], [0]
    for item in schema:
        # Plain counts and sums: one expression over all columns takes DuckDB far longer to plan than to run.
        for aggregate, weight in _aggregates(quote(item.name), item):
            aggregates.append(aggregate)
            weights.append(weight)
    values = conn.execute(f"SELECT {', '.join(aggregates)} FROM {relation}").fetchone() or (0,)
    return int(values[0]), sum(int(value or 0) * weight for value, weight in zip(values, weights, strict=False))


def logical_bytes(rows: Iterable[Mapping[str, Any]], schema: Schema) -> int:
    """What `measure` would count for a few rows of converted values, without asking DuckDB."""
    return sum(_value_bytes(row[item.name], item) for row in rows for item in schema)


def _value_bytes(value: Any, item: Field) -> int:
    if value is None:
        return 0
    if item.mode is not Mode.REPEATED:
        return _scalar_bytes(value, item)
    if item.type in _FIXED:
        return len(value) * _FIXED[item.type]
    return sum(_scalar_bytes(element, item) for element in value if element is not None)


def _scalar_bytes(value: Any, item: Field) -> int:
    if item.type in _FIXED:
        return _FIXED[item.type]
    if item.type is Type.STRUCT:
        return sum(_value_bytes(value.get(member.name), member) for member in item.fields)
    return 2 + len(value if isinstance(value, bytes) else str(value).encode())


def _aggregates(column: str, item: Field) -> list[tuple[str, int]]:
    if item.mode is not Mode.REPEATED:
        if item.type in _FIXED:
            return [(f"count({column})", _FIXED[item.type])]
        if item.type is Type.STRING:
            return [(f"count({column})", 2), (f"sum(strlen({column}))", 1)]
    return [(f"sum({_bytes(column, item)})", 1)]


def _bytes(value: str, item: Field) -> str:
    if item.mode is Mode.REPEATED:
        if item.type in _FIXED:
            return f"coalesce(len({value}) * {_FIXED[item.type]}, 0)"
        element = _scalar("element", item)
        return f"coalesce(list_sum(list_transform({value}, lambda element: {element})), 0)"
    return _scalar(value, item)


def _scalar(value: str, item: Field) -> str:
    if item.type is Type.STRUCT:
        members = " + ".join(
            _bytes(f"struct_extract({value}, '{_text(member.name)}')", member) for member in item.fields
        )
        return f"({members})"
    if item.type is Type.BYTES:
        return f"coalesce(2 + octet_length({value}), 0)"
    if item.type in _FIXED:
        return f"CASE WHEN {value} IS NULL THEN 0 ELSE {_FIXED[item.type]} END"
    return f"coalesce(2 + strlen(CAST({value} AS VARCHAR)), 0)"


def _text(name: str) -> str:
    return name.replace("'", "''")
