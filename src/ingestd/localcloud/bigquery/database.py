"""The DuckDB file behind the local BigQuery: how it is opened, and every setting that the rest relies on.

Invariants: the session time zone is UTC; a committed transaction survives SIGKILL (DuckDB's write-ahead log); cursors
share one database and each has its own transaction and its own temporary tables.
"""

from pathlib import Path
from threading import Lock

import duckdb

from ingestd.localcloud.bigquery.mirror import Mirror, Session

FILE_NAME = "bigquery.duckdb"
_CURSORS_PER_PARENT = 1_000

_SETTINGS = (
    # Statements here are mostly tiny: waking a second thread costs more than it gives, and jobs run in parallel anyway.
    "SET GLOBAL threads = 1",
    "SET GLOBAL TimeZone = 'UTC'",
    "SET GLOBAL preserve_insertion_order = true",
    "SET GLOBAL default_null_order = 'nulls_first_on_asc_last_on_desc'",  # GoogleSQL: NULLs are the smallest values
)

_CATALOG = (
    'CREATE SCHEMA IF NOT EXISTS "__catalog"',
    """CREATE TABLE IF NOT EXISTS "__catalog".datasets (
        project VARCHAR, dataset VARCHAR, resource VARCHAR)""",
    """CREATE TABLE IF NOT EXISTS "__catalog".tables (
        project VARCHAR, dataset VARCHAR, table_id VARCHAR, kind VARCHAR, expiration TIMESTAMPTZ, resource VARCHAR)""",
    """CREATE TABLE IF NOT EXISTS "__catalog".jobs (
        project VARCHAR, location VARCHAR, job_id VARCHAR, state VARCHAR, created BIGINT, parent VARCHAR,
        resource VARCHAR, PRIMARY KEY (project, location, job_id))""",
    """CREATE TABLE IF NOT EXISTS "__catalog".applied (project VARCHAR, location VARCHAR, job_id VARCHAR)""",
    """CREATE TABLE IF NOT EXISTS "__catalog".modifications (table_key VARCHAR, kind VARCHAR, changed BIGINT)""",
)


class Database:
    """One open DuckDB file (or memory, without a path). `cursor()` gives an independent session."""

    def __init__(self, root: Path | None) -> None:
        if root is not None:
            root.mkdir(parents=True, exist_ok=True)
        self._connection = duckdb.connect(str(root / FILE_NAME) if root is not None else ":memory:")
        self._parent = self._connection
        self._made = 0
        self._lock = Lock()
        for statement in _SETTINGS:
            self._connection.execute(statement)
        self._connection.begin()
        for statement in _CATALOG:
            self._connection.execute(statement)
        self._connection.commit()
        self._register_functions()
        self.mirror = Mirror(self._connection)

    def _register_functions(self) -> None:
        # Imported here: the functions belong to the SQL package, which imports this package's catalog.
        from ingestd.localcloud.bigquery.sql.functions import register

        register(self._connection)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        # A connection remembers every cursor it ever made, closed ones too; a parent that is replaced takes its memory
        # with it.
        with self._lock:
            if self._made % _CURSORS_PER_PARENT == 0:
                self._parent = self._connection.cursor()
            self._made += 1
            return self._parent.cursor()

    def session(self) -> Session:
        """A cursor that reads the catalog from memory."""
        return Session(self.cursor(), self.mirror)

    def close(self) -> None:
        self._connection.close()
