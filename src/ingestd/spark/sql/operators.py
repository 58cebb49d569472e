"""Operators in Spark's SQL, and aggregates over the elements of an array."""

from collections.abc import Sequence

from ingestd.googlesql import ast
from ingestd.googlesql.analyze import Analyzer, comparison, may_be_nan
from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.types import BOOL, DATE, FLOAT64, INT64, NUMERIC, STRING, SqlType
from ingestd.googlesql.values import Value
from ingestd.spark.sql.values import SPARK, coerce, fill, fresh, ranged

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


_PLAIN = "{name} takes plain arguments: no *, DISTINCT, NULLS, HAVING, ORDER BY or LIMIT"
# What is wrong, as the author of a rule is told.
WORDS = {
    "unknown name": "there is no column {name}",
    "ambiguous name": "column {name} is ambiguous: write its alias before it",
    "alias alone": "{name} is an alias: name one of its columns",
    "unknown column": "{alias} has no column {name}",
    "no struct": "{kind} has no field {name}",
    "unknown field": "{kind} has no field {name}",
    "no array": "[] does not take {kind}",
    "bad literal": "{text!r} is no {kind}",
    "bad cast": "{text!r} is no {kind}",
    "unknown function": "function {name} is not available on Spark{hint}",
    "near function": "; did you mean {near}?",
    "over": "OVER is not available on Spark",
    "modified": _PLAIN,
    "star": _PLAIN,
    "never safe": "SAFE.{name} is not available on Spark",
    "number of arguments": "{name} takes {wanted} arguments, not {count}",
    "function": "{name}",
    "no signature": "{name} does not take {kinds} on Spark",
    "no signature of IF": "the condition of IF must be BOOL",
    "mismatch": "{what} does not take {pair} on Spark",
    "no common type": "{what} has no common type of {kinds}",
    "untyped": "{what} must be {kind}, not {found}",
    "untyped condition": "{what} must be BOOL, not {found}",
    "untyped array position": "an array's position must be INT64, not {found}",
}


class SparkOperators(Analyzer):
    conversions = SPARK
    words = WORDS

    def mistake(self, message: str, node: ast.Node) -> SqlError:
        return SqlError(message)

    def comparable(self, op: str, kind: SqlType) -> bool:
        return kind.kind not in (_UNORDERED if op in ("<", ">", "<=", ">=") else _UNCOMPARABLE)

    def negatable(self, kind: SqlType) -> bool:
        return kind.numeric and kind.kind != "BIGNUMERIC"

    def compared(self, op: str, a: Value, b: Value, compared: tuple[Value, Value]) -> str:
        return fill(comparison(op, "@0", "@1", compared), a, b)

    def distinct(self, a: Value, b: Value, *, negated: bool) -> str:
        equal = f"({a.sql} <=> {b.sql})"
        return equal if negated else f"(NOT {equal})"

    def ranges(self, value: Value, low: Value, high: Value) -> str:
        least, most = comparison(">=", "@0", "@1", (value, low)), comparison("<=", "@0", "@2", (value, high))
        return fill(f"({least} AND {most})", value, low, high)

    def among(self, value: Value, items: Sequence[Value]) -> str:
        """Numbers that are known stay together, since there may be many."""
        if not may_be_nan(value):
            return f"({value.sql} IN ({', '.join(item.sql for item in items)}))"
        numbers = ", ".join(item.sql for item in items if not may_be_nan(item))
        tests = [fill(f"(@0 IN ({numbers}) AND NOT isnan(@0))", value)] if numbers else []
        tests += [fill(comparison("=", "@0", "@1", (value, item)), value, item) for item in items if may_be_nan(item)]
        return f"({' OR '.join(tests)})"

    def contained(self, value: Value, array: Value) -> str:
        found = contains("@1", "@0", value.type)
        return fill(f"IF(@1 IS NULL, FALSE, IF(size(@1) = 0, FALSE, {found}))", value, array)

    def element(self, array: Value, position: Value, mode: str) -> str:
        place = "@1" if mode.endswith("ORDINAL") else "@1 + 1"
        if mode.startswith("SAFE"):
            return fill(f"IF({place} > 0, try_element_at(@0, CAST({place} AS INT)), NULL)", array, position)
        error = "raise_error(concat('Array index ', @1, ' is out of bounds'))"
        template = (
            f"CASE WHEN {place} > 0 AND {place} <= size(@0) THEN element_at(@0, CAST({place} AS INT)) "
            f"WHEN @0 IS NULL OR @1 IS NULL THEN NULL ELSE {error} END"
        )
        return fill(template, array, position)

    def matches(self, value: Value, pattern: Value, *, negated: bool) -> str:
        return fill(rf"(@0 {'NOT ' if negated else ''}LIKE @1 ESCAPE '\\')", value, pattern)

    def bits(self, op: str, a: Value, b: Value) -> str:
        return fill(_BITS[op], a, b)

    def joined(self, a: Value, b: Value) -> str:
        return f"concat({a.sql}, {b.sql})" if a.type.kind == "ARRAY" else f"({a.sql} || {b.sql})"

    def civil(self, op: str, left: Value, right: Value) -> Value | None:
        if op == "+" and right.type is DATE and left.type is INT64:
            left, right = right, left
        if left.type is not DATE or right.type is not INT64 or op not in ("+", "-"):
            return None
        moved = fill(f"date_{'add' if op == '+' else 'sub'}(@0, CAST(@1 AS INT))", left, right)
        return ranged(Value(moved, DATE))

    def computed(self, op: str, a: Value, b: Value, node: ast.Node, *, safe: bool = False) -> Value:
        kind = a.type
        if kind.kind == "BIGNUMERIC":
            raise self.mismatch(f"operator {op}", [a, b], node)
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


def check_ordered(kind: SqlType, what: str) -> None:
    if kind.kind in _UNORDERED:
        raise SqlError(f"{what} does not take {kind} on Spark")


def check_comparable(kind: SqlType, what: str) -> None:
    if kind.kind in _UNCOMPARABLE:
        raise SqlError(f"{what} does not take {kind} on Spark")


def contains(array: str, item: str, element: SqlType) -> str:
    """The template that looks for an element in an array; a NaN is no element's equal."""
    name = fresh("e")
    numbers = f"filter({array}, {name} -> NOT isnan({name}))" if element is FLOAT64 else array
    return f"array_contains({numbers}, {item})"


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
