"""Destinations: what has to be true of a table before a batch is loaded into it.

Asked by `Destinations.prepare` (does the table exist, where is its dataset), and made so where the rule says how.
"""

from datetime import timedelta
from typing import Any

import structlog

from ingestd.batch.load_config import creatable
from ingestd.batch.record import Record
from ingestd.model.clock import Clock
from ingestd.model.errors import Fatal, NotFound
from ingestd.model.preparation import DRIFT_REMEDY
from ingestd.model.schema import schema_rest
from ingestd.model.tables import TableName, parse_table
from ingestd.ports import TableInfo, Warehouse
from ingestd.rules.schema import Dest
from ingestd.warehouse.columns import fields_of
from ingestd.warehouse.schemas import keeps_columns, lost_columns, patched

log = structlog.get_logger(__name__)

_TRUST = timedelta(seconds=60)  # how long a table that was seen is believed to exist


class Destinations:
    """Makes sure that a load has somewhere to go, asking BigQuery no more often than needed."""

    def __init__(self, warehouse: Warehouse, clock: Clock) -> None:
        self._warehouse = warehouse
        self._clock = clock
        self._seen: dict[TableName, float] = {}
        self._partitioned: dict[TableName, bool] = {}

    async def prepare(self, record: Record) -> Record:
        """The record with its job location; raises `Fatal` while dataset, table, template or columns are missing."""
        spec = record.rule.spec
        table = _whole_table(record)
        assert table.project is not None
        location = await self._warehouse.dataset_location(table.project, table.dataset)
        if location is None:
            raise NotFound(missing_dataset(record, table))
        if not self._trusted(table):
            await self._ensure(spec.dest, table, record)
        if spec.dest.staging is not None and spec.dest.staging.template and keeps_columns(spec.dest):
            await self._refuse_loss(spec.dest, parse_table(spec.dest.staging.template), table)
        return record.located(location)

    def partitioned(self, record: Record) -> bool:
        """Whether the destination is known to be partitioned: such a table may be changed more often."""
        if "$" in record.load["destinationTable"]["tableId"]:
            return True
        return self._partitioned.get(_whole_table(record), False)

    async def _ensure(self, dest: Dest, table: TableName, record: Record) -> None:
        found = await self._warehouse.table(table)
        if found is None:
            if dest.schema_options.template:
                await self._create_like(parse_table(dest.schema_options.template), table)
            elif not creatable(record.load):
                raise NotFound(_missing_table(record, table))
            else:
                return  # the load itself creates it
        elif dest.schema_options.template:
            await self._widen(parse_table(dest.schema_options.template), found)
        self._seen[table] = self._clock.monotonic()
        if found is not None:
            self._partitioned[table] = bool({"timePartitioning", "rangePartitioning"} & found.resource.keys())

    async def _refuse_loss(self, dest: Dest, template: TableName, table: TableName) -> None:
        """A column that the landing template has and the table has not: its values are not dropped unasked."""
        found = await self._warehouse.table(table)
        if found is None:
            return
        info = await self._template(template, self._warehouse.project, "Transient.Template")
        if lost := lost_columns(dest, fields_of(info.resource), fields_of(found.resource)):
            names = ", ".join(lost)
            raise Fatal(f"{table} has no column {names}, which Transient.Template {info.name} has: {DRIFT_REMEDY}")

    async def _create_like(self, template: TableName, table: TableName) -> None:
        info = await self._template(template, table.project)
        await self._warehouse.create_table(table, shape(info))
        log.info("table.created", table=str(table), template=str(info.name))

    async def _widen(self, template: TableName, found: TableInfo) -> None:
        """A table that exists gets the columns its template has besides, where the two do not contradict."""
        info = await self._template(template, found.name.project)
        wide = patched(fields_of(found.resource), fields_of(info.resource))
        if wide is not None and wide.changes:
            await self._warehouse.patch_table(found.name, {"schema": schema_rest(wide.fields)})
            log.info("table.widened", table=str(found.name), template=str(info.name), added=wide.added)

    async def _template(self, template: TableName, project: str | None, key: str = "Schema.Template") -> TableInfo:
        name = template.in_project(project or self._warehouse.project)
        info = await self._warehouse.table(name)
        if info is None:
            raise NotFound(f"template table {name} does not exist; create it or correct {key}")
        return info

    def _trusted(self, table: TableName) -> bool:
        seen = self._seen.get(table)
        return seen is not None and self._clock.monotonic() - seen < _TRUST.total_seconds()


def missing_dataset(record: Record, table: TableName) -> str:
    name = f"dataset {table.project}.{table.dataset} does not exist; create it"
    return f"{name}, or name another in _config/load.json (destinationTable)" if record.success else name


def _missing_table(record: Record, table: TableName) -> str:
    """What helps, in the words of those who asked for the load."""
    if record.success is None:
        return (
            f"table {table} does not exist; create it, or let the rule do so with Schema.Template or Schema.Autodetect"
        )
    if record.load.get("createDisposition") == "CREATE_NEVER":
        return f"table {table} does not exist, and load.json says CREATE_NEVER; create it"
    return (
        f"table {table} does not exist; create it, or let the load do so: with schema or autodetect in a "
        "_config/load.json above the batch, or with files that carry their schema (Avro, Parquet, ORC)"
    )


def _whole_table(record: Record) -> TableName:
    reference = record.load["destinationTable"]
    return parse_table(f"{reference['projectId']}.{reference['datasetId']}.{reference['tableId']}").partition(None)


def shape(info: TableInfo) -> dict[str, Any]:
    """What a table made like this one takes over."""
    keys = ("schema", "timePartitioning", "rangePartitioning", "clustering", "requirePartitionFilter")
    return {key: info.resource[key] for key in keys if info.resource.get(key) is not None}
