"""The daemon stops while Spark is being started: while the JVM boots, and while the session is made in it. Both by
`close` and by cancelling, the supervisor ends at once, says nothing of a failure, and leaves no process."""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from tests.spark.scenarios.faults import gone, lost, settings
from tests.support.spark.processes import children

from ingestd.spark.session import classic, gateway
from ingestd.spark.session.gateway import Jvm
from ingestd.spark.session.session import Spark
from ingestd.spark.start import spark_for

AT_ONCE = 15.0  # seconds, on a busy machine; coming up takes longer there, and it has only just begun


async def stopped(folder: Path, begun: "asyncio.Event", stop: Callable[[Spark, "asyncio.Task[None]"], Any]) -> float:
    """How long the supervisor takes to end after it is stopped at that moment."""
    spark = spark_for(settings(folder, warm_up=True))
    spark.want()
    task = asyncio.create_task(spark.supervise())
    await asyncio.wait_for(begun.wait(), 60)
    assert spark.missing() == "spark: starting"
    began = time.monotonic()
    stop(spark, task)
    await asyncio.wait({task}, timeout=60)
    assert task.done()
    assert spark.missing() == "spark: closed", spark.missing()
    return time.monotonic() - began


async def main(folder: Path) -> None:
    loop = asyncio.get_running_loop()
    started: list[Jvm] = []
    booting, connected = asyncio.Event(), asyncio.Event()
    listen, launch = Jvm.listen, gateway.launch

    def listening(jvm: Jvm) -> None:
        listen(jvm)
        started.append(jvm)
        loop.call_soon_threadsafe(booting.set)

    def launched(*arguments: Any) -> Any:
        found = launch(*arguments)
        loop.call_soon_threadsafe(connected.set)
        return found

    Jvm.listen = listening  # type: ignore[method-assign]
    classic.launch = launched  # type: ignore[attr-defined]
    for moment, stop in (
        (booting, lambda spark, _: spark.close()),
        (booting, lambda _, task: task.cancel()),
        (connected, lambda spark, _: spark.close()),
    ):
        booting.clear()
        connected.clear()
        took = await stopped(folder, moment, stop)
        print(f"stopped after {took:.1f} s")
        assert took < AT_ONCE, took
        assert gone(started[-1].pid), "its JVM was left behind"
        assert SparkContext._active_spark_context is None and SparkContext._gateway is None
    assert len(started) == 3, "a session that was called off is not tried again"
    assert children(os.getpid(), "") == [], "something it started was left behind"
    assert lost("not started") == 0, "nobody is to be alarmed"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(Path(sys.argv[1] if len(sys.argv) > 1 else name)))
