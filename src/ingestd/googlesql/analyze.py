"""What operators and constructors mean: which operands they take, what type their result has.

An engine is a subclass: it knows what names mean, writes each operation in its own SQL, and words what is wrong.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ingestd.googlesql import ast
from ingestd.googlesql.coercion import Conversions
from ingestd.googlesql.literals import INT64_MAX, INT64_MIN
from ingestd.googlesql.types import (
    BOOL,
    BYTES,
    FLOAT64,
    INT64,
    SCALARS,
    STRING,
    SqlType,
    array_of,
    from_node,
    struct_of,
)
from ingestd.googlesql.values import Value

_COMPARISONS = frozenset(["=", "!=", "<", ">", "<=", ">="])
_BITS = frozenset(["&", "|", "^", "<<", ">>"])
_NULL = Value("NULL", INT64, literal=True, null=True, simple=True)


class Analyzer(ABC):
    conversions: ClassVar[Conversions]

    @abstractmethod
    def expr(self, node: ast.Expression, scope: Any) -> Value:
        """Any expression, in the engine's SQL."""

    @abstractmethod
    def mistake(self, message: str, node: ast.Node) -> Exception: ...

    @abstractmethod
    def mismatch(self, what: str, values: Sequence[Value], node: ast.Node) -> Exception:
        """An operation that does not take values of these types."""

    @abstractmethod
    def no_common(self, what: str, values: Sequence[Value], node: ast.Node) -> Exception:
        """Values that should have a common type, and have none."""

    @abstractmethod
    def untyped(self, what: str, kind: SqlType, value: Value, node: ast.Node) -> Exception:
        """A value that should be of this type, and is not."""

    @abstractmethod
    def comparable(self, op: str, kind: SqlType) -> bool: ...

    @abstractmethod
    def negatable(self, kind: SqlType) -> bool: ...

    @abstractmethod
    def compared(self, op: str, a: Value, b: Value, compared: tuple[Value, Value]) -> str:
        """Two values of one type; `compared` is what they were before they got it."""

    @abstractmethod
    def distinct(self, a: Value, b: Value, *, negated: bool) -> str: ...

    @abstractmethod
    def ranges(self, value: Value, low: Value, high: Value) -> str: ...

    @abstractmethod
    def among(self, value: Value, items: Sequence[Value]) -> str: ...

    @abstractmethod
    def contained(self, value: Value, array: Value) -> str: ...

    @abstractmethod
    def matches(self, value: Value, pattern: Value, *, negated: bool) -> str: ...

    @abstractmethod
    def bits(self, op: str, a: Value, b: Value) -> str: ...

    @abstractmethod
    def joined(self, a: Value, b: Value) -> str:
        """`||` of two texts, BYTES or arrays."""

    @abstractmethod
    def computed(self, op: str, a: Value, b: Value, node: ast.Node) -> Value:
        """Arithmetic on two numbers of one type."""

    @abstractmethod
    def civil(self, op: str, left: Value, right: Value) -> Value | None:
        """Arithmetic on dates, times and intervals."""

    def moved(self, node: ast.Binary, value: Value, scope: Any) -> Value | None:
        """An operation whose right side is no value by itself."""
        return None

    def typed(self, node: ast.Expression, scope: Any, kind: SqlType, what: str = "") -> Value:
        """An expression that must convert to `kind`."""
        value = self.expr(node, scope)
        converted = self.conversions.coerce(value, kind)
        if converted is None:
            raise self.untyped(what, kind, value, node)
        return converted

    def common(self, values: Sequence[Value], what: str, node: ast.Node) -> tuple[SqlType, list[Value]]:
        """All values in their common type."""
        kind = self.conversions.supertype(values)
        converted = [self.conversions.coerce(value, kind) for value in values] if kind is not None else []
        found = [value for value in converted if value is not None]
        if kind is None or len(found) != len(values):
            raise self.no_common(what, values, node)
        return kind, found

    def literal(self, node: ast.Literal, scope: Any) -> Value:
        if node.kind == "NULL":
            return _NULL
        if node.kind == "INT64" and isinstance(node.value, int) and not INT64_MIN <= node.value <= INT64_MAX:
            raise self.mistake(f"Invalid integer literal: {node.value}", node)
        return self.conversions.literal(node.value, SCALARS[node.kind])

    def unary(self, node: ast.Unary, scope: Any) -> Value:
        value = self.expr(node.value, scope)
        if node.op == "NOT":
            if is_null(node.value):
                raise self.mistake("Operands of NOT cannot be literal NULL", node)
            condition = self.conversions.coerce(value, BOOL)
            if condition is None:
                raise self.mismatch("operator NOT", [value], node)
            return Value(f"(NOT {condition.sql})", BOOL)
        if not (value.type is INT64 if node.op == "~" else self.negatable(value.type)):
            raise self.mismatch(f"operator {node.op}", [value], node)
        if node.op == "-" and value.literal and not value.parameter and isinstance(value.constant, int | float):
            return self.conversions.literal(-value.constant, value.type)
        return Value(f"({node.op} {value.sql})", value.type)

    def binary(self, node: ast.Binary, scope: Any) -> Value:
        # Chains lean left and may be long (x = 1 OR x = 2 OR …): walk them instead of recursing.
        spine = [node]
        while isinstance(spine[-1].left, ast.Binary):
            spine.append(spine[-1].left)
        value = self.expr(spine[-1].left, scope)
        for item in reversed(spine):
            if item.op not in ("AND", "OR") and (is_null(item.left) or is_null(item.right)):
                raise self.mistake(f"Operands of {item.op} cannot be literal NULL", item)
            value = self.moved(item, value, scope) or self._operation(item, value, self.expr(item.right, scope))
        return value

    def _operation(self, node: ast.Binary, left: Value, right: Value) -> Value:
        op = node.op
        if op in _COMPARISONS:
            return self.compare(op, left, right, node)
        found = self.civil(op, left, right)
        if found is not None:
            return found
        if op == "||":
            return self._concat(node, left, right)
        if op not in _BITS and op not in ("AND", "OR"):
            return self.arithmetic(op, left, right, node)
        kind = INT64 if op in _BITS else BOOL
        a, b = self.conversions.coerce(left, kind), self.conversions.coerce(right, kind)
        if a is None or b is None:
            raise self.mismatch(f"operator {op}", [left, right], node)
        return Value(self.bits(op, a, b) if op in _BITS else f"({a.sql} {op} {b.sql})", kind)

    def arithmetic(self, op: str, left: Value, right: Value, node: ast.Node) -> Value:
        return self.computed(op, *self.numbers(op, left, right, node), node)

    def numbers(self, op: str, left: Value, right: Value, node: ast.Node) -> tuple[Value, Value]:
        """Two operands of arithmetic in their common type: INT64 `/` is FLOAT64."""
        kind = self.conversions.supertype([left, right])
        if kind is INT64 and op == "/":
            kind = FLOAT64
        a = self.conversions.coerce(left, kind) if kind is not None and kind.numeric else None
        b = self.conversions.coerce(right, kind) if kind is not None and kind.numeric else None
        if a is None or b is None:
            raise self.mismatch(f"operator {op}", [left, right], node)
        return a, b

    def _concat(self, node: ast.Binary, left: Value, right: Value) -> Value:
        kinds = [kind for kind in (STRING, BYTES) if kind in (left.type, right.type)]
        if left.type.kind == right.type.kind == "ARRAY":
            found = self.conversions.supertype([left, right])
            kinds = [found] if found is not None else []
        for kind in kinds:
            a, b = self.conversions.coerce(left, kind), self.conversions.coerce(right, kind)
            if a is not None and b is not None:
                return Value(self.joined(a, b), kind)
        raise self.mismatch("operator ||", [left, right], node)

    def compare(self, op: str, left: Value, right: Value, node: ast.Node) -> Value:
        kind = self.conversions.supertype([left, right])
        a = self.conversions.coerce(left, kind) if kind is not None and self.comparable(op, kind) else None
        b = self.conversions.coerce(right, kind) if kind is not None else None
        if a is None or b is None:
            raise self.mismatch(f"operator {op}", [left, right], node)
        return Value(self.compared(op, a, b, (left, right)), BOOL)

    def is_distinct(self, node: ast.IsDistinct, scope: Any) -> Value:
        left, right = self.expr(node.left, scope), self.expr(node.right, scope)
        kind = self.conversions.supertype([left, right])
        op = "IS DISTINCT FROM"
        a = self.conversions.coerce(left, kind) if kind is not None and self.comparable(op, kind) else None
        b = self.conversions.coerce(right, kind) if kind is not None else None
        if a is None or b is None:
            raise self.mismatch(f"operator {op}", [left, right], node)
        return Value(self.distinct(a, b, negated=node.negated), BOOL)

    def between(self, node: ast.Between, scope: Any) -> Value:
        written = [self.expr(item, scope) for item in (node.value, node.low, node.high)]
        kind, (value, low, high) = self.common(written, "operator BETWEEN", node)
        if not self.comparable("<", kind):
            raise self.mismatch("operator BETWEEN", written, node)
        return _unless(node.negated, self.ranges(value, low, high))

    def in_list(self, node: ast.In, scope: Any) -> Value:
        value = self.expr(node.value, scope)
        kind, (first, *rest) = self.common(
            [value, *(self.expr(item, scope) for item in node.items)], "operator IN", node
        )
        if not self.comparable("=", kind):
            raise self.mismatch("operator IN", [first], node)
        return _unless(node.negated, self.among(first, rest))

    def in_array(self, node: ast.In, array: ast.Expression, scope: Any) -> Value:
        value, listed = self.expr(node.value, scope), self.expr(array, scope)
        if listed.type.kind != "ARRAY" or listed.type.element is None:
            raise self.mistake(f"Second argument of IN UNNEST must be an array but was {listed.type}", node)
        kind = self.conversions.supertype([value, Value("", listed.type.element)])
        left = self.conversions.coerce(value, kind) if kind is not None else None
        if kind is None or left is None:
            raise self.mismatch("operator IN UNNEST", [value, listed], node)
        wanted = array_of(kind)
        right = self.conversions.coerce(listed, wanted) or self.conversions.cast(listed, wanted)
        return _unless(node.negated, self.contained(left, right))

    def like(self, node: ast.Like, scope: Any) -> Value:
        if is_null(node.value) or (not node.quantifier and is_null(node.patterns[0])):
            raise self.mistake("Operands of LIKE cannot be literal NULL", node)
        value = self.expr(node.value, scope)
        parts = []
        for item in node.patterns:
            pattern = self.expr(item, scope)
            left, right = self.conversions.coerce(value, STRING), self.conversions.coerce(pattern, STRING)
            if left is None or right is None:
                raise self.mismatch("operator LIKE", [value, pattern], node)
            # NOT LIKE ANY holds when one of the patterns does not match.
            parts.append(self.matches(left, right, negated=node.negated))
        return Value(f"({(' AND ' if node.quantifier == 'ALL' else ' OR ').join(parts)})", BOOL)

    def is_(self, node: ast.Is, scope: Any) -> Value:
        what = "NULL" if node.what == "UNKNOWN" else node.what
        value = self.expr(node.value, scope)
        converted = value if what == "NULL" else self.conversions.coerce(value, BOOL)
        if converted is None:
            raise self.mismatch(f"operator IS {what}", [value], node)
        return Value(f"({converted.sql} IS {'NOT ' if node.negated else ''}{what})", BOOL)

    def case(self, node: ast.Case, scope: Any) -> Value:
        results = [self.expr(result, scope) for _, result in node.whens]
        results.append(self.expr(node.otherwise, scope) if node.otherwise is not None else _NULL)
        kind, (*converted, otherwise) = self.common(results, "operator CASE", node)
        operand = self.expr(node.operand, scope) if node.operand is not None else None
        whens = []
        for (condition, _), result in zip(node.whens, converted, strict=True):
            if operand is None:
                test = self.typed(condition, scope, BOOL, "CASE WHEN condition")
            else:
                test = self.compare("=", operand, self.expr(condition, scope), condition)
            whens.append(f"WHEN {test.sql} THEN {result.sql}")
        return Value(f"(CASE {' '.join(whens)} ELSE {otherwise.sql} END)", kind)

    def array(self, node: ast.ArrayValue, scope: Any) -> Value:
        if node.element is not None:
            element = from_node(node.element)
            items = [self.typed(item, scope, element, "array element") for item in node.items]
            return self.conversions.array_value(items, element)
        items = [self.expr(item, scope) for item in node.items]
        if any(item.type.kind == "ARRAY" for item in items):
            words = "Cannot construct array with element type ARRAY because nested arrays are not supported"
            raise self.mistake(words, node)
        kind, converted = self.common(items, "array", node)
        return self.conversions.array_value(converted, kind)

    def struct(self, node: ast.StructValue, scope: Any) -> Value:
        if node.type is None:
            named = [(item, alias or ("" if node.tuple_syntax else implied_name(item))) for item, alias in node.items]
            return self.packed(named, scope)
        kind = from_node(node.type)
        if len(kind.fields) != len(node.items):
            sizes = f"{len(kind.fields)} fields but constructor call has {len(node.items)} fields"
            raise self.mistake(f"STRUCT type has {sizes}", node)
        pairs = zip(node.items, kind.fields, strict=True)
        members = [self.typed(item, scope, inner, "struct field") for (item, _), (_, inner) in pairs]
        return self.conversions.struct_value(kind, members)

    def packed(self, items: Sequence[tuple[ast.Expression, str]], scope: Any) -> Value:
        """A STRUCT of expressions with names."""
        values = [self.expr(item, scope) for item, _ in items]
        kind = struct_of((name, value.type) for (_, name), value in zip(items, values, strict=True))
        members = [
            replace(self.conversions.null(value.type), null=True, literal=True) if value.null else value
            for value in values
        ]
        return self.conversions.struct_value(kind, members)


def _unless(negated: bool, sql: str) -> Value:
    return Value(f"(NOT {sql})" if negated else sql, BOOL)


def is_null(node: ast.Expression) -> bool:
    return isinstance(node, ast.Literal) and node.kind == "NULL"


def implied_name(item: ast.Expression) -> str:
    """The column name an expression brings along: that of the path or field it reads."""
    return item.parts[-1] if isinstance(item, ast.Path) else item.name if isinstance(item, ast.Dot) else ""


def comparison(op: str, a: str, b: str, compared: tuple[Value, Value]) -> str:
    """Two texts compared, of values that are of one type.

    To an engine a NaN equals itself and is the largest number; in GoogleSQL every comparison with one is false, but for
    `!=`. The plain comparison stays a condition of its own, so that an engine can still join by it.
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
