"""The catalog in memory: what is committed, and what one transaction is about to change.

Every dataset and table is stored in DuckDB and, whole, in the `Mirror`; reading the catalog costs no statement. Why a
reader never sees uncommitted or outdated metadata:

- Metadata changes only under the writer lock, so at most one transaction has `Changes` at any time. They are its own
  until its COMMIT, and are dropped with its ROLLBACK.
- `Session.commit` holds the mirror's lock across DuckDB's COMMIT and the mirror's update. Whoever looks something up
  waits for that lock, so no one finds new rows with old metadata, and whoever was told of a commit finds it here.
- A reader's lookups and its statement's snapshot are two moments. `version` moves, under the same lock, with each
  commit that changes what a statement is compiled from (names, columns, kinds; not the time of the last change). A
  reader that finds it unmoved after its statement ran knows that no such commit fell between; else it runs again.
- An entry is replaced by each commit that touches its table's rows. A size measured by someone who held no changes of
  the table is kept only while the same entry stands, so it is the size of exactly that state.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import RLock
from typing import Any, cast

import duckdb
import orjson

from ingestd.localcloud.bigquery.resources import Dataset, DatasetRef, Table, TableRef, from_millis

_NEVER = from_millis(0)


class Entry:
    """A table as stored, parsed when someone asks; `size` is its rows and logical bytes once someone measured them."""

    __slots__ = ("_table", "ref", "size", "text")

    def __init__(self, ref: TableRef, text: str) -> None:
        self.ref = ref
        self.text = text
        self.size: tuple[int, int] | None = None
        self._table: Table | None = None

    @property
    def table(self) -> Table:
        if self._table is None:
            self._table = Table.from_rest(orjson.loads(self.text), self.ref.project, _NEVER)
        return self._table

    def compiles_like(self, other: "Entry") -> bool:
        """Whether only the time of the last change differs."""
        mine = replace(self.table, modified=_NEVER, etag="")
        return mine == replace(other.table, modified=_NEVER, etag="")


class Mirror:
    """What is committed."""

    def __init__(self, conn: duckdb.DuckDBPyConnection) -> None:
        self._lock = RLock()
        self._version = 0
        self._datasets: dict[DatasetRef, Dataset] = {}
        self._tables: dict[DatasetRef, dict[str, Entry]] = {}
        for project, dataset, text in conn.execute(
            'SELECT project, dataset, resource FROM "__catalog".datasets'
        ).fetchall():
            self._datasets[DatasetRef(project, dataset)] = parse_dataset(project, text)
        for project, dataset, table, text in conn.execute(
            'SELECT project, dataset, table_id, resource FROM "__catalog".tables'
        ).fetchall():
            ref = TableRef(project, dataset, table)
            self._tables.setdefault(ref.dataset_ref, {})[table] = Entry(ref, text)

    @property
    def version(self) -> int:
        with self._lock:
            return self._version

    def dataset(self, ref: DatasetRef) -> Dataset | None:
        with self._lock:
            return self._datasets.get(ref)

    def table(self, ref: TableRef) -> Entry | None:
        with self._lock:
            return self._tables.get(ref.dataset_ref, {}).get(ref.table)

    def datasets(self, project: str) -> dict[DatasetRef, Dataset]:
        with self._lock:
            return {ref: item for ref, item in self._datasets.items() if ref.project == project}

    def tables(self, ref: DatasetRef) -> dict[str, Entry]:
        with self._lock:
            return dict(self._tables.get(ref, {}))

    def measured(self, entry: Entry, size: tuple[int, int]) -> None:
        """Keep a table's size if its state is still the one that was measured."""
        with self._lock:
            if self.table(entry.ref) is entry:
                entry.size = size

    def commit(self, changes: "Changes", commit: Callable[[], object]) -> None:
        with self._lock:
            commit()
            for ref, dataset in changes.datasets.items():
                self._version += 1
                if dataset is None:
                    self._datasets.pop(ref, None)
                else:
                    self._datasets[ref] = dataset
            for table, entry in changes.tables.items():
                self._apply(table, entry)

    def _apply(self, ref: TableRef, entry: Entry | None) -> None:
        known = self._tables.setdefault(ref.dataset_ref, {})
        before = known.get(ref.table)
        if before is None or entry is None or not entry.compiles_like(before):
            self._version += 1
        if entry is None:
            known.pop(ref.table, None)
        else:
            known[ref.table] = entry


class Changes:
    """The catalog as one transaction sees it: the mirror, and over it what the transaction changed. None is gone."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror = mirror
        self.datasets: dict[DatasetRef, Dataset | None] = {}
        self.tables: dict[TableRef, Entry | None] = {}

    def clear(self) -> None:
        if self.datasets or self.tables:
            self.datasets, self.tables = {}, {}

    def find_dataset(self, ref: DatasetRef) -> Dataset | None:
        return self.datasets[ref] if ref in self.datasets else self.mirror.dataset(ref)

    def find_table(self, ref: TableRef) -> Table | None:
        entry = self.tables[ref] if ref in self.tables else self.mirror.table(ref)
        return entry.table if entry else None

    def list_datasets(self, project: str) -> list[Dataset]:
        seen: dict[DatasetRef, Dataset | None] = {**self.mirror.datasets(project)}
        seen |= {ref: item for ref, item in self.datasets.items() if ref.project == project}
        return [item for _, item in sorted(seen.items(), key=lambda pair: pair[0].dataset) if item is not None]

    def list_tables(self, ref: DatasetRef) -> list[Table]:
        seen: dict[str, Entry | None] = {**self.mirror.tables(ref)}
        seen |= {table.table: entry for table, entry in self.tables.items() if table.dataset_ref == ref}
        return [entry.table for _, entry in sorted(seen.items()) if entry is not None]

    def unchanged(self, ref: TableRef) -> Entry | None:
        """The committed entry of a table that this transaction has left alone."""
        return None if ref in self.tables else self.mirror.table(ref)


class Session:
    """A DuckDB cursor whose COMMIT and ROLLBACK, called or written as SQL, decide what becomes of its `changes`."""

    def __init__(self, conn: duckdb.DuckDBPyConnection, mirror: Mirror) -> None:
        self._conn = conn
        self.changes = Changes(mirror)

    @property
    def conn(self) -> duckdb.DuckDBPyConnection:
        """This session, for code that expects a plain cursor."""
        return cast("duckdb.DuckDBPyConnection", self)

    def execute(self, sql: str, *arguments: Any) -> duckdb.DuckDBPyConnection:
        if sql == "COMMIT":
            return self.commit()
        if sql == "ROLLBACK":
            return self.rollback()
        return self._conn.execute(sql, *arguments)

    def begin(self) -> duckdb.DuckDBPyConnection:
        self.changes.clear()
        return self._conn.begin()

    def commit(self) -> duckdb.DuckDBPyConnection:
        with self._ending():
            if self.changes.datasets or self.changes.tables:
                self.changes.mirror.commit(self.changes, self._conn.commit)
            else:
                self._conn.commit()
        return self._conn

    def rollback(self) -> duckdb.DuckDBPyConnection:
        with self._ending():
            return self._conn.rollback()

    @contextmanager
    def _ending(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.changes.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)


def parse_dataset(project: str, text: str) -> Dataset:
    return Dataset.from_rest(orjson.loads(text), project, _NEVER)
