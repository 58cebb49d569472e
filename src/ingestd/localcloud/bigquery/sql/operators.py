"""Operators in DuckDB's SQL."""

from collections.abc import Sequence

from ingestd.googlesql import ast
from ingestd.googlesql.analyze import Analyzer, comparison, may_be_nan
from ingestd.googlesql.types import DATE, DATETIME, FLOAT64, INT64, INTERVAL, TIMESTAMP, SqlType
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.duckdb_types import duckdb_type
from ingestd.localcloud.bigquery.sql.coercion import DUCKDB, coerce
from ingestd.localcloud.bigquery.sql.idioms import once, ranged

_BITS = {
    "&": "({0} & {1})", "|": "({0} | {1})", "^": "xor({0}, {1})",
    "<<": "bq_shift_left({0}, {1})", ">>": "bq_shift_right({0}, {1})",
}  # fmt: skip


class DuckDbOperators(Analyzer):
    conversions = DUCKDB

    def comparable(self, op: str, kind: SqlType) -> bool:
        return op == "IS DISTINCT FROM" or (kind.comparable if op in ("=", "!=") else kind.ordered)

    def negatable(self, kind: SqlType) -> bool:
        return kind.numeric or kind.kind == "INTERVAL"

    def compared(self, op: str, a: Value, b: Value, compared: tuple[Value, Value]) -> str:
        return comparison(op, a.sql, b.sql, compared)

    def distinct(self, a: Value, b: Value, *, negated: bool) -> str:
        return f"({a.sql} IS {'NOT ' if negated else ''}DISTINCT FROM {b.sql})"

    def ranges(self, value: Value, low: Value, high: Value) -> str:
        least = comparison(">=", value.sql, low.sql, (value, low))
        return f"({least} AND {comparison('<=', value.sql, high.sql, (value, high))})"

    def among(self, value: Value, items: Sequence[Value]) -> str:
        if may_be_nan(value):
            return f"({' OR '.join(comparison('=', value.sql, item.sql, (value, item)) for item in items)})"
        return f"({value.sql} IN ({', '.join(item.sql for item in items)}))"

    def contained(self, value: Value, array: Value) -> str:
        return f"({value.sql} = ANY({numbers_of(array)}))"

    def element(self, array: Value, position: Value, mode: str) -> str:
        place = position.sql if mode.endswith("ORDINAL") else f"({position.sql} + 1)"
        if mode.startswith("SAFE"):
            return f"(CASE WHEN {place} > 0 THEN {array.sql}[{place}] END)"
        assert array.type.element is not None
        error = f"'Array index ' || CAST({position.sql} AS VARCHAR) || ' is out of bounds'"
        return (
            f"(CASE WHEN {place} > 0 AND {place} <= len({array.sql}) THEN {array.sql}[{place}] "
            f"WHEN {array.sql} IS NULL OR {position.sql} IS NULL THEN NULL "
            f"ELSE CAST(bq_error({error}) AS {duckdb_type(array.type.element)}) END)"
        )

    def matches(self, value: Value, pattern: Value, *, negated: bool) -> str:
        return f"({value.sql} {'NOT ' if negated else ''}LIKE {pattern.sql} ESCAPE '\\')"

    def bits(self, op: str, a: Value, b: Value) -> str:
        return _BITS[op].format(a.sql, b.sql)

    def joined(self, a: Value, b: Value) -> str:
        if a.type.kind != "ARRAY":
            return f"({a.sql} || {b.sql})"
        return f"CASE WHEN {a.sql} IS NULL OR {b.sql} IS NULL THEN NULL ELSE {a.sql} || {b.sql} END"

    def computed(self, op: str, a: Value, b: Value, node: ast.Node) -> Value:
        kind = a.type
        if kind is FLOAT64:
            body = "bq_divide(_n.a, _n.b)" if op == "/" else f"bq_finite(_n.a {op} _n.b, _n.a, _n.b)"
            return Value(once(body, a=a.sql, b=b.sql), FLOAT64)
        if kind is not INT64 and op in "*/":
            name = "multiply" if op == "*" else "divide"
            return Value(f"bq_{kind.kind.lower()}_{name}({a.sql}, {b.sql})", kind)
        return Value(f"({a.sql} {op} {b.sql})", kind)

    def civil(self, op: str, left: Value, right: Value) -> Value | None:
        """Dates and intervals."""
        if op not in ("+", "-", "*", "/"):
            return None
        if op == "+" and right.type is DATE and coerce(left, INT64) is not None and not left.null:
            left, right = right, left
        if left.type is DATE and right.type is INT64:
            days = Value(f"CAST(({left.sql} {op} CAST({right.sql} AS INTEGER)) AS DATE)", DATE)
            return ranged(days) if op in "+-" else None
        if op == "+" and left.type is INTERVAL and right.type in (DATE, DATETIME, TIMESTAMP):
            left, right = right, left
        if right.type is INTERVAL and op in "+-":
            if left.type is INTERVAL:
                return Value(f"({left.sql} {op} {right.sql})", INTERVAL)
            if left.type in (DATE, DATETIME):
                return ranged(Value(f"(CAST({left.sql} AS TIMESTAMP) {op} {right.sql})", DATETIME))
            if left.type is TIMESTAMP:
                months = "CAST(bq_error('TIMESTAMP +/- INTERVAL does not take months or years') AS TIMESTAMPTZ)"
                body = f"CASE WHEN bq_interval_months(_n.b) <> 0 THEN {months} ELSE _n.a {op} _n.b END"
                return ranged(Value(once(body, a=left.sql, b=right.sql), TIMESTAMP))
        if op == "-" and left.type == right.type:
            if left.type is DATE:
                return Value(f"to_days(CAST(date_diff('day', {right.sql}, {left.sql}) AS INTEGER))", INTERVAL)
            if left.type in (TIMESTAMP, DATETIME):
                return Value(f"to_microseconds(epoch_us({left.sql}) - epoch_us({right.sql}))", INTERVAL)
        if left.type is INTERVAL and right.type is INT64 and op in "*/":
            if op == "*":
                return Value(f"({left.sql} * {right.sql})", INTERVAL)
            return Value(f"({left.sql} / {right.sql})", INTERVAL)
        return None


def numbers_of(array: Value) -> str:
    """The array without its NaNs, which equal nothing."""
    if array.type.element is not FLOAT64:
        return array.sql
    return f"list_filter({array.sql}, lambda _e: _e IS NULL OR NOT isnan(_e))"
