"""INTERVAL values: months, days and microseconds, as DuckDB keeps them too."""

import re

from ingestd.googlesql import ast
from ingestd.googlesql.names import Scope
from ingestd.googlesql.types import INT64, INTERVAL, STRING
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.sql.coercion import coerce
from ingestd.localcloud.bigquery.sql.expressions import ExpressionCompiler
from ingestd.localcloud.bigquery.sql.library.registry import Call, function, writes

_UNITS = {
    "YEAR": "to_months(CAST({0} * 12 AS INTEGER))",
    "QUARTER": "to_months(CAST({0} * 3 AS INTEGER))",
    "MONTH": "to_months(CAST({0} AS INTEGER))",
    "WEEK": "to_days(CAST({0} * 7 AS INTEGER))",
    "DAY": "to_days(CAST({0} AS INTEGER))",
    "HOUR": "to_microseconds({0} * 3600000000)",
    "MINUTE": "to_microseconds({0} * 60000000)",
    "SECOND": "to_microseconds({0} * 1000000)",
    "MILLISECOND": "to_microseconds({0} * 1000)",
    "MICROSECOND": "to_microseconds({0})",
}
_ORDER = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")


def interval(c: ExpressionCompiler, node: ast.IntervalValue, scope: Scope) -> Value:
    if node.to_part:
        return _between(c, node)
    if node.part not in _UNITS:
        c.fail(f"A valid date part name is required but found {node.part}", node)
    value = c.expr(node.value, scope)
    if isinstance(value.constant, str) and value.type is STRING and value.literal:
        if node.part == "SECOND" and "." in value.constant:
            return Value(f"to_microseconds(CAST({float(value.constant)!r} * 1000000 AS BIGINT))", INTERVAL)
        if not re.fullmatch(r"\s*[+-]?\d+\s*", value.constant):
            c.fail(f"Invalid INTERVAL value '{value.constant}'", node)
        return Value(_UNITS[node.part].format(f"CAST({int(value.constant)} AS BIGINT)"), INTERVAL)
    amount = coerce(value, INT64)
    if amount is None:
        c.fail(f"Interval value must be coercible to INT64 type but was {value.type}", node)
    return Value(_UNITS[node.part].format(amount.sql), INTERVAL)


def _between(c: ExpressionCompiler, node: ast.IntervalValue) -> Value:
    """`INTERVAL '1-2 3' YEAR TO DAY`: a sign per group of parts."""
    if not isinstance(node.value, ast.Literal) or not isinstance(node.value.value, str):
        c.fail("INTERVAL with two parts needs a string literal", node)
    first, last = node.part, node.to_part
    if first not in _ORDER or last not in _ORDER or _ORDER.index(first) >= _ORDER.index(last):
        c.fail(f"Invalid INTERVAL parts {first} TO {last}", node)
    parts = _ORDER[_ORDER.index(first) : _ORDER.index(last) + 1]
    pattern = ""
    for part in parts:
        number = r"(\d+(?:\.\d{1,6})?)" if part == "SECOND" else r"(\d+)"
        if part in ("YEAR", "DAY") or (part == parts[0]) or part == "HOUR":
            separator = r"\s+" if pattern else ""
            pattern += separator + r"([+-]?)" + number
        else:
            pattern += ("-" if part == "MONTH" else ":") + number
    match = re.fullmatch(r"\s*" + pattern + r"\s*", node.value.value)
    if match is None:
        c.fail(f"Invalid INTERVAL value '{node.value.value}'", node)
    months, days, micros = 0, 0, 0
    sign, groups = 1, iter(match.groups())
    for part in parts:
        if part in ("YEAR", "DAY", "HOUR") or part == parts[0]:
            sign = -1 if next(groups) == "-" else 1
        text = next(groups)
        if part in ("YEAR", "MONTH"):
            months += sign * int(text) * (12 if part == "YEAR" else 1)
        elif part == "DAY":
            days += sign * int(text)
        else:
            scale = {"HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000}[part]
            micros += sign * round(float(text) * scale)
    return Value(f"(to_months({months}) + to_days({days}) + to_microseconds({micros}))", INTERVAL)


@function("MAKE_INTERVAL")
def make_interval(call: Call) -> Value:
    names = ("year", "month", "day", "hour", "minute", "second")
    given = dict(zip(names, call.nodes, strict=False)) | dict(call.node.named)
    terms = []
    for name, item in given.items():
        if name not in names:
            call.fail(f"Named argument {name} not found in signature for call to function MAKE_INTERVAL")
        value = call.want(call.compiler.expr(item, call.scope), INT64)
        terms.append(_UNITS[name.upper()].format(value.sql))
    return Value("(" + " + ".join(terms or ["to_days(0)"]) + ")", INTERVAL)


@writes("JUSTIFY_HOURS JUSTIFY_DAYS JUSTIFY_INTERVAL")
def justify(call: Call, value: Value) -> str:
    months, days, micros = (
        f"bq_interval_months({value.sql})",
        f"datepart('day', {value.sql})",
        f"bq_interval_us({value.sql})",
    )
    if call.name != "JUSTIFY_DAYS":
        days, micros = f"({days} + {micros} // 86400000000)", f"({micros} % 86400000000)"
    if call.name != "JUSTIFY_HOURS":
        months, days = f"({months} + {days} // 30)", f"({days} % 30)"
    return f"(to_months(CAST({months} AS INTEGER)) + to_days(CAST({days} AS INTEGER)) + to_microseconds({micros}))"


def add(amount: Value, part: str) -> str:
    """DuckDB's interval of `amount` parts."""
    return _UNITS[part].format(amount.sql)
