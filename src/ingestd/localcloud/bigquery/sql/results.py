"""What the engine takes from its surroundings and what it gives back."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ingestd.model.schema import Schema


@dataclass(frozen=True, slots=True)
class DmlStats:
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def affected(self) -> int:
        return self.inserted + self.updated + self.deleted

    def __add__(self, other: "DmlStats") -> "DmlStats":
        return DmlStats(self.inserted + other.inserted, self.updated + other.updated, self.deleted + other.deleted)


@dataclass(frozen=True, slots=True)
class TableName:
    """A fully qualified table a statement reads or changes."""

    project: str
    dataset: str
    table: str

    def rest(self) -> dict[str, str]:
        return {"projectId": self.project, "datasetId": self.dataset, "tableId": self.table}


@dataclass(frozen=True, slots=True)
class StatementResult:
    """One executed statement. `relation` names a DuckDB temp table (quoted, ready for FROM) with the result rows."""

    kind: str
    sql: str
    relation: str | None = None
    schema: Schema | None = None
    dml: DmlStats | None = None
    ddl_target: TableName | None = None
    ddl_operation: str | None = None  # CREATE, REPLACE, SKIP, DROP, ALTER
    referenced_tables: tuple[TableName, ...] = ()
    unread: TableName | None = None  # the referenced table that is only added to: BigQuery bills no bytes for it
    started: datetime | None = None
    ended: datetime | None = None
    line: int = 1


@dataclass(frozen=True, slots=True)
class ScriptResult:
    """All statements run, in order; BigQuery reports the last one's rows as the script's. `script` is false for one
    plain statement: then there are no child jobs."""

    statements: list[StatementResult]
    script: bool = False

    @property
    def kind(self) -> str:
        return "SCRIPT" if self.script else (self.statements[-1].kind if self.statements else "SCRIPT")

    @property
    def last_rows(self) -> StatementResult | None:
        """The statement whose rows a client sees: the last one that gives rows."""
        return next((item for item in reversed(self.statements) if item.relation is not None), None)


@dataclass(frozen=True, slots=True)
class DryRun:
    kind: str
    schema: Schema | None
    referenced_tables: tuple[TableName, ...]
    unread: TableName | None = None


@dataclass(frozen=True, slots=True)
class ExternalTable:
    """Rows that live in files. `relation` is DuckDB SQL usable after FROM (a quoted name, or a parenthesised query); it
    may carry a `_FILE_NAME` column beside those of `schema`."""

    relation: str
    schema: Schema
    has_file_name: bool = False


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """EXPORT DATA: the rows are in `relation`; `options` are the evaluated OPTIONS, keys in lower case."""

    options: Mapping[str, Any]
    relation: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """LOAD DATA: `files` are the evaluated FROM FILES options, keys in lower case."""

    target: TableName
    overwrite: bool
    files: Mapping[str, Any]
    schema: Schema | None = None
    partition_columns: Schema | None = None
    time_partitioning: Mapping[str, Any] | None = None
    range_partitioning: Mapping[str, Any] | None = None
    clustering: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateExternalRequest:
    """CREATE EXTERNAL TABLE: `options` are the evaluated OPTIONS, keys in lower case; no schema means autodetect."""

    target: TableName
    options: Mapping[str, Any]
    schema: Schema | None = None
    partition_columns: Schema | None = None
    replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Work the engine hands to others. A missing callable makes the statement that needs it answer 501."""

    export_data: Callable[[ExportRequest], int] | None = None  # rows written
    load_data: Callable[[LoadRequest], int] | None = None  # rows loaded
    create_external: Callable[[CreateExternalRequest], None] | None = None
    external_table: Callable[[Any], ExternalTable] | None = None  # a catalog Table of kind EXTERNAL → its rows
    jobs: Callable[[], Iterable[Mapping[str, Any]]] | None = None  # jobs.get resources, for INFORMATION_SCHEMA.JOBS
    # Called inside the transaction of a statement that is not part of a script, right before its COMMIT: the job's DONE
    # row is written here, so that it commits together with the change.
    committing: Callable[["StatementResult"], None] | None = None
    before_statement: Callable[[], None] | None = None  # may raise, to stop a cancelled script between statements
    user: str = "local@ingestd.invalid"
    location: str = "US"
    labels: Mapping[str, str] = field(default_factory=dict)
