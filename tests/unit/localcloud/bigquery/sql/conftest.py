"""One database for all SQL tests of a module; every test gets its own cursor and dataset names of its choice."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import duckdb
import pytest
from tests.support.manual_clock import ManualClock

from ingestd.localcloud.bigquery.catalog import Catalog
from ingestd.localcloud.bigquery.database import Database
from ingestd.localcloud.bigquery.sql.engine import ScriptResult, SqlEngine

NOW = datetime(2024, 5, 6, 22, 8, 9, tzinfo=UTC)


class Warehouse:
    """Runs SQL and reads the rows of its results."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self.cursor = cursor
        self.clock = ManualClock(NOW)
        self.catalog = Catalog(cursor, project="p", clock=self.clock)

    def engine(self, **options: Any) -> SqlEngine:
        return SqlEngine(self.cursor, self.catalog, project="p", clock=self.clock, **options)

    def run(self, sql: str, **options: Any) -> ScriptResult:
        return self.engine(**options).run(sql)

    def rows(self, sql: str, **options: Any) -> list[tuple[Any, ...]]:
        result = self.run(sql, **options).last_rows
        assert result is not None
        return self.read(result.relation)

    def read(self, relation: str | None) -> list[tuple[Any, ...]]:
        return self.cursor.execute(f"SELECT * FROM {relation}").fetchall()

    def affected(self, sql: str, **options: Any) -> int:
        stats = self.run(sql, **options).statements[-1].dml
        assert stats is not None
        return stats.affected


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    opened = Database(None)
    yield opened
    opened.close()


@pytest.fixture
def warehouse(database: Database) -> Iterator[Warehouse]:
    cursor = database.cursor()
    made = Warehouse(cursor)
    yield made
    made.run("DROP SCHEMA IF EXISTS d CASCADE")
    cursor.close()


@pytest.fixture
def dataset(warehouse: Warehouse) -> Warehouse:
    warehouse.run("CREATE SCHEMA d")
    return warehouse


RunSql = Callable[[str], list[tuple[Any, ...]]]
