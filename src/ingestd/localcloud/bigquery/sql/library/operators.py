"""Arithmetic, concatenation and bit operators, with GoogleSQL's result types and errors."""

from ingestd.googlesql import ast
from ingestd.googlesql.types import (
    BIGNUMERIC,
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT64,
    INT64,
    INTERVAL,
    NUMERIC,
    STRING,
    TIMESTAMP,
)
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.sql.coercion import coerce, supertype
from ingestd.localcloud.bigquery.sql.expressions import ExpressionCompiler
from ingestd.localcloud.bigquery.sql.names import once, ranged

_COMPARISONS = frozenset({"=", "!=", "<", ">", "<=", ">="})
_BITS = {"&": "({0} & {1})", "|": "({0} | {1})", "^": "xor({0}, {1})"}
_SHIFTS = {"<<": "bq_shift_left({0}, {1})", ">>": "bq_shift_right({0}, {1})"}


def binary(c: ExpressionCompiler, node: ast.Binary, left: Value, right: Value) -> Value:
    op = node.op
    if op in ("AND", "OR"):
        a, b = coerce(left, BOOL), coerce(right, BOOL)
        if a is None or b is None:
            _mismatch(c, node, left, right)
            raise AssertionError
        return Value(f"({a.sql} {op} {b.sql})", BOOL)
    if any(isinstance(item, ast.Literal) and item.kind == "NULL" for item in (node.left, node.right)):
        c.fail(f"Operands of {op} cannot be literal NULL", node)
    if op in _COMPARISONS:
        return c.compare(op, left, right, node)
    result = _special(op, left, right)
    if result is not None:
        return result
    if op == "||":
        return _concat(c, node, left, right)
    if op in _BITS or op in _SHIFTS:
        a, b = coerce(left, INT64), coerce(right, INT64)
        if a is None or b is None:
            _mismatch(c, node, left, right)
            raise AssertionError
        return Value((_BITS.get(op) or _SHIFTS[op]).format(a.sql, b.sql), INT64)
    return arithmetic(c, node, op, left, right)


def arithmetic(c: ExpressionCompiler, node: ast.Node, op: str, left: Value, right: Value) -> Value:
    kind = supertype([left, right])
    if kind is INT64 and op == "/":
        kind = FLOAT64
    a = coerce(left, kind) if kind is not None and kind.numeric else None
    b = coerce(right, kind) if kind is not None and kind.numeric else None
    if a is None or b is None or kind is None:
        c.fail(f"No matching signature for operator {op} for argument types: {left.type}, {right.type}", node)
    if kind is FLOAT64:
        body = "bq_divide(_n.a, _n.b)" if op == "/" else f"bq_finite(_n.a {op} _n.b, _n.a, _n.b)"
        return Value(once(body, a=a.sql, b=b.sql), FLOAT64)
    if kind in (NUMERIC, BIGNUMERIC) and op in "*/":
        name = "multiply" if op == "*" else "divide"
        return Value(f"bq_{kind.kind.lower()}_{name}({a.sql}, {b.sql})", kind)
    return Value(f"({a.sql} {op} {b.sql})", kind)


def _special(op: str, left: Value, right: Value) -> Value | None:
    """Dates and intervals."""
    if op not in "+-*/":
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


def _concat(c: ExpressionCompiler, node: ast.Binary, left: Value, right: Value) -> Value:
    for kind in (STRING, BYTES):
        if left.type is kind or right.type is kind:
            a, b = coerce(left, kind), coerce(right, kind)
            if a is not None and b is not None:
                return Value(f"({a.sql} || {b.sql})", kind)
    if left.type.kind == right.type.kind == "ARRAY":
        found = supertype([left, right])
        if found is not None:
            a, b = c.must(left, found, node), c.must(right, found, node)
            return Value(f"CASE WHEN {a.sql} IS NULL OR {b.sql} IS NULL THEN NULL ELSE {a.sql} || {b.sql} END", found)
    _mismatch(c, node, left, right)
    raise AssertionError


def _mismatch(c: ExpressionCompiler, node: ast.Binary, left: Value, right: Value) -> None:
    c.fail(f"No matching signature for operator {node.op} for argument types: {left.type}, {right.type}", node)
