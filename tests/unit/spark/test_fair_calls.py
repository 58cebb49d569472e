"""A table whose batches take long on Spark keeps its own waiting, never those of another table."""

import asyncio
import threading

from tests.unit.spark.engines import Fake

from ingestd.spark.session.session import Spark


async def test_one_table_never_has_all_of_spark() -> None:
    spark = Spark.over(Fake(), max_jobs=4)  # type: ignore[arg-type]
    release = threading.Event()
    begun: list[int] = []

    def slow(number: int) -> None:
        begun.append(number)
        release.wait(60)

    waiting = [
        asyncio.create_task(spark.run(lambda _, number=number: slow(number), tag=f"s{number}", table="d.slow$20240101"))
        for number in range(9)
    ]
    try:
        while len(begun) < 3:
            await asyncio.sleep(0.01)
        assert await spark.run(lambda _: "done", tag="f", table="d.fast") == "done"
        assert len(begun) == 3
    finally:
        release.set()
        await asyncio.gather(*waiting)
    assert len(begun) == 9
