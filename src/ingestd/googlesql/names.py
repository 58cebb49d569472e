"""Names in scope: what FROM brings in, and which of several meanings wins."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from ingestd.googlesql import ast
from ingestd.googlesql.types import SqlType
from ingestd.googlesql.values import Value


@dataclass(slots=True)
class Column:
    name: str
    type: SqlType
    sql: str
    pseudo: bool = False  # visible by name, not through *
    simple: bool = False  # the text may be repeated at no cost

    @property
    def expr(self) -> Value:
        return Value(self.sql, self.type, simple=self.simple)


@dataclass(slots=True)
class Range:
    """A source in FROM. `value` is what the alias itself means when the rows are values (UNNEST, SELECT AS VALUE)."""

    alias: str
    columns: list[Column]
    value: Value | None = None

    def find(self, name: str) -> list[Column]:
        lowered = name.lower()
        return [column for column in self.columns if column.name.lower() == lowered]


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

    def inside(self, values: Mapping[str, Value]) -> "Scope":
        """The scope of a lambda: its arguments in front of all other names."""
        return Scope(parent=self, values=dict(values))

    def _outward(self) -> Iterator["Scope"]:
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def cte(self, name: str) -> object | None:
        lowered = name.lower()
        return next((scope.ctes[lowered] for scope in self._outward() if lowered in scope.ctes), None)

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

    def known(self) -> dict[str, Value]:
        """Every name that means a value here, in lower case."""
        found = self.parent.known() if self.parent is not None else {}
        for item in self.ranges:
            found |= {column.name.lower(): column.expr for column in item.columns}
            found |= {item.alias.lower(): item.value} if item.value is not None else {}
        return found | self.values

    def lookup(self, name: str, *, columns_first: bool = False) -> Value | Range | None:
        """The innermost meaning of a name; a source's is its alias rather than a column's, unless told."""
        lowered = name.lower()
        for scope in self._outward():
            if lowered in scope.aliases:
                return scope.aliases[lowered]
            if lowered in scope.values:
                return scope.values[lowered]
            found = scope.find_range(name)
            if found is not None and (found.value is not None or not columns_first):
                return found
            if lowered in scope.merged:
                return scope.merged[lowered].expr
            matches = [
                column for item in scope.ranges for column in item.find(name) if (id(item), lowered) not in scope.hidden
            ]
            if len(matches) > 1:
                raise AmbiguousName(name)
            if matches or found is not None:
                return matches[0].expr if matches else found
        return None

    def suggestion(self, name: str) -> str:
        """`; Did you mean x?`, as BigQuery adds when a name is close."""
        known: list[str] = []
        for item in (item for scope in self._outward() for item in scope.ranges):
            known += [item.alias, *(column.name for column in item.columns if not column.pseudo)]
        by_lower = {candidate.lower(): candidate for candidate in known if candidate}
        close = get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.75)
        return f"; Did you mean {by_lower[close[0]]}?" if close else ""
