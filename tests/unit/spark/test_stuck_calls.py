"""A call that nothing stops costs the session. The engine is a stand-in, since a real one stops nearly everything."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.spark.engines import Fake

from ingestd.model.errors import Transient
from ingestd.spark.session import session
from ingestd.spark.session.session import Spark
from ingestd.spark.session.supervisor import Supervisor


class Deaf(Fake):
    """An engine that answers, and ends no work before its process ends."""

    application = "deaf"

    def __init__(self) -> None:
        super().__init__()
        self.asked_to_cancel = 0

    def cancel(self, tag: str) -> None:
        self.asked_to_cancel += 1


@pytest.fixture
def engines() -> list[Deaf]:
    return []


@pytest.fixture
def spark(engines: list[Deaf], monkeypatch: pytest.MonkeyPatch) -> Spark:
    monkeypatch.setattr(session, "_CANCEL_PATIENCE", 0.3)
    monkeypatch.setattr(session, "_SETTLE_PATIENCE", 0.1)

    def another(_: object) -> Deaf:
        engines.append(Deaf())
        return engines[-1]

    short, long = timedelta(milliseconds=10), timedelta(minutes=1)
    supervisor = Supervisor(
        another,
        start_timeout=long,
        heartbeat=long,
        heartbeat_timeout=long,
        restart_first=short,
        restart_longest=short,
    )
    return Spark(supervisor, max_jobs=1, start_timeout=long, call_timeout=timedelta(milliseconds=200))


async def test_the_session_is_replaced_and_the_next_call_works(spark: Spark, engines: list[Deaf]) -> None:
    def endless(engine: Any) -> bool:
        return bool(engine.ended.wait(60))

    async with asyncio.TaskGroup() as roots:
        roots.create_task(spark.supervise())
        try:
            with pytest.raises(Transient, match="call_timeout"):
                await spark.run(endless, tag="endless")
            assert engines[0].asked_to_cancel > 0
            assert not engines[0].alive, "what it still does would meet the next attempt"
            assert await spark.run(lambda engine: engine is engines[1], tag="next")
        finally:
            spark.close()


async def test_a_call_that_stops_when_told_costs_nothing(spark: Spark, engines: list[Deaf]) -> None:
    told = threading.Event()
    async with asyncio.TaskGroup() as roots:
        roots.create_task(spark.supervise())
        try:
            engine = await spark.run(lambda engine: engine, tag="first")
            engine.cancel = lambda tag: told.set()
            with pytest.raises(Transient, match="call_timeout"):
                await spark.run(lambda engine: told.wait(60), tag="obedient")
            assert await spark.run(lambda now: now is engine, tag="next")
        finally:
            spark.close()


async def test_a_call_that_is_cancelled_twice_still_returns_only_when_nothing_of_it_runs(
    spark: Spark, engines: list[Deaf]
) -> None:
    spark._call_timeout = timedelta(minutes=1)
    began, told, ended = threading.Event(), threading.Event(), threading.Event()

    def slow_to_stop(engine: Any) -> None:
        began.set()
        told.wait(60)
        engine.ended.wait(0.1)
        ended.set()

    async with asyncio.TaskGroup() as roots:
        roots.create_task(spark.supervise())
        try:
            engine = await spark.run(lambda engine: engine, tag="first")
            engine.cancel = lambda tag: told.set()
            call = asyncio.create_task(spark.run(slow_to_stop, tag="slow"))
            await asyncio.to_thread(began.wait, 10)
            call.cancel()
            await asyncio.to_thread(told.wait, 10)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert ended.is_set()
        finally:
            spark.close()
