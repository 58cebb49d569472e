"""`Dest.Expiry`: a table that a batch has written lives that long from the batch's beginning.

Set after the rows are there, since a load may have created the table. What stays true, whoever sets it in which order:
a table lives as long as the newest of its batches was promised. A batch that comes late leaves a later expiry alone
which another batch may have set; one that comes after its own time counts from now, since its rows were never there
before. BigQuery allows few changes of a table's description per second: a table whose expiry was set a moment ago is
left alone until it would move noticeably.
"""

from datetime import UTC, datetime, timedelta

import structlog

from ingestd.batch.landing import destination
from ingestd.batch.record import Kind, Record
from ingestd.batch.steps import branch_tables
from ingestd.model.errors import NotFound
from ingestd.model.preparation import Unmatched
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
        if record.kind is not Kind.LOAD or "Expiry" not in (record.rule.document.get("Dest") or {}):
            return
        expiry = record.rule.spec.dest.expiry
        if expiry is None:
            return
        until, now = record.created + expiry, record.stamp.updated
        if until <= now:
            until = now + expiry
        for table in _written(record):
            before = self._set.get(table)
            if before is not None and until - before < min(_NOTICEABLE, expiry / 100):
                continue
            kept = await self._kept(table, until, at_most=now + expiry + _NOTICEABLE)
            if kept is None:
                continue  # dropped meanwhile, or a split's table that no row went to
            if len(self._set) >= _REMEMBERED:
                self._set.clear()
            self._set[table] = kept

    async def _kept(self, table: TableName, until: datetime, *, at_most: datetime) -> datetime | None:
        """How long the table lives now; None when it does not exist. `at_most`: more no batch can have promised."""
        if (found := await self._warehouse.table(table)) is None:
            return None
        millis = found.resource.get("expirationTime")
        there = datetime.fromtimestamp(int(millis) / 1000, UTC) if millis else None
        if there is not None and until <= there <= at_most:
            return there
        try:
            await self._warehouse.patch_table(table, {"expirationTime": expiration_time(timedelta(), until)})
        except NotFound:
            return None
        log.info("table.expires", table=str(table), until=until.isoformat())
        return until


def _written(record: Record) -> tuple[TableName, ...]:
    """The tables that the batch's rows go to."""
    split = record.rule.spec.dest.schema_options.split
    home = () if split is not None and split.unmatched is not Unmatched.KEEP else (destination(record),)
    return tuple(dict.fromkeys(one.partition(None) for one in (*branch_tables(record), *home)))
