"""Conditional functions."""

from ingestd.googlesql.analyze import comparison
from ingestd.googlesql.types import INT64, STRING
from ingestd.googlesql.values import Value
from ingestd.spark.sql.functions.registry import NEVER_FAILS, Call, define, function, writes
from ingestd.spark.sql.operators import check_comparable, check_ordered
from ingestd.spark.sql.values import fill, literal

define("IF", "BOOL, T, T", "IF(@0, @1, @2)", safe=NEVER_FAILS)


@writes("COALESCE IFNULL", safe=True)
def coalesce(call: Call, *values: Value) -> str:
    return f"coalesce({', '.join(value.sql for value in values)})"


@writes("NULLIF", safe=True)
def nullif(call: Call, a: Value, b: Value) -> str:
    check_comparable(a.type, "NULLIF")
    return fill(f"IF({comparison('=', '@0', '@1', (a, b))}, NULL, @0)", a, b)


@writes("NULLIFZERO ZEROIFNULL", safe=True)
def zero(call: Call, value: Value) -> str:
    if value.type.kind == "BIGNUMERIC":
        raise call.mismatch([value])
    name = "nullif" if call.name == "NULLIFZERO" else "coalesce"
    return f"{name}({value.sql}, {literal(0, value.type).sql})"


@writes("GREATEST LEAST", safe=True)
def extreme(call: Call, *values: Value) -> str:
    """NULL when any argument is NULL; NaN when any is NaN."""
    call.at_most(9)
    check_ordered(call.returns, call.name)
    if len(values) == 1:
        return values[0].sql
    marks = [f"@{index}" for index in range(len(values))]
    missing = " OR ".join(f"{mark} IS NULL" for mark in marks)
    nan = ""
    if call.returns.kind == "FLOAT64":
        nan = f" WHEN {' OR '.join(f'isnan({mark})' for mark in marks)} THEN double('NaN')"
    return fill(f"CASE WHEN {missing} THEN NULL{nan} ELSE {call.name.lower()}({', '.join(marks)}) END", *values)


@function("ERROR")
def error(call: Call) -> Value:
    """An untyped NULL with a side effect: it converts to whatever its surroundings want."""
    (message,) = call.values()
    failing = f"raise_error({call.want(message, STRING).sql})"
    return Value(f"CAST({failing} AS BIGINT)", INT64, constant=failing, raises=True)


@writes("RANGE_BUCKET", safe=True)
def range_bucket(call: Call, point: Value, bounds: Value) -> str:
    check_ordered(point.type, "RANGE_BUCKET")
    missing = "@0 IS NULL OR @1 IS NULL" + (" OR isnan(@0)" if point.type.kind == "FLOAT64" else "")
    unsorted = "raise_error('Elements in input array to RANGE_BUCKET must be in ascending order')"
    template = (
        f"CASE WHEN {missing} THEN NULL WHEN exists(@1, _b -> _b IS NULL) OR @1 <> array_sort(@1) THEN {unsorted} "
        "ELSE CAST(size(filter(@1, _b -> _b <= @0)) AS BIGINT) END"
    )
    return fill(template, point, bounds)


define("GENERATE_UUID", "", "uuid()")
define("RAND", "", "rand()")
