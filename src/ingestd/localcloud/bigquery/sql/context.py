"""What compiling a statement needs to know, and what it collects on the way."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ingestd.googlesql import ast
from ingestd.googlesql.lexer import Source
from ingestd.googlesql.types import SqlType
from ingestd.localcloud.bigquery.catalog import Catalog, Table, TableRef
from ingestd.localcloud.bigquery.sql.parameters import QueryParameter
from ingestd.localcloud.bigquery.sql.results import ExternalTable, Surroundings, TableName
from ingestd.model.schema import Schema

_SEQUENCE = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Variable:
    """A script variable; its value is a DuckDB session variable called `slot`."""

    slot: str
    type: SqlType


@dataclass(frozen=True, slots=True)
class UserFunction:
    name: str
    parameters: tuple[tuple[str, SqlType | None], ...]
    returns: SqlType | None
    body: ast.Expression
    source: Source


@dataclass(frozen=True, slots=True)
class TempTable:
    """A table of the script's own, kept as a DuckDB temp table."""

    relation: str
    schema: Schema


@dataclass(slots=True)
class Session:
    """Lives as long as one script."""

    catalog: Catalog
    project: str
    default_project: str
    default_dataset: str
    parameters: tuple[QueryParameter, ...]
    external: Mapping[str, ExternalTable]
    surroundings: Surroundings
    now: datetime
    variables: list[dict[str, Variable]] = field(default_factory=list)
    system: dict[str, object] = field(default_factory=dict)
    functions: dict[str, UserFunction] = field(default_factory=dict)
    temp_tables: dict[str, TempTable] = field(default_factory=dict)
    using: tuple[tuple[str, Variable], ...] | None = None  # EXECUTE IMMEDIATE's own parameters

    def variable(self, name: str) -> Variable | None:
        lowered = name.lower()
        return next((frame[lowered] for frame in reversed(self.variables) if lowered in frame), None)

    def unique(self, prefix: str) -> str:
        """A name no other statement on any cursor uses: results outlive the script that made them."""
        return f"{prefix}{next(_SEQUENCE)}"


@dataclass(slots=True)
class Collected:
    """Found while compiling one statement: values to bind, tables read."""

    bound: dict[str, object] = field(default_factory=dict)
    referenced: dict[TableName, None] = field(default_factory=dict)
    tables: dict[TableRef, Table] = field(default_factory=dict)
    aliases: int = 0
    depth: int = 0

    def alias(self) -> str:
        self.aliases += 1
        return f"_t{self.aliases}"
