"""The database of the local BigQuery, without the rest of it: for tests that put its SQL to work themselves."""

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from ingestd.localcloud.bigquery.database import Database


@contextmanager
def local_cursor() -> Iterator[duckdb.DuckDBPyConnection]:
    database = Database(None)
    cursor = database.cursor()
    try:
        yield cursor
    finally:
        cursor.close()
        database.close()
