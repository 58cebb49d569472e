"""The DuckDB temp table that a load fills.

A handful of rows go in as bound parameters (about a millisecond); more go in through Arrow. A caller that can use rows
as bound values gets a handful of them `Inline`, without any table.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb

from ingestd.formats.columns import has_interval, values_array
from ingestd.formats.rowload import FEW_ROWS
from ingestd.localcloud.bigquery.duckdb_types import column_type, quote
from ingestd.model.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

_VIEW = "_staged_arrow"


@dataclass(frozen=True, slots=True)
class Inline:
    """A few converted rows; `relation` goes after FROM in a statement that binds `values` in that place."""

    schema: Schema
    rows: Sequence[Mapping[str, Any]]

    @property
    def relation(self) -> str:
        columns = ", ".join(quote(item.name) for item in self.schema)
        return f"(VALUES {', '.join([_marks(self.schema)] * len(self.rows))}) AS _rows ({columns})"

    @property
    def values(self) -> list[Any]:
        return [row[item.name] for row in self.rows for item in self.schema]


def _marks(schema: Schema) -> str:
    return "(" + ", ".join(f"?::{column_type(item)}" for item in schema) + ")"


class Staging:
    """A temp table with one column per field."""

    def __init__(self, conn: duckdb.DuckDBPyConnection, name: str, schema: Schema, *, inline: bool = False) -> None:
        self._conn = conn
        self._table = quote(name)
        self._schema = schema
        self._few = 0 if has_interval(schema) else FEW_ROWS
        self._waiting: list[Mapping[str, Any]] | None = [] if inline and self._few and schema else None

    @contextlib.contextmanager
    def open(self) -> Iterator["Staging"]:
        """After a clean exit the table exists, or the rows are `inline`; after an error nothing is left."""
        if self._waiting is None:
            self._create()
        try:
            yield self
            if self._waiting == []:
                self._create_for_more()
        except BaseException:
            if self._waiting is None:
                with contextlib.suppress(duckdb.Error):
                    self._conn.execute(f"DROP TABLE IF EXISTS {self._table}")
            raise

    @property
    def inline(self) -> Inline | None:
        """The rows, if they were few enough to need no table."""
        return Inline(self._schema, self._waiting) if self._waiting is not None else None

    def _create(self) -> None:
        columns = ", ".join(f"{quote(item.name)} {column_type(item)}" for item in self._schema)
        self._conn.execute(f"CREATE OR REPLACE TEMP TABLE {self._table} ({columns})")

    def _create_for_more(self) -> None:
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            self._create()
            self.append_rows(waiting)

    def append_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Rows of converted values, every column present."""
        if not rows:
            return
        if self._waiting is not None and len(self._waiting) + len(rows) <= self._few:
            self._waiting += rows
            return
        self._create_for_more()
        if len(rows) <= self._few:
            given = Inline(self._schema, rows)
            marks = ", ".join([_marks(self._schema)] * len(rows))
            self._conn.execute(f"INSERT INTO {self._table} VALUES {marks}", given.values)  # noqa: S608
            return
        import pyarrow as pa

        arrays = [values_array(item, [row[item.name] for row in rows]) for item in self._schema]
        self.append_table(pa.table(arrays, names=[item.name for item in self._schema]))

    def append_table(self, table: "pa.Table") -> None:
        """A table with the staging table's columns, in its order."""
        if not table.num_rows:
            return
        self._create_for_more()
        self._conn.register(_VIEW, table)
        try:
            self._conn.execute(f"INSERT INTO {self._table} SELECT * FROM {_VIEW}")  # noqa: S608
        finally:
            self._conn.unregister(_VIEW)
