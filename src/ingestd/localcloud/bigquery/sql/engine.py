"""The face of the SQL engine: run a script, or say what it would do."""

from collections.abc import Mapping, Sequence

import duckdb

from ingestd.formats.errors import BigQueryError
from ingestd.googlesql.parser import Script
from ingestd.localcloud.bigquery.catalog import Catalog
from ingestd.localcloud.bigquery.sql.context import Session
from ingestd.localcloud.bigquery.sql.interpreter import Interpreter, system_variables
from ingestd.localcloud.bigquery.sql.parameters import QueryParameter
from ingestd.localcloud.bigquery.sql.reading import parse_script
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
from ingestd.localcloud.bigquery.sql.runner import Runner
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

_ALONE = Surroundings()


class SqlEngine:
    """Runs GoogleSQL on one DuckDB cursor. Every statement is atomic: the engine opens and ends the transactions, so
    the cursor must be outside of one when `run` is called, and is outside of one afterwards. `results` holds what ran,
    also when `run` raises."""

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
        surroundings: Surroundings = _ALONE,
    ) -> None:
        default_project, _, dataset = (default_dataset or "").rpartition(".")
        self._session = Session(
            catalog,
            project,
            default_project or project,
            dataset,
            tuple(parameters),
            external or {},
            surroundings,
            clock.now(),
        )
        self._session.system |= system_variables(project, dataset, surroundings.user, surroundings.location)
        self._interpreter = Interpreter(Runner(conn, self._session, clock))

    @property
    def results(self) -> list[StatementResult]:
        return self._interpreter.results

    def run(self, sql: str) -> ScriptResult:
        try:
            script = parse_script(sql)
            self._interpreter.run(script)
        except RecursionError:
            raise BigQueryError("resourcesExceeded", "Query is too complex: nested too deeply", "query") from None
        return ScriptResult(self.results, script.procedural)

    def dry_run(self, sql: str) -> DryRun:
        """What a single statement would answer, checked but not run. A script is only read."""
        try:
            script = parse_script(sql)
            if script.procedural:
                return DryRun("SCRIPT", None, ())
            return self._dry(script)
        except RecursionError:
            raise BigQueryError("resourcesExceeded", "Query is too complex: nested too deeply", "query") from None

    def _dry(self, script: Script) -> DryRun:
        result = self._interpreter.dry(script)
        return DryRun(result.kind, result.schema, result.referenced_tables, result.unread)
