"""The daemon stops while Spark is being started: while the JVM boots, and while the session is made in it. Both by
`close` and by cancelling, the supervisor ends at once, says nothing of a failure, and leaves no process."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from tests.spark.scenarios.faults import gone, lost, settings
from tests.support.spark.processes import children
from tests.support.waiting import patiently

from ingestd.spark import start
from ingestd.spark.session import classic, gateway
from ingestd.spark.session.gateway import Jvm
from ingestd.spark.session.session import Spark
from ingestd.spark.start import spark_for


async def stopped(folder: Path, begun: "asyncio.Event", stop: Callable[[Spark, "asyncio.Task[None]"], Any]) -> None:
    """The supervisor is stopped at that moment, and ends."""
    spark = spark_for(settings(folder, warm_up=True))
    spark.want()
    task = asyncio.create_task(spark.supervise())
    await patiently(begun.wait(), spark.missing)
    assert spark.missing() == "spark: starting"
    stop(spark, task)
    await patiently(asyncio.wait({task}), spark.missing)
    assert spark.missing() == "spark: closed", spark.missing()


async def main(folder: Path) -> None:
    loop = asyncio.get_running_loop()
    started: list[Jvm] = []
    booting, connected = asyncio.Event(), asyncio.Event()
    further: list[str] = []  # what came after the moment at which it was stopped
    listen, launch = Jvm.listen, gateway.launch

    def listening(jvm: Jvm) -> None:
        listen(jvm)
        started.append(jvm)
        loop.call_soon_threadsafe(booting.set)

    def launched(*arguments: Any) -> Any:
        found = launch(*arguments)
        further.append("connected")
        loop.call_soon_threadsafe(connected.set)
        return found

    def warmed(*_: Any) -> None:
        further.append("warm")

    Jvm.listen = listening  # type: ignore[method-assign]
    classic.launch = launched  # type: ignore[attr-defined]
    start.warm_up = warmed
    for moment, stop, reached in (
        (booting, lambda spark, _: spark.close(), []),
        (booting, lambda _, task: task.cancel(), []),
        (connected, lambda spark, _: spark.close(), ["connected"]),
    ):
        booting.clear()
        connected.clear()
        further.clear()
        await stopped(folder, moment, stop)
        assert further == reached, "it went on coming up"
        assert gone(started[-1].pid), "its JVM was left behind"
        assert SparkContext._active_spark_context is None and SparkContext._gateway is None
    assert len(started) == 3, "a session that was called off is not tried again"
    assert children(os.getpid(), "") == [], "something it started was left behind"
    assert lost("not started") == 0, "nobody is to be alarmed"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(Path(sys.argv[1] if len(sys.argv) > 1 else name)))
