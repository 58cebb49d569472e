"""Sub-selects over the elements of an array: the only ones that run on Spark, as its higher-order functions."""

from ingestd.googlesql import ast
from ingestd.googlesql.analyze import Analyzer, implied_name
from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.names import Scope
from ingestd.googlesql.types import BOOL, INT64, array_of
from ingestd.googlesql.values import Value
from ingestd.spark.sql.operators import aggregate
from ingestd.spark.sql.values import fresh

AGGREGATES = frozenset(["SUM", "MIN", "MAX", "COUNT", "AVG", "COUNTIF", "LOGICAL_AND", "LOGICAL_OR", "STRING_AGG"])


def exists(c: Analyzer, node: ast.Exists, scope: Scope) -> Value:
    return Value(f"(size({_unnested(c, node.query, scope).sql}) > 0)", BOOL)


def scalar(c: Analyzer, node: ast.ScalarQuery, scope: Scope) -> Value:
    """`(SELECT SUM(x) FROM UNNEST(array) x)`: one aggregate over the elements of an array."""
    query = node.query
    while isinstance(query.body, ast.Query):
        query = query.body
    items = query.body.items if isinstance(query.body, ast.Select) else ()
    call = items[0].value if len(items) == 1 and isinstance(items[0], ast.SelectItem) else None
    if not isinstance(call, ast.Call) or call.name not in AGGREGATES:
        raise SqlError("a sub-select is available only as one aggregate over UNNEST of an array")
    if call.distinct or call.nulls or call.having or call.order_by or call.limit or call.over or call.named:
        raise SqlError(f"{call.name} takes plain arguments: no DISTINCT, NULLS, HAVING, ORDER BY or LIMIT")
    if not call.args and not (call.star and call.name == "COUNT"):
        raise SqlError(f"{call.name} takes an argument")
    counted = ast.Literal(call.pos, "INT64", 1)
    listed = _unnested(c, query, scope, counted if call.star else call.args[0])
    return aggregate(call.name, listed, [c.expr(item, scope) for item in call.args[1:]])


def array(c: Analyzer, node: ast.ArrayQuery, scope: Scope) -> Value:
    """`ARRAY(SELECT … FROM UNNEST(array) …)`."""
    return _unnested(c, node.query, scope)


def _unnested(c: Analyzer, query: ast.Query, scope: Scope, output: ast.Expression | None = None) -> Value:
    """The array of a sub-select's results: elements filtered, then computed, in the array's order."""
    select, unnest = _plain(query)
    array = c.expr(unnest.array, scope)
    if array.type.element is None:
        raise SqlError("UNNEST takes an array")
    _check_order(query, unnest)

    def bind(element: str, position: str) -> Scope:
        ranges = [c.value_range(unnest.alias, Value(element, array.type.element or INT64, simple=True))]
        if unnest.offset:
            ranges.append(c.value_range(unnest.offset, Value(f"CAST({position} AS BIGINT)", INT64, simple=True)))
        return Scope(ranges, scope)

    element, position = fresh("u"), fresh("i")
    listed = f"coalesce({array.sql}, array())"
    if select.where is not None and unnest.offset:
        # Positions count the whole array's elements, and a filtered array no longer knows them.
        raise SqlError("a sub-select over UNNEST WITH OFFSET has no WHERE on Spark")
    if select.where is not None:
        test = c.typed(select.where, bind(element, position), BOOL, "WHERE")
        listed = f"filter({listed}, {element} -> {test.sql})"
    element, position = fresh("u"), fresh("i")
    inner = bind(element, position)
    items = [item for item in select.items if isinstance(item, ast.SelectItem)]
    if output is None and select.as_kind == "STRUCT" and len(items) == len(select.items):
        value = c.packed([(item.value, item.alias or implied_name(item.value)) for item in items], inner)
    elif output is None and len(items) == len(select.items) == 1 and select.as_kind != "STRUCT":
        value = c.expr(items[0].value, inner)
    elif output is not None:
        value = c.expr(output, inner)
    else:
        raise SqlError("a sub-select has one column, or AS STRUCT")
    return Value(f"transform({listed}, ({element}, {position}) -> {value.sql})", array_of(value.type))


def _plain(query: ast.Query) -> tuple[ast.Select, ast.Unnest]:
    select = query.body
    if isinstance(select, ast.Select) and isinstance(select.source, ast.Unnest):
        more = (select.distinct, select.group_by, select.having, select.qualify, select.windows)
        if not any((*more, query.ctes, query.limit, query.offset)):
            return select, select.source
    raise SqlError("a sub-select may only read UNNEST of an array, with WHERE")


def _check_order(query: ast.Query, unnest: ast.Unnest) -> None:
    for item in query.order_by:
        by_offset = isinstance(item.value, ast.Path) and item.value.parts[0].lower() == unnest.offset.lower()
        if len(query.order_by) > 1 or not unnest.offset or not by_offset or item.desc:
            raise SqlError("a sub-select over UNNEST may be ordered by its offset alone on Spark")
