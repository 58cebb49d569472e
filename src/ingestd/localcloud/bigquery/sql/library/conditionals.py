"""Conditional functions, and the few that belong to no family: ERROR, SESSION_USER, hashes of whole values."""

from ingestd.formats.errors import not_implemented
from ingestd.googlesql.analyze import comparison
from ingestd.googlesql.types import FLOAT64, INT64, STRING
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.duckdb_types import duckdb_type
from ingestd.localcloud.bigquery.sql.coercion import string_sql
from ingestd.localcloud.bigquery.sql.idioms import once
from ingestd.localcloud.bigquery.sql.library.registry import Call, define, function, writes

define("IF", "BOOL, T, T", "(CASE WHEN {0} THEN {1} ELSE {2} END)")
define("NULLIFZERO", "N", "nullif({0}, 0)")


@writes("COALESCE IFNULL")
def coalesce(call: Call, *values: Value) -> str:
    return f"coalesce({', '.join(item.sql for item in values)})"


@writes("NULLIF")
def nullif(call: Call, a: Value, b: Value) -> str:
    return f"(CASE WHEN {comparison('=', a.sql, b.sql, (a, b))} THEN NULL ELSE {a.sql} END)"


@writes("ZEROIFNULL")
def zeroifnull(call: Call, value: Value) -> str:
    return f"coalesce({value.sql}, CAST(0 AS {duckdb_type(value.type)}))"


@writes("GREATEST LEAST")
def extreme(call: Call, *values: Value) -> str:
    """NULL when any argument is NULL, and NaN when any is NaN, unlike DuckDB's."""
    listed = ", ".join(item.sql for item in values)
    missing = " OR ".join(f"{item.sql} IS NULL" for item in values)
    special = f"WHEN {missing} THEN NULL"
    if call.returns is FLOAT64:
        special += f" WHEN {' OR '.join(f'isnan({item.sql})' for item in values)} THEN CAST('nan' AS DOUBLE)"
    return f"(CASE {special} ELSE {call.name.lower()}({listed}) END)"


@function("ERROR")
def error(call: Call) -> Value:
    (message,) = call.values()
    text = call.want(message, STRING)
    # An untyped NULL with a side effect: it converts to whatever its surroundings want.
    return Value(f"CAST(bq_error({text.sql}) AS BIGINT)", INT64, constant=f"bq_error({text.sql})", raises=True)


@writes("SESSION_USER CURRENT_USER")
def session_user(call: Call) -> str:
    return string_sql(call.compiler.session.surroundings.user)


define("GENERATE_UUID", "", "CAST(uuid() AS VARCHAR)")
define("RAND", "", "random()")


@writes("RANGE_BUCKET")
def range_bucket(call: Call, point: Value, bounds: Value) -> str:
    missing = "_n.p IS NULL OR _n.b IS NULL" + (" OR isnan(_n.p)" if point.type is FLOAT64 else "")
    unsorted = "CAST(bq_error('Elements in input array to RANGE_BUCKET must be in ascending order') AS BIGINT)"
    body = (
        f"CASE WHEN {missing} THEN NULL WHEN len(list_filter(_n.b, lambda _e: _e IS NULL)) > 0 "
        f"OR _n.b <> list_sort(_n.b) THEN {unsorted} "
        "ELSE CAST(len(list_filter(_n.b, lambda _e: _e <= _n.p)) AS BIGINT) END"
    )
    return once(body, p=point.sql, b=bounds.sql)


for _kind in ("DATE", "DATETIME", "TIMESTAMP"):
    define("RANGE", f"{_kind}, {_kind}", 'struct_pack("start" := {0}, "end" := {1})')
define("RANGE_START", "RANGE<T>", "struct_extract({0}, 'start')")
define("RANGE_END", "RANGE<T>", "struct_extract({0}, 'end')")


@writes("RANGE_CONTAINS")
def range_contains(call: Call, value: Value, wanted: Value) -> str:
    start, end = (f"struct_extract({value.sql}, '{side}')" for side in ("start", "end"))
    if wanted.type.kind == "RANGE":
        first, last = (f"struct_extract({wanted.sql}, '{side}')" for side in ("start", "end"))
        return f"(({start} IS NULL OR {first} >= {start}) AND ({end} IS NULL OR coalesce({last} <= {end}, FALSE)))"
    return f"(({start} IS NULL OR {wanted.sql} >= {start}) AND ({end} IS NULL OR {wanted.sql} < {end}))"


@function("COLLATE", "COLLATION")
def collate(call: Call) -> Value:
    raise not_implemented("collation")
