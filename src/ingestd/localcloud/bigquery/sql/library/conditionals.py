"""Conditional functions, and the few that belong to no family: ERROR, SESSION_USER, hashes of whole values."""

from ingestd.formats.errors import not_implemented
from ingestd.googlesql.analyze import comparison
from ingestd.googlesql.types import BOOL, FLOAT64, INT64, STRING, SqlType
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.duckdb_types import duckdb_type
from ingestd.localcloud.bigquery.sql.coercion import coerce, string_sql
from ingestd.localcloud.bigquery.sql.idioms import once
from ingestd.localcloud.bigquery.sql.library.registry import Call, define, function


@function("IF")
def if_(call: Call) -> Value:
    condition = call.compiler.condition(call.nodes[0], call.scope, "IF condition")
    kind, (then, otherwise) = call.common([call.compiler.expr(item, call.scope) for item in call.nodes[1:]])
    return Value(f"(CASE WHEN {condition} THEN {then.sql} ELSE {otherwise.sql} END)", kind)


@function("COALESCE", "IFNULL")
def coalesce(call: Call) -> Value:
    args = call.values()
    kind, converted = call.common(args)
    return Value(f"coalesce({', '.join(item.sql for item in converted)})", kind)


@function("NULLIF")
def nullif(call: Call) -> Value:
    kind, (a, b) = call.common(call.values())
    return Value(f"(CASE WHEN {comparison('=', a.sql, b.sql, (a, b))} THEN NULL ELSE {a.sql} END)", kind)


def _number(call: Call) -> list[Value]:
    args = call.values()
    if not args[0].type.numeric:
        raise call.mismatch(args)
    return args


@function("NULLIFZERO")
def nullifzero(call: Call) -> Value:
    (value,) = _number(call)
    return Value(f"nullif({value.sql}, 0)", value.type)


@function("ZEROIFNULL")
def zeroifnull(call: Call) -> Value:
    (value,) = _number(call)
    return Value(f"coalesce({value.sql}, CAST(0 AS {duckdb_type(value.type)}))", value.type)


@function("GREATEST", "LEAST")
def extreme(call: Call) -> Value:
    """NULL when any argument is NULL, and NaN when any is NaN, unlike DuckDB's."""
    kind, converted = call.common(call.values())
    if kind.kind in ("STRUCT", "ARRAY", "JSON"):
        call.fail(f"No matching signature for function {call.name} for argument types: {kind}")
    listed = ", ".join(item.sql for item in converted)
    missing = " OR ".join(f"{item.sql} IS NULL" for item in converted)
    special = f"WHEN {missing} THEN NULL"
    if kind is FLOAT64:
        special += f" WHEN {' OR '.join(f'isnan({item.sql})' for item in converted)} THEN CAST('nan' AS DOUBLE)"
    return Value(f"(CASE {special} ELSE {call.name.lower()}({listed}) END)", kind)


@function("ERROR")
def error(call: Call) -> Value:
    (message,) = call.values()
    text = call.want(message, STRING)
    # An untyped NULL with a side effect: it converts to whatever its surroundings want.
    return Value(f"CAST(bq_error({text.sql}) AS BIGINT)", INT64, constant=f"bq_error({text.sql})", raises=True)


@function("SESSION_USER", "CURRENT_USER")
def session_user(call: Call) -> Value:
    return Value(string_sql(call.compiler.session.surroundings.user), STRING)


define("GENERATE_UUID", "", "CAST(uuid() AS VARCHAR)")
define("RAND", "", "random()")


@function("RANGE_BUCKET")
def range_bucket(call: Call) -> Value:
    point, bounds = call.values()
    if bounds.type.kind != "ARRAY" or bounds.type.element is None:
        call.fail("No matching signature for function RANGE_BUCKET: the second argument must be an array")
    kind, (value, _) = call.common([point, Value("_e", bounds.type.element)])
    item = coerce(Value("_e", bounds.type.element), kind)
    assert item is not None
    missing = "_n.p IS NULL OR _n.b IS NULL" + (" OR isnan(_n.p)" if kind is FLOAT64 else "")
    unsorted = "CAST(bq_error('Elements in input array to RANGE_BUCKET must be in ascending order') AS BIGINT)"
    body = (
        f"CASE WHEN {missing} THEN NULL WHEN len(list_filter(_n.b, lambda _e: _e IS NULL)) > 0 "
        f"OR _n.b <> list_sort(_n.b) THEN {unsorted} "
        f"ELSE CAST(len(list_filter(_n.b, lambda _e: {item.sql} <= _n.p)) AS BIGINT) END"
    )
    return Value(once(body, p=value.sql, b=bounds.sql), INT64)


@function("RANGE")
def make_range(call: Call) -> Value:
    kind, (start, end) = call.common(call.values())
    return Value(f'struct_pack("start" := {start.sql}, "end" := {end.sql})', SqlType("RANGE", kind))


@function("RANGE_START", "RANGE_END")
def range_bound(call: Call) -> Value:
    (value,) = call.values()
    if value.type.kind != "RANGE" or value.type.element is None:
        call.fail(f"No matching signature for function {call.name} for argument types: {value.type}")
    member = "start" if call.name == "RANGE_START" else "end"
    return Value(f"struct_extract({value.sql}, '{member}')", value.type.element)


@function("RANGE_CONTAINS")
def range_contains(call: Call) -> Value:
    value, wanted = call.values()
    if value.type.kind != "RANGE" or value.type.element is None:
        call.fail(f"No matching signature for function RANGE_CONTAINS for argument types: {value.type}")
    start, end = (f"struct_extract({value.sql}, '{side}')" for side in ("start", "end"))
    if wanted.type.kind == "RANGE":
        first, last = (f"struct_extract({wanted.sql}, '{side}')" for side in ("start", "end"))
        return Value(
            f"(({start} IS NULL OR {first} >= {start}) AND ({end} IS NULL OR coalesce({last} <= {end}, FALSE)))", BOOL
        )
    point = call.want(wanted, value.type.element).sql
    return Value(f"(({start} IS NULL OR {point} >= {start}) AND ({end} IS NULL OR {point} < {end}))", BOOL)


@function("COLLATE", "COLLATION")
def collate(call: Call) -> Value:
    raise not_implemented("collation")
