"""What an expression means: names, operators and constructors, the operands they take, the type of their result.

An engine is a subclass that writes each operation in its own SQL.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, ClassVar, TypeVar

from ingestd.googlesql import ast
from ingestd.googlesql.coercion import Conversions
from ingestd.googlesql.functions import FUNCTIONS
from ingestd.googlesql.library import Call, Entry, Library
from ingestd.googlesql.literals import INT64_MAX, INT64_MIN
from ingestd.googlesql.names import AmbiguousName, Column, Range, Scope
from ingestd.googlesql.types import (
    BOOL,
    BYTES,
    FLOAT64,
    INT64,
    JSON,
    SCALARS,
    STRING,
    SqlType,
    array_of,
    from_node,
    struct_of,
)
from ingestd.googlesql.values import Value
from ingestd.googlesql.wording import GOOGLESQL

_Call = TypeVar("_Call", bound=Call[Any])
_COMPARISONS = frozenset(["=", "!=", "<", ">", "<=", ">="])
_BITS = frozenset(["&", "|", "^", "<<", ">>"])
_NULL = Value("NULL", INT64, literal=True, null=True, simple=True)


class Analyzer(ABC):
    conversions: ClassVar[Conversions]
    words: ClassVar[Mapping[str, str]] = GOOGLESQL
    rows_are_values: ClassVar[bool] = True  # whether an alias alone means its row, as a STRUCT
    counts_overloads: ClassVar[bool] = False  # whether overloaded functions are told how many arguments they take

    @abstractmethod
    def mistake(self, message: str, node: ast.Node) -> Exception: ...

    @abstractmethod
    def unavailable(self, node: ast.Expression) -> Exception:
        """A kind of expression that the engine has no method for."""

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
    def in_query(self, node: ast.In, query: ast.Query, scope: Scope) -> Value: ...

    @abstractmethod
    def element(self, array: Value, position: Value, mode: str) -> str:
        """One element; `mode` is OFFSET, ORDINAL, SAFE_OFFSET, SAFE_ORDINAL or empty."""

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

    def moved(self, node: ast.Binary, value: Value, scope: Scope) -> Value | None:
        """An operation whose right side is no value by itself."""
        return None

    def variable(self, name: str) -> Value | None:
        """What a name means that is in no scope."""
        return None

    def expr(self, node: ast.Expression, scope: Scope) -> Value:
        """Any expression, in the engine's SQL."""
        method = getattr(self, METHODS.get(type(node), ""), None)
        if method is None:
            raise self.unavailable(node)
        value: Value = method(node, scope)
        return value

    def wrong(self, key: str, node: ast.Node, /, **facts: object) -> Exception:
        """What is wrong, in the engine's words."""
        return self.mistake(self.words[key].format(**facts), node)

    def mismatch(self, what: str, values: Sequence[Value], node: ast.Node) -> Exception:
        """An operation that does not take values of these types."""
        return self.wrong("mismatch", node, what=what, **_kinds(values))

    def no_common(self, what: str, values: Sequence[Value], node: ast.Node) -> Exception:
        """Values that should have a common type, and have none."""
        own = f"no common type of {what}"
        return self.wrong(own if own in self.words else "no common type", node, what=what, **_kinds(values))

    def untyped(self, what: str, kind: SqlType, value: Value, node: ast.Node) -> Exception:
        """A value that should be of this type, and is not."""
        own = f"untyped {what}"
        if own not in self.words:
            own = "untyped condition" if kind is BOOL and what else "untyped"
        return self.wrong(own, node, what=what, kind=kind, found=value.type)

    def path(self, node: ast.Path, scope: Scope) -> Value:
        first, *rest = node.parts
        try:
            found = scope.lookup(first, columns_first=not rest and not self.rows_are_values) or self.variable(first)
        except AmbiguousName:
            raise self.wrong("ambiguous name", node, name=first) from None
        if found is None:
            raise self.wrong("unknown name", node, name=first, hint=scope.suggestion(first))
        if isinstance(found, Range):
            columns = found.find(rest[0]) if rest else []
            if len(columns) > 1:
                raise self.wrong("ambiguous name", node, name=rest[0])
            if rest and not columns and found.value is None:
                raise self.wrong("unknown column", node, name=rest[0], alias=first)
            if not rest and found.value is None and not self.rows_are_values:
                raise self.wrong("alias alone", node, name=first)
            value, rest = (columns[0].expr, rest[1:]) if columns else (self._row(found), rest)
        else:
            value = found
        for name in rest:
            value = self.member(value, name, node)
        return value

    def _row(self, item: Range) -> Value:
        if item.value is not None:
            return item.value
        visible = [column for column in item.columns if not column.pseudo]
        kind = struct_of((column.name, column.type) for column in visible)
        return self.conversions.struct_value(kind, [column.expr for column in visible])

    def value_range(self, alias: str, value: Value) -> Range:
        """A range whose rows are values: a STRUCT's fields are visible as columns, another value under the alias."""
        if value.type.kind != "STRUCT":
            return Range(alias, [Column(alias, value.type, value.sql, simple=value.simple)], value)
        named = zip(value.type.fields, value.type.physical_names, self.conversions.struct_members(value), strict=True)
        columns = [
            Column(name or physical, kind, member.sql, simple=member.simple) for (name, kind), physical, member in named
        ]
        return Range(alias, columns, value)

    def called(self, node: ast.Call, library: Library[_Call]) -> Entry[_Call]:
        """What the engine has of the function, if it may be called like that."""
        found = library.get(node.name)
        if found is None:
            near = library.near(node.name)
            hint = self.words["near function"].format(near=near, lowered=near.lower()) if near else ""
            raise self.wrong("unknown function", node, name=node.name, written=node.written or node.name, hint=hint)
        function, count = FUNCTIONS[node.name], len(node.args)
        if function.kind == "scalar":
            if node.over is not None:
                raise self.wrong("over", node, name=node.name)
            if node.distinct or node.order_by or node.limit is not None or node.having is not None or node.nulls:
                raise self.wrong("modified", node, name=node.name)
            if node.star:
                raise self.wrong("star", node, name=node.name)
        elif function.kind == "window" and node.over is None:
            raise self.wrong("no window", node, name=node.name)
        if node.safe and not found.safe:
            raise self.wrong("never safe", node, name=node.name)
        # A wrong number for an overloaded one may be told with the signatures that it has.
        taken = function.takes(count) or (bool(function.signatures) and not self.counts_overloads)
        if node.name != "COUNT" if node.star else not taken:
            raise self.wrong("number of arguments", node, name=node.name, wanted=function.wanted, count=count)
        return found

    def dot(self, node: ast.Dot, scope: Scope) -> Value:
        return self.member(self.expr(node.base, scope), node.name, node)

    def member(self, value: Value, name: str, node: ast.Node) -> Value:
        if value.type.kind != "STRUCT":
            raise self.wrong("no struct", node, name=name, kind=value.type)
        found = value.type.member(name)
        if found is None:
            raise self.wrong("unknown field", node, name=name, kind=value.type)
        return Value(self.conversions.field(value, found[0]), found[1], simple=value.simple)

    def typed(self, node: ast.Expression, scope: Scope, kind: SqlType, what: str = "") -> Value:
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

    def literal(self, node: ast.Literal, scope: Scope) -> Value:
        if node.kind == "NULL":
            return _NULL
        if node.kind == "INT64" and isinstance(node.value, int) and not INT64_MIN <= node.value <= INT64_MAX:
            raise self.mistake(f"Invalid integer literal: {node.value}", node)
        return self.conversions.literal(node.value, SCALARS[node.kind])

    def typed_literal(self, node: ast.TypedLiteral, scope: Scope) -> Value:
        value = self.conversions.read(node.text, SCALARS[node.kind])
        rounded = value is not None and isinstance(value.constant, Decimal)
        if value is None or (rounded and value.constant != Decimal(node.text.strip())):  # unlike a CAST
            raise self.wrong("bad literal", node, text=node.text, kind=node.kind)
        return replace(value, literal=False)

    def read_as(self, value: Value, target: SqlType, node: ast.Cast) -> Value | None:
        """A text literal that is cast to what has literals of its own: it is read at once. None for all else."""
        text = value.constant if value.literal and not value.parameter else None
        if not isinstance(text, str) or target is JSON or target.kind not in self.conversions.readers:
            return None
        found = self.conversions.read(text, target)
        if found is None and not node.safe:
            raise self.wrong("bad cast", node.value, text=text, kind=target)
        return replace(found, literal=False) if found is not None else self.conversions.literal(None, target)

    def index(self, node: ast.Index, scope: Scope) -> Value:
        return self.subscript(self.expr(node.base, scope), node, scope)

    def subscript(self, base: Value, node: ast.Index, scope: Scope) -> Value:
        if base.type.kind != "ARRAY" or base.type.element is None:
            raise self.wrong("no array", node, mode=node.mode or "INT64", kind=base.type)
        position = self.typed(node.index, scope, INT64, "array position")
        return Value(self.element(base, position, node.mode), base.type.element)

    def unary(self, node: ast.Unary, scope: Scope) -> Value:
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

    def binary(self, node: ast.Binary, scope: Scope) -> Value:
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

    def is_distinct(self, node: ast.IsDistinct, scope: Scope) -> Value:
        left, right = self.expr(node.left, scope), self.expr(node.right, scope)
        kind = self.conversions.supertype([left, right])
        op = "IS DISTINCT FROM"
        a = self.conversions.coerce(left, kind) if kind is not None and self.comparable(op, kind) else None
        b = self.conversions.coerce(right, kind) if kind is not None else None
        if a is None or b is None:
            raise self.mismatch(f"operator {op}", [left, right], node)
        return Value(self.distinct(a, b, negated=node.negated), BOOL)

    def between(self, node: ast.Between, scope: Scope) -> Value:
        written = [self.expr(item, scope) for item in (node.value, node.low, node.high)]
        kind, (value, low, high) = self.common(written, "operator BETWEEN", node)
        if not self.comparable("<", kind):
            raise self.mismatch("operator BETWEEN", written, node)
        return _unless(node.negated, self.ranges(value, low, high))

    def in_list(self, node: ast.In, scope: Scope) -> Value:
        value = self.expr(node.value, scope)
        kind, (first, *rest) = self.common(
            [value, *(self.expr(item, scope) for item in node.items)], "operator IN", node
        )
        if not self.comparable("=", kind):
            raise self.mismatch("operator IN", [first], node)
        return _unless(node.negated, self.among(first, rest))

    def in_array(self, node: ast.In, array: ast.Expression, scope: Scope) -> Value:
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

    def in_(self, node: ast.In, scope: Scope) -> Value:
        if node.query is not None:
            return self.in_query(node, node.query, scope)
        return self.in_list(node, scope) if node.array is None else self.in_array(node, node.array, scope)

    def like(self, node: ast.Like, scope: Scope) -> Value:
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

    def is_(self, node: ast.Is, scope: Scope) -> Value:
        what = "NULL" if node.what == "UNKNOWN" else node.what
        value = self.expr(node.value, scope)
        converted = value if what == "NULL" else self.conversions.coerce(value, BOOL)
        if converted is None:
            raise self.mismatch(f"operator IS {what}", [value], node)
        return Value(f"({converted.sql} IS {'NOT ' if node.negated else ''}{what})", BOOL)

    def case(self, node: ast.Case, scope: Scope) -> Value:
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

    def array(self, node: ast.ArrayValue, scope: Scope) -> Value:
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

    def struct(self, node: ast.StructValue, scope: Scope) -> Value:
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

    def packed(self, items: Sequence[tuple[ast.Expression, str]], scope: Scope) -> Value:
        """A STRUCT of expressions with names."""
        values = [self.expr(item, scope) for item, _ in items]
        kind = struct_of((name, value.type) for (_, name), value in zip(items, values, strict=True))
        members = [
            replace(self.conversions.null(value.type), null=True, literal=True) if value.null else value
            for value in values
        ]
        return self.conversions.struct_value(kind, members)


METHODS: dict[type[ast.Expression], str] = {
    ast.Literal: "literal", ast.TypedLiteral: "typed_literal", ast.RangeLiteral: "range_literal",
    ast.IntervalValue: "interval", ast.Param: "parameter", ast.SystemVariable: "system_variable", ast.Path: "path",
    ast.Dot: "dot", ast.Index: "index", ast.Call: "call", ast.Lambda: "lambda_", ast.Cast: "cast",
    ast.Extract: "extract", ast.Unary: "unary", ast.Binary: "binary", ast.Between: "between", ast.In: "in_",
    ast.Like: "like", ast.Is: "is_", ast.IsDistinct: "is_distinct", ast.Case: "case", ast.ArrayValue: "array",
    ast.ArrayQuery: "array_query", ast.StructValue: "struct", ast.ScalarQuery: "scalar_query", ast.Exists: "exists",
    ast.Default: "default",
}  # fmt: skip


def _kinds(values: Sequence[Value]) -> dict[str, str]:
    kinds = [str(value.type) for value in values]
    return {"kinds": ", ".join(kinds), "pair": " and ".join(kinds), "distinct": ", ".join(dict.fromkeys(kinds))}


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
