"""Quotas and limits, with BigQuery's numbers, reasons and words.

Limits per job always hold. Rates and daily quotas hold when the settings enforce them; they are counted in the database
and by the injected clock, so they survive a restart and can be tested without waiting. Failed modifications count too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import duckdb

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.bigquery.resources import TableRef, millis
from ingestd.model.clock import Clock

MAX_SOURCE_URIS = 10_000
MAX_LOAD_BYTES = 15 * 2**40
MAX_COPY_SOURCES = 1_200
MAX_LOADS_PER_DAY = 100_000
MAX_MODIFICATIONS_PER_DAY = 1_500
UPDATE_WINDOW = timedelta(seconds=10)
MAX_UPDATES = 5
MAX_UPDATES_PARTITIONED = 50

_SEE = "For more information, see https://cloud.google.com/bigquery/docs/troubleshoot-quotas"


def check_load_limits(load: Mapping[str, Any]) -> None:
    count = len(load.get("sourceUris") or ())
    if count > MAX_SOURCE_URIS:
        raise BigQueryError(
            "invalid", f"Load configuration specified {count} source URIs, more than the maximum of {MAX_SOURCE_URIS}."
        )


def check_load_bytes(size: int) -> None:
    if size > MAX_LOAD_BYTES:
        raise BigQueryError("invalid", f"The load job reads {size} bytes, more than the maximum of {MAX_LOAD_BYTES}.")


def check_copy_sources(count: int) -> None:
    if count > MAX_COPY_SOURCES:
        raise BigQueryError(
            "invalid",
            f"Copy configuration specified {count} source tables, more than the maximum of {MAX_COPY_SOURCES}.",
        )


@dataclass(frozen=True, slots=True)
class Quotas:
    clock: Clock
    enforced: bool

    def check_project_loads(self, conn: duckdb.DuckDBPyConnection, project: str, unfinished: int) -> None:
        if not self.enforced:
            return
        row = conn.execute(
            """SELECT count(*) FROM "__catalog".jobs
            WHERE project = ? AND created > ? AND json_extract_string(resource, '$.type') = 'LOAD'""",
            [project, self._since(timedelta(days=1))],
        ).fetchone()
        if row is not None and row[0] + unfinished >= MAX_LOADS_PER_DAY:
            raise BigQueryError(
                "quotaExceeded", f"Quota exceeded: Your project exceeded quota for imports per project. {_SEE}"
            )

    def check_table(self, conn: duckdb.DuckDBPyConnection, ref: TableRef, *, partitioned: bool, daily: bool) -> None:
        """Refuse one more change of a table; `daily` for jobs that write rows, which have a quota per day as well."""
        if not self.enforced:
            return
        row = conn.execute(
            """SELECT count(*) FILTER (WHERE kind = 'rows'), count(*) FILTER (WHERE changed > ?)
            FROM "__catalog".modifications WHERE table_key = ? AND changed > ?""",
            [self._since(UPDATE_WINDOW), str(ref), self._since(timedelta(days=1))],
        ).fetchone()
        assert row is not None
        if daily and row[0] >= MAX_MODIFICATIONS_PER_DAY:
            raise BigQueryError(
                "quotaExceeded",
                f"Quota exceeded: Your table exceeded quota for imports or query appends per table. {_SEE}",
            )
        if row[1] >= (MAX_UPDATES_PARTITIONED if partitioned else MAX_UPDATES):
            raise BigQueryError(
                "rateLimitExceeded",
                f"Exceeded rate limits: too many table update operations for this table. {_SEE}",
            )

    def record(self, conn: duckdb.DuckDBPyConnection, ref: TableRef, *, daily: bool) -> None:
        if self.enforced:
            conn.execute(
                'INSERT INTO "__catalog".modifications VALUES (?, ?, ?)',
                [str(ref), "rows" if daily else "metadata", millis(self.clock.now())],
            )

    def forget_old(self, conn: duckdb.DuckDBPyConnection) -> None:
        if self.enforced:
            conn.execute('DELETE FROM "__catalog".modifications WHERE changed <= ?', [self._since(timedelta(days=1))])

    def _since(self, window: timedelta) -> int:
        return millis(self.clock.now() - window)
