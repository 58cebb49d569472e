"""Operators with GoogleSQL's result types, and aggregates over the elements of an array."""

import math
from collections.abc import Sequence
from typing import Protocol

from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.types import BOOL, BYTES, DATE, FLOAT64, INT64, NUMERIC, STRING, SqlType
from ingestd.googlesql.values import Value
from ingestd.prepare.values import cast, coerce, fill, fresh, ranged, supertype

_COMPARISONS = frozenset(["=", "!=", "<", ">", "<=", ">=", "IS NOT DISTINCT FROM", "IS DISTINCT FROM"])
_SHIFT = "CASE WHEN @1 < 0 THEN raise_error('Bitwise shift by negative offset.') WHEN @1 >= 64 THEN 0L ELSE {} END"
_BITS = {
    "&": "(@0 & @1)", "|": "(@0 | @1)", "^": "(@0 ^ @1)",
    "<<": _SHIFT.format("shiftleft(@0, CAST(@1 AS INT))"),
    ">>": _SHIFT.format("shiftrightunsigned(@0, CAST(@1 AS INT))"),
}  # fmt: skip
_UNORDERED = frozenset(["STRUCT", "ARRAY", "JSON", "GEOGRAPHY", "INTERVAL", "RANGE", "BIGNUMERIC"])
_UNCOMPARABLE = _UNORDERED - {"STRUCT"}

# Spark's own decimal arithmetic gives up digits: DECIMAL(38,9) + DECIMAL(38,9) keeps eight, * and / keep six. These
# forms keep nine, and fail when a number is too large for them.
_WIDE = "CAST(@{} AS DECIMAL(37,9))"
_ADD = f"CAST({_WIDE.format(0)} {{}} {_WIDE.format(1)} AS DECIMAL(38,9))"
_TIMES = (
    "CAST(CAST(CAST({0} AS DECIMAL(28,9)) * CAST(trunc_{1} AS DECIMAL(9,0)) AS DECIMAL(37,9)) "
    "+ CAST(round(CAST({0} AS DECIMAL(28,9)) * CAST({1} % 1 AS DECIMAL(9,9)), 9) AS DECIMAL(37,9)) "
    "AS DECIMAL(38,9))"
)


def _times(large: str, small: str) -> str:
    whole = f"CAST(IF({small} < 0, - floor(- {small}), floor({small})) AS DECIMAL(30,0))"
    return _TIMES.replace("trunc_{1}", whole).format(large, small)


NUMERIC_ARITHMETIC = {
    "+": _ADD.format("+"),
    "-": _ADD.format("-"),
    "*": f"IF(abs(@0) >= abs(@1), {_times('@0', '@1')}, {_times('@1', '@0')})",
    "/": "CAST(round(CAST(@0 AS DECIMAL(22,9)) / CAST(@1 AS DECIMAL(38,9)), 9) AS DECIMAL(38,9))",
}


class Common(Protocol):
    def common(self, values: Sequence[Value], what: str) -> tuple[SqlType, list[Value]]: ...


def check_ordered(kind: SqlType, what: str) -> None:
    if kind.kind in _UNORDERED:
        raise SqlError(f"{what} does not take {kind} on Spark")


def check_comparable(kind: SqlType, what: str) -> None:
    if kind.kind in _UNCOMPARABLE:
        raise SqlError(f"{what} does not take {kind} on Spark")


def binary(c: Common, op: str, left: Value, right: Value) -> Value:
    if op in ("AND", "OR"):
        a, b = coerce(left, BOOL), coerce(right, BOOL)
        if a is None or b is None:
            raise _mismatch(op, left, right)
        return Value(f"({a.sql} {op} {b.sql})", BOOL)
    if op in _COMPARISONS:
        return _compare(c, op, left, right)
    if op == "||":
        return _concat(op, left, right)
    if op in _BITS:
        a, b = coerce(left, INT64), coerce(right, INT64)
        if a is None or b is None:
            raise _mismatch(op, left, right)
        return Value(fill(_BITS[op], a, b), INT64)
    if op == "+" and right.type is DATE and left.type is INT64:
        left, right = right, left
    if left.type is DATE and right.type is INT64 and op in "+-":
        moved = fill(f"date_{'add' if op == '+' else 'sub'}(@0, CAST(@1 AS INT))", left, right)
        return ranged(Value(moved, DATE))
    return arithmetic(op, left, right)


def arithmetic(op: str, left: Value, right: Value, *, safe: bool = False) -> Value:
    kind = supertype([left, right])
    if kind is INT64 and op == "/":
        kind = FLOAT64
    a = coerce(left, kind) if kind is not None and kind.numeric else None
    b = coerce(right, kind) if kind is not None and kind.numeric else None
    if a is None or b is None or kind is None or kind.kind == "BIGNUMERIC":
        raise _mismatch(op, left, right)
    if kind is NUMERIC:
        if safe and op != "/":
            raise SqlError("SAFE_ADD, SAFE_SUBTRACT and SAFE_MULTIPLY of NUMERIC are not available on Spark")
        template = NUMERIC_ARITHMETIC[op]
        return Value(fill(f"IF(@1 = 0, NULL, {template})" if safe else template, a, b), NUMERIC)
    if safe:
        name = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide"}[op]
        return _finite(fill(f"{name}(@0, @1)", a, b), a, b, kind, "NULL")
    return _finite(fill(f"(@0 {op} @1)", a, b), a, b, kind, f"raise_error('double overflow: {op}')")


def _finite(sql: str, a: Value, b: Value, kind: SqlType, otherwise: str) -> Value:
    """FLOAT64 arithmetic on finite numbers that ends infinite is an overflow."""
    if kind is not FLOAT64:
        return Value(sql, kind)
    infinite = "abs(@0) = double('Infinity')"
    check = f"IF({infinite} AND abs(@1) < double('Infinity') AND abs(@2) < double('Infinity'), {otherwise}, @0)"
    return Value(fill(check, Value(sql, kind), a, b), kind)


def _compare(c: Common, op: str, left: Value, right: Value) -> Value:
    kind, (a, b) = c.common([left, right], f"operator {op}")
    if op in ("<", ">", "<=", ">="):
        check_ordered(kind, f"operator {op}")
    check_comparable(kind, f"operator {op}")
    if "DISTINCT" in op:
        equal = f"({a.sql} <=> {b.sql})"
        return Value(equal if "NOT" in op else f"(NOT {equal})", BOOL)
    return Value(fill(comparison(op, "@0", "@1", (left, right)), a, b), BOOL)


def comparison(op: str, a: str, b: str, compared: tuple[Value, Value]) -> str:
    """The template that compares two arguments, by their places in it.

    To Spark a NaN equals itself and is the largest number; in GoogleSQL every comparison with one is false, but for
    `!=`. The plain comparison stays a condition of its own, so that Spark can still join by it.
    """
    plain = f"{a} {'<>' if op == '!=' else op} {b}"
    sides = zip(((a, b), (b, a)), compared, strict=True)
    numbers = " AND ".join(f"(NOT isnan({x}) OR {y} IS NULL)" for (x, y), value in sides if may_be_nan(value))
    if not numbers:
        return f"({plain})"
    return f"({plain} OR NOT ({numbers}))" if op == "!=" else f"({plain} AND {numbers})"


def may_be_nan(value: Value) -> bool:
    """Integers and decimals have no NaN, and a constant shows what it is."""
    known = isinstance(value.constant, int | float) and not math.isnan(value.constant)
    return value.type is FLOAT64 and not known


def between(value: Value, low: Value, high: Value) -> Value:
    least, most = comparison(">=", "@0", "@1", (value, low)), comparison("<=", "@0", "@2", (value, high))
    return Value(fill(f"({least} AND {most})", value, low, high), BOOL)


def among(value: Value, items: Sequence[Value]) -> Value:
    """IN of a list; numbers that are known stay together, since there may be many."""
    if not may_be_nan(value):
        return Value(f"({value.sql} IN ({', '.join(item.sql for item in items)}))", BOOL)
    numbers = ", ".join(item.sql for item in items if not may_be_nan(item))
    tests = [fill(f"(@0 IN ({numbers}) AND NOT isnan(@0))", value)] if numbers else []
    tests += [fill(comparison("=", "@0", "@1", (value, item)), value, item) for item in items if may_be_nan(item)]
    return Value(f"({' OR '.join(tests)})", BOOL)


def contains(array: str, item: str, element: SqlType) -> str:
    """The template that looks for an element in an array; a NaN is no element's equal."""
    name = fresh("e")
    numbers = f"filter({array}, {name} -> NOT isnan({name}))" if element is FLOAT64 else array
    return f"array_contains({numbers}, {item})"


def _concat(op: str, left: Value, right: Value) -> Value:
    for kind in (STRING, BYTES):
        if kind in (left.type, right.type):
            a, b = coerce(left, kind), coerce(right, kind)
            if a is not None and b is not None:
                return Value(f"({a.sql} || {b.sql})", kind)
    if left.type.kind == right.type.kind == "ARRAY":
        found = supertype([left, right])
        a, b = (coerce(item, found) if found else None for item in (left, right))
        if a is not None and b is not None and found is not None:
            return Value(f"concat({a.sql}, {b.sql})", found)
    raise _mismatch(op, left, right)


def _mismatch(op: str, left: Value, right: Value) -> SqlError:
    return SqlError(f"operator {op} does not take {left.type} and {right.type} on Spark")


def aggregate(name: str, listed: Value, rest: Sequence[Value]) -> Value:
    """One aggregate over an array; NULL elements do not count, and of none the answer is NULL."""
    element = listed.type.element
    assert element is not None
    item, total = fresh("e"), fresh("t")
    present = f"filter({listed.sql}, {item} -> {item} IS NOT NULL)"
    match name:
        case "COUNT":
            return Value(f"CAST(size({present}) AS BIGINT)", INT64)
        case "COUNTIF":
            return Value(f"CAST(size(filter({listed.sql}, {item} -> {item})) AS BIGINT)", INT64)
        case "MIN" | "MAX":
            check_ordered(element, name)
            nan = f"exists(@0, {item} -> isnan({item}))"
            found = f"array_{name.lower()}(@0)"
            return Value(fill(f"IF({nan}, double('NaN'), {found})" if element is FLOAT64 else found, listed), element)
        case "SUM" if element in (INT64, FLOAT64):
            zero = "0L" if element is INT64 else "0D"
            fold = f"aggregate({present}, {zero}, ({total}, {item}) -> {total} + {item})"
            return Value(f"IF(size({present}) = 0, NULL, {fold})", element)
        case "AVG" if element in (INT64, FLOAT64):
            fold = f"aggregate({present}, 0D, ({total}, {item}) -> {total} + {item})"
            return Value(f"IF(size({present}) = 0, NULL, {fold} / size({present}))", FLOAT64)
        case "LOGICAL_OR" | "LOGICAL_AND" if element is BOOL:
            test = (
                f"exists({present}, {item} -> {item})"
                if name == "LOGICAL_OR"
                else f"forall({present}, {item} -> {item})"
            )
            return Value(f"IF(size({present}) = 0, NULL, {test})", BOOL)
        case "STRING_AGG" if element is STRING:
            separator = coerce(rest[0], STRING) if rest else None
            joined = f"array_join({present}, {separator.sql if separator else chr(39) + ',' + chr(39)})"
            return Value(f"IF(size({present}) = 0, NULL, {joined})", STRING)
    raise SqlError(f"{name} of {element} is not available on Spark")


__all__ = [
    "aggregate",
    "among",
    "arithmetic",
    "between",
    "binary",
    "cast",
    "check_comparable",
    "check_ordered",
    "comparison",
    "contains",
]
