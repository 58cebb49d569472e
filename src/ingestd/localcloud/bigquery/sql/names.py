"""Names in scope: what FROM brings in, which names win, and BigQuery's words when none or several match."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from ingestd.googlesql import ast
from ingestd.googlesql.types import SqlType
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.duckdb_types import duckdb_type, quote


def once(body: str, **values: str) -> str:
    """DuckDB SQL that computes each value a single time; `body` reads them as `_n.name`, as often as it wants."""
    packed = ", ".join(f"{name} := {sql}" for name, sql in values.items())
    return f"list_transform([struct_pack({packed})], lambda _n: {body})[1]"


_FIRST_AND_LAST = {
    "DATE": ("DATE '0001-01-01'", "DATE '9999-12-31'"),
    "DATETIME": ("TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMP '9999-12-31 23:59:59.999999'"),
    "TIMESTAMP": ("TIMESTAMPTZ '0001-01-01 00:00:00+00'", "TIMESTAMPTZ '9999-12-31 23:59:59.999999+00'"),
}


def ranged(value: Value) -> Value:
    """A computed date or time, which fails outside the years 1 to 9999; DuckDB has others as well."""
    bounds = _FIRST_AND_LAST.get(value.type.kind)
    if bounds is None:
        return value
    failing = f"CAST(bq_error('{value.type.kind} value out of range') AS {duckdb_type(value.type)})"
    body = f"CASE WHEN _n.x < {bounds[0]} OR _n.x > {bounds[1]} THEN {failing} ELSE _n.x END"
    return Value(once(body, x=value.sql), value.type)


@dataclass(slots=True)
class Column:
    name: str
    type: SqlType
    sql: str
    pseudo: bool = False  # visible by name, not through *

    @property
    def expr(self) -> Value:
        return Value(self.sql, self.type)


@dataclass(slots=True)
class Range:
    """A source in FROM. `value` is what the alias itself means when the rows are values (UNNEST, SELECT AS VALUE)."""

    alias: str
    columns: list[Column]
    value: Value | None = None

    def find(self, name: str) -> list[Column]:
        lowered = name.lower()
        return [column for column in self.columns if column.name.lower() == lowered]

    def as_struct(self) -> Value:
        if self.value is not None:
            return self.value
        visible = [column for column in self.columns if not column.pseudo]
        kind = SqlType("STRUCT", fields=tuple((column.name, column.type) for column in visible))
        members = tuple(column.expr for column in visible)
        return Value(pack(kind, members), kind, members=members)


def pack(kind: SqlType, members: Sequence[Value]) -> str:
    """A DuckDB STRUCT of these members."""
    pairs = zip(kind.physical_names, members, strict=True)
    return "struct_pack(" + ", ".join(f"{quote(name)} := {member.sql}" for name, member in pairs) + ")"


class AmbiguousName(Exception):  # noqa: N818
    """More than one column answers to the name."""


@dataclass(slots=True)
class Scope:
    """One FROM clause's names, in front of those of the enclosing query."""

    ranges: list[Range] = field(default_factory=list)
    parent: "Scope | None" = None
    merged: dict[str, Column] = field(default_factory=dict)  # columns of JOIN … USING
    hidden: set[tuple[int, str]] = field(default_factory=set)  # (range id, column) replaced by a merged one
    aliases: dict[str, Value] = field(default_factory=dict)  # SELECT-list names, where a clause may see them
    values: dict[str, Value] = field(default_factory=dict)  # function parameters and lambda arguments
    windows: dict[str, ast.Window] = field(default_factory=dict)
    orders: list[str] = field(default_factory=list)  # the position of each UNNEST's row in its array
    guarded: list[tuple[Range, str, str]] = field(default_factory=list)  # tables that require a partition filter
    counters: list[str] = field(default_factory=list)  # the iteration of each recursive WITH query read here
    ctes: dict[str, object] = field(default_factory=dict)  # name in lower case to its compiled query

    def without_aliases(self) -> "Scope":
        """The same scope as an aggregate's argument sees it: the FROM clause alone."""
        return replace(self, aliases={}) if self.aliases else self

    def cte(self, name: str) -> object | None:
        scope: Scope | None = self
        while scope is not None:
            if name.lower() in scope.ctes:
                return scope.ctes[name.lower()]
            scope = scope.parent
        return None

    def columns(self) -> Iterator[Column]:
        """What `*` expands to."""
        yield from self.merged.values()
        for item in self.ranges:
            for column in item.columns:
                if not column.pseudo and (id(item), column.name.lower()) not in self.hidden:
                    yield column

    def find_range(self, alias: str) -> Range | None:
        lowered = alias.lower()
        return next((item for item in self.ranges if item.alias.lower() == lowered), None)

    def lookup(self, name: str) -> Value | Range | None:
        """The innermost meaning of a name."""
        lowered = name.lower()
        scope: Scope | None = self
        while scope is not None:
            if lowered in scope.aliases:
                return scope.aliases[lowered]
            if lowered in scope.values:
                return scope.values[lowered]
            found = scope.find_range(name)
            if found is not None:
                return found
            if lowered in scope.merged:
                return scope.merged[lowered].expr
            matches = [
                column for item in scope.ranges for column in item.find(name) if (id(item), lowered) not in scope.hidden
            ]
            if len(matches) > 1:
                raise AmbiguousName(name)
            if matches:
                return matches[0].expr
            scope = scope.parent
        return None

    def suggestion(self, name: str) -> str:
        """`; Did you mean x?`, as BigQuery adds when a name is close."""
        known: list[str] = []
        scope: Scope | None = self
        while scope is not None:
            for item in scope.ranges:
                known.append(item.alias)
                known.extend(column.name for column in item.columns if not column.pseudo)
            scope = scope.parent
        by_lower = {candidate.lower(): candidate for candidate in known if candidate}
        close = get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.75)
        return f"; Did you mean {by_lower[close[0]]}?" if close else ""
