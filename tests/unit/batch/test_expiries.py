"""`Dest.Expiry`: a table lives as long as the newest batch in it was promised, whoever comes last."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from tests.support.records import SPLIT, ruled

from ingestd.batch.expiries import Expiries
from ingestd.batch.record import Record
from ingestd.batch.stamp import Stamp
from ingestd.model.tables import TableName
from ingestd.ports import TableInfo, Warehouse

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Tables:
    """The expiries of some tables."""

    def __init__(self, **until: datetime | None) -> None:
        self.until = until
        self.patches = 0

    async def table(self, name: TableName) -> TableInfo | None:
        if name.table not in self.until:
            return None
        until = self.until[name.table]
        return TableInfo(name, "US", {"expirationTime": _millis(until)} if until else {})

    async def patch_table(self, name: TableName, resource: dict[str, Any]) -> TableInfo:
        self.patches += 1
        self.until[name.table] = datetime.fromtimestamp(int(resource["expirationTime"]) / 1000, UTC)
        return TableInfo(name, "US", resource)


def _millis(moment: datetime) -> str:
    return str(int(moment.timestamp() * 1000))


def hours(number: float) -> timedelta:
    return timedelta(hours=number)


def batch(created: datetime, now: datetime, **dest: Any) -> Record:
    return replace(ruled({"Expiry": "12hours", **dest}), created=created, stamp=Stamp(now))


async def expire(tables: Tables, record: Record) -> None:
    """By a replica that remembers nothing of what others have set."""
    await Expiries(cast("Warehouse", tables)).set(record)


async def test_a_batch_that_comes_late_does_not_shorten_the_life_of_a_newer_ones_rows() -> None:
    tables = Tables(t=None)
    await expire(tables, batch(NOON + hours(10), NOON + hours(10)))
    assert tables.until["t"] == NOON + hours(22)
    await expire(tables, batch(NOON, NOON + hours(11)))
    assert tables.until["t"] == NOON + hours(22)
    await expire(tables, batch(NOON + hours(11), NOON + hours(11)))
    assert tables.until["t"] == NOON + hours(23)


async def test_an_expiry_that_no_batch_can_have_set_gives_way_to_the_rules() -> None:
    tables = Tables(t=NOON + timedelta(days=60))
    await expire(tables, batch(NOON, NOON))
    assert tables.until["t"] == NOON + hours(12)


async def test_rows_that_arrive_after_their_time_are_not_dropped_at_once() -> None:
    tables = Tables(t=None)
    await expire(tables, batch(NOON, NOON + hours(20)))
    assert tables.until["t"] == NOON + hours(32)


async def test_every_table_of_a_split_that_gets_rows_expires() -> None:
    split = {"Schema": {"Split": {**SPLIT["Schema"]["Split"], "Unmatched": "keep"}}}
    tables = Tables(t=None, one=None)
    await expire(tables, batch(NOON, NOON, **split))
    assert tables.until == {"t": NOON + hours(12), "one": NOON + hours(12)}
    dropping = {"Schema": {"Split": {**SPLIT["Schema"]["Split"], "Unmatched": "drop"}}}
    tables = Tables(t=None, one=None)
    await expire(tables, batch(NOON, NOON, **dropping))
    assert tables.until == {"t": None, "one": NOON + hours(12)}


async def test_a_table_that_many_batches_write_is_changed_seldom() -> None:
    tables = Tables(t=None)
    expiries = Expiries(cast("Warehouse", tables))
    for second in range(120):
        now = NOON + timedelta(seconds=second)
        await expiries.set(batch(now, now))
    assert tables.patches == 2
