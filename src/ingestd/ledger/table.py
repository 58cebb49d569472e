"""The load-state table in BigQuery: made on first use, brought up to date when columns were added, written to.

Rows are streamed (`insertAll`): they are visible within seconds, and unlike load jobs they count against no table's
daily 1,500. Making anything twice is harmless, so every replica may do it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from ingestd.ledger.columns import (
    COLUMNS,
    latest_sql,
    latest_view,
    row_id,
    table_resource,
    tables_sql,
    tables_view,
    view_resource,
)
from ingestd.model.schema import schema_rest
from ingestd.model.tables import TableName
from ingestd.ports import TableInfo, Warehouse
from ingestd.warehouse.columns import fields_of
from ingestd.warehouse.schemas import with_new_columns

log = structlog.get_logger(__name__)


class LoadStateTable:
    def __init__(self, warehouse: Warehouse, name: TableName, *, location: str) -> None:
        self.name = name.in_project(warehouse.project)
        self._warehouse = warehouse
        self._location = location
        self._ready = False

    async def ensure(self) -> None:
        """Make dataset, table and views unless they are there; asked once, until something is found missing."""
        if self._ready:
            return
        found = await self._warehouse.table(self.name)
        if found is None:
            await self._make_dataset()
            found = await self._warehouse.create_table(self.name, table_resource())
            log.info("load_state.created", table=str(self.name))
        await self._add_columns(found)
        await self._view(latest_view(self.name), latest_sql(self.name), "One row per batch: its latest state.")
        await self._view(tables_view(self.name), tables_sql(self.name), "One row per table: how fresh it is.")
        self._ready = True

    async def _make_dataset(self) -> None:
        """Only where it is missing: whoever may make none is refused before BigQuery looks whether it is there."""
        project, dataset = self.name.project, self.name.dataset
        assert project is not None
        if await self._warehouse.dataset_location(project, dataset) is None:
            await self._warehouse.create_dataset(project, dataset, self._location)

    def doubt(self) -> None:
        """Something was missing: look again before the next rows."""
        self._ready = False

    async def insert(self, rows: Sequence[Mapping[str, Any]]) -> None:
        await self._warehouse.insert_rows(self.name, rows, [row_id(dict(row)) for row in rows])

    async def _add_columns(self, found: TableInfo) -> None:
        wide = with_new_columns(fields_of(found.resource), COLUMNS)  # none of them REQUIRED: the table has rows
        if wide.changes:
            await self._warehouse.patch_table(self.name, {"schema": schema_rest(wide.fields)})
            log.info("load_state.columns_added", table=str(self.name), columns=list(wide.added))

    async def _view(self, name: TableName, sql: str, meaning: str) -> None:
        found = await self._warehouse.table(name)
        if found is None:
            await self._warehouse.create_table(name, view_resource(sql, meaning))
        elif found.resource.get("view", {}).get("query") != sql:
            await self._warehouse.patch_table(name, view_resource(sql, meaning))
