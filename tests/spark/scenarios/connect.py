"""The same seam over Spark Connect: statements, batches from disk and from the bucket, one after the other in the same
server-side session and yet apart, cancelling, and a server that dies."""

import asyncio
import gzip
import io
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import farmhash
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from tests.spark.batches import NDJSON, Batches
from tests.spark.scenarios.faults import running
from tests.support.files import lines
from tests.support.loads import schema
from tests.support.ports import free_port
from tests.support.spark.connector import connector
from tests.support.spark.processes import children, connect_server, kill_group

from ingestd.localcloud.cloud import LocalCloud
from ingestd.model.clock import SystemClock
from ingestd.model.errors import BadInput, Transient
from ingestd.model.objects import FileVersion, ObjectRef
from ingestd.model.preparation import Shaping, SideInput
from ingestd.settings import Spark as SparkSettings
from ingestd.spark.session import connect_sessions
from ingestd.spark.session.failures import SessionLost
from ingestd.spark.session.session import Spark
from ingestd.spark.shape.side_inputs import SideInputs
from ingestd.spark.start import preparer_for, spark_for

FILES = 5
SOURCE = schema("id INT64 REQUIRED", "name STRING", "code INT64")
COLUMNS = schema("id INT64 REQUIRED", "name STRING", "code INT64", "hash INT64", "label STRING")
SHAPING = Shaping(
    side_inputs=(SideInput("l", "l.code = t.code", select="gs://bucket/labels/*.json"),),
    transform={"name": "UPPER(t.name)", "hash": "FARM_FINGERPRINT(t.name)", "label": "l.label"},
    unique_columns=("id",),
)
RESTED: list[str] = []  # by `slow`
LABELS = 60_000  # more than goes to the server as part of a plan


def slow(session: SparkSession) -> int:
    from pyspark.sql import functions as F  # noqa: N812 - after the engine chose how expressions are built

    pause = F.expr("java_method('java.lang.Thread', 'sleep', 30000L)")
    session.range(0, 2, 1, 2).select(pause.alias("slept")).write.format("noop").mode("overwrite").save()
    RESTED.append("to the end")
    return 2


async def begun(spark: Spark) -> asyncio.Task[int]:
    work = asyncio.create_task(spark.run(slow, tag="slow"))
    await asyncio.sleep(2)
    assert not work.done()
    return work


async def refused(spark: Spark, statement: str, words: str) -> None:
    try:
        await spark.run(lambda session: session.sql(statement).collect(), tag="wrong")
    except BadInput as error:
        assert words in str(error), error
    else:
        raise AssertionError(statement)


async def unreachable(spark: Spark) -> None:
    """No server yet: that is told, and tried again."""
    spark.want()
    while "refused" not in spark.missing():
        assert not spark.ready
        await asyncio.sleep(0.1)


async def statements(spark: Spark) -> None:
    """Nothing that one call does to its session is there for the next, although it is the same session."""
    assert await spark.run(lambda session: session.range(100).count(), tag="first") == 100
    wanted = ("spark.sql.session.timeZone", "spark.sql.files.openCostInBytes")
    chosen = await spark.run(lambda session: [session.conf.get(name) for name in wanted], tag="settings")
    assert chosen == ["UTC", "65536"], chosen
    await spark.run(lambda session: session.range(3).createOrReplaceTempView("batch"), tag="a")
    await refused(spark, "SELECT * FROM batch", "batch")
    await spark.run(lambda session: session.sql("CREATE DATABASE aside"), tag="b")
    await spark.run(lambda session: session.sql("SET spark.sql.ansi.enabled = false").collect(), tag="c")

    def elsewhere(session: SparkSession) -> None:
        session.sql("USE aside")
        raise BadInput("gave up")

    with suppress(BadInput):
        await spark.run(elsewhere, tag="d")
    await refused(spark, "SELECT sum(1 / (id - 1)) FROM range(3)", "zero")
    assert await spark.run(lambda session: session.catalog.currentDatabase(), tag="e") == "default"


def rows_of(number: int) -> list[dict[str, Any]]:
    """Keys that other files have, too, and some twice."""
    keys = [*range(number * 20, number * 20 + 60), *range(number * 20, number * 20 + 5)]
    return [{"id": key, "name": f"ä{number}/{place}", "code": key * 7} for place, key in enumerate(keys)]


def reference() -> list[tuple[Any, ...]]:
    """The last row of each key, transformed and joined, in plain Python."""
    last = {row["id"]: row for number in range(FILES) for row in rows_of(number)}
    return [
        (key, row["name"].upper(), row["code"], signed(farmhash.fingerprint64(row["name"])), f"label {row['code']}")
        for key, row in sorted(last.items())
    ]


def signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


async def uploaded(batches: Batches) -> list[FileVersion]:
    contents = {f"in/{number}.json": lines(rows_of(number)) for number in range(FILES)}
    contents["in/1.json"] = gzip.compress(contents["in/1.json"])
    # The newest file: each of its rows would win, if a row of a bad file ever got out.
    contents["in/bad.json"] = lines(rows_of(0)) + b'{"id": "none"}\n'
    labels = [{"code": code, "label": f"label {code}"} for code in range(LABELS)]
    await batches.put("labels/all.json", lines(labels))
    return await batches.put_all(contents)


async def prepared_as_the_reference(batches: Batches, files: Sequence[FileVersion]) -> None:
    prepared = await batches.prepare(files, COLUMNS, source_schema=SOURCE, shaping=SHAPING)
    assert [(bad.index, bad.line, bad.column) for bad in prepared.bad] == [(FILES, len(rows_of(0)) + 1, "id")]
    assert await batches.loaded(prepared) == reference()
    assert prepared.rows_per_file == dict.fromkeys(range(FILES), 65)
    assert list(batches.scratch.folder.glob("batch-*")) == []


async def sessions(batches: Batches, spark: Spark, files: Sequence[FileVersion]) -> None:
    """One call after the other is in the same session, two at once are not, and one that holds too much is ended."""
    together = threading.Barrier(2)

    def own(session: Any) -> str:
        together.wait(20)
        return str(session.session_id)

    first, second = await asyncio.gather(*(spark.run(own, tag="at once") for _ in range(2)))
    assert first != second
    known = {await spark.run(lambda session: session.session_id, tag="one") for _ in range(3)}  # type: ignore[attr-defined]
    assert len(known) == 1
    assert known < {first, second}
    usual, connect_sessions.HELD_BYTES = connect_sessions.HELD_BYTES, 1 << 20
    try:
        await prepared_as_the_reference(batches, files)
    finally:
        connect_sessions.HELD_BYTES = usual
    assert await spark.run(lambda session: session.session_id, tag="one") not in known  # type: ignore[attr-defined]


async def cancelled_batch(batches: Batches, spark: Spark) -> None:
    """Cancelled in the middle of it: soon over, nothing left, and the next batch is as good as ever."""
    many = [await batches.put("in/many.json", lines([{"id": key, "name": "x" * 200} for key in range(100_000)]))]
    shaping = Shaping(transform={"code": " + ".join(["MOD(FARM_FINGERPRINT(t.name), 10)"] * 6)})
    request = batches.request(many, SOURCE, NDJSON, shaping=shaping)
    work = asyncio.create_task(batches.preparer.prepare(request))
    while not spark.status()["tasks"]:
        await asyncio.sleep(0.1)
        assert not work.done(), await work
    began = time.monotonic()
    work.cancel()
    await asyncio.wait({work})
    assert work.cancelled()
    print(f"a batch cancelled after {time.monotonic() - began:.1f} s")
    assert await batches.names(request.folder.name) == []


async def summed(batches: Batches, chosen: SparkSettings, spark: Spark, files: Sequence[FileVersion]) -> None:
    """The `spark` post-action's half that runs on Spark."""
    _, runner = preparer_for(chosen, spark, batches.store)
    made = await runner.query("SELECT count(*) AS n, sum(id) AS s FROM batch", batches.request(files[:2], SOURCE))
    ((url,),) = [output.uris for output in made.outputs]
    data, _ = await batches.store.read(ObjectRef.parse(url))
    keys = [row["id"] for number in range(2) for row in rows_of(number)]
    assert pq.read_table(io.BytesIO(data)).to_pylist() == [{"n": len(keys), "s": sum(keys)}]


async def main(folder: Path) -> None:
    common = {
        "warm_up": False,
        "scratch": folder / "scratch",
        "heartbeat": timedelta(seconds=0.5),
        "heartbeat_timeout": timedelta(seconds=10),
        "restart_longest": timedelta(seconds=1),
    }
    async with LocalCloud(folder / "cloud", "test-project") as cloud:
        buckets = connector(cloud.endpoints.environ()["STORAGE_EMULATOR_HOST"])
        port = free_port()
        settings = SparkSettings(master=f"sc://127.0.0.1:{port}", files="local", **common)
        async with running(spark_for(settings)) as spark:
            await unreachable(spark)
            with connect_server(folder, port, buckets) as server:
                await statements(spark)

                batches = Batches(spark, folder / "world", cloud.storage)
                files = await uploaded(batches)
                sides = SideInputs(None, None, SystemClock(), store=batches.store)  # type: ignore[arg-type]
                for how in ("local", "gs", "local"):  # auto would be gs
                    chosen = settings.model_copy(update={"files": how})
                    batches.preparer, _ = preparer_for(chosen, spark, batches.store, sides)
                    began = time.monotonic()
                    await prepared_as_the_reference(batches, files)
                    print(f"a batch prepared, files {how}: {time.monotonic() - began:.1f} s")
                await sessions(batches, spark, files)
                await summed(batches, chosen, spark, files)
                await cancelled_batch(batches, spark)
                await prepared_as_the_reference(batches, files)
                parents = children(server.pid, "pyspark.daemon")
                assert len(parents) == 2, parents  # one per session that ran Python, however many calls it had

                work = await begun(spark)
                while not spark.status()["tasks"]:
                    await asyncio.sleep(0.1)  # the server tells every two seconds
                assert spark.status()["tasks"] == 2, spark.status()
                began = time.monotonic()
                work.cancel()
                await asyncio.wait({work})
                assert work.cancelled()
                print(f"cancelled after {time.monotonic() - began:.1f} s")
                assert RESTED == [], "it was waited for, not stopped"

                work = await begun(spark)
                kill_group(server)
                began = time.monotonic()
                try:
                    await work
                except SessionLost as error:
                    assert isinstance(error, Transient)
                    print(f"server killed: {error} after {time.monotonic() - began:.1f} s")
                else:
                    raise AssertionError("its server is gone")
                assert spark.missing()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(Path(sys.argv[1] if len(sys.argv) > 1 else name)))
