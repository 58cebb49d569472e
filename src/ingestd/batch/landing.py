"""Where a batch's rows arrive first: in the destination itself, or in a table of the batch's own.

Two kinds of such tables. A *transient* table is what the rule asks for (`Dest.Transient`): in the dataset and project
it names, and left to the post-actions (`$TempTable`). A *staging* table is our own doing, when several load jobs have
to appear as one commit, or statements need rows to read. Both are made like the destination (or the template), so that
rows are held to the same schema and partitions; both are named after the batch, expire by themselves should nobody be
left to drop them, and are dropped at the batch's end, whatever the end, after everything that reads them.
`stages.publish` says how rows leave them.
"""

from datetime import timedelta
from typing import Any

import structlog

from ingestd.batch.destinations import shape
from ingestd.batch.load_config import creatable
from ingestd.batch.pinned import HOME
from ingestd.batch.record import Record
from ingestd.model.clock import Clock
from ingestd.model.errors import Fatal, NotFound
from ingestd.model.schema import Schema, schema_rest
from ingestd.model.tables import TableName, parse_table
from ingestd.ports import TableInfo, Warehouse
from ingestd.rules.schema import Transient
from ingestd.settings import Settings
from ingestd.warehouse.schemas import LandedLike, drift_options, landed_like

log = structlog.get_logger(__name__)

APPEND = "WRITE_APPEND"
_KEEP_LONGER = timedelta(days=1)
_MAX_NAME = 1024


def destination(record: Record) -> TableName:
    reference = record.load["destinationTable"]
    return parse_table(f"{reference['projectId']}.{reference['datasetId']}.{reference['tableId']}")


def staging_table(record: Record) -> TableName:
    """`<dataset>.<table>__ingestd_<event>`, with the destination's partition unless statements read all of it."""
    dest = destination(record)
    decorator = dest.decorator
    if decorator is not None:
        shaped = record.rule.spec.dest
        decorator = None if shaped.transforms or shaped.unique_keys else decorator
    return TableName(dest.project, dest.dataset, _named(dest.table, f"__ingestd_{record.event_id}"), decorator)


def transient_table(record: Record, transient: Transient) -> TableName:
    """`<project>.<Transient.Dataset>.<table>_<EventID>`: rows of a partition are all of its rows."""
    name = _named(destination(record).table, f"_{record.event_id}")
    return TableName(record.placement.project, transient.dataset, name)


def landing_table(record: Record, branch: int = HOME) -> TableName:
    """Where rows arrive; those of a split's branch that were prepared apart have a table apart."""
    transient = record.transient
    if transient is None and not record.progress.staged:
        return destination(record)
    table = transient_table(record, transient) if transient else staging_table(record)
    if branch == HOME:
        return table
    return TableName(table.project, table.dataset, _named(table.table, f"_{branch + 1}"))


def truncates(record: Record) -> bool:
    return str(record.load.get("writeDisposition", APPEND)).startswith("WRITE_TRUNCATE")


def landing_load(record: Record) -> dict[str, Any]:
    """The configuration of a load that reads the batch's files itself, aimed at where its rows arrive."""
    load = record.load
    if record.lands_apart:
        load = {
            **load,
            "destinationTable": landing_table(record).rest,
            "writeDisposition": APPEND,
            "createDisposition": "CREATE_IF_NEEDED",
        }
    whole = "$" not in load["destinationTable"]["tableId"]
    return {**load, **drift_options(record.rule.spec.dest, load, whole_table=whole)}


class Landing:
    def __init__(self, warehouse: Warehouse, clock: Clock, settings: Settings) -> None:
        self._warehouse = warehouse
        self._clock = clock
        self._settings = settings

    async def ensure(self, record: Record) -> None:
        """Make the batch's own table like its model, unless the load makes both from its own schema."""
        transient = record.transient
        if transient is not None:
            await self._dataset(record, transient)
        model = await self._model(record, transient)
        if model is None:
            return
        await self._create(landing_table(record), shape(model))

    async def ensure_prepared(self, record: Record, branch: int, columns: Schema) -> None:
        """Make the table for prepared rows: their columns, partitioned as the destination is."""
        transient = record.transient
        if transient is not None:
            await self._dataset(record, transient)
        model = await self._warehouse.table(destination(record).partition(None)) if branch == HOME else None
        made = shape(model) if model is not None else _declared(record) if branch == HOME else {}
        if columns:
            made["schema"] = schema_rest(columns)
        if made.get("schema"):
            await self._create(landing_table(record, branch), made)

    async def complete(self, record: Record, branch: int, rows: int) -> bool:
        """Whether the batch's own table holds every row that the loads have written to it."""
        table = await self._warehouse.table(landing_table(record, branch).partition(None))
        if table is None:
            return False
        if table.resource.get("expirationTime") is None:
            # The load itself made it.
            await self._warehouse.patch_table(table.name, {"expirationTime": self._expiration()})
        found = table.resource.get("numRows")
        return found is None or int(found) == rows

    async def drop(self, record: Record) -> None:
        """Drop what the batch landed in; not being there is fine."""
        for branch in {HOME, *_branches(record)}:
            table = landing_table(record, branch).partition(None)
            if await self._warehouse.delete_table(table):
                log.info("landing.dropped", table=str(table), event_id=record.event_id)

    async def _model(self, record: Record, transient: Transient | None) -> TableInfo | None:
        """What the batch's own table is made like; None: its loads make it."""
        warehouse = self._warehouse
        if transient is not None and transient.template:
            name = parse_table(transient.template).in_project(self._settings.project)
            if (template := await warehouse.table(name)) is None:
                raise NotFound(f"template table {name} does not exist; create it or correct Transient.Template")
            return template
        if _replaces_schema(record) and destination(record).decorator is None:
            return None
        dest = record.rule.spec.dest
        if (transient is not None or dest.transforms or dest.merge) and landed_like(
            dest, record.load
        ) is LandedLike.LOAD:
            return None
        return await warehouse.table(destination(record).partition(None))

    async def _dataset(self, record: Record, transient: Transient) -> None:
        """The transient dataset, made where the destination is unless the rule names a region."""
        warehouse, project, home = self._warehouse, record.placement.project, record.placement.location
        location = await warehouse.dataset_location(project, transient.dataset)
        if location is None:
            wanted = transient.region or home
            location = await warehouse.create_dataset(project, transient.dataset, wanted, table_expiration=self._keep())
            log.info("landing.dataset_created", dataset=f"{project}.{transient.dataset}", location=location)
        if location.lower() != home.lower():
            raise Fatal(
                f"transient dataset {project}.{transient.dataset} is in {location}, but {record.dest} is in "
                f"{home}: BigQuery moves no rows between them; choose another Transient.Dataset"
            )

    async def _create(self, table: TableName, resource: dict[str, Any]) -> None:
        wanted = {key: value for key, value in resource.items() if key != "requirePartitionFilter"}
        await self._warehouse.create_table(table.partition(None), {**wanted, "expirationTime": self._expiration()})

    def _keep(self) -> timedelta:
        return self._settings.recovery.give_up_after + _KEEP_LONGER

    def _expiration(self) -> str:
        return str(int((self._clock.now() + self._keep()).timestamp() * 1000))


def _named(table: str, suffix: str) -> str:
    return table.encode()[: _MAX_NAME - len(suffix)].decode(errors="ignore") + suffix


def _branches(record: Record) -> set[int]:
    pinned = record.progress.pinned
    return {output.branch for output in pinned.prepared.outputs} if pinned else set()


def _declared(record: Record) -> dict[str, Any]:
    """What the load itself says about a table that it would make."""
    keys = ("schema", "timePartitioning", "rangePartitioning", "clustering")
    return {key: record.load[key] for key in keys if record.load.get(key)}


def _replaces_schema(record: Record) -> bool:
    """A load that replaces the whole table may bring another schema: then its own loads make the landing table."""
    return truncates(record) and creatable(record.load)
