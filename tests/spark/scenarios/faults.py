"""The JVM is killed, stopped and starved under running work: each time the work fails as `Transient`, a new session
comes up by itself, and the same work succeeds on it."""

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ingestd.model.errors import Transient
from ingestd.prepare.classic import ClassicEngine
from ingestd.prepare.failures import SessionLost
from ingestd.prepare.progress import LOST
from ingestd.prepare.session import Spark
from ingestd.prepare.start import spark_for
from ingestd.settings import Spark as SparkSettings


def settings(folder: Path, **changes: Any) -> SparkSettings:
    given: dict[str, Any] = {
        "master": "local[2]",
        "heap": 512 * 1024**2,
        "scratch": folder,
        "warm_up": False,
        "conf": {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"},  # short lives: compile little
        "heartbeat": timedelta(seconds=0.5),
        "heartbeat_timeout": timedelta(seconds=3),
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


def jvm(spark: Spark) -> int:
    engine = spark._supervisor.living.engine  # type: ignore[union-attr]
    assert isinstance(engine, ClassicEngine)
    return engine.pid


def lost(reason: str) -> float:
    return LOST.labels(reason)._value.get()


def write_slowly(target: Path, seconds: float) -> Any:
    """A write whose first task is done long before its last."""

    def work(session: SparkSession) -> int:
        pause = F.expr(f"java_method('java.lang.Thread', 'sleep', CAST(id * {int(seconds * 1000)} AS BIGINT))")
        rows = session.range(0, 2, 1, 2).withColumn("slept", pause)
        rows.write.mode("overwrite").parquet(str(target))
        return session.read.parquet(str(target)).count()

    return work


async def hit(spark: Spark, target: Path, number: signal.Signals, after: float) -> float:
    """Send the signal to the JVM while it writes; how long the caller waited to learn of it."""
    pid = jvm(spark)
    work = asyncio.create_task(spark.run(write_slowly(target, 60), tag="hit"))
    await asyncio.sleep(after)
    assert not work.done()
    os.kill(pid, number)
    began = time.monotonic()
    try:
        await work
    except SessionLost as error:
        assert isinstance(error, Transient)
    else:
        raise AssertionError("the write ended although its JVM is gone")
    waited = time.monotonic() - began
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return waited
    raise AssertionError("the old JVM is still there")


async def main(folder: Path) -> None:
    async with running(spark_for(settings(folder))) as spark:
        assert spark.missing() == ""
        began = time.monotonic()
        assert await spark.run(lambda session: session.range(5).count(), tag="first") == 5
        print(f"up after {time.monotonic() - began:.1f} s")
        first = jvm(spark)

        waited = await hit(spark, folder / "killed", signal.SIGKILL, after=1.5)
        assert waited < 3, waited
        assert lost("died") == 1
        assert spark.missing().startswith("spark: ")
        assert await spark.run(write_slowly(folder / "killed", 0), tag="again") == 2
        assert jvm(spark) != first
        print(f"killed: noticed after {waited:.1f} s, rebuilt")

        waited = await hit(spark, folder / "stopped", signal.SIGSTOP, after=1.0)
        assert waited < 10, waited
        assert lost("hung") == 1
        assert await spark.run(write_slowly(folder / "stopped", 0), tag="again") == 2
        assert spark.missing() == ""
        print(f"stopped: noticed after {waited:.1f} s, rebuilt")

        # More than the heap can hold, in one task: the JVM ends by itself and says so.
        hungry = F.expr("size(transform(sequence(1, 40000000), x -> concat(x, 'abcdefghijklmnopqrstuvwxyz')))")
        try:
            await spark.run(lambda session: session.range(1).select(F.sum(hungry)).collect(), tag="hungry")
        except Transient as error:
            print(f"starved: {type(error).__name__}: {str(error)[:120]}")
        else:
            raise AssertionError("that cannot fit")
        last = jvm(spark) if spark.ready else 0
    if last:
        try:
            os.kill(last, 0)
        except ProcessLookupError:
            return
        raise AssertionError("a closed daemon left its JVM behind")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(Path(sys.argv[1] if len(sys.argv) > 1 else name)))
