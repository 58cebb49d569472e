"""Rule expressions: GoogleSQL in, Spark SQL out, typed on the way.

What a tree says in Spark is decided here and in `functions`, because a translation that looks right is not enough:
INT64 `/` is a FLOAT64, a CAST to INT64 rounds half away from zero, NUMERIC keeps nine digits. Every function is in one
table, tested against the local BigQuery; anything else is refused by its name. Nothing here needs Spark, so a rule can
be checked before it runs (`checker`).

A parameter (`@name`) becomes a typed literal; no text of a rule or of a file's name is ever pasted into SQL.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import Any

from ingestd.googlesql import ast, names
from ingestd.googlesql.errors import SqlError, UnsupportedSql
from ingestd.googlesql.names import Column, Range
from ingestd.googlesql.rule_expressions import columns_of, read
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
from ingestd.spark.sql.functions import REGISTRY, Call
from ingestd.spark.sql.operators import SparkOperators
from ingestd.spark.sql.types import from_field, quote
from ingestd.spark.sql.values import (
    NULL,
    array_value,
    cast,
    coerce,
    literal,
    supertype,
    text_sql,
)


class Rows(Range):
    """The columns that an alias stands for."""

    @classmethod
    def of(cls, schema: Schema, prefix: str = "") -> "Rows":
        """Columns of a frame, or with a prefix, members of a struct column in it."""
        return cls("", [Column(item.name, from_field(item), prefix + quote(item.name), simple=True) for item in schema])


class Scope(names.Scope):
    """What names mean: a bare one is a column of exactly one alias. Parameters are given to all expressions."""

    __slots__ = ("parameters",)

    def __init__(self, rows: Mapping[str, Rows] | None = None, parameters: Mapping[str, Any] | None = None) -> None:
        super().__init__([replace(item, alias=alias) for alias, item in (rows or {}).items()])
        self.parameters = parameters or {}


@lru_cache(maxsize=1024)
def parse(text: str) -> ast.Expression:
    """The expression's tree; raises `SqlError` when it is none, or has what only BigQuery reads."""
    try:
        return read(text)
    except UnsupportedSql as error:
        raise SqlError(f"{error.feature} is not available on Spark") from None


def translate(text: str, scope: Scope) -> Value:
    """The expression in Spark SQL, with its type."""
    return Compiler(scope.parameters).expr(parse(text), scope)


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


class Compiler(SparkOperators):
    """What is Spark's own about expressions. Every value it answers is Spark SQL with its GoogleSQL type."""

    rows_are_values, counts_overloads = False, True
    exists, scalar_query, array_query = subselects.exists, subselects.scalar, subselects.array

    def __init__(self, parameters: Mapping[str, Any] | None = None) -> None:
        self._parameters = {key.lower(): value for key, value in (parameters or {}).items()}

    def unavailable(self, node: ast.Expression) -> SqlError:
        return SqlError(f"{_NAMES[type(node)]} is not available on Spark")

    def member(self, value: Value, name: str, node: ast.Node) -> Value:
        if value.type is JSON:
            raise SqlError(f"field {name} of a JSON value: use JSON_VALUE or JSON_QUERY")
        return super().member(value, name, node)

    def typed_literal(self, node: ast.TypedLiteral, scope: names.Scope) -> Value:
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
        return super().typed_literal(node, scope)

    def parameter(self, node: ast.Param, scope: names.Scope) -> Value:
        if node.name.lower() not in self._parameters:
            raise SqlError(f"there is no parameter @{node.name}")
        return parameter_value(node.name, self._parameters[node.name.lower()])

    def moved(self, node: ast.Binary, value: Value, scope: names.Scope) -> Value | None:
        """A date or time plus or minus an INTERVAL; of a DATE this makes a DATETIME."""
        if not isinstance(node.right, ast.IntervalValue):
            return None
        direction = {"+": "ADD", "-": "SUB"}.get(node.op)
        if direction is None or value.type not in (DATE, DATETIME, TIMESTAMP):
            raise SqlError(f"an INTERVAL can only be added to a date or time, not to {value.type}")
        name = "TIMESTAMP" if value.type is TIMESTAMP else "DATETIME"
        start = value if value.type is not DATE else cast(value, DATETIME)
        inside = scope.inside({"_start": start})
        call = ast.Call(node.pos, f"{name}_{direction}", (ast.Path(node.pos, ("_start",)), node.right))
        return REGISTRY[call.name].handler(Call(self, call, inside))

    def like(self, node: ast.Like, scope: names.Scope) -> Value:
        if node.array is not None:
            raise SqlError("LIKE with UNNEST is not available on Spark")
        return super().like(node, scope)

    def in_query(self, node: ast.In, query: ast.Query, scope: names.Scope) -> Value:
        raise SqlError("IN with a sub-select is not available on Spark: use a side input")

    def cast(self, node: ast.Cast, scope: names.Scope) -> Value:
        if node.format is not None:
            raise SqlError("CAST … FORMAT is not available on Spark: use FORMAT_DATE, PARSE_DATE …")
        value, target = self.expr(node.value, scope), from_node(node.type)
        if node.type.parameters:
            raise SqlError(f"type {target} with parameters is not available on Spark")
        return self.read_as(value, target, node) or cast(value, target, safe=node.safe)

    def extract(self, node: ast.Extract, scope: names.Scope) -> Value:
        zone = () if node.zone is None else (node.zone,)
        return REGISTRY["EXTRACT"].handler(
            Call(self, ast.Call(node.pos, "EXTRACT", (node.part, node.value, *zone)), scope)
        )

    def call(self, node: ast.Call, scope: names.Scope) -> Value:
        found = self.called(replace(node, args=(*node.args, *(value for _, value in node.named))), REGISTRY)
        for name, _ in node.named:
            raise SqlError(f"an argument by name ({name} =>) is not available on Spark")
        return found.handler(Call(self, node, scope))


# What has no method, as an author would call it.
_NAMES: dict[type[ast.Expression], str] = {
    ast.RangeLiteral: "RANGE", ast.IntervalValue: "an INTERVAL alone", ast.SystemVariable: "a system variable",
    ast.Lambda: "a lambda outside of a function that takes one", ast.Default: "DEFAULT",
}  # fmt: skip

__all__ = ["Compiler", "Rows", "Scope", "columns_of", "condition", "translate"]
