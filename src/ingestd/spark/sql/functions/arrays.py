"""Array functions, and generators of arrays."""

import re

from ingestd.googlesql import ast
from ingestd.googlesql.civil import TIME_PARTS
from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.types import BOOL, DATE, INT64, STRING, SqlType, array_of
from ingestd.googlesql.values import Value
from ingestd.spark.sql.functions.registry import Call, function
from ingestd.spark.sql.operators import aggregate, check_ordered, contains
from ingestd.spark.sql.values import cast, fill, fresh

LIMIT = 1_048_575  # BigQuery refuses larger generated arrays


@function("ARRAY_LENGTH", safe=True)
def length(call: Call) -> Value:
    return Value(f"CAST(array_size({call.array(call.value(0))[0].sql}) AS BIGINT)", INT64)


@function("ARRAY_REVERSE", safe=True)
def reverse(call: Call) -> Value:
    value, _ = call.array(call.value(0))
    return Value(f"reverse({value.sql})", value.type)


@function("ARRAY_CONCAT", safe=True)
def concat(call: Call) -> Value:
    kind, values = call.common(call.values())
    if kind.kind != "ARRAY":
        raise call.mismatch(values)
    return Value(f"concat({', '.join(value.sql for value in values)})", kind)


@function("ARRAY_TO_STRING", safe=True)
def to_string(call: Call) -> Value:
    value, element = call.array(call.value(0))
    if element is not STRING and value.members != ():
        item = fresh("e")
        value = Value(
            f"transform({value.sql}, {item} -> {cast(Value(item, element, simple=True), STRING).sql})", array_of(STRING)
        )
    rest = [call.typed(index, STRING).sql for index in range(1, len(call.nodes))]
    return Value(f"array_join({value.sql}, {', '.join(rest)})", STRING)


@function("ARRAY_FIRST", "ARRAY_LAST", safe=True)
def end(call: Call) -> Value:
    value, element = call.array(call.value(0))
    at = "1" if call.name == "ARRAY_FIRST" else "-1"
    failing = "NULL" if call.safe else f"raise_error('{call.name} of an empty array')"
    return Value(fill(f"IF(size(@0) = 0, {failing}, element_at(@0, {at}))", value), element)


@function("ARRAY_SLICE", safe=True)
def slice_(call: Call) -> Value:
    """From one offset to another, both included; negative ones count from the end."""
    value, _ = call.array(call.value(0))
    start, stop = call.typed(1, INT64), call.typed(2, INT64)
    first = "IF(@1 < 0, greatest(size(@0) + @1, 0L), @1)"
    last = "IF(@2 < 0, size(@0) + @2, least(@2, size(@0) - 1L))"
    template = f"slice(@0, CAST({first} + 1 AS INT), CAST(greatest({last} - {first} + 1, 0L) AS INT))"
    return Value(fill(f"IF(@0 IS NULL OR @1 IS NULL OR @2 IS NULL, NULL, {template})", value, start, stop), value.type)


@function("ARRAY_IS_DISTINCT", safe=True)
def is_distinct(call: Call) -> Value:
    value, element = call.array(call.value(0))
    check_ordered(element, "ARRAY_IS_DISTINCT")
    return Value(fill("(size(@0) = size(array_distinct(@0)))", value), BOOL)


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


@function("ARRAY_SUM", "ARRAY_AVG", "ARRAY_MIN", "ARRAY_MAX")
def fold(call: Call) -> Value:
    return aggregate(call.name.removeprefix("ARRAY_"), call.array(call.value(0))[0], ())


@function("GENERATE_ARRAY")
def generate(call: Call) -> Value:
    values = [call.want(value, INT64) for value in call.values()]
    if len(values) == 2:
        values.append(Value("1L", INT64, simple=True))
    large = f"raise_error('Cannot generate arrays with more than {LIMIT} elements.')"
    template = (
        "CASE WHEN @0 IS NULL OR @1 IS NULL OR @2 IS NULL THEN NULL "
        "WHEN @2 = 0 THEN raise_error('Sequence step cannot be 0.') "
        "WHEN (@2 > 0 AND @0 > @1) OR (@2 < 0 AND @0 < @1) THEN CAST(array() AS ARRAY<BIGINT>) "
        f"WHEN (CAST(@1 AS DOUBLE) - @0) / @2 >= {LIMIT} THEN {large} ELSE sequence(@0, @1, @2) END"
    )
    return Value(fill(template, *values), array_of(INT64))


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
