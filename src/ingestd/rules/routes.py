"""Routes: actions after any BigQuery job of the project that reads or writes a given table."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from pydantic import model_validator

from ingestd.documents import Document, Many
from ingestd.rules.actions import Action, AnyAction
from ingestd.rules.fields import Choice, Pattern, compile_pattern
from ingestd.rules.rule import content_hash
from ingestd.rules.schema import Info
from ingestd.rules.secrets import actions_of


class JobType(Choice):
    QUERY = "QUERY"
    LOAD = "LOAD"
    COPY = "COPY"
    EXTRACT = "EXTRACT"

    @property
    def other_spellings(self) -> tuple[str, ...]:
        return ("EXPORT",) if self is JobType.EXTRACT else ()

    @classmethod
    def _missing_(cls, value: object) -> "JobType | None":
        if isinstance(value, str) and value.upper() == "EXPORT":
            return cls.EXTRACT
        found = super()._missing_(value)
        return found if isinstance(found, JobType) else None


class RouteWhen(Document):
    """Which jobs: patterns over the job's destination (`project:dataset.table`) and source, and its type."""

    dest: Pattern | None = None
    source: Pattern | None = None
    type: JobType | None = None

    @model_validator(mode="after")
    def _names_a_table(self) -> Self:
        if not self.dest and not self.source:
            raise ValueError("give Dest or Source: a route for every job would also follow its own actions")
        return self


class RouteSpec(Document):
    """One route as written."""

    when: RouteWhen
    on_success: Many[AnyAction] = ()
    on_failure: Many[AnyAction] = ()
    info: Info = Info()
    disabled: bool = False


class RoutesFile(Document):
    """A document that holds routes; bqtail's other keys in it are settings and live elsewhere."""

    other_names: ClassVar[Mapping[str, str]] = {}
    routes: Many[RouteSpec]


_BEGINS = re.compile(r"(?:\((?:\?:)?)*(?:\^|\\A|\.[*+]|:|\\b)")
_ENDS = re.compile(r"(?:\$|\\z|\.[*+]|\\b)\)*$")
_TABLES: dict[str, set[JobType | None]] = {
    "Dest": {None, JobType.QUERY, JobType.LOAD, JobType.COPY},
    "Source": {JobType.COPY, JobType.EXTRACT},
}
"""The types of jobs of which the pattern reads a table's name; other sources are SQL or URIs, found anywhere."""


def open_ends(when: RouteWhen) -> Iterator[tuple[str, str]]:
    """Patterns that also take tables whose names begin or go on differently, as bqtail's do: key and warning."""
    for key, pattern in (("Dest", when.dest), ("Source", when.source)):
        if not pattern or when.type not in _TABLES[key]:
            continue
        parts = _alternatives(pattern)
        if not all(_ENDS.search(part) for part in parts):
            yield (
                key,
                f"the pattern is searched for: it also matches names that go on after it; end it in $: {pattern}$",
            )
        if not all(_BEGINS.match(part) for part in parts):
            yield key, "the pattern is searched for: it also matches names that begin with more; begin it with .+: or ^"


def _alternatives(pattern: str) -> list[str]:
    """The parts between `|` outside of groups and character classes."""
    parts, depth, start, at, inside = [], 0, 0, 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif inside:
            inside = char != "]"
        elif char == "[":
            inside = True
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif char == "|" and not depth:
            parts.append(pattern[start:at])
            start = at + 1
        at += 1
    return [*parts, pattern[start:]]


@dataclass(frozen=True, slots=True)
class Route:
    """A route ready for use."""

    url: str
    index: int
    name: str
    spec: RouteSpec = field(repr=False)
    content_hash: str
    _dest: Any = field(repr=False, compare=False)
    _source: Any = field(repr=False, compare=False)

    @classmethod
    def of(cls, spec: RouteSpec, url: str, index: int = 0, name: str | None = None) -> Self:
        dest = compile_pattern(spec.when.dest) if spec.when.dest else None
        source = compile_pattern(spec.when.source) if spec.when.source else None
        return cls(url, index, name or f"{url}#{index}", spec, content_hash(spec), dest, source)

    @property
    def actions(self) -> tuple[Action, ...]:
        """Every action of the route, in order."""
        return actions_of(self.spec.on_success, self.spec.on_failure)

    def matches(self, job_type: str, source: str, dest: str) -> bool:
        """`source`: SQL on one line, URIs joined by commas, or a table; `dest`: a table, or URIs for an extract."""
        wanted = self.spec.when.type
        return (
            (wanted is None or wanted.value == job_type.upper())
            and (self._dest is None or self._dest.search(dest) is not None)
            and (self._source is None or self._source.search(source) is not None)
        )


def matching_routes(routes: Iterable[Route], job_type: str, source: str, dest: str) -> list[Route]:
    """Enabled routes for a job; more than one is an error for the caller to report."""
    return [route for route in routes if not route.spec.disabled and route.matches(job_type, source, dest)]
