"""`Dest.Expiry`: a table that a batch has written lives that long from the batch's beginning.

Set after the rows are there, since a load may have created the table. The time is a function of the record, so setting
it again changes nothing. BigQuery allows few changes of a table's description per second: a table whose expiry was set
a moment ago is left alone until it would move noticeably.
"""

from datetime import datetime, timedelta

import structlog

from ingestd.batch.landing import destination
from ingestd.batch.record import Kind, Record
from ingestd.batch.rule import rule_of
from ingestd.batch.steps import branch_tables
from ingestd.model.errors import NotFound
from ingestd.model.tables import TableName
from ingestd.ports import Warehouse
from ingestd.warehouse.schemas import expiration_time

log = structlog.get_logger(__name__)

_NOTICEABLE = timedelta(minutes=1)
_REMEMBERED = 10_000


class Expiries:
    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._set: dict[TableName, datetime] = {}

    async def set(self, record: Record) -> None:
        """Give the batch's tables their expiry, when its rule has one."""
        if record.kind is not Kind.LOAD or "Expiry" not in (record.rule.get("Dest") or {}):
            return
        expiry = rule_of(record).dest.expiry
        if expiry is None:
            return
        until = record.created + expiry
        for table in dict.fromkeys(one.partition(None) for one in branch_tables(record) or (destination(record),)):
            before = self._set.get(table)
            if before is not None and until - before < min(_NOTICEABLE, expiry / 100):
                continue
            try:
                await self._warehouse.patch_table(table, {"expirationTime": expiration_time(expiry, record.created)})
            except NotFound:
                continue  # dropped meanwhile, or a split's table that no row went to
            if len(self._set) >= _REMEMBERED:
                self._set.clear()
            self._set[table] = until
            log.info("table.expires", table=str(table), until=until.isoformat())
