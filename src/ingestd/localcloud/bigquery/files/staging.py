"""The DuckDB temp table that a load fills.

A handful of rows go in as bound parameters (about a millisecond); more go in through Arrow.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import duckdb

from ingestd.localcloud.bigquery.files.columns import has_interval, values_array
from ingestd.localcloud.bigquery.types import Schema, quote

if TYPE_CHECKING:
    import pyarrow as pa

FEW_ROWS = 16
_VIEW = "_staged_arrow"


class Staging:
    """A temp table with one column per field."""

    def __init__(self, conn: duckdb.DuckDBPyConnection, name: str, schema: Schema) -> None:
        self._conn = conn
        self._table = quote(name)
        self._schema = schema
        self._few = 0 if has_interval(schema) else FEW_ROWS
        self._placeholders = "(" + ", ".join(f"?::{item.duckdb}" for item in schema) + ")"

    @contextlib.contextmanager
    def open(self) -> Iterator["Staging"]:
        """The table exists after a clean exit and is gone after an error."""
        columns = ", ".join(f"{quote(item.name)} {item.duckdb}" for item in self._schema)
        self._conn.execute(f"CREATE OR REPLACE TEMP TABLE {self._table} ({columns})")
        try:
            yield self
        except BaseException:
            with contextlib.suppress(duckdb.Error):
                self._conn.execute(f"DROP TABLE IF EXISTS {self._table}")
            raise

    def append_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Rows of converted values, every column present."""
        if not rows:
            return
        if len(rows) <= self._few:
            marks = ", ".join([self._placeholders] * len(rows))
            values = [row[item.name] for row in rows for item in self._schema]
            self._conn.execute(f"INSERT INTO {self._table} VALUES {marks}", values)  # noqa: S608
            return
        import pyarrow as pa

        arrays = [values_array(item, [row[item.name] for row in rows]) for item in self._schema]
        self.append_table(pa.table(arrays, names=[item.name for item in self._schema]))

    def append_table(self, table: "pa.Table") -> None:
        """A table with the staging table's columns, in its order."""
        if not table.num_rows:
            return
        self._conn.register(_VIEW, table)
        try:
            self._conn.execute(f"INSERT INTO {self._table} SELECT * FROM {_VIEW}")  # noqa: S608
        finally:
            self._conn.unregister(_VIEW)
