"""Array functions, and generators of arrays."""

import re

from ingestd.googlesql import ast
from ingestd.googlesql.civil import TIME_PARTS
from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.types import BOOL, BYTES, DATE, INT64, STRING, SqlType, array_of
from ingestd.googlesql.values import Value
from ingestd.spark.sql.functions.registry import NEVER_FAILS, Call, define, function, writes
from ingestd.spark.sql.operators import aggregate, check_ordered, contains
from ingestd.spark.sql.values import cast, fill, fresh, literal

LIMIT = 1_048_575  # BigQuery refuses larger generated arrays


define("ARRAY_LENGTH", "ARRAY<T>", "CAST(array_size(@0) AS BIGINT)", safe=NEVER_FAILS)
define("ARRAY_REVERSE", "ARRAY<T>", "reverse(@0)", safe=NEVER_FAILS)


@writes("ARRAY_CONCAT", safe=True)
def concat(call: Call, *arrays: Value) -> str:
    return f"concat({', '.join(array.sql for array in arrays)})"


@writes("ARRAY_TO_STRING", "ARRAY<STRING>, STRING, STRING?", "ARRAY<T>, STRING, STRING?", safe=True)
def to_string(call: Call, value: Value, *rest: Value) -> str:
    element = value.type.element
    if element is BYTES:
        raise call.mismatch([value, *rest])
    if element is not None and element is not STRING and value.members != ():
        item = fresh("e")
        text = cast(Value(item, element, simple=True), STRING).sql
        value = Value(f"transform({value.sql}, {item} -> {text})", array_of(STRING))
    return f"array_join({', '.join(item.sql for item in (value, *rest))})"


for _name, _at in (("ARRAY_FIRST", "1"), ("ARRAY_LAST", "-1")):
    _end = f"IF(size(@0) = 0, {{}}, element_at(@0, {_at}))"
    _empty = f"raise_error('{_name} of an empty array')"
    define(_name, "ARRAY<T>", _end.format(_empty), safe=_end.format("NULL"))
# From one offset to another, both included; negative ones count from the end.
_FIRST = "IF(@1 < 0, greatest(size(@0) + @1, 0L), @1)"
_LAST = "IF(@2 < 0, size(@0) + @2, least(@2, size(@0) - 1L))"
define(
    "ARRAY_SLICE", "ARRAY<T>, INT64, INT64",
    "IF(@0 IS NULL OR @1 IS NULL OR @2 IS NULL, NULL, "
    f"slice(@0, CAST({_FIRST} + 1 AS INT), CAST(greatest({_LAST} - {_FIRST} + 1, 0L) AS INT)))",
    safe=NEVER_FAILS,
)  # fmt: skip


@writes("ARRAY_IS_DISTINCT", safe=True)
def is_distinct(call: Call, value: Value) -> str:
    assert value.type.element is not None
    check_ordered(value.type.element, "ARRAY_IS_DISTINCT")
    return fill("(size(@0) = size(array_distinct(@0)))", value)


@function("ARRAY_INCLUDES", safe=True)
def includes(call: Call) -> Value:
    value, element = call.array(call.value(0))
    if isinstance(call.nodes[1], ast.Lambda):
        body = _lambda(call, call.nodes[1], element)
        return Value(f"(size(filter({value.sql}, {call.want(body, BOOL).sql})) > 0)", BOOL)
    found = f"coalesce({contains('@0', '@1', element)}, FALSE)"
    return Value(fill(f"IF(@0 IS NULL OR @1 IS NULL, NULL, {found})", value, call.typed(1, element)), BOOL)


def _lambda(call: Call, node: ast.Lambda, element: SqlType) -> Value:
    """The lambda's text, under the type of its body."""
    names = node.names
    item, index = fresh("l"), fresh("i")
    values = {names[0].lower(): Value(item, element, simple=True)}
    if len(names) == 2:
        values[names[1].lower()] = Value(f"CAST({index} AS BIGINT)", INT64, simple=True)
    body = call.compiler.expr(node.body, call.scope.inside(values))
    head = f"({item}, {index})" if len(names) == 2 else item
    return Value(f"{head} -> {body.sql}", body.type)


@function("ARRAY_FILTER", "ARRAY_TRANSFORM", safe=False)
def higher_order(call: Call) -> Value:
    value, element = call.array(call.value(0))
    if not isinstance(call.nodes[1], ast.Lambda):
        raise SqlError(f"{call.name} needs a lambda")
    body = _lambda(call, call.nodes[1], element)
    if call.name == "ARRAY_FILTER":
        if body.type is not BOOL:
            raise SqlError("the lambda of ARRAY_FILTER must be a BOOL")
        return Value(f"filter({value.sql}, {body.sql})", value.type)
    return Value(f"transform({value.sql}, {body.sql})", array_of(body.type))


@writes("ARRAY_SUM ARRAY_AVG ARRAY_MIN ARRAY_MAX")
def fold(call: Call, value: Value) -> str:
    return aggregate(call.name.removeprefix("ARRAY_"), value, ()).sql


_ONE = literal(1, INT64)


@writes("GENERATE_ARRAY")
def generate(call: Call, start: Value, stop: Value, step: Value = _ONE) -> str:
    if start.type is not INT64:
        raise call.mismatch([start, stop])
    large = f"raise_error('Cannot generate arrays with more than {LIMIT} elements.')"
    template = (
        "CASE WHEN @0 IS NULL OR @1 IS NULL OR @2 IS NULL THEN NULL "
        "WHEN @2 = 0 THEN raise_error('Sequence step cannot be 0.') "
        "WHEN (@2 > 0 AND @0 > @1) OR (@2 < 0 AND @0 < @1) THEN CAST(array() AS ARRAY<BIGINT>) "
        f"WHEN (CAST(@1 AS DOUBLE) - @0) / @2 >= {LIMIT} THEN {large} ELSE sequence(@0, @1, @2) END"
    )
    return fill(template, start, stop, step)


@function("GENERATE_DATE_ARRAY")
def generate_dates(call: Call) -> Value:
    start, stop = call.typed(0, DATE), call.typed(1, DATE)
    step, backwards = "INTERVAL '1' DAY", False
    if len(call.nodes) == 3:
        node = call.nodes[2]
        interval = node if isinstance(node, ast.IntervalValue) and not node.to_part else None
        unit = interval.part if interval else ""
        constant = call.compiler.expr(interval.value, call.scope).constant if interval else None
        if unit in TIME_PARTS or not re.fullmatch(r"-?[0-9]+", str(constant)):
            raise SqlError("GENERATE_DATE_ARRAY needs a constant INTERVAL of days, weeks, months or years")
        amount = int(str(constant))
        months = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}.get(unit)
        days = {"DAY": 1, "WEEK": 7}.get(unit)
        if amount == 0 or (months is None and days is None):
            raise SqlError("GENERATE_DATE_ARRAY: its step cannot be 0")
        step = f"INTERVAL '{amount * months}' MONTH" if months else f"INTERVAL '{amount * (days or 1)}' DAY"
        backwards = amount < 0
    empty = f"@0 {'<' if backwards else '>'} @1"
    some = f"IF({empty}, CAST(array() AS ARRAY<DATE>), sequence(@0, @1, {step}))"
    if step.endswith("MONTH"):  # GoogleSQL goes on from the day before, which may have become the 29th for good
        late = "raise_error('GENERATE_DATE_ARRAY by months from after the 28th is not available on Spark')"
        some = f"IF(day(@0) > 28 AND NOT ({empty}), {late}, {some})"
    template = f"IF(@0 IS NULL OR @1 IS NULL, NULL, {some})"
    return Value(fill(template, start, stop), array_of(DATE))
