"""Conditional functions."""

from ingestd.googlesql.analyze import comparison
from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.types import BOOL, INT64, STRING
from ingestd.googlesql.values import Value
from ingestd.spark.sql.functions.registry import Call, define, function
from ingestd.spark.sql.operators import check_comparable, check_ordered
from ingestd.spark.sql.values import coerce, fill


@function("IF", safe=True)
def if_(call: Call) -> Value:
    condition, *branches = call.values()
    test = coerce(condition, BOOL)
    if test is None:
        raise SqlError("the condition of IF must be BOOL")
    kind, (then, otherwise) = call.common(branches)
    return Value(f"IF({test.sql}, {then.sql}, {otherwise.sql})", kind)


@function("COALESCE", "IFNULL", safe=True)
def coalesce(call: Call) -> Value:
    values = call.values()
    kind, converted = call.common(values)
    return Value(f"coalesce({', '.join(item.sql for item in converted)})", kind)


@function("NULLIF", safe=True)
def nullif(call: Call) -> Value:
    kind, (a, b) = call.common(call.values())
    check_comparable(kind, "NULLIF")
    return Value(fill(f"IF({comparison('=', '@0', '@1', (a, b))}, NULL, @0)", a, b), kind)


@function("NULLIFZERO", "ZEROIFNULL", safe=True)
def zero(call: Call) -> Value:
    (value,) = call.values()
    if not value.type.numeric or value.type.kind == "BIGNUMERIC":
        raise call.mismatch([value])
    nothing = coerce(Value("0L", INT64, literal=True, constant=0), value.type)
    assert nothing is not None
    name = "nullif" if call.name == "NULLIFZERO" else "coalesce"
    return Value(f"{name}({value.sql}, {nothing.sql})", value.type)


@function("GREATEST", "LEAST", safe=True)
def extreme(call: Call) -> Value:
    """NULL when any argument is NULL; NaN when any is NaN."""
    call.at_most(9)
    kind, values = call.common(call.values())
    check_ordered(kind, call.name)
    if len(values) == 1:
        return values[0]
    marks = [f"@{index}" for index in range(len(values))]
    missing = " OR ".join(f"{mark} IS NULL" for mark in marks)
    nan = (
        f" WHEN {' OR '.join(f'isnan({mark})' for mark in marks)} THEN double('NaN')" if kind.kind == "FLOAT64" else ""
    )
    template = f"CASE WHEN {missing} THEN NULL{nan} ELSE {call.name.lower()}({', '.join(marks)}) END"
    return Value(fill(template, *values), kind)


@function("ERROR")
def error(call: Call) -> Value:
    """An untyped NULL with a side effect: it converts to whatever its surroundings want."""
    (message,) = call.values()
    failing = f"raise_error({call.want(message, STRING).sql})"
    return Value(f"CAST({failing} AS BIGINT)", INT64, constant=failing, raises=True)


@function("RANGE_BUCKET", safe=True)
def range_bucket(call: Call) -> Value:
    point, bounds = call.values()
    if bounds.type.element is None:
        raise SqlError("RANGE_BUCKET takes an array")
    kind, (value, _) = call.common([point, Value("", bounds.type.element)])
    item = coerce(Value("_b", bounds.type.element, simple=True), kind)
    assert item is not None
    missing = "@0 IS NULL OR @1 IS NULL" + (" OR isnan(@0)" if kind.kind == "FLOAT64" else "")
    unsorted = "raise_error('Elements in input array to RANGE_BUCKET must be in ascending order')"
    template = (
        f"CASE WHEN {missing} THEN NULL WHEN exists(@1, _b -> _b IS NULL) OR @1 <> array_sort(@1) THEN {unsorted} "
        f"ELSE CAST(size(filter(@1, _b -> {item.sql} <= @0)) AS BIGINT) END"
    )
    return Value(fill(template, value, bounds), INT64)


define("GENERATE_UUID", "", "uuid()")
define("RAND", "", "rand()")
