"""Rule expressions: GoogleSQL in, Spark SQL out, typed on the way.

What a tree says in Spark is decided here and in `functions`, because a translation that looks right is not enough:
INT64 `/` is a FLOAT64, a CAST to INT64 rounds half away from zero, NUMERIC keeps nine digits. Every function is in one
table, tested against the local BigQuery; anything else is refused by its name. Nothing here needs Spark, so a rule can
be checked before it runs (`checker`).

A parameter (`@name`) becomes a typed literal; no text of a rule or of a file's name is ever pasted into SQL.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, ClassVar

from ingestd.googlesql import ast
from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.functions import FUNCTIONS
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
    from_node,
)
from ingestd.googlesql.values import Value
from ingestd.model.schema import Schema
from ingestd.spark.sql import subselects
from ingestd.spark.sql.functions import REGISTRY, Call, unknown_function
from ingestd.spark.sql.grammar import columns_of, parse
from ingestd.spark.sql.operators import SparkOperators
from ingestd.spark.sql.types import from_field, quote
from ingestd.spark.sql.values import (
    NULL,
    array_value,
    cast,
    coerce,
    fill,
    literal,
    parse_text,
    supertype,
    text_sql,
)


@dataclass(frozen=True, slots=True)
class Rows:
    """The columns an alias stands for. `sql` is the alias's own text when it stands for a struct."""

    columns: Mapping[str, Value]  # by lower-cased name

    @classmethod
    def of(cls, schema: Schema, prefix: str = "") -> "Rows":
        """Columns of a frame, or with a prefix, members of a struct column in it."""
        return cls({item.key: Value(prefix + quote(item.name), from_field(item), simple=True) for item in schema})


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
    return Compiler().expr(parse(text), scope)


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


class Compiler(SparkOperators):
    """One method per kind of node. Every value it answers is Spark SQL with its GoogleSQL type."""

    NODES: ClassVar[dict[type[ast.Expression], Callable[["Compiler", Any, Scope], Value]]] = {}

    def expr(self, node: ast.Expression, scope: Scope) -> Value:
        handler = self.NODES.get(type(node))
        if handler is None:
            raise SqlError(f"{_NAMES[type(node)]} is not available on Spark")
        return handler(self, node, scope)

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
        return self.member(self.expr(node.base, scope), node.name)

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

    def moved(self, node: ast.Binary, value: Value, scope: Scope) -> Value | None:
        """A date or time plus or minus an INTERVAL; of a DATE this makes a DATETIME."""
        if not isinstance(node.right, ast.IntervalValue):
            return None
        direction = {"+": "ADD", "-": "SUB"}.get(node.op)
        if direction is None or value.type not in (DATE, DATETIME, TIMESTAMP):
            raise SqlError(f"an INTERVAL can only be added to a date or time, not to {value.type}")
        name = "TIMESTAMP" if value.type is TIMESTAMP else "DATETIME"
        start = value if value.type is not DATE else cast(value, DATETIME)
        inside = scope.inside({"_start": start})
        args = (ast.Path(node.pos, ("_start",)), node.right)
        return REGISTRY[f"{name}_{direction}"].handler(Call(self, f"{name}_{direction}", args, inside))

    def likes(self, node: ast.Like, scope: Scope) -> Value:
        if node.array is not None:
            raise SqlError("LIKE with UNNEST is not available on Spark")
        return self.like(node, scope)

    def in_(self, node: ast.In, scope: Scope) -> Value:
        if node.query is not None:
            raise SqlError("IN with a sub-select is not available on Spark: use a side input")
        return self.in_list(node, scope) if node.array is None else self.in_array(node, node.array, scope)

    def cast(self, node: ast.Cast, scope: Scope) -> Value:
        if node.format is not None:
            raise SqlError("CAST … FORMAT is not available on Spark: use FORMAT_DATE, PARSE_DATE …")
        value, target = self.expr(node.value, scope), from_node(node.type)
        if node.type.parameters:
            raise SqlError(f"type {target} with parameters is not available on Spark")
        if value.literal and isinstance(value.constant, str) and target in (DATE, DATETIME, TIME, TIMESTAMP, NUMERIC):
            parsed = parse_text(value.constant, target)
            if parsed is None and not node.safe:
                raise SqlError(f"{value.constant!r} is no {target}")
            return parsed or literal(None, target)
        return cast(value, target, safe=node.safe)

    def index(self, node: ast.Index, scope: Scope) -> Value:
        base = self.expr(node.base, scope)
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


# What has no method, as an author would call it.
_NAMES: dict[type[ast.Expression], str] = {
    ast.RangeLiteral: "RANGE", ast.IntervalValue: "an INTERVAL alone", ast.SystemVariable: "a system variable",
    ast.Lambda: "a lambda outside of a function that takes one", ast.Default: "DEFAULT",
}  # fmt: skip

Compiler.NODES = {
    ast.Path: Compiler.path, ast.Dot: Compiler.dot, ast.Literal: Compiler.literal,
    ast.TypedLiteral: Compiler.typed_literal, ast.Param: Compiler.parameter, ast.Unary: Compiler.unary,
    ast.Binary: Compiler.binary, ast.IsDistinct: Compiler.is_distinct, ast.Like: Compiler.likes,
    ast.Between: Compiler.between, ast.In: Compiler.in_, ast.Is: Compiler.is_, ast.Case: Compiler.case,
    ast.ArrayValue: Compiler.array, ast.StructValue: Compiler.struct, ast.Cast: Compiler.cast,
    ast.Index: Compiler.index, ast.Extract: Compiler.extract, ast.Call: Compiler.call,
    NamedArgument: Compiler.named_argument, ast.Exists: subselects.exists, ast.ScalarQuery: subselects.scalar,
    ast.ArrayQuery: subselects.array,
}  # fmt: skip

__all__ = ["Compiler", "Rows", "Scope", "columns_of", "condition", "translate"]
