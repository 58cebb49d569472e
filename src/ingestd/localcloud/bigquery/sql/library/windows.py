"""OVER clauses and the functions that need one."""

from ingestd.googlesql import ast
from ingestd.googlesql.names import Scope
from ingestd.googlesql.types import FLOAT64, INT64, NUMERIC
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.duckdb_types import duckdb_type
from ingestd.localcloud.bigquery.sql.coercion import coerce
from ingestd.localcloud.bigquery.sql.expressions import ExpressionCompiler
from ingestd.localcloud.bigquery.sql.library.registry import Call, function


def order(c: ExpressionCompiler, items: tuple[ast.OrderItem, ...], scope: Scope) -> str:
    """NULLs are the smallest values: first when ascending, last when descending, unless told."""
    parts = []
    for item in items:
        value = c.expr(item.value, scope)
        if value.type.kind in ("ARRAY", "STRUCT", "JSON", "GEOGRAPHY"):
            c.fail(f"ORDER BY does not support expressions of type {value.type.kind}", item)
        parts.append(f"{value.sql} {direction(item)}")
    return ", ".join(parts)


def direction(item: ast.OrderItem) -> str:
    nulls = item.nulls or ("LAST" if item.desc else "FIRST")
    return f"{'DESC' if item.desc else 'ASC'} NULLS {nulls}"


def over(call: Call) -> str:
    """` OVER (…)`, or nothing."""
    if call.node.over is None:
        return ""
    c, scope = call.compiler, call.scope
    window = _resolve(c, call.node.over, scope)
    parts = []
    if window.partition_by:
        keys = []
        for item in window.partition_by:
            value = c.expr(item, scope)
            if value.type.kind in ("ARRAY", "JSON", "GEOGRAPHY"):
                c.fail(f"Partitioning by expressions of type {value.type.kind} is not allowed", item)
            keys.append(value.sql)
        parts.append("PARTITION BY " + ", ".join(keys))
    if window.order_by:
        parts.append("ORDER BY " + order(c, window.order_by, scope))
    if window.unit and window.start is not None:
        start = _bound(c, window.start, scope)
        end = _bound(c, window.end, scope) if window.end is not None else "CURRENT ROW"
        parts.append(f"{window.unit} BETWEEN {start} AND {end}")
    return f" OVER ({' '.join(parts)})"


def _resolve(c: ExpressionCompiler, window: ast.Window, scope: Scope) -> ast.Window:
    """A window with the definition it is based on merged in."""
    seen = 0
    while window.base:
        base = scope.windows.get(window.base)
        seen += 1
        if base is None or seen > 50:
            c.fail(f"Unrecognized window alias {window.base}", window)
        window = ast.Window(
            window.pos,
            base.base,
            window.partition_by or base.partition_by,
            window.order_by or base.order_by,
            window.unit or base.unit,
            window.start or base.start,
            window.end or base.end,
        )
    return window


def _bound(c: ExpressionCompiler, bound: ast.FrameBound, scope: Scope) -> str:
    if bound.value is None:
        return bound.kind
    value = c.expr(bound.value, scope)
    if not value.type.numeric and value.type.kind != "INTERVAL":
        c.fail(f"Window frame bound must be numeric but was {value.type}", bound)
    return f"{value.sql} {bound.kind}"


@function("ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST")
def numbering(call: Call) -> Value:
    kind = FLOAT64 if call.name in ("PERCENT_RANK", "CUME_DIST") else INT64
    if (
        call.name != "ROW_NUMBER"
        and call.node.over
        and not _resolve(call.compiler, call.node.over, call.scope).order_by
    ):
        call.fail(f"Window ORDER BY is required for analytic function {call.name.lower()}")
    return Value(f"({call.name.lower()}(){over(call)})", kind)


@function("NTILE")
def ntile(call: Call) -> Value:
    (buckets,) = call.values()
    return Value(f"(ntile({call.want(buckets, INT64).sql}){over(call)})", INT64)


@function("LEAD", "LAG")
def shifted(call: Call) -> Value:
    args = call.values()
    distance = call.want(args[1], INT64).sql if len(args) > 1 else "1"
    kind, default = args[0].type, "NULL"
    value = args[0]
    if len(args) == 3:
        kind, (value, other) = call.common([args[0], args[2]])
        default = other.sql
    return Value(f"({call.name.lower()}({value.sql}, {distance}, {default}){over(call)})", kind)


@function("FIRST_VALUE", "LAST_VALUE", "NTH_VALUE")
def picked(call: Call) -> Value:
    args = call.values()
    listed = args[0].sql
    if call.name == "NTH_VALUE":
        listed += f", {call.want(args[1], INT64).sql}"
    nulls = " IGNORE NULLS" if call.node.nulls == "IGNORE" else ""
    return Value(f"({call.name.lower()}({listed}{nulls}){over(call)})", args[0].type)


@function("PERCENTILE_CONT", "PERCENTILE_DISC")
def percentile(call: Call) -> Value:
    value, fraction = call.values()
    if call.node.nulls == "RESPECT":
        from ingestd.formats.errors import not_implemented

        raise not_implemented(f"{call.name} with RESPECT NULLS")
    part = coerce(fraction, FLOAT64)
    if part is None:
        raise call.mismatch([value, fraction])
    name = "quantile_cont" if call.name == "PERCENTILE_CONT" else "quantile_disc"
    kind = value.type
    if name == "quantile_cont":
        kind = NUMERIC if kind is NUMERIC else FLOAT64
        value = call.want(value, FLOAT64)
    # A quantile's position must be a constant in DuckDB.
    position = repr(float(part.constant)) if isinstance(part.constant, int | float) else part.sql
    return Value(f"(CAST({name}({value.sql}, {position}){over(call)} AS {duckdb_type(kind)}))", kind)
