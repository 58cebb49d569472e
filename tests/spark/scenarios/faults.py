"""The JVM is killed, stopped and starved under a batch's preparation. Each time the attempt fails as `Transient`, a new
session comes up by itself, and the next attempt prepares the batch in a folder of its own; nothing of the dead attempt
counts. Only an attempt that has written everything before its JVM dies ends well."""

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.spark.batches import NDJSON
from tests.support.bindings import CoreStore
from tests.support.files import lines

from ingestd.localcloud.storage.core import StorageCore
from ingestd.model.clock import SystemClock
from ingestd.model.errors import Transient
from ingestd.model.objects import FileVersion, Generation, ObjectRef
from ingestd.model.preparation import PrepareRequest, Shaping
from ingestd.model.schema import Field, Type
from ingestd.settings import Spark as SparkSettings
from ingestd.spark.preparer import SparkPreparer
from ingestd.spark.session.classic import ClassicEngine
from ingestd.spark.session.failures import SessionLost
from ingestd.spark.session.progress import LOST
from ingestd.spark.session.session import Spark
from ingestd.spark.start import preparer_for, spark_for

COLUMNS = (Field("id", Type.INT64), Field("name", Type.STRING))
ROWS = 300


def settings(folder: Path, **changes: Any) -> SparkSettings:
    given: dict[str, Any] = {
        "master": "local[2]",
        "heap": 512 * 1024**2,
        "scratch": folder / "scratch",
        "warm_up": False,
        "conf": {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"},  # short lives: compile little
        "heartbeat": timedelta(seconds=0.5),
        "heartbeat_timeout": timedelta(seconds=6),
        "restart_first": timedelta(seconds=0.1),
    }
    return SparkSettings(**(given | changes))


@asynccontextmanager
async def running(spark: Spark) -> AsyncIterator[Spark]:
    async with asyncio.TaskGroup() as roots:
        roots.create_task(spark.supervise())
        try:
            yield spark
        finally:
            spark.close()


class Store(CoreStore):
    """A bucket of the local cloud; `before_upload` is called when Spark is done and the prepared files leave."""

    def __init__(self, folder: Path) -> None:
        core = StorageCore(folder / "storage", project="p", clock=SystemClock())
        core.buckets.insert({"name": "bucket"})
        super().__init__(core, SystemClock())
        self.before_upload: Callable[[], None] = lambda: None

    async def upload(self, ref: ObjectRef, path: Path, **more: Any) -> Generation:
        self.before_upload()
        return await super().upload(ref, path, **more)

    async def names(self, prefix: str) -> list[str]:
        return [info.ref.name async for info in self.list(ObjectRef("bucket", prefix))]


async def batch(store: Store, files: int = 3) -> PrepareRequest:
    """Some files, each of the same keys: one row per key is to be left."""
    made = []
    for number in range(files):
        ref = ObjectRef("bucket", f"in/{number}.json")
        data = lines([{"id": key, "name": f"from file {number}"} for key in range(ROWS)])
        made.append(FileVersion(ref, await store.create(ref, data), len(data)))
    folder = ObjectRef("bucket", "staging/batch/1")
    shaping = Shaping(transform={"name": "UPPER(t.name)"}, unique_columns=("id",))
    return PrepareRequest("batch", 1, folder, tuple(made), NDJSON, COLUMNS, shaping=shaping)


def attempt(request: PrepareRequest, number: int) -> PrepareRequest:
    return replace(request, attempt=number, folder=ObjectRef("bucket", f"staging/batch/{number}"))


def jvm(spark: Spark) -> int:
    engine = spark._supervisor.living.engine  # type: ignore[union-attr]
    assert isinstance(engine, ClassicEngine)
    return engine.pid


def lost(reason: str) -> float:
    return LOST.labels(reason)._value.get()


async def hit(spark: Spark, work: "asyncio.Task[Any]", number: signal.Signals, reason: str) -> float:
    """Send the signal to the JVM while it works, which is lost for that reason; how long the caller waited for it."""
    pid = jvm(spark)
    while not spark.status()["calls"]:
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.3)
    assert not work.done()
    before = lost(reason)
    os.kill(pid, number)
    began = time.monotonic()
    try:
        await work
    except SessionLost as error:
        assert isinstance(error, Transient)
    else:
        raise AssertionError("it ended although its JVM is gone")
    assert gone(pid), "the old JVM is still there"
    assert lost(reason) == before + 1, f"it was not lost because it {reason}"
    return time.monotonic() - began


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def while_it_writes(folder: Path) -> None:
    chosen = settings(folder)
    store = Store(folder)
    request = await batch(store)
    async with running(spark_for(chosen)) as spark:
        preparer, _ = preparer_for(chosen, spark, store)
        assert spark.missing() == ""
        began = time.monotonic()
        assert await spark.run(lambda session: session.range(5).count(), tag="first") == 5
        print(f"up after {time.monotonic() - began:.1f} s")

        work = asyncio.create_task(preparer.prepare(attempt(request, 1)))
        waited = await hit(spark, work, signal.SIGKILL, "died")  # seen to be dead, not found to be silent
        print(f"killed while writing: noticed after {waited:.1f} s")

        work = asyncio.create_task(preparer.prepare(attempt(request, 2)))
        while not spark.ready:
            await asyncio.sleep(0.05)
        waited = await hit(spark, work, signal.SIGSTOP, "hung")
        assert spark.missing().startswith("spark: "), spark.missing()
        print(f"stopped while writing: noticed after {waited:.1f} s")
        assert [name for name in await store.names("staging/") if "manifest" in name] == []

        await succeeds(preparer, store, attempt(request, 3))
        print("the third attempt, on the third session, is good")
        assert list((folder / "scratch").glob("batch-*")) == []
        assert len(list((folder / "scratch").glob("spill-*"))) == 1, "killed sessions left their spill"
    assert list((folder / "scratch").glob("*-*")) == []


async def succeeds(preparer: SparkPreparer, store: Store, request: PrepareRequest) -> None:
    """Every key once, and only this attempt counts."""
    prepared = await preparer.prepare(request)
    assert sum(output.rows for output in prepared.outputs) == ROWS
    assert prepared.rows_read == 3 * ROWS
    manifests = [name for name in await store.names("staging/") if "manifest" in name]
    assert manifests == [f"staging/batch/{request.attempt}/manifest.json"]


async def after_it_has_written(folder: Path) -> None:
    chosen = settings(folder)
    store = Store(folder)
    request = await batch(store)
    async with running(spark_for(chosen)) as spark:
        preparer, _ = preparer_for(chosen, spark, store)
        killed: list[int] = []

        def kill() -> None:
            if spark.ready:
                killed.append(jvm(spark))
                os.kill(killed[-1], signal.SIGKILL)

        store.before_upload = kill
        await succeeds(preparer, store, request)
        assert killed, "it was to die under the upload"
        store.before_upload = lambda: None
        print("killed after the write: the attempt is good")

        # More than the heap can hold, at once and in one task: the JVM ends by itself and says so.
        hungry = f"size(sequence(id, id + {chosen.heap // 4}))"  # of eight bytes each
        for _ in range(2):  # once it may meet the JVM that has just been killed
            try:
                await spark.run(lambda session: session.range(1).selectExpr(f"sum({hungry})").collect(), tag="hungry")
            except Transient as error:
                told = str(error)
            else:
                raise AssertionError("that cannot fit")
            if "memory" in told:
                break
        assert "out of memory" in told, told
        print(f"starved: {told}")
        assert list((folder / "scratch").glob("batch-*")) == []
        last = jvm(spark) if spark.ready else 0
    assert not last or gone(last), "a closed daemon left its JVM behind"
    assert list((folder / "scratch").glob("*-*")) == []


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run({"early": while_it_writes, "late": after_it_has_written}[sys.argv[1]](Path(name)))
