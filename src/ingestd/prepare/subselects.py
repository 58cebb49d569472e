"""Sub-selects over the elements of an array: the only ones that run on Spark, as its higher-order functions."""

from typing import Any, Protocol

from sqlglot import exp

from ingestd.prepare.functions.registry import Compiling
from ingestd.prepare.operators import aggregate
from ingestd.prepare.sqltypes import BOOL, INT64, SqlType, array_of, quote
from ingestd.prepare.values import ExpressionError, Value, fresh

AGGREGATES = frozenset(["SUM", "MIN", "MAX", "COUNT", "AVG", "COUNTIF", "LOGICAL_AND", "LOGICAL_OR", "STRING_AGG"])


class Selecting(Compiling, Protocol):
    def typed(self, node: exp.Expr, scope: Any, kind: SqlType, what: str) -> Value: ...

    def struct(self, node: exp.Expr, scope: Any) -> Value: ...


def exists(c: Selecting, node: exp.Exists, scope: Any) -> Value:
    listed = _unnested(c, node.this, scope)
    return Value(f"(size({listed.sql}) > 0)", BOOL)


def subquery(c: Selecting, node: exp.Subquery, scope: Any) -> Value:
    """`(SELECT SUM(x) FROM UNNEST(array) x)`: one aggregate over the elements of an array."""
    select = node.this
    while isinstance(select, exp.Subquery | exp.Paren):
        select = select.this
    outputs = select.expressions if isinstance(select, exp.Select) else ()
    call = outputs[0].unalias() if len(outputs) == 1 else None
    if not isinstance(call, exp.Anonymous) or str(call.this).upper() not in AGGREGATES:
        raise ExpressionError("a sub-select is available only as one aggregate over UNNEST of an array")
    name = str(call.this).upper()
    if not call.expressions:
        raise ExpressionError(f"{name} takes an argument")
    counted = name == "COUNT" and isinstance(call.expressions[0], exp.Star)
    inner = exp.Literal.number(1) if counted else call.expressions[0]
    listed = _unnested(c, select, scope, inner)
    return aggregate(name, listed, [c.compile(item, scope) for item in call.expressions[1:]])


def array(c: Selecting, node: exp.Select, scope: Any) -> Value:
    """`ARRAY(SELECT … FROM UNNEST(array) …)`."""
    return _unnested(c, node, scope)


def _unnested(c: Selecting, select: exp.Expr, scope: Any, output: exp.Expr | None = None) -> Value:
    """The array of a sub-select's results: elements filtered, then computed, in the array's order."""
    source = select.args.get("from_")
    known = {"expressions", "from_", "where", "kind", "order"}
    extra = [key for key, value in select.args.items() if value and key not in known]
    unnest = source.this if source is not None else None
    if not isinstance(select, exp.Select) or extra or not isinstance(unnest, exp.Unnest):
        raise ExpressionError("a sub-select may only read UNNEST of an array, with WHERE")
    array = c.compile(unnest.expressions[0], scope)
    if array.type.element is None:
        raise ExpressionError("UNNEST takes an array")
    alias = unnest.args.get("alias")
    names = [item.name for item in alias.columns] if alias is not None else []
    offset = unnest.args.get("offset")
    _check_order(select, offset)
    inside = scope.inside({})

    def bind(element: str, position: str) -> Any:
        values: dict[str, Value] = {}
        item = Value(element, array.type.element or INT64, simple=True)
        if names:
            values[names[0].lower()] = item
        elif item.type.kind == "STRUCT":
            for physical, (own, kind) in zip(item.type.physical_names, item.type.fields, strict=True):
                values[own.lower()] = Value(f"{element}.{quote(physical)}", kind, simple=True)
        if offset:
            values[offset.name.lower()] = Value(f"CAST({position} AS BIGINT)", INT64, simple=True)
        return inside.inside(values)

    element, position = fresh("u"), fresh("i")
    listed = f"coalesce({array.sql}, array())"
    if select.args.get("where") is not None and offset:
        # Positions count the whole array's elements, and a filtered array no longer knows them.
        raise ExpressionError("a sub-select over UNNEST WITH OFFSET has no WHERE on Spark")
    if select.args.get("where") is not None:
        test = c.typed(select.args["where"].this, bind(element, position), BOOL, "WHERE")
        listed = f"filter({listed}, {element} -> {test.sql})"
    element, position = fresh("u"), fresh("i")
    inner = bind(element, position)
    if output is None and select.args.get("kind") == "STRUCT":
        value = c.struct(select, inner)
    else:
        outputs = [output] if output is not None else select.expressions
        if len(outputs) != 1:
            raise ExpressionError("a sub-select has one column, or AS STRUCT")
        value = c.compile(outputs[0].unalias(), inner)
    return Value(f"transform({listed}, ({element}, {position}) -> {value.sql})", array_of(value.type))


def _check_order(select: exp.Select, offset: Any) -> None:
    order = select.args.get("order")
    if order is None:
        return
    keys = order.expressions
    by_offset = len(keys) == 1 and offset and keys[0].this.name.lower() == offset.name.lower()
    if not by_offset or keys[0].args.get("desc"):
        raise ExpressionError("a sub-select over UNNEST may be ordered by its offset alone on Spark")
