"""The same work on a standalone cluster: right rows, also when a worker dies in the middle of it."""

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.spark.scenarios.faults import ROWS, Store, batch, running
from tests.support.spark.processes import CLUSTER_CONF, standalone_cluster
from tests.support.waiting import patiently

from ingestd.settings import Spark as SparkSettings
from ingestd.spark.session.session import Spark
from ingestd.spark.start import preparer_for, spark_for


def settings(url: str, folder: Path) -> SparkSettings:
    return SparkSettings(
        master=url,
        files="local",
        scratch=folder / "scratch",
        warm_up=False,
        conf=CLUSTER_CONF,
    )


def slow_write(target: Path) -> Callable[[SparkSession], tuple[int, int]]:
    def work(session: SparkSession) -> tuple[int, int]:
        pause = F.expr("java_method('java.lang.Thread', 'sleep', 400L)")
        rows = session.range(0, 12, 1, 12).select("id", pause.alias("slept")).groupBy("id").agg(F.max("slept"))
        rows.write.mode("overwrite").parquet(str(target))
        read = session.read.parquet(str(target))
        return read.count(), read.select("id").distinct().count()

    return work


def done_so_far(spark: Spark) -> list[object]:
    told = spark.status()
    return [told[name] for name in ("state", "problem", "stages", "tasks", "tasks_done")]


async def executors(spark: Spark) -> int:
    def count(session: SparkSession) -> int:
        return len(session.sparkContext.statusTracker().getExecutorInfos()) - 1  # the driver is listed, too

    return await spark.run(count, tag="count")


async def main(folder: Path, url: str, workers: int, victim: int) -> None:
    """On the cluster at `url`, which has so many workers; the process group of one of them is killed."""
    chosen = settings(url, folder)
    async with running(spark_for(chosen)) as spark:
        began = time.monotonic()
        assert await spark.run(lambda session: session.range(100).count(), tag="first") == 100
        while await executors(spark) < workers:
            await asyncio.sleep(0.2)
        print(f"all executors after {time.monotonic() - began:.1f} s")
        work = asyncio.create_task(spark.run(slow_write(folder / "rows"), tag="slow"))
        await asyncio.sleep(1.5)
        assert not work.done()
        os.killpg(victim, signal.SIGKILL)
        began = time.monotonic()
        assert await patiently(work, lambda: done_so_far(spark)) == (12, 12)
        print(f"a worker killed: right rows {time.monotonic() - began:.1f} s later")
        assert spark.missing() == ""
        await prepared_there(spark, chosen, folder)


async def prepared_there(spark: Spark, chosen: SparkSettings, folder: Path) -> None:
    """A batch prepared by the cluster's own Python workers, on a disk that all of them see."""
    store = Store(folder)
    request = await batch(store)
    preparer, _ = preparer_for(chosen, spark, store)
    began = time.monotonic()
    prepared = await preparer.prepare(request)
    assert (prepared.rows_read, sum(output.rows for output in prepared.outputs)) == (3 * ROWS, ROWS)
    print(f"a batch prepared on what is left: {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        if len(sys.argv) > 1:
            asyncio.run(main(Path(name), sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
        else:
            with standalone_cluster(Path(name)) as cluster:
                asyncio.run(main(Path(name), cluster.url, len(cluster.workers), cluster.workers[0].pid))
