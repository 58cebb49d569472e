"""Conditional functions, and the few that belong to no family: ERROR, SESSION_USER, hashes of whole values."""

from ingestd.formats.errors import not_implemented
from ingestd.googlesql import ast
from ingestd.googlesql.analyze import comparison
from ingestd.googlesql.names import Scope
from ingestd.googlesql.types import BOOL, FLOAT64, INT64, STRING, SqlType
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.duckdb_types import duckdb_type
from ingestd.localcloud.bigquery.sql.coercion import coerce, string_sql
from ingestd.localcloud.bigquery.sql.expressions import ExpressionCompiler
from ingestd.localcloud.bigquery.sql.idioms import once
from ingestd.localcloud.bigquery.sql.library.registry import arguments, define, function, no_signature, want


@function("IF")
def if_(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    condition = c.condition(node.args[0], scope, "IF condition")
    kind, (then, otherwise) = c.common([c.expr(item, scope) for item in node.args[1:]], "function IF", node)
    return Value(f"(CASE WHEN {condition} THEN {then.sql} ELSE {otherwise.sql} END)", kind)


@function("COALESCE", "IFNULL")
def coalesce(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    args = arguments(c, node, scope)
    kind, converted = c.common(args, f"function {node.name}", node)
    return Value(f"coalesce({', '.join(item.sql for item in converted)})", kind)


@function("NULLIF")
def nullif(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    kind, (a, b) = c.common(arguments(c, node, scope), "function NULLIF", node)
    return Value(f"(CASE WHEN {comparison('=', a.sql, b.sql, (a, b))} THEN NULL ELSE {a.sql} END)", kind)


def _number(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> list[Value]:
    args = arguments(c, node, scope)
    if not args[0].type.numeric:
        no_signature(c, node, args)
    return args


@function("NULLIFZERO")
def nullifzero(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    (value,) = _number(c, node, scope)
    return Value(f"nullif({value.sql}, 0)", value.type)


@function("ZEROIFNULL")
def zeroifnull(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    (value,) = _number(c, node, scope)
    return Value(f"coalesce({value.sql}, CAST(0 AS {duckdb_type(value.type)}))", value.type)


@function("GREATEST", "LEAST")
def extreme(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    """NULL when any argument is NULL, and NaN when any is NaN, unlike DuckDB's."""
    kind, converted = c.common(arguments(c, node, scope), f"function {node.name}", node)
    if kind.kind in ("STRUCT", "ARRAY", "JSON"):
        c.fail(f"No matching signature for function {node.name} for argument types: {kind}", node)
    listed = ", ".join(item.sql for item in converted)
    missing = " OR ".join(f"{item.sql} IS NULL" for item in converted)
    special = f"WHEN {missing} THEN NULL"
    if kind is FLOAT64:
        special += f" WHEN {' OR '.join(f'isnan({item.sql})' for item in converted)} THEN CAST('nan' AS DOUBLE)"
    return Value(f"(CASE {special} ELSE {node.name.lower()}({listed}) END)", kind)


@function("ERROR")
def error(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    (message,) = arguments(c, node, scope)
    text = want(c, node, message, STRING)
    # An untyped NULL with a side effect: it converts to whatever its surroundings want.
    return Value(f"CAST(bq_error({text.sql}) AS BIGINT)", INT64, constant=f"bq_error({text.sql})", raises=True)


@function("SESSION_USER", "CURRENT_USER")
def session_user(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    return Value(string_sql(c.session.surroundings.user), STRING)


define("GENERATE_UUID", "", "CAST(uuid() AS VARCHAR)")
define("RAND", "", "random()")


@function("RANGE_BUCKET")
def range_bucket(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    point, bounds = arguments(c, node, scope)
    if bounds.type.kind != "ARRAY" or bounds.type.element is None:
        c.fail("No matching signature for function RANGE_BUCKET: the second argument must be an array", node)
    kind, (value, _) = c.common([point, Value("_e", bounds.type.element)], "function RANGE_BUCKET", node)
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
def make_range(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    kind, (start, end) = c.common(arguments(c, node, scope), "function RANGE", node)
    return Value(f'struct_pack("start" := {start.sql}, "end" := {end.sql})', SqlType("RANGE", kind))


@function("RANGE_START", "RANGE_END")
def range_bound(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    (value,) = arguments(c, node, scope)
    if value.type.kind != "RANGE" or value.type.element is None:
        c.fail(f"No matching signature for function {node.name} for argument types: {value.type}", node)
    member = "start" if node.name == "RANGE_START" else "end"
    return Value(f"struct_extract({value.sql}, '{member}')", value.type.element)


@function("RANGE_CONTAINS")
def range_contains(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    value, wanted = arguments(c, node, scope)
    if value.type.kind != "RANGE" or value.type.element is None:
        c.fail(f"No matching signature for function RANGE_CONTAINS for argument types: {value.type}", node)
    start, end = (f"struct_extract({value.sql}, '{side}')" for side in ("start", "end"))
    if wanted.type.kind == "RANGE":
        first, last = (f"struct_extract({wanted.sql}, '{side}')" for side in ("start", "end"))
        return Value(
            f"(({start} IS NULL OR {first} >= {start}) AND ({end} IS NULL OR coalesce({last} <= {end}, FALSE)))", BOOL
        )
    point = want(c, node, wanted, value.type.element).sql
    return Value(f"(({start} IS NULL OR {point} >= {start}) AND ({end} IS NULL OR {point} < {end}))", BOOL)


@function("COLLATE", "COLLATION")
def collate(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    raise not_implemented("collation")
