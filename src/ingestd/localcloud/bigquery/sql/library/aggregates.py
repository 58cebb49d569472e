"""Aggregate functions, with DISTINCT, ORDER BY, LIMIT, IGNORE NULLS, HAVING MAX/MIN and OVER."""

from ingestd.formats.errors import not_implemented
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
from ingestd.localcloud.bigquery.sql.library.registry import Call, function
from ingestd.localcloud.bigquery.sql.library.windows import order, over


def _plain(call: Call, *allowed: str) -> None:
    """Refuse the modifiers this function does not take."""
    given = {
        "DISTINCT": call.node.distinct,
        "ORDER BY": bool(call.node.order_by),
        "LIMIT": call.node.limit is not None,
        "HAVING": call.node.having is not None,
        "NULLS": bool(call.node.nulls),
    }
    for name, present in given.items():
        if present and name not in allowed:
            call.fail(f"{call.name} does not support {name} in arguments")


def _filter(call: Call, value: str) -> str:
    """`x HAVING MAX y`: only the rows with the largest y count."""
    if call.node.having is None:
        return value
    raise not_implemented(f"{call.name} with HAVING {call.node.having[0]}")


def _aggregate(call: Call, name: str, args: str, tail: str = "") -> str:
    distinct = "DISTINCT " if call.node.distinct else ""
    if distinct and call.node.over is not None and call.node.over.order_by:
        call.fail("Window ORDER BY is not allowed if DISTINCT is specified")
    return f"{name}({distinct}{args}{tail}){over(call)}"


@function("COUNT")
def count_(call: Call) -> Value:
    _plain(call, "DISTINCT")
    if call.node.star:
        return Value(f"(count(*){over(call)})", INT64)
    (value,) = call.values()
    if call.node.distinct and value.type.kind in ("JSON", "GEOGRAPHY"):
        call.fail(f"Aggregate functions with DISTINCT cannot be used with arguments of type {value.type.kind}")
    return Value(f"({_aggregate(call, 'count', value.sql)})", INT64)


@function("COUNTIF", "COUNT_IF")
def countif(call: Call) -> Value:
    _plain(call, "DISTINCT")
    condition = call.compiler.condition(call.nodes[0], call.scope, "COUNTIF argument")
    return Value(f"({_aggregate(call, 'count', f'CASE WHEN {condition} THEN 1 END')})", INT64)


@function("SUM")
def sum_(call: Call) -> Value:
    _plain(call, "DISTINCT")
    (value,) = call.values()
    if not value.type.numeric and value.type is not INTERVAL:
        raise call.mismatch([value], "SUM(INT64); SUM(FLOAT64); SUM(NUMERIC); SUM(BIGNUMERIC); SUM(INTERVAL)")
    # DuckDB sums integers as 128 bits; back to 64, or an overflow error.
    return Value(f"CAST({_aggregate(call, 'sum', value.sql)} AS {duckdb_type(value.type)})", value.type)


@function("AVG")
def avg(call: Call) -> Value:
    _plain(call, "DISTINCT")
    (value,) = call.values()
    if not value.type.numeric:
        raise call.mismatch([value], "AVG(INT64); AVG(FLOAT64); AVG(NUMERIC); AVG(BIGNUMERIC)")
    if value.type in (NUMERIC, BIGNUMERIC):
        total = _aggregate(call, "sum", value.sql)
        number = f"nullif({_aggregate(call, 'count', value.sql)}, 0)"
        name = f"bq_{value.type.kind.lower()}_divide"
        return Value(
            f"{name}(CAST({total} AS {duckdb_type(value.type)}), CAST({number} AS {duckdb_type(value.type)}))",
            value.type,
        )
    return Value(f"CAST({_aggregate(call, 'avg', value.sql)} AS DOUBLE)", FLOAT64)


@function("MIN", "MAX")
def extreme(call: Call) -> Value:
    _plain(call, "DISTINCT", "HAVING")
    (value,) = call.values()
    if value.type.kind in ("ARRAY", "STRUCT", "JSON", "GEOGRAPHY"):
        raise call.mismatch([value])
    name, args = call.name.lower(), _filter(call, value.sql)
    if value.type is FLOAT64:
        # NaN is the largest value for DuckDB; for GoogleSQL any NaN makes the result NaN.
        nan = f"bool_or(isnan({value.sql})){over(call)}"
        return Value(f"(CASE WHEN {nan} THEN CAST('nan' AS DOUBLE) ELSE {_aggregate(call, name, args)} END)", FLOAT64)
    return Value(f"({_aggregate(call, name, args)})", value.type)


@function("ANY_VALUE")
def any_value(call: Call) -> Value:
    _plain(call, "HAVING")
    (value,) = call.values()
    if call.node.having is not None:
        by = call.compiler.expr(call.node.having[1], call.scope)
        name = "arg_max_null" if call.node.having[0] == "MAX" else "arg_min_null"
        return Value(f"({name}({value.sql}, {by.sql}){over(call)})", value.type)
    return Value(f"(any_value({value.sql}){over(call)})", value.type)


@function("MAX_BY", "MIN_BY")
def by(call: Call) -> Value:
    _plain(call)
    value, key = call.values()
    name = "arg_max_null" if call.name == "MAX_BY" else "arg_min_null"
    return Value(f"({name}({value.sql}, {key.sql}){over(call)})", value.type)


@function("LOGICAL_AND", "LOGICAL_OR")
def logical(call: Call) -> Value:
    _plain(call)
    (value,) = call.values()
    name = "bool_and" if call.name == "LOGICAL_AND" else "bool_or"
    return Value(f"({name}({call.want(value, BOOL).sql}){over(call)})", BOOL)


@function("BIT_AND", "BIT_OR", "BIT_XOR")
def bits(call: Call) -> Value:
    _plain(call, "DISTINCT")
    (value,) = call.values()
    return Value(f"({_aggregate(call, call.name.lower(), call.want(value, INT64).sql)})", INT64)


_STATISTICS = {
    "STDDEV": "stddev_samp", "STDDEV_SAMP": "stddev_samp", "STDDEV_POP": "stddev_pop", "VARIANCE": "var_samp",
    "VAR_SAMP": "var_samp", "VAR_POP": "var_pop",
}  # fmt: skip


@function(*_STATISTICS)
def statistic(call: Call) -> Value:
    _plain(call, "DISTINCT")
    (value,) = call.values()
    number = call.want(value, FLOAT64)
    return Value(f"({_aggregate(call, _STATISTICS[call.name], number.sql)})", FLOAT64)


@function("CORR", "COVAR_POP", "COVAR_SAMP")
def correlation(call: Call) -> Value:
    _plain(call, "DISTINCT")
    pair = ", ".join(call.want(value, FLOAT64).sql for value in call.values())
    return Value(f"({_aggregate(call, call.name.lower(), pair)})", FLOAT64)


def _list(call: Call, value: str, *, skip_nulls: bool) -> str:
    """DuckDB's list of the values, ordered, without NULLs when asked, at most LIMIT of them."""
    distinct = "DISTINCT " if call.node.distinct else ""
    ordered = f" ORDER BY {order(call.compiler, call.node.order_by, call.scope)}" if call.node.order_by else ""
    chosen = f" FILTER (WHERE {value} IS NOT NULL)" if skip_nulls else ""
    sql = f"list({distinct}{value}{ordered}){chosen}{over(call)}"
    if call.node.limit is not None:
        sql = f"({sql})[1:{call.compiler.typed(call.node.limit, call.scope, INT64).sql}]"
    return sql


@function("ARRAY_AGG")
def array_agg(call: Call) -> Value:
    _plain(call, "DISTINCT", "ORDER BY", "LIMIT", "NULLS")
    (value,) = call.values()
    if value.type.kind == "ARRAY":
        call.fail("The argument to ARRAY_AGG must not be an array type but was " + str(value.type))
    return Value(f"({_list(call, value.sql, skip_nulls=call.node.nulls == 'IGNORE')})", array_of(value.type))


@function("ARRAY_CONCAT_AGG")
def array_concat_agg(call: Call) -> Value:
    _plain(call, "ORDER BY", "LIMIT")
    (value,) = call.values()
    if value.type.kind != "ARRAY":
        raise call.mismatch([value])
    return Value(f"flatten({_list(call, value.sql, skip_nulls=True)})", value.type)


@function("STRING_AGG")
def string_agg(call: Call) -> Value:
    _plain(call, "DISTINCT", "ORDER BY", "LIMIT")
    args = call.values()
    if args[0].type is BYTES:
        raise not_implemented("STRING_AGG of BYTES")
    value = call.want(args[0], STRING)
    delimiter = call.want(args[1], STRING).sql if len(args) == 2 else "','"
    return Value(f"array_to_string({_list(call, value.sql, skip_nulls=True)}, {delimiter})", STRING)


@function("APPROX_COUNT_DISTINCT")
def approx_count_distinct(call: Call) -> Value:
    """Exact: within any approximation's bounds."""
    _plain(call)
    (value,) = call.values()
    return Value(f"(count(DISTINCT {value.sql}){over(call)})", INT64)


@function("APPROX_QUANTILES")
def approx_quantiles(call: Call) -> Value:
    _plain(call, "DISTINCT", "NULLS")
    value, parts = call.values()
    if not isinstance(parts.constant, int) or parts.constant <= 0:
        call.fail("The second argument of APPROX_QUANTILES must be a positive integer literal")
    positions = ", ".join(repr(index / parts.constant) for index in range(parts.constant + 1))
    sql = _aggregate(call, "quantile_disc", f"{value.sql}, [{positions}]")
    return Value(f"({sql})", array_of(value.type))


@function("APPROX_TOP_COUNT")
def approx_top_count(call: Call) -> Value:
    _plain(call)
    value, number = call.values()
    kind = array_of(struct_of((("value", value.type), ("count", INT64))))
    return Value(f"bq_top_count(histogram({value.sql}), {call.want(number, INT64).sql})", kind)


@function(
    "APPROX_TOP_SUM",
    "HLL_COUNT.INIT",
    "HLL_COUNT.MERGE",
    "HLL_COUNT.EXTRACT",
    "HLL_COUNT.MERGE_PARTIAL",
)
def sketches(call: Call) -> Value:
    raise not_implemented(call.name)


@function("GROUPING")
def grouping(call: Call) -> Value:
    (value,) = call.values()
    return Value(f"CAST(grouping({value.sql}) AS BIGINT)", INT64)
