"""Ties the SQL engine's transactions to the job that runs them.

The engine opens and ends its own transactions. `WatchedConnection` stands between it and DuckDB: right before a COMMIT
that changes something it adds a marker row to the same transaction. A job with a marker is never run again, so a
statement's change happens once, wherever the process dies. The job's DONE row removes the markers.
"""

import re
from collections.abc import Callable
from typing import Any

import duckdb

from ingestd.localcloud.bigquery.jobs import JobKey

# Temporary tables end with the cursor. A false alarm is harmless: it only keeps an interrupted job from running again.
_CHANGES = re.compile(
    r"\s*(INSERT|UPDATE|DELETE|MERGE|TRUNCATE|ALTER|DROP|CREATE(?!\s+(OR\s+REPLACE\s+)?TEMP))\b", re.IGNORECASE
)


class WatchedConnection:
    """A DuckDB cursor that calls `before_commit` inside every transaction that changed something."""

    def __init__(self, conn: duckdb.DuckDBPyConnection, before_commit: Callable[[], None]) -> None:
        self._conn = conn
        self._before_commit = before_commit
        self._changed = False

    def execute(self, sql: str, *arguments: Any) -> duckdb.DuckDBPyConnection:
        if sql == "COMMIT" and self._changed:
            self._before_commit()
        elif _CHANGES.match(sql):
            self._changed = True
        if sql in ("BEGIN TRANSACTION", "COMMIT", "ROLLBACK"):
            self._changed = False
        return self._conn.execute(sql, *arguments)

    def note_change(self) -> None:
        """Someone else changed something on the same cursor, in the same transaction."""
        self._changed = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)


def mark(conn: duckdb.DuckDBPyConnection, key: JobKey) -> None:
    conn.execute('INSERT INTO "__catalog".applied VALUES (?, ?, ?)', [key.project, key.location, key.job_id])


def marks(conn: duckdb.DuckDBPyConnection, key: JobKey) -> int:
    """How many of a job's transactions were committed before it was DONE."""
    row = conn.execute(
        'SELECT count(*) FROM "__catalog".applied WHERE project = ? AND location = ? AND job_id = ?',
        [key.project, key.location, key.job_id],
    ).fetchone()
    return int(row[0]) if row else 0


def clear(conn: duckdb.DuckDBPyConnection, key: JobKey) -> None:
    conn.execute(
        'DELETE FROM "__catalog".applied WHERE project = ? AND location = ? AND job_id = ?',
        [key.project, key.location, key.job_id],
    )
