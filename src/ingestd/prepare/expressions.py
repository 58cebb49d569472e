"""Rule expressions: GoogleSQL in, Spark SQL out, typed on the way.

What a tree says in Spark is decided here and in `functions`, because a translation that looks right is not enough:
INT64 `/` is a FLOAT64, a CAST to INT64 rounds half away from zero, NUMERIC keeps nine digits. Every function is in one
table, tested against the local BigQuery; anything else is refused by its name. Nothing here needs Spark, so a rule can
be checked before it runs (`checker`).

A parameter (`@name`) becomes a typed literal; no text of a rule or of a file's name is ever pasted into SQL.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, ClassVar

from ingestd.googlesql import ast
from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.functions import FUNCTIONS
from ingestd.googlesql.literals import INT64_MAX, INT64_MIN
from ingestd.googlesql.types import (
    BIGNUMERIC,
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT64,
    INT64,
    JSON,
    NUMERIC,
    SCALARS,
    STRING,
    TIME,
    TIMESTAMP,
    SqlType,
    array_of,
    from_node,
    struct_of,
)
from ingestd.googlesql.values import Value
from ingestd.prepare import operators, subselects
from ingestd.prepare.functions import REGISTRY, Call, unknown_function
from ingestd.prepare.grammar import columns_of, parse
from ingestd.prepare.sqltypes import from_field, quote
from ingestd.prepare.values import (
    NULL,
    array_value,
    cast,
    coerce,
    fill,
    literal,
    parse_text,
    struct_value,
    supertype,
    text_sql,
)


@dataclass(frozen=True, slots=True)
class Rows:
    """The columns an alias stands for. `sql` is the alias's own text when it stands for a struct."""

    columns: Mapping[str, Value]  # by lower-cased name

    @classmethod
    def of(cls, schema: Sequence[Mapping[str, Any]], prefix: str = "") -> "Rows":
        """Columns of a frame, or with a prefix, members of a struct column in it."""
        return cls(
            {
                str(item["name"]).lower(): Value(prefix + quote(str(item["name"])), from_field(item), simple=True)
                for item in schema
            }
        )


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean: `aliases` by lower-cased alias; a bare name is a column of exactly one of them."""

    aliases: Mapping[str, Rows] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)  # variables of lambdas and elements of UNNEST

    def inside(self, values: Mapping[str, Value]) -> "Scope":
        return Scope(self.aliases, self.parameters, {**self.values, **values})

    def lookup(self, name: str, *, alone: bool = True) -> "Value | Rows | None":
        """What a name means; before a dot an alias is meant rather than a column of that name, as in BigQuery."""
        lowered = name.lower()
        if lowered in self.values:
            return self.values[lowered]
        if not alone and lowered in self.aliases:
            return self.aliases[lowered]
        found = [rows.columns[lowered] for rows in self.aliases.values() if lowered in rows.columns]
        if len(found) > 1:
            raise SqlError(f"column {name} is ambiguous: write its alias before it")
        if found:
            return found[0]
        return self.aliases.get(lowered)


def translate(text: str, scope: Scope) -> Value:
    """The expression in Spark SQL, with its type."""
    return Compiler().compile(parse(text), scope)


def condition(text: str, scope: Scope, what: str) -> str:
    """A BOOL expression in Spark SQL."""
    value = coerce(translate(text, scope), BOOL)
    if value is None:
        raise SqlError(f"{what} must be a BOOL")
    return value.sql


def parameter_value(name: str, value: Any) -> Value:
    """A named parameter as a typed literal, by its Python type."""
    kinds: tuple[tuple[type, SqlType], ...] = (
        (bool, BOOL), (int, INT64), (float, FLOAT64), (Decimal, NUMERIC), (str, STRING), (bytes, BYTES),
        (datetime, TIMESTAMP), (date, DATE), (time, TIME),
    )  # fmt: skip
    if value is None:
        return NULL
    if isinstance(value, list | tuple):
        items = [parameter_value(name, item) for item in value]
        kind = supertype(items) if items else STRING
        if kind is None:
            raise SqlError(f"the values of parameter @{name} have no common type")
        return array_value([item for item in (coerce(item, kind) for item in items) if item is not None], kind)
    for python, kind in kinds:
        if isinstance(value, python):
            civil = isinstance(value, datetime) and value.tzinfo is None
            return literal(value, DATETIME if civil else kind)
    raise SqlError(f"parameter @{name} is a {type(value).__name__}: give text, a number, a date or a list")


def _no_constant(name: str) -> None:
    raise ValueError(name)


@dataclass(frozen=True, slots=True)
class NamedArgument(ast.Expression):
    """`name => value` in a call, which no function takes here."""

    name: str
    value: ast.Expression


def _is_null(node: ast.Expression) -> bool:
    return isinstance(node, ast.Literal) and node.kind == "NULL"


class Compiler:
    """One method per kind of node. Every value it answers is Spark SQL with its GoogleSQL type."""

    NODES: ClassVar[dict[type[ast.Expression], Callable[["Compiler", Any, Scope], Value]]] = {}

    def compile(self, node: ast.Expression, scope: Scope) -> Value:
        handler = self.NODES.get(type(node))
        if handler is None:
            raise SqlError(f"{_NAMES[type(node)]} is not available on Spark")
        return handler(self, node, scope)

    def typed(self, node: ast.Expression, scope: Scope, kind: SqlType, what: str) -> Value:
        value = coerce(self.compile(node, scope), kind)
        if value is None:
            raise SqlError(f"{what} must be {kind}")
        return value

    def common(self, values: Sequence[Value], what: str) -> tuple[SqlType, list[Value]]:
        kind = supertype(values)
        converted = [coerce(value, kind) for value in values] if kind is not None else []
        found = [value for value in converted if value is not None]
        if kind is None or len(found) != len(values):
            raise SqlError(f"{what} has no common type of {', '.join(str(value.type) for value in values)}")
        return kind, found

    def member(self, value: Value, name: str) -> Value:
        if value.type is JSON:
            raise SqlError(f"field {name} of a JSON value: use JSON_VALUE or JSON_QUERY")
        found = value.type.member(name) if value.type.kind == "STRUCT" else None
        if found is None:
            raise SqlError(f"{value.type} has no field {name}")
        return Value(f"{value.sql}.{quote(found[0])}", found[1], simple=value.simple)

    def path(self, node: ast.Path, scope: Scope) -> Value:
        first, *rest = node.parts
        found = scope.lookup(first, alone=not rest)
        if found is None:
            raise SqlError(f"there is no column {first}")
        if isinstance(found, Rows):
            if not rest:
                raise SqlError(f"{first} is an alias: name one of its columns")
            value = found.columns.get(rest[0].lower())
            if value is None:
                raise SqlError(f"{first} has no column {rest[0]}")
            rest = rest[1:]
        else:
            value = found
        for name in rest:
            value = self.member(value, name)
        return value

    def dot(self, node: ast.Dot, scope: Scope) -> Value:
        return self.member(self.compile(node.base, scope), node.name)

    def literal(self, node: ast.Literal, scope: Scope) -> Value:
        if node.kind == "NULL":
            return NULL
        if isinstance(node.value, int) and not INT64_MIN <= node.value <= INT64_MAX:
            raise SqlError(f"{node.value} is no INT64")
        return literal(node.value, SCALARS[node.kind])

    def typed_literal(self, node: ast.TypedLiteral, scope: Scope) -> Value:
        kind = SCALARS[node.kind]
        if kind is JSON:
            try:
                value = json.loads(node.text, parse_constant=_no_constant)
            except ValueError:
                raise SqlError(f"{node.text!r} is no JSON") from None
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
            return Value(text_sql(text), JSON, simple=True)
        if kind is BIGNUMERIC:
            return cast(literal(node.text, STRING), BIGNUMERIC)
        parsed = parse_text(node.text, kind)
        if parsed is None or (isinstance(parsed.constant, Decimal) and parsed.constant != Decimal(node.text.strip())):
            raise SqlError(f"{node.text!r} is no {kind}")  # a literal is not rounded, unlike a CAST
        return parsed

    def parameter(self, node: ast.Param, scope: Scope) -> Value:
        by_name = {key.lower(): value for key, value in scope.parameters.items()}
        if node.name.lower() not in by_name:
            raise SqlError(f"there is no parameter @{node.name}")
        return parameter_value(node.name, by_name[node.name.lower()])

    def unary(self, node: ast.Unary, scope: Scope) -> Value:
        if node.op == "NOT":
            if _is_null(node.value):
                raise SqlError("the operand of NOT cannot be a literal NULL")
            return Value(f"(NOT {self.typed(node.value, scope, BOOL, 'the operand of NOT').sql})", BOOL)
        if node.op == "~":
            return Value(f"(~ {self.typed(node.value, scope, INT64, 'the operand of ~').sql})", INT64)
        value = self.compile(node.value, scope)
        if not value.type.numeric or value.type.kind == "BIGNUMERIC":
            raise SqlError(f"operator - does not take {value.type}")
        if value.literal and isinstance(value.constant, int | float):
            return literal(-value.constant, value.type)
        return Value(f"(- {value.sql})", value.type)

    def binary(self, node: ast.Binary, scope: Scope) -> Value:
        # Chains lean left and may be long (x = 1 OR x = 2 OR …): walk them instead of recursing.
        spine = [node]
        while isinstance(spine[-1].left, ast.Binary):
            spine.append(spine[-1].left)
        value = self.compile(spine[-1].left, scope)
        for item in reversed(spine):
            if item.op not in ("AND", "OR") and (_is_null(item.left) or _is_null(item.right)):
                raise SqlError(f"the operands of {item.op} cannot be a literal NULL")
            if isinstance(item.right, ast.IntervalValue):
                value = self._moved(item, value, scope)
            else:
                value = operators.binary(self, item.op, value, self.compile(item.right, scope))
        return value

    def _moved(self, node: ast.Binary, value: Value, scope: Scope) -> Value:
        """A date or time plus or minus an INTERVAL; of a DATE this makes a DATETIME."""
        direction = {"+": "ADD", "-": "SUB"}.get(node.op)
        if direction is None or value.type not in (DATE, DATETIME, TIMESTAMP):
            raise SqlError(f"an INTERVAL can only be added to a date or time, not to {value.type}")
        name = "TIMESTAMP" if value.type is TIMESTAMP else "DATETIME"
        start = value if value.type is not DATE else cast(value, DATETIME)
        inside = scope.inside({"_start": start})
        args = (ast.Path(node.pos, ("_start",)), node.right)
        return REGISTRY[f"{name}_{direction}"].handler(Call(self, f"{name}_{direction}", args, inside))

    def is_distinct(self, node: ast.IsDistinct, scope: Scope) -> Value:
        op = "IS NOT DISTINCT FROM" if node.negated else "IS DISTINCT FROM"
        return operators.binary(self, op, self.compile(node.left, scope), self.compile(node.right, scope))

    def like(self, node: ast.Like, scope: Scope) -> Value:
        if node.array is not None:
            raise SqlError("LIKE with UNNEST is not available on Spark")
        if _is_null(node.value) or (not node.quantifier and _is_null(node.patterns[0])):
            raise SqlError("the operands of LIKE cannot be a literal NULL")
        value = self.typed(node.value, scope, STRING, "the left side of LIKE")
        patterns = [self.typed(item, scope, STRING, "a pattern of LIKE") for item in node.patterns]
        # NOT LIKE ANY holds when one of the patterns does not match.
        word = "NOT LIKE" if node.negated else "LIKE"
        parts = [fill(rf"(@0 {word} @1 ESCAPE '\\')", value, pattern) for pattern in patterns]
        return Value(f"({(' AND ' if node.quantifier == 'ALL' else ' OR ').join(parts)})", BOOL)

    def between(self, node: ast.Between, scope: Scope) -> Value:
        written = [self.compile(item, scope) for item in (node.value, node.low, node.high)]
        kind, (value, low, high) = self.common(written, "BETWEEN")
        operators.check_ordered(kind, "BETWEEN")
        return _unless(node.negated, operators.between(value, low, high))

    def in_(self, node: ast.In, scope: Scope) -> Value:
        if node.query is not None:
            raise SqlError("IN with a sub-select is not available on Spark: use a side input")
        value = self.compile(node.value, scope)
        if node.array is not None:
            array = self.compile(node.array, scope)
            if array.type.element is None:
                raise SqlError("IN UNNEST takes an array")
            kind, (left, _) = self.common([value, Value("", array.type.element)], "IN UNNEST")
            right = coerce(array, array_of(kind)) or cast(array, array_of(kind))
            found = operators.contains("@1", "@0", kind)
            within = fill(f"IF(@1 IS NULL, FALSE, IF(size(@1) = 0, FALSE, {found}))", left, right)
            return _unless(node.negated, Value(within, BOOL))
        items = [self.compile(item, scope) for item in node.items]
        kind, (first, *rest) = self.common([value, *items], "IN")
        operators.check_comparable(kind, "IN")
        return _unless(node.negated, operators.among(first, rest))

    def is_(self, node: ast.Is, scope: Scope) -> Value:
        what = "NULL" if node.what == "UNKNOWN" else node.what
        value = self.compile(node.value, scope)
        if what != "NULL":
            value = self.typed(node.value, scope, BOOL, f"the operand of IS {what}")
        return Value(f"({value.sql} IS {'NOT ' if node.negated else ''}{what})", BOOL)

    def case(self, node: ast.Case, scope: Scope) -> Value:
        results = [self.compile(result, scope) for _, result in node.whens]
        results.append(self.compile(node.otherwise, scope) if node.otherwise is not None else NULL)
        kind, converted = self.common(results, "CASE")
        subject = self.compile(node.operand, scope) if node.operand is not None else None
        whens = []
        for (condition, _), result in zip(node.whens, converted, strict=False):
            if subject is None:
                test = self.typed(condition, scope, BOOL, "a condition of CASE").sql
            else:
                test = operators.binary(self, "=", subject, self.compile(condition, scope)).sql
            whens.append(f"WHEN {test} THEN {result.sql}")
        return Value(f"(CASE {' '.join(whens)} ELSE {converted[-1].sql} END)", kind)

    def array(self, node: ast.ArrayValue, scope: Scope) -> Value:
        if node.element is not None:
            element = from_node(node.element)
            return array_value([self.typed(item, scope, element, "an element") for item in node.items], element)
        kind, items = self.common([self.compile(item, scope) for item in node.items], "an array")
        if kind.kind == "ARRAY":
            raise SqlError("an array of arrays does not exist")
        return array_value(items, kind)

    def struct(self, node: ast.StructValue, scope: Scope) -> Value:
        if node.type is not None:
            kind = from_node(node.type)
            if len(kind.fields) != len(node.items):
                raise SqlError(f"{kind} has {len(kind.fields)} fields, not {len(node.items)}")
            pairs = zip(node.items, kind.fields, strict=True)
            return struct_value(kind, [self.typed(item, scope, inner, "a field") for (item, _), (_, inner) in pairs])
        return self.packed(
            [(item, alias or ("" if node.tuple_syntax else _implied(item))) for item, alias in node.items], scope
        )

    def packed(self, items: Sequence[tuple[ast.Expression, str]], scope: Scope) -> Value:
        members = [(name, self.compile(item, scope)) for item, name in items]
        return struct_value(struct_of((name, value.type) for name, value in members), [value for _, value in members])

    def selected(self, items: Sequence[ast.SelectItem], scope: Scope) -> Value:
        """The struct of SELECT AS STRUCT."""
        return self.packed([(item.value, item.alias or _implied(item.value)) for item in items], scope)

    def cast(self, node: ast.Cast, scope: Scope) -> Value:
        if node.format is not None:
            raise SqlError("CAST … FORMAT is not available on Spark: use FORMAT_DATE, PARSE_DATE …")
        value, target = self.compile(node.value, scope), from_node(node.type)
        if node.type.parameters:
            raise SqlError(f"type {target} with parameters is not available on Spark")
        if value.literal and isinstance(value.constant, str) and target in (DATE, DATETIME, TIME, TIMESTAMP, NUMERIC):
            parsed = parse_text(value.constant, target)
            if parsed is None and not node.safe:
                raise SqlError(f"{value.constant!r} is no {target}")
            return parsed or literal(None, target)
        return cast(value, target, safe=node.safe)

    def index(self, node: ast.Index, scope: Scope) -> Value:
        base = self.compile(node.base, scope)
        if base.type.element is None:
            raise SqlError(f"[] does not take {base.type}")
        index = self.typed(node.index, scope, INT64, "an array's position")
        shift = "" if node.mode.endswith("ORDINAL") else " + 1"
        if node.mode.startswith("SAFE"):
            template = f"IF(@1{shift} > 0, try_element_at(@0, CAST(@1{shift} AS INT)), NULL)"
        else:
            error = "raise_error(concat('Array index ', @1, ' is out of bounds'))"
            template = (
                f"CASE WHEN @1{shift} > 0 AND @1{shift} <= size(@0) THEN element_at(@0, CAST(@1{shift} AS INT)) "
                f"WHEN @0 IS NULL OR @1 IS NULL THEN NULL ELSE {error} END"
            )
        return Value(fill(template, base, index), base.type.element)

    def extract(self, node: ast.Extract, scope: Scope) -> Value:
        zone = () if node.zone is None else (node.zone,)
        return REGISTRY["EXTRACT"].handler(Call(self, "EXTRACT", (node.part, node.value, *zone), scope))

    def call(self, node: ast.Call, scope: Scope) -> Value:
        found = REGISTRY.get(node.name)
        if found is None:
            raise SqlError(unknown_function(node.name))
        if node.over is not None:
            raise SqlError("OVER is not available on Spark")
        if node.star or node.distinct or node.nulls or node.having or node.order_by or node.limit:
            raise SqlError(f"{node.name} takes plain arguments: no *, DISTINCT, NULLS, HAVING, ORDER BY or LIMIT")
        if node.safe and not found.safe:
            raise SqlError(f"SAFE.{node.name} is not available on Spark")
        args = (*node.args, *(NamedArgument(value.pos, name, value) for name, value in node.named))
        function = FUNCTIONS[node.name]
        if not function.takes(len(args)):
            raise SqlError(f"{node.name} takes {function.wanted} arguments, not {len(args)}")
        return found.handler(Call(self, node.name, args, scope, node.safe))

    def named_argument(self, node: NamedArgument, scope: Scope) -> Value:
        raise SqlError(f"an argument by name ({node.name} =>) is not available on Spark")


def _unless(negated: bool, value: Value) -> Value:
    return Value(f"(NOT {value.sql})", BOOL) if negated else value


def _implied(item: ast.Expression) -> str:
    """The name that a field has without an alias."""
    return item.parts[-1] if isinstance(item, ast.Path) else item.name if isinstance(item, ast.Dot) else ""


# What has no method, as an author would call it.
_NAMES: dict[type[ast.Expression], str] = {
    ast.RangeLiteral: "RANGE", ast.IntervalValue: "an INTERVAL alone", ast.SystemVariable: "a system variable",
    ast.Lambda: "a lambda outside of a function that takes one", ast.Default: "DEFAULT",
}  # fmt: skip

Compiler.NODES = {
    ast.Path: Compiler.path, ast.Dot: Compiler.dot, ast.Literal: Compiler.literal,
    ast.TypedLiteral: Compiler.typed_literal, ast.Param: Compiler.parameter, ast.Unary: Compiler.unary,
    ast.Binary: Compiler.binary, ast.IsDistinct: Compiler.is_distinct, ast.Like: Compiler.like,
    ast.Between: Compiler.between, ast.In: Compiler.in_, ast.Is: Compiler.is_, ast.Case: Compiler.case,
    ast.ArrayValue: Compiler.array, ast.StructValue: Compiler.struct, ast.Cast: Compiler.cast,
    ast.Index: Compiler.index, ast.Extract: Compiler.extract, ast.Call: Compiler.call,
    NamedArgument: Compiler.named_argument, ast.Exists: subselects.exists, ast.ScalarQuery: subselects.scalar,
    ast.ArrayQuery: subselects.array,
}  # fmt: skip

__all__ = ["Compiler", "Rows", "Scope", "columns_of", "condition", "translate"]
