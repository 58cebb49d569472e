"""Batches of several load jobs appear as one commit: staged in a table of their own, published by one copy job.

The staging table is made like the destination, so that the files are held to the same schema and partitions; it is
named after the batch, and expires by itself should nobody be left to drop it. Publishing is atomic: readers see all of
the batch or nothing of it, and a batch that replaces its table replaces it once.
"""

from datetime import timedelta
from typing import Any

import structlog

from ingestd.batch.loading import creatable, shape
from ingestd.batch.parts import Parts
from ingestd.batch.record import Record
from ingestd.model.jobs import JobKind, JobRequest
from ingestd.model.tables import TableName, parse_table

log = structlog.get_logger(__name__)

_APPEND = "WRITE_APPEND"
_KEEP_LONGER = timedelta(days=1)
_MAX_NAME = 1024


def destination(record: Record) -> TableName:
    reference = record.load["destinationTable"]
    return parse_table(f"{reference['projectId']}.{reference['datasetId']}.{reference['tableId']}")


def staging_table(record: Record) -> TableName:
    """`<dataset>.<table>__ingestd_<event>`, with the destination's partition."""
    dest = destination(record)
    suffix = f"__ingestd_{record.event_id}"
    room = _MAX_NAME - len(suffix)
    name = dest.table.encode()[:room].decode(errors="ignore")
    return TableName(dest.project, dest.dataset, f"{name}{suffix}", dest.decorator)


def truncates(record: Record) -> bool:
    return str(record.load.get("writeDisposition", _APPEND)).startswith("WRITE_TRUNCATE")


def staged_load(record: Record) -> dict[str, Any]:
    """The batch's load configuration, aimed at its staging table."""
    return {
        **record.load,
        "destinationTable": staging_table(record).rest,
        "writeDisposition": _APPEND,
        "createDisposition": "CREATE_IF_NEEDED",
    }


class Staging:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def ensure(self, record: Record) -> None:
        """Make the staging table like the destination, unless the load makes both from its own schema."""
        warehouse = self._parts.warehouse
        table = staging_table(record).partition(None)
        model = await warehouse.table(destination(record).partition(None))
        if model is None or (_replaces_schema(record) and destination(record).decorator is None):
            return
        await warehouse.create_table(table, {**shape(model), "expirationTime": self._expiration()})

    async def publish(self, record: Record) -> JobRequest:
        """The copy job that makes the batch visible, after what has to be true of the destination is."""
        dest = destination(record)
        staged = staging_table(record)
        if record.load.get("schemaUpdateOptions"):
            await self._widen(dest.partition(None), staged.partition(None))
        disposition = record.load.get("writeDisposition", _APPEND)
        configuration = {
            "sourceTables": [staged.rest],
            "destinationTable": dest.rest,
            "writeDisposition": "WRITE_TRUNCATE" if truncates(record) else disposition,
            "createDisposition": record.load.get("createDisposition", "CREATE_IF_NEEDED"),
        }
        labels = {"ingestd": "publish", "ingestd_event": record.event_id}
        return JobRequest(record.publish_job(), JobKind.COPY, configuration, labels)

    async def complete(self, record: Record) -> bool:
        """Whether the staging table holds every row that the loads have written to it."""
        table = await self._parts.warehouse.table(staging_table(record).partition(None))
        if table is None:
            return False
        rows = table.resource.get("numRows")
        return rows is None or int(rows) == record.progress.rows

    async def drop(self, record: Record) -> None:
        if await self._parts.warehouse.delete_table(staging_table(record).partition(None)):
            log.info("staging.dropped", table=str(staging_table(record)), event_id=record.event_id)

    async def _widen(self, dest: TableName, staged: TableName) -> None:
        """Columns that the loads were allowed to add: a copy cannot add them, so the destination gets them first."""
        wide, narrow = await self._parts.warehouse.table(staged), await self._parts.warehouse.table(dest)
        if wide is not None and narrow is not None and wide.resource.get("schema") != narrow.resource.get("schema"):
            await self._parts.warehouse.patch_table(dest, {"schema": wide.resource["schema"]})

    def _expiration(self) -> str:
        keep = self._parts.settings.recovery.give_up_after + _KEEP_LONGER
        return str(int((self._parts.clock.now() + keep).timestamp() * 1000))


def _replaces_schema(record: Record) -> bool:
    """A load that replaces the whole table may bring another schema: then its own loads make the staging table."""
    return truncates(record) and creatable(record.load)
