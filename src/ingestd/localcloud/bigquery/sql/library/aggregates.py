"""Aggregate functions, with DISTINCT, ORDER BY, LIMIT, IGNORE NULLS, HAVING MAX/MIN and OVER."""

from ingestd.formats.errors import not_implemented
from ingestd.googlesql import ast
from ingestd.googlesql.names import Scope
from ingestd.googlesql.types import (
    BIGNUMERIC,
    BOOL,
    BYTES,
    FLOAT64,
    INT64,
    INTERVAL,
    NUMERIC,
    STRING,
    array_of,
    struct_of,
)
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.duckdb_types import duckdb_type
from ingestd.localcloud.bigquery.sql.expressions import ExpressionCompiler
from ingestd.localcloud.bigquery.sql.library.registry import arguments, function, no_signature, want
from ingestd.localcloud.bigquery.sql.library.windows import order, over


def _plain(c: ExpressionCompiler, node: ast.Call, *allowed: str) -> None:
    """Refuse the modifiers this function does not take."""
    given = {
        "DISTINCT": node.distinct,
        "ORDER BY": bool(node.order_by),
        "LIMIT": node.limit is not None,
        "HAVING": node.having is not None,
        "NULLS": bool(node.nulls),
    }
    for name, present in given.items():
        if present and name not in allowed:
            c.fail(f"{node.name} does not support {name} in arguments", node)


def _filter(c: ExpressionCompiler, node: ast.Call, scope: Scope, value: str) -> str:
    """`x HAVING MAX y`: only the rows with the largest y count."""
    if node.having is None:
        return value
    raise not_implemented(f"{node.name} with HAVING {node.having[0]}")


def _aggregate(c: ExpressionCompiler, node: ast.Call, scope: Scope, name: str, args: str, tail: str = "") -> str:
    distinct = "DISTINCT " if node.distinct else ""
    if distinct and node.over is not None and node.over.order_by:
        c.fail("Window ORDER BY is not allowed if DISTINCT is specified", node)
    return f"{name}({distinct}{args}{tail}){over(c, node.over, scope)}"


@function("COUNT")
def count_(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    plain = scope.without_aliases()
    _plain(c, node, "DISTINCT")
    if node.star:
        return Value(f"(count(*){over(c, node.over, plain)})", INT64)
    (value,) = arguments(c, node, plain)
    if node.distinct and value.type.kind in ("JSON", "GEOGRAPHY"):
        c.fail(f"Aggregate functions with DISTINCT cannot be used with arguments of type {value.type.kind}", node)
    return Value(f"({_aggregate(c, node, plain, 'count', value.sql)})", INT64)


@function("COUNTIF", "COUNT_IF")
def countif(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    plain = scope.without_aliases()
    _plain(c, node, "DISTINCT")
    condition = c.condition(node.args[0], plain, "COUNTIF argument")
    return Value(f"({_aggregate(c, node, plain, 'count', f'CASE WHEN {condition} THEN 1 END')})", INT64)


@function("SUM")
def sum_(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    plain = scope.without_aliases()
    _plain(c, node, "DISTINCT")
    (value,) = arguments(c, node, plain)
    if not value.type.numeric and value.type is not INTERVAL:
        no_signature(c, node, [value], "SUM(INT64); SUM(FLOAT64); SUM(NUMERIC); SUM(BIGNUMERIC); SUM(INTERVAL)")
    # DuckDB sums integers as 128 bits; back to 64, or an overflow error.
    return Value(f"CAST({_aggregate(c, node, plain, 'sum', value.sql)} AS {duckdb_type(value.type)})", value.type)


@function("AVG")
def avg(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    plain = scope.without_aliases()
    _plain(c, node, "DISTINCT")
    (value,) = arguments(c, node, plain)
    if not value.type.numeric:
        no_signature(c, node, [value], "AVG(INT64); AVG(FLOAT64); AVG(NUMERIC); AVG(BIGNUMERIC)")
    if value.type in (NUMERIC, BIGNUMERIC):
        total = _aggregate(c, node, plain, "sum", value.sql)
        number = f"nullif({_aggregate(c, node, plain, 'count', value.sql)}, 0)"
        name = f"bq_{value.type.kind.lower()}_divide"
        return Value(
            f"{name}(CAST({total} AS {duckdb_type(value.type)}), CAST({number} AS {duckdb_type(value.type)}))",
            value.type,
        )
    return Value(f"CAST({_aggregate(c, node, plain, 'avg', value.sql)} AS DOUBLE)", FLOAT64)


@function("MIN", "MAX")
def extreme(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    plain = scope.without_aliases()
    _plain(c, node, "DISTINCT", "HAVING")
    (value,) = arguments(c, node, plain)
    if value.type.kind in ("ARRAY", "STRUCT", "JSON", "GEOGRAPHY"):
        no_signature(c, node, [value])
    name, args = node.name.lower(), _filter(c, node, plain, value.sql)
    if value.type is FLOAT64:
        # NaN is the largest value for DuckDB; for GoogleSQL any NaN makes the result NaN.
        nan = f"bool_or(isnan({value.sql})){over(c, node.over, plain)}"
        return Value(
            f"(CASE WHEN {nan} THEN CAST('nan' AS DOUBLE) ELSE {_aggregate(c, node, plain, name, args)} END)", FLOAT64
        )
    return Value(f"({_aggregate(c, node, plain, name, args)})", value.type)


@function("ANY_VALUE")
def any_value(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    plain = scope.without_aliases()
    _plain(c, node, "HAVING")
    (value,) = arguments(c, node, plain)
    if node.having is not None:
        by = c.expr(node.having[1], plain)
        name = "arg_max_null" if node.having[0] == "MAX" else "arg_min_null"
        return Value(f"({name}({value.sql}, {by.sql}){over(c, node.over, plain)})", value.type)
    return Value(f"(any_value({value.sql}){over(c, node.over, plain)})", value.type)


@function("MAX_BY", "MIN_BY")
def by(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    plain = scope.without_aliases()
    _plain(c, node)
    value, key = arguments(c, node, plain)
    name = "arg_max_null" if node.name == "MAX_BY" else "arg_min_null"
    return Value(f"({name}({value.sql}, {key.sql}){over(c, node.over, plain)})", value.type)


@function("LOGICAL_AND", "LOGICAL_OR")
def logical(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    plain = scope.without_aliases()
    _plain(c, node)
    (value,) = arguments(c, node, plain)
    name = "bool_and" if node.name == "LOGICAL_AND" else "bool_or"
    return Value(f"({name}({want(c, node, value, BOOL).sql}){over(c, node.over, plain)})", BOOL)


@function("BIT_AND", "BIT_OR", "BIT_XOR")
def bits(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    plain = scope.without_aliases()
    _plain(c, node, "DISTINCT")
    (value,) = arguments(c, node, plain)
    return Value(f"({_aggregate(c, node, plain, node.name.lower(), want(c, node, value, INT64).sql)})", INT64)


_STATISTICS = {
    "STDDEV": "stddev_samp", "STDDEV_SAMP": "stddev_samp", "STDDEV_POP": "stddev_pop", "VARIANCE": "var_samp",
    "VAR_SAMP": "var_samp", "VAR_POP": "var_pop",
}  # fmt: skip


@function(*_STATISTICS)
def statistic(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    plain = scope.without_aliases()
    _plain(c, node, "DISTINCT")
    (value,) = arguments(c, node, plain)
    number = want(c, node, value, FLOAT64)
    return Value(f"({_aggregate(c, node, plain, _STATISTICS[node.name], number.sql)})", FLOAT64)


@function("CORR", "COVAR_POP", "COVAR_SAMP")
def correlation(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    plain = scope.without_aliases()
    _plain(c, node, "DISTINCT")
    pair = ", ".join(want(c, node, value, FLOAT64).sql for value in arguments(c, node, plain))
    return Value(f"({_aggregate(c, node, plain, node.name.lower(), pair)})", FLOAT64)


def _list(c: ExpressionCompiler, node: ast.Call, scope: Scope, value: str, *, skip_nulls: bool) -> str:
    """DuckDB's list of the values, ordered, without NULLs when asked, at most LIMIT of them."""
    distinct = "DISTINCT " if node.distinct else ""
    ordered = f" ORDER BY {order(c, node.order_by, scope)}" if node.order_by else ""
    chosen = f" FILTER (WHERE {value} IS NOT NULL)" if skip_nulls else ""
    sql = f"list({distinct}{value}{ordered}){chosen}{over(c, node.over, scope)}"
    if node.limit is not None:
        sql = f"({sql})[1:{c.typed(node.limit, scope, INT64).sql}]"
    return sql


@function("ARRAY_AGG")
def array_agg(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    plain = scope.without_aliases()
    _plain(c, node, "DISTINCT", "ORDER BY", "LIMIT", "NULLS")
    (value,) = arguments(c, node, plain)
    if value.type.kind == "ARRAY":
        c.fail("The argument to ARRAY_AGG must not be an array type but was " + str(value.type), node)
    return Value(f"({_list(c, node, plain, value.sql, skip_nulls=node.nulls == 'IGNORE')})", array_of(value.type))


@function("ARRAY_CONCAT_AGG")
def array_concat_agg(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    plain = scope.without_aliases()
    _plain(c, node, "ORDER BY", "LIMIT")
    (value,) = arguments(c, node, plain)
    if value.type.kind != "ARRAY":
        no_signature(c, node, [value])
    return Value(f"flatten({_list(c, node, plain, value.sql, skip_nulls=True)})", value.type)


@function("STRING_AGG")
def string_agg(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    plain = scope.without_aliases()
    _plain(c, node, "DISTINCT", "ORDER BY", "LIMIT")
    args = arguments(c, node, plain)
    if args[0].type is BYTES:
        raise not_implemented("STRING_AGG of BYTES")
    value = want(c, node, args[0], STRING)
    delimiter = want(c, node, args[1], STRING).sql if len(args) == 2 else "','"
    return Value(f"array_to_string({_list(c, node, plain, value.sql, skip_nulls=True)}, {delimiter})", STRING)


@function("APPROX_COUNT_DISTINCT")
def approx_count_distinct(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    """Exact: within any approximation's bounds."""
    plain = scope.without_aliases()
    _plain(c, node)
    (value,) = arguments(c, node, plain)
    return Value(f"(count(DISTINCT {value.sql}){over(c, node.over, plain)})", INT64)


@function("APPROX_QUANTILES")
def approx_quantiles(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    plain = scope.without_aliases()
    _plain(c, node, "DISTINCT", "NULLS")
    value, parts = arguments(c, node, plain)
    if not isinstance(parts.constant, int) or parts.constant <= 0:
        c.fail("The second argument of APPROX_QUANTILES must be a positive integer literal", node)
    positions = ", ".join(repr(index / parts.constant) for index in range(parts.constant + 1))
    sql = _aggregate(c, node, plain, "quantile_disc", f"{value.sql}, [{positions}]")
    return Value(f"({sql})", array_of(value.type))


@function("APPROX_TOP_COUNT")
def approx_top_count(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    plain = scope.without_aliases()
    _plain(c, node)
    value, number = arguments(c, node, plain)
    kind = array_of(struct_of((("value", value.type), ("count", INT64))))
    return Value(f"bq_top_count(histogram({value.sql}), {want(c, node, number, INT64).sql})", kind)


@function(
    "APPROX_TOP_SUM",
    "HLL_COUNT.INIT",
    "HLL_COUNT.MERGE",
    "HLL_COUNT.EXTRACT",
    "HLL_COUNT.MERGE_PARTIAL",
)
def sketches(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    raise not_implemented(node.name)


@function("GROUPING")
def grouping(c: ExpressionCompiler, node: ast.Call, scope: Scope) -> Value:
    (value,) = arguments(c, node, scope.without_aliases())
    return Value(f"CAST(grouping({value.sql}) AS BIGINT)", INT64)
