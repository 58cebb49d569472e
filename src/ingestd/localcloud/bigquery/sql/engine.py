"""The face of the SQL engine: run a script, or say what it would do."""

from collections.abc import Mapping, Sequence

import duckdb

from ingestd.localcloud.bigquery.errors import not_implemented
from ingestd.localcloud.bigquery.sql.parameters import QueryParameter
from ingestd.localcloud.bigquery.sql.results import (
    CreateExternalRequest,
    DmlStats,
    DryRun,
    ExportRequest,
    ExternalTable,
    LoadRequest,
    ScriptResult,
    StatementResult,
    Surroundings,
    TableName,
)
from ingestd.localcloud.bigquery.catalog import Catalog
from ingestd.model.clock import Clock

__all__ = [
    "CreateExternalRequest",
    "DmlStats",
    "DryRun",
    "ExportRequest",
    "ExternalTable",
    "LoadRequest",
    "QueryParameter",
    "ScriptResult",
    "SqlEngine",
    "StatementResult",
    "Surroundings",
    "TableName",
]


class SqlEngine:
    """Runs GoogleSQL on one DuckDB cursor. Every statement is atomic: the engine opens and ends the transactions, so
    the cursor must be outside of one when `run` is called, and is outside of one afterwards."""

    def __init__(
        self,
        conn: duckdb.DuckDBPyConnection,
        catalog: Catalog,
        *,
        project: str,
        clock: Clock,
        default_dataset: str | None = None,  # "dataset" or "project.dataset"
        parameters: Sequence[QueryParameter] = (),
        external: Mapping[str, ExternalTable] | None = None,
        surroundings: Surroundings = Surroundings(),
    ) -> None:
        self._conn = conn

    def run(self, sql: str) -> ScriptResult:
        raise not_implemented("SQL yet")

    def dry_run(self, sql: str) -> DryRun:
        raise not_implemented("SQL yet")
