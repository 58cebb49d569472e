"""Which datasets and tables exist, kept in the same DuckDB as their rows.

Invariants: metadata and data change in one transaction (the caller's, on the cursor it gives); what is read is what
that transaction sees, from memory when the caller gives its `Changes`, else from the stored rows; a table past its
expiration does not exist. The physical table of `p.d.t` is `"p.d"."t"`, its columns
typed by `column_type`, REQUIRED ones NOT NULL, REPEATED ones defaulting to the empty list. Physical column order means
nothing: always name columns. Ingestion-time partitioned tables carry a hidden `_PARTITIONTIME TIMESTAMPTZ`.
"""
# ruff: noqa: S608 - identifiers go through `quote`, values are bound

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import duckdb
import orjson

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.bigquery.duckdb_types import column_type, quote
from ingestd.localcloud.bigquery.evolution import check_change
from ingestd.localcloud.bigquery.mirror import Changes, Entry, parse_dataset
from ingestd.localcloud.bigquery.resources import (
    PARTITION_TIME,
    Dataset,
    DatasetRef,
    Granularity,
    RangePartitioning,
    Table,
    TableKind,
    TableRef,
    TimePartitioning,
    default_expiration,
    split_decorator,
)
from ingestd.localcloud.bigquery.sizes import measure
from ingestd.model.clock import Clock
from ingestd.model.schema import Field, Mode, Schema

__all__ = [
    "PARTITION_TIME",
    "Catalog",
    "Dataset",
    "DatasetRef",
    "Granularity",
    "RangePartitioning",
    "Table",
    "TableKind",
    "TableRef",
    "TimePartitioning",
    "partition_expression",
    "partition_time",
    "split_decorator",
]

_Resource = TypeVar("_Resource", Dataset, Table)

NULL_PARTITION = "__NULL__"
UNPARTITIONED = "__UNPARTITIONED__"


class Catalog:
    """Bound to one cursor: what it reads and writes belongs to that cursor's transaction."""

    def __init__(
        self, conn: duckdb.DuckDBPyConnection, *, project: str, clock: Clock, changes: Changes | None = None
    ) -> None:
        self.conn = conn
        self.project = project
        self.clock = clock
        self.changes = changes

    @property
    def version(self) -> int:
        """Moves when a commit changes what statements are compiled from."""
        return self.changes.mirror.version if self.changes is not None else 0

    def dataset(self, project: str, dataset: str) -> Dataset:
        found = self.find_dataset(DatasetRef(project, dataset))
        if found is None:
            raise BigQueryError("notFound", f"Not found: Dataset {project}:{dataset}")
        return found

    def find_dataset(self, ref: DatasetRef) -> Dataset | None:
        if self.changes is not None:
            return self.changes.find_dataset(ref)
        row = self.conn.execute(
            'SELECT resource FROM "__catalog".datasets WHERE project = ? AND dataset = ?', [ref.project, ref.dataset]
        ).fetchone()
        return parse_dataset(ref.project, row[0]) if row else None

    def datasets(self, project: str) -> list[Dataset]:
        if self.changes is not None:
            return self.changes.list_datasets(project)
        rows = self.conn.execute(
            'SELECT resource FROM "__catalog".datasets WHERE project = ? ORDER BY dataset', [project]
        ).fetchall()
        return [parse_dataset(project, row[0]) for row in rows]

    def create_dataset(self, dataset: Dataset) -> Dataset:
        if self.find_dataset(dataset.ref) is not None:
            raise BigQueryError("duplicate", f"Already Exists: Dataset {dataset.ref}")
        now = self.clock.now()
        dataset = _stamped(replace(dataset, location=dataset.location or "US", created=now, modified=now))
        self.conn.execute(f"CREATE SCHEMA IF NOT EXISTS {dataset.ref.physical}")
        text = _dump(dataset.rest())
        self.conn.execute(
            'INSERT INTO "__catalog".datasets VALUES (?, ?, ?)', [dataset.ref.project, dataset.ref.dataset, text]
        )
        self._changed_dataset(dataset.ref, text)
        return dataset

    def update_dataset(self, dataset: Dataset) -> Dataset:
        self.dataset(dataset.ref.project, dataset.ref.dataset)
        dataset = _stamped(replace(dataset, modified=self._after(dataset.modified)))
        text = _dump(dataset.rest())
        self.conn.execute(
            'UPDATE "__catalog".datasets SET resource = ? WHERE project = ? AND dataset = ?',
            [text, dataset.ref.project, dataset.ref.dataset],
        )
        self._changed_dataset(dataset.ref, text)
        return dataset

    def _changed_dataset(self, ref: DatasetRef, text: str | None) -> None:
        if self.changes is not None:
            self.changes.datasets[ref] = parse_dataset(ref.project, text) if text else None

    def _changed_table(self, ref: TableRef, text: str | None) -> None:
        if self.changes is not None:
            self.changes.tables[ref] = Entry(ref, text) if text else None

    def delete_dataset(self, ref: DatasetRef, *, delete_contents: bool = False) -> None:
        self.dataset(ref.project, ref.dataset)
        tables = self.tables(ref.project, ref.dataset)
        if tables and not delete_contents:
            raise BigQueryError("resourceInUse", f"Dataset {ref} is still in use")
        self.conn.execute(f"DROP SCHEMA IF EXISTS {ref.physical} CASCADE")
        if self.changes is not None:
            for table in self.changes.list_tables(ref):
                self._changed_table(table.ref, None)
        self._changed_dataset(ref, None)
        key = [ref.project, ref.dataset]
        self.conn.execute('DELETE FROM "__catalog".tables WHERE project = ? AND dataset = ?', key)
        self.conn.execute('DELETE FROM "__catalog".datasets WHERE project = ? AND dataset = ?', key)

    def table(self, ref: TableRef) -> Table:
        found = self.find_table(ref)
        if found is None:
            self.dataset(ref.project, ref.dataset)
            raise BigQueryError("notFound", f"Not found: Table {ref}")
        return found

    def find_table(self, ref: TableRef) -> Table | None:
        table = self._stored(ref)
        return None if table is None or self._expired(table) else table

    def tables(self, project: str, dataset: str) -> list[Table]:
        """The dataset's tables and views by name; the dataset must exist."""
        self.dataset(project, dataset)
        if self.changes is not None:
            tables = self.changes.list_tables(DatasetRef(project, dataset))
        else:
            rows = self.conn.execute(
                'SELECT resource FROM "__catalog".tables WHERE project = ? AND dataset = ? ORDER BY table_id',
                [project, dataset],
            ).fetchall()
            tables = [Table.from_rest(orjson.loads(row[0]), project, self.clock.now()) for row in rows]
        return [table for table in tables if not self._expired(table)]

    def create_table(self, table: Table) -> Table:
        """Create metadata and the empty physical table; expiration falls back to the dataset's default."""
        return self._create(table, f"({_columns(table)})")[0]

    def create_result(self, table: Table, relation: str) -> tuple[Table, int]:
        """Create a table of a relation's rows that takes no others later; also their number."""
        return self._create(table, f"AS {_conversion(table.schema, relation)}")

    def _create(self, table: Table, definition: str) -> tuple[Table, int]:
        table.validate()
        rows = 0
        dataset = self.dataset(table.ref.project, table.ref.dataset)
        stored = self._stored(table.ref)
        if stored is not None:
            if not self._expired(stored):
                raise BigQueryError("duplicate", f"Already Exists: Table {table.ref}")
            self._remove(stored)
        now = self.clock.now()
        if table.expiration is None and table.kind is TableKind.TABLE:
            table = replace(table, expiration=default_expiration(dataset, now))
        time = table.time_partitioning
        if time and time.expiration_ms is None and dataset.default_partition_expiration_ms:
            time = replace(time, expiration_ms=dataset.default_partition_expiration_ms)
        table = _stamped(replace(table, created=now, modified=now, time_partitioning=time))
        if table.kind in (TableKind.TABLE, TableKind.SNAPSHOT):
            found = self.conn.execute(f"CREATE TABLE {table.ref.physical} {definition}").fetchone()
            rows = int(found[0]) if found else 0
        text = _dump(table.rest())
        self.conn.execute(
            'INSERT INTO "__catalog".tables VALUES (?, ?, ?, ?, ?, ?)',
            [table.ref.project, table.ref.dataset, table.ref.table, table.kind, table.expiration, text],
        )
        self._changed_table(table.ref, text)
        return table, rows

    def update_table(self, table: Table) -> Table:
        """Store changed metadata (not the schema: see `alter_schema`); stamps `modified` and a new etag."""
        table = _stamped(replace(table, modified=self._after(table.modified)))
        self._write(table)
        return table

    def touch(self, ref: TableRef) -> None:
        """The table's rows changed: `lastModifiedTime` and the etag follow."""
        self.update_table(self.table(ref))

    def alter_schema(self, ref: TableRef, new_schema: Schema, *, widen: bool = False) -> Table:
        """Add columns, relax REQUIRED and, when `widen`, widen types; anything else is refused in BigQuery's words."""
        table = self.table(ref)
        check_change(ref, table.schema, new_schema, widen=widen)
        if table.kind in (TableKind.TABLE, TableKind.SNAPSHOT):
            self._alter_columns(table, new_schema)
        return self.update_table(replace(table, schema=new_schema))

    def _alter_columns(self, table: Table, new_schema: Schema) -> None:
        name = table.ref.physical
        empty = not table.schema and not table.by_ingestion_time
        for item in new_schema:
            old = table.field(item.name)
            if old is None:
                default = " DEFAULT []" if item.mode is Mode.REPEATED else ""
                self.conn.execute(f"ALTER TABLE {name} ADD COLUMN {quote(item.name)} {column_type(item)}{default}")
                continue
            if old.mode is Mode.REQUIRED and item.mode is not Mode.REQUIRED:
                self.conn.execute(f"ALTER TABLE {name} ALTER COLUMN {quote(old.name)} DROP NOT NULL")
            if column_type(old) != column_type(item):
                self.conn.execute(
                    f"ALTER TABLE {name} ALTER COLUMN {quote(old.name)} SET DATA TYPE {column_type(item)}"
                )
        if empty and new_schema:
            self.conn.execute(f"ALTER TABLE {name} DROP COLUMN {quote(_PLACEHOLDER)}")

    def drop_column(self, ref: TableRef, name: str) -> Table:
        table = self.table(ref)
        column = self._column(table, name)
        if column.name.lower() in {item.lower() for item in (*table.clustering, table.partition_column or "")}:
            raise BigQueryError(
                "invalid", f"Column {name} is used for partitioning or clustering and cannot be dropped"
            )
        if len(table.schema) == 1:
            raise BigQueryError("invalid", "ALTER TABLE DROP COLUMN cannot drop the last column of a table")
        self.conn.execute(f"ALTER TABLE {ref.physical} DROP COLUMN {quote(column.name)}")
        return self.update_table(replace(table, schema=tuple(item for item in table.schema if item is not column)))

    def rename_column(self, ref: TableRef, old: str, new: str) -> Table:
        table = self.table(ref)
        column = self._column(table, old)
        if table.field(new) is not None:
            raise BigQueryError("invalid", f"Column already exists: {new}")
        self.conn.execute(f"ALTER TABLE {ref.physical} RENAME COLUMN {quote(column.name)} TO {quote(new)}")
        schema = tuple(replace(item, name=new) if item is column else item for item in table.schema)
        return self.update_table(replace(table, schema=schema))

    def _column(self, table: Table, name: str) -> Field:
        column = table.field(name)
        if column is None:
            raise BigQueryError("invalid", f"Column not found: {name}")
        return column

    def rename_table(self, ref: TableRef, name: str) -> Table:
        table = self.table(ref)
        target = replace(ref, table=name)
        if self.find_table(target) is not None:
            raise BigQueryError("duplicate", f"Already Exists: Table {target}")
        self.conn.execute(f"ALTER TABLE {ref.physical} RENAME TO {quote(name)}")
        self.conn.execute(
            'UPDATE "__catalog".tables SET table_id = ? WHERE project = ? AND dataset = ? AND table_id = ?',
            [name, ref.project, ref.dataset, ref.table],
        )
        self._changed_table(ref, None)
        return self.update_table(replace(table, ref=target))

    def drop_table(self, ref: TableRef) -> None:
        self._remove(self.table(ref))

    def count_rows(self, table: Table) -> int:
        """Rows of a stored table; 0 for a view or an external table, as BigQuery answers."""
        if table.kind not in (TableKind.TABLE, TableKind.SNAPSHOT):
            return 0
        row = self.conn.execute(f"SELECT count(*) FROM {table.ref.physical}").fetchone()
        assert row is not None
        return int(row[0])

    def measure(self, table: Table) -> tuple[int, int]:
        """Rows and logical bytes of a stored table; counted once for each state of it.

        Not for a reader's open transaction: its snapshot may be older than the metadata.
        """
        entry = self.changes.unchanged(table.ref) if self.changes is not None else None
        if entry is not None and entry.size is not None:
            return entry.size
        size = measure(self.conn, table.ref.physical, table.schema)
        if entry is not None and self.changes is not None:
            self.changes.mirror.measured(entry, size)
        return size

    def partition_expression(self, table: Table) -> str | None:
        return partition_expression(table)

    def expire_partitions(self, table: Table) -> None:
        """Delete the rows of partitions older than the table's partition expiration."""
        time = table.time_partitioning
        if time is None or time.expiration_ms is None or table.kind is not TableKind.TABLE:
            return
        expression = partition_expression(table)
        oldest = time.type.start(self.clock.now() - timedelta(milliseconds=time.expiration_ms)).strftime(
            time.type.pattern
        )
        row = self.conn.execute(
            f"DELETE FROM {table.ref.physical} WHERE {expression} < ? AND {expression} NOT LIKE '\\_\\_%' ESCAPE '\\'",
            [oldest],
        ).fetchone()
        if row and row[0]:
            self._changed_table(table.ref, _dump(table.rest()))  # the same metadata for other rows

    def purge_expired(self) -> None:
        """Free what expired tables and partitions hold; they are already invisible or about to be."""
        rows = self.conn.execute(
            'SELECT resource FROM "__catalog".tables WHERE expiration <= ?', [self.clock.now()]
        ).fetchall()
        for (resource,) in rows:
            self._remove(Table.from_rest(orjson.loads(resource), self.project, self.clock.now()))
        rows = self.conn.execute(
            """SELECT resource FROM "__catalog".tables WHERE resource LIKE '%"expirationMs"%'"""
        ).fetchall()
        for (resource,) in rows:
            self.expire_partitions(Table.from_rest(orjson.loads(resource), self.project, self.clock.now()))

    def _stored(self, ref: TableRef) -> Table | None:
        if self.changes is not None:
            return self.changes.find_table(ref)
        row = self.conn.execute(
            'SELECT resource FROM "__catalog".tables WHERE project = ? AND dataset = ? AND table_id = ?',
            [ref.project, ref.dataset, ref.table],
        ).fetchone()
        return Table.from_rest(orjson.loads(row[0]), ref.project, self.clock.now()) if row else None

    def _write(self, table: Table) -> None:
        text = _dump(table.rest())
        self.conn.execute(
            'UPDATE "__catalog".tables SET expiration = ?, kind = ?, resource = ? '
            "WHERE project = ? AND dataset = ? AND table_id = ?",
            [
                table.expiration,
                table.kind,
                text,
                table.ref.project,
                table.ref.dataset,
                table.ref.table,
            ],
        )
        self._changed_table(table.ref, text)

    def _remove(self, table: Table) -> None:
        ref = table.ref
        if table.kind in (TableKind.TABLE, TableKind.SNAPSHOT):
            self.conn.execute(f"DROP TABLE IF EXISTS {ref.physical}")
        self.conn.execute(
            'DELETE FROM "__catalog".tables WHERE project = ? AND dataset = ? AND table_id = ?',
            [ref.project, ref.dataset, ref.table],
        )
        self._changed_table(ref, None)

    def _expired(self, table: Table) -> bool:
        return table.expiration is not None and table.expiration <= self.clock.now()

    def _after(self, previous: datetime) -> datetime:
        """Now, but later than `previous`, so that two changes in one millisecond still differ."""
        return max(self.clock.now(), previous + timedelta(milliseconds=1))


def partition_expression(table: Table) -> str | None:
    """DuckDB SQL for a row's partition id (`20240101`, `2024010112`, `202401`, `__NULL__`, a range's start)."""
    if table.time_partitioning:
        column = quote(table.time_partitioning.field or PARTITION_TIME)
        missing = NULL_PARTITION if table.time_partitioning.field else UNPARTITIONED
        return f"coalesce(strftime({column}, '{table.time_partitioning.type.pattern}'), '{missing}')"
    if table.range_partitioning:
        spec = table.range_partitioning
        column = quote(spec.field)
        bucket = f"{spec.start} + (({column} - {spec.start}) // {spec.interval}) * {spec.interval}"
        return (
            f"CASE WHEN {column} IS NULL THEN '{NULL_PARTITION}' "
            f"WHEN {column} < {spec.start} OR {column} >= {spec.end} THEN '{UNPARTITIONED}' "
            f"ELSE CAST({bucket} AS VARCHAR) END"
        )
    return None


def partition_time(table: Table, decorator: str) -> datetime | None:
    """The start of the time partition a decorator names (None for `__NULL__`); refused when the forms do not fit."""
    assert table.time_partitioning is not None
    if decorator in (NULL_PARTITION, UNPARTITIONED):
        return None
    spec = table.time_partitioning.type
    try:
        start = datetime.strptime(decorator, spec.pattern).replace(tzinfo=UTC)
    except ValueError:
        start = None
    if start is None or start.strftime(spec.pattern) != decorator:
        raise BigQueryError(
            "invalid",
            f"Invalid partition decorator ${decorator} for table {table.ref}: partitioned by {spec.value}, "
            f"expected the form {start_form(spec)}",
        )
    return start


def start_form(spec: Granularity) -> str:
    return {"DAY": "YYYYMMDD", "HOUR": "YYYYMMDDHH", "MONTH": "YYYYMM", "YEAR": "YYYY"}[spec.value]


# A BigQuery table may have no columns; a DuckDB table may not.
_PLACEHOLDER = "__no_columns"


def _columns(table: Table) -> str:
    columns = [_column_definition(item) for item in table.schema]
    if table.by_ingestion_time:
        columns.append(f"{quote(PARTITION_TIME)} TIMESTAMPTZ")
    return ", ".join(columns or [f"{quote(_PLACEHOLDER)} BOOLEAN"])


def _conversion(schema: Schema, relation: str) -> str:
    columns = (f"CAST({quote(item.name)} AS {column_type(item)}) AS {quote(item.name)}" for item in schema)
    return f"SELECT {', '.join(columns)} FROM {relation}"


def _column_definition(item: Field) -> str:
    definition = f"{quote(item.name)} {column_type(item)}"
    if item.mode is Mode.REPEATED:
        return definition + " DEFAULT []"
    return definition + " NOT NULL" if item.mode is Mode.REQUIRED else definition


def _dump(resource: Mapping[str, Any]) -> str:
    return orjson.dumps(resource).decode()


def _stamped(value: _Resource) -> _Resource:
    digest = hashlib.sha1(_dump(replace(value, etag="").rest()).encode(), usedforsecurity=False).digest()
    return replace(value, etag=base64.b64encode(digest[:16]).decode())
