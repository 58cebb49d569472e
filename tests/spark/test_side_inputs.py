"""Side inputs: read once through Google's client, kept while they hold, joined on Spark as BigQuery joins them."""

import gzip
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.spark.batches import Batches
from tests.support.files import lines, parquet
from tests.support.manual_clock import ManualClock

from ingestd.gcp.connect import Clients, connect
from ingestd.localcloud.cloud import LocalCloud
from ingestd.model.errors import BadInput, NotFound
from ingestd.model.objects import ObjectRef
from ingestd.model.preparation import Shaping, SideInput
from ingestd.model.schema import Field, Type
from ingestd.model.tables import TableName
from ingestd.ports import TableRows
from ingestd.spark.files.reserved import FILE, LINE
from ingestd.spark.files.side_files import look, read_files
from ingestd.spark.shape.side_inputs import SideInputs
from ingestd.spark.shape.steps import Shaped, shape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH = (Field("id", Type.INT64), Field("name", Type.STRING))
LABELS = (
    "SELECT 1 AS id, 'one' AS label, NUMERIC '1.5' AS rate, DATE '2024-01-01' AS since, [1, 2] AS list, "
    "STRUCT('x' AS a) AS pair, TIMESTAMP '2024-01-01 00:00:00+00' AS moment, DATETIME '2024-01-01 01:02:03' AS local, "
    "TIME '10:11:12' AS clock, b'ab' AS raw UNION ALL "
    "SELECT 2, 'two', NULL, NULL, [], NULL, NULL, NULL, NULL, NULL UNION ALL "
    "SELECT 2, 'zwei', 2, NULL, [3], STRUCT('y'), NULL, NULL, NULL, NULL"
)


@dataclass
class Wire:
    """Side inputs over the wire, with a count of what was really read."""

    clients: Clients
    dataset: str
    clock: ManualClock = field(default_factory=lambda: ManualClock(datetime(2024, 1, 1, tzinfo=UTC)))
    reads: list[Any] = field(default_factory=list)

    async def read(self, source: Any, **options: Any) -> TableRows:
        self.reads.append(source)
        assert self.clients.tables is not None
        return await self.clients.tables.read(source, **options)

    def sides(self, most: int = 1 << 20) -> SideInputs:
        clients = self.clients
        return SideInputs(clients.warehouse, self, self.clock, store=clients.store, most=most, ttl=timedelta(minutes=5))

    def table(self, name: str) -> TableName:
        return TableName(None, self.dataset, name)

    async def run(self, sql: str) -> None:
        assert self.clients.tables is not None
        await self.clients.tables.read(sql.replace("ds.", f"{self.dataset}."), most=1 << 20)


@pytest.fixture
async def wire(cloud: LocalCloud, unique: str) -> AsyncIterator[Wire]:
    environment = cloud.endpoints.environ()
    async with connect("test-project", environment=environment) as clients:
        made = Wire(clients, unique.replace("-", "_"))
        await clients.warehouse.create_dataset("test-project", made.dataset, "US")
        await made.run(f"CREATE TABLE ds.labels AS {LABELS}")
        yield made


async def joined(session: "SparkSession", sides: SideInputs, shaping: Shaping) -> Shaped:
    frame = session.createDataFrame(
        [(1, "a", 0, 1), (2, "b", 0, 2), (3, "c", 0, 3)], f"id BIGINT, name STRING, {FILE} INT, {LINE} BIGINT"
    )
    made = await sides.ready(shaping)
    return shape(frame, shaping, source=BATCH, destination=(), sides=made(session))


async def test_every_row_is_joined_as_bigquery_joins_it(session: "SparkSession", wire: Wire) -> None:
    side = SideInput("s", "s.id = t.id", table=wire.table("labels"))
    shaping = Shaping(
        side_inputs=(side, SideInput("o", "o.id = t.id AND o.label LIKE 't%'", table=wire.table("labels"))),
        transform={
            "name": "COALESCE(s.label, 'none')",
            "other": "o.label",
            "rate": "s.rate",
            "total": "(SELECT SUM(x) FROM UNNEST(s.list) x)",
            "year": "EXTRACT(YEAR FROM s.since)",
            "a": "s.pair.a",
            "hour": "EXTRACT(HOUR FROM s.local) + EXTRACT(HOUR FROM s.clock)",
            "day": "DATE(s.moment)",
            "raw": "TO_HEX(s.raw)",
        },
    )
    made = await joined(session, wire.sides(), shaping)
    rows = sorted((tuple(row) for row in made.frame.collect()), key=repr)
    names = [one.name for one in made.schema]
    assert names == ["id", "name", "a", "day", "hour", "other", "rate", "raw", "total", "year"]
    assert rows == [
        (1, "one", "x", date(2024, 1, 1), 11, None, Decimal("1.5"), "6162", 3, 2024),
        (2, "two", None, None, None, "two", None, None, None, None),
        (2, "zwei", "y", None, None, "two", Decimal(2), None, 3, None),
        (3, "none", None, None, None, None, None, None, None, None),
    ]
    assert made.schema[6].type == "NUMERIC"


async def test_an_inner_join_keeps_what_matches_and_a_query_takes_parameters(
    session: "SparkSession", wire: Wire
) -> None:
    select = f"SELECT id, MAX(label) AS label FROM {wire.dataset}.labels WHERE id > @least GROUP BY id"
    side = SideInput("s", "s.id = t.id", select=select, inner=True)
    shaping = Shaping(side_inputs=(side,), transform={"name": "s.label"}, parameters={"least": 1})
    made = await joined(session, wire.sides(), shaping)
    assert [tuple(row) for row in made.frame.collect()] == [(2, "zwei")]


async def test_rows_are_read_again_only_when_the_table_changed_or_the_time_is_over(wire: Wire) -> None:
    sides = wire.sides()
    shaping = Shaping(side_inputs=(SideInput("s", "s.id = t.id", table=wire.table("labels")),))
    for _ in range(3):
        await sides.ready(shaping)
    assert len(wire.reads) == 1
    await wire.run("UPDATE ds.labels SET label = 'drei' WHERE id = 2")
    await sides.ready(shaping)
    assert len(wire.reads) == 2
    wire.clock.advance(timedelta(minutes=6))
    await sides.ready(shaping)
    assert len(wire.reads) == 3


async def test_a_view_is_read_by_a_query_and_a_missing_table_is_named(wire: Wire) -> None:
    await wire.run("CREATE VIEW ds.seen AS SELECT id FROM ds.labels")
    await wire.sides().ready(Shaping(side_inputs=(SideInput("s", "s.id = t.id", table=wire.table("seen")),)))
    assert str(wire.reads[-1]).startswith("SELECT * FROM `")
    with pytest.raises(NotFound, match="side input s: there is no table"):
        await wire.sides().ready(Shaping(side_inputs=(SideInput("s", "s.id = t.id", table=wire.table("no")),)))


async def test_too_many_rows_are_refused_before_they_fill_the_memory(wire: Wire) -> None:
    await wire.run("CREATE TABLE ds.large AS SELECT x, REPEAT('x', 1000) AS y FROM UNNEST(GENERATE_ARRAY(1, 2000)) x")
    table = Shaping(side_inputs=(SideInput("s", "s.x = t.id", table=wire.table("large")),))
    with pytest.raises(BadInput, match=r"side input s: .*large has .* bytes; a side input may have 1048576 at most"):
        await wire.sides().ready(table)
    query = SideInput("s", "s.x = t.id", select=f"SELECT * FROM {wire.dataset}.large")
    with pytest.raises(BadInput, match="side input s: a query has more than 1048576 bytes"):
        await wire.sides().ready(Shaping(side_inputs=(query,)))


@pytest.mark.parametrize("ending", ["csv", "json.gz", "parquet"])
async def test_files_are_side_inputs_as_well(
    session: "SparkSession", wire: Wire, cloud: LocalCloud, ending: str
) -> None:
    bucket = wire.dataset.replace("_", "-")
    cloud.storage.buckets.insert({"name": bucket})
    labels = [{"id": 1, "label": "one", "since": "2024-01-01"}, {"id": 2, "label": "two", "since": "2024-02-01"}]
    for place, row in enumerate(labels):
        await wire.clients.store.create(ObjectRef(bucket, f"side/{place}.{ending}"), _content(ending, [row]))
    side = SideInput("s", "s.id = t.id", select=f"gs://{bucket}/side/*.{ending}")
    shaping = Shaping(side_inputs=(side,), transform={"name": "s.label", "month": "EXTRACT(MONTH FROM DATE(s.since))"})
    sides = wire.sides()
    made = await joined(session, sides, shaping)
    assert sorted(map(tuple, made.frame.collect())) == [(1, "one", 1), (2, "two", 2), (3, None, None)]
    again = [{"id": 3, "label": "drei", "since": "2024-03-01"}]
    await wire.clients.store.create(ObjectRef(bucket, f"side/2.{ending}"), _content(ending, again))
    made = await joined(session, sides, shaping)
    assert ("drei", 3) in [(row[1], row[2]) for row in made.frame.collect()]


async def test_files_that_cannot_be_joined_are_told_by_name(wire: Wire, cloud: LocalCloud) -> None:
    bucket = wire.dataset.replace("_", "-")
    cloud.storage.buckets.insert({"name": bucket})
    await wire.clients.store.create(ObjectRef(bucket, "bad.json"), b'{"id": 1}\n{"id": \n')
    for name, why in (
        ("bad.json", "bad.json, line 2"),
        ("x.txt", "there is no file"),
        ("bad.*.*", "one [*] is possible"),
    ):
        side = SideInput("s", "s.id = t.id", select=f"gs://{bucket}/{name}")
        with pytest.raises((BadInput, NotFound), match=f"side input s: .*{why}"):
            await wire.sides().ready(Shaping(side_inputs=(side,)))


def _content(ending: str, rows: list[dict[str, Any]]) -> bytes:
    if ending == "csv":
        values = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        return "\n".join(values).encode()
    if ending == "parquet":
        return parquet(pa.Table.from_pylist(rows))
    return gzip.compress(lines(rows))


@pytest.mark.parametrize("kept", [["one", None], [None, None], []])
async def test_a_side_input_has_all_columns_of_its_files_also_those_without_a_value(
    batches: Batches, kept: list[str | None]
) -> None:
    side = pa.schema([("id", pa.int64()), ("label", pa.string())])
    for place, label in enumerate(kept or [None]):
        rows = [{"id": place, "label": label}] if kept else []
        await batches.put(f"side/{place}.parquet", parquet(pa.Table.from_pylist(rows, side)))
    files = await look(batches.store, "gs://bucket/side/*.parquet", 1 << 20)
    found = await read_files(batches.store, files, 1 << 20)
    assert [(one.name, one.type) for one in found.schema] == [("id", Type.INT64), ("label", Type.STRING)]
    assert found.table.column("label").to_pylist() == kept
