"""The same seam over Spark Connect: work, errors, views apart, cancelling, and a server that dies."""

import asyncio
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession
from tests.spark.processes import connect_server, kill_group
from tests.spark.scenarios.faults import running

from ingestd.model.errors import BadInput, Transient
from ingestd.prepare.failures import SessionLost
from ingestd.prepare.session import Spark
from ingestd.prepare.start import spark_for
from ingestd.settings import Spark as SparkSettings


def slow(session: SparkSession) -> int:
    from pyspark.sql import functions as F  # noqa: N812 - after the engine chose how expressions are built

    pause = F.expr("java_method('java.lang.Thread', 'sleep', 30000L)")
    session.range(0, 2, 1, 2).select(pause.alias("slept")).write.format("noop").mode("overwrite").save()
    return 2


async def begun(spark: Spark) -> asyncio.Task[int]:
    work = asyncio.create_task(spark.run(slow, tag="slow"))
    await asyncio.sleep(2)
    assert not work.done()
    return work


async def main(folder: Path) -> None:
    settings = {
        "warm_up": False,
        "scratch": folder,
        "heartbeat": timedelta(seconds=0.5),
        "heartbeat_timeout": timedelta(seconds=5),
    }
    with connect_server(folder) as (url, server):
        async with running(spark_for(SparkSettings(master=url, **settings))) as spark:
            assert await spark.run(lambda session: session.range(100).count(), tag="first") == 100

            await spark.run(lambda session: session.range(3).createOrReplaceTempView("batch"), tag="a")
            for statement in ("SELECT * FROM batch", "SELECT sum(1 / (id - 1)) FROM range(3)"):
                try:
                    await spark.run(lambda session, text=statement: session.sql(text).collect(), tag="wrong")
                except BadInput as error:
                    assert "batch" in str(error) or "zero" in str(error), error
                else:
                    raise AssertionError(statement)

            work = await begun(spark)
            while not spark.status()["tasks"]:
                await asyncio.sleep(0.1)  # the server tells every two seconds
            assert spark.status()["tasks"] == 2, spark.status()
            began = time.monotonic()
            work.cancel()
            await asyncio.wait({work})
            assert work.cancelled()
            print(f"cancelled after {time.monotonic() - began:.1f} s")
            assert time.monotonic() - began < 5

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
