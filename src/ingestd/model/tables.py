"""BigQuery table names: every spelling a rule may use, parsed once into one value.

Invariant: a `TableName` holds only characters BigQuery allows, so `.sql` needs no further escaping and a name built
from an object's path can reach neither another table nor the SQL around it.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

_PROJECT = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9.-]*:)?[A-Za-z0-9_][A-Za-z0-9_-]*")
_DATASET = re.compile(r"[A-Za-z0-9_]{1,1024}")
_DECORATOR = re.compile(r"[A-Za-z0-9_]{1,64}")
_TABLE_CATEGORIES = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Zs"})
_TABLE_BYTES = 1024
# Back-ticks around the whole name or around some of its parts; elsewhere they are refused like any other character.
_QUOTED = re.compile(r"(?:^|(?<=[.:]))`([^`]+)`(?=$|[.:$])")


class InvalidTableName(ValueError):  # noqa: N818 - reads as the state of the name
    """The text names no BigQuery table; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table, possibly one partition of it (`decorator`), in a project (None: the job's own)."""

    project: str | None
    dataset: str
    table: str
    decorator: str | None = None

    def __post_init__(self) -> None:
        if self.project is not None and not _PROJECT.fullmatch(self.project):
            raise InvalidTableName(f"{self.project!r} is not a project id")
        if not _DATASET.fullmatch(self.dataset):
            raise InvalidTableName(f"{self.dataset!r} is not a dataset id: use letters, digits and underscores")
        if not self.table or any(unicodedata.category(char) not in _TABLE_CATEGORIES for char in self.table):
            raise InvalidTableName(
                f"{self.table!r} is not a table id: use letters, digits, underscores, dashes and spaces"
            )
        if len(self.table.encode()) > _TABLE_BYTES:
            raise InvalidTableName(f"table id is longer than {_TABLE_BYTES} bytes")
        if self.decorator is not None and not _DECORATOR.fullmatch(self.decorator):
            raise InvalidTableName(f"{self.decorator!r} is not a partition id: use letters, digits and underscores")

    @property
    def dotted(self) -> str:
        """`project.dataset.table` without decorator, as GoogleSQL spells it between back-ticks."""
        return ".".join(part for part in (self.project, self.dataset, self.table) if part)

    @property
    def sql(self) -> str:
        """The back-ticked name for GoogleSQL. Decorators exist only in jobs, so none is written."""
        return f"`{self.dotted}`"

    @property
    def table_id(self) -> str:
        """The table id of the REST API: the decorator belongs to it."""
        return f"{self.table}${self.decorator}" if self.decorator else self.table

    @property
    def rest(self) -> dict[str, str]:
        """A `TableReference`; without project when none is known (see `in_project`)."""
        reference = {"datasetId": self.dataset, "tableId": self.table_id}
        return {"projectId": self.project, **reference} if self.project else reference

    @property
    def legacy(self) -> str:
        """`project:dataset.table`, the spelling of audit logs, routes and legacy SQL."""
        return f"{self.project}:{self.dataset}.{self.table_id}" if self.project else f"{self.dataset}.{self.table_id}"

    def in_project(self, project: str) -> "TableName":
        """This table, in `project` unless it already names one."""
        return self if self.project else _named(project, self.dataset, self.table, self.decorator)

    def partition(self, decorator: str | None) -> "TableName":
        if decorator == self.decorator:
            return self
        return _named(self.project, self.dataset, self.table, decorator)

    def __str__(self) -> str:
        return f"{self.dotted}${self.decorator}" if self.decorator else self.dotted


# A name is checked once, not for each of the files that go there.
_named = lru_cache(maxsize=4096)(TableName)


@lru_cache(maxsize=4096)
def parse_table(text: str) -> TableName:
    """`p:d.t`, `p.d.t`, `d.t`, `.d.t` (own project), back-ticked or bracketed, with or without `$partition`."""
    name = text.strip()
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    name = _QUOTED.sub(r"\1", name)
    name, _, decorator = name.partition("$")
    if "$" in text and not decorator:
        raise InvalidTableName(f"{text!r} ends in '$' without a partition id")
    rest, table = _split_last(name)
    if not rest:
        raise InvalidTableName(f"{text!r} names no dataset; write it as [project.]dataset.table")
    rest, dataset = _split_last(rest)
    return TableName(rest.rstrip(".:") or None, dataset, table, decorator or None)


def _split_last(name: str) -> tuple[str, str]:
    """Split at the last `.` or `:`; ids of datasets and tables hold neither."""
    at = max(name.rfind("."), name.rfind(":"))
    return (name[:at], name[at + 1 :]) if at >= 0 else ("", name)
