"""Running work on the session: from the event loop, in turn, cancellable, with errors of four kinds."""

import asyncio
import errno
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.spark.batches import Batches
from tests.support.files import lines

from ingestd.model.errors import BadInput, Fatal, Throttled, Transient
from ingestd.model.preparation import Shaping
from ingestd.model.schema import Field, Type
from ingestd.settings import Spark as SparkSettings
from ingestd.spark.session.engine import Engine
from ingestd.spark.session.progress import CALLS
from ingestd.spark.session.session import Spark


def slow_rows(session: SparkSession, seconds: float) -> int:
    """A job of two tasks that takes about that long and burns nothing."""
    wait = F.expr(f"java_method('java.lang.Thread', 'sleep', {int(seconds * 1000)}L)")
    return session.range(0, 2, 1, 2).select(wait.alias("slept")).write.format("noop").mode("overwrite").save() or 2


async def test_work_runs_off_the_loop_with_its_pool_and_tag(spark: Spark) -> None:
    loop_thread = threading.get_ident()

    def look(session: SparkSession) -> tuple[int, str | None, set[str], int]:
        context = session.sparkContext
        return (
            threading.get_ident(),
            context.getLocalProperty("spark.scheduler.pool"),
            set(map(str, context.getJobTags())),
            session.range(10).count(),
        )

    thread, pool, tags, rows = await spark.run(look, tag="batch 7", pool="rule, one")
    assert thread != loop_thread
    assert pool == "rule_one"
    assert len(tags) == 1
    assert tags.pop().startswith("batch_7-")
    assert rows == 10


async def test_views_of_one_call_are_unknown_to_another(spark: Spark) -> None:
    await spark.run(lambda session: session.range(3).createOrReplaceTempView("batch"), tag="a")
    with pytest.raises(BadInput, match="batch"):
        await spark.run(lambda session: session.table("batch").count(), tag="b")


async def test_at_most_so_many_at_once_and_the_others_wait(engine: Engine) -> None:
    spark = Spark.over(engine, max_jobs=2)
    running, most = 0, 0
    lock = threading.Lock()

    def work(_session: SparkSession) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.05)
        with lock:
            running -= 1

    await asyncio.gather(*(spark.run(work, tag=f"t{n}") for n in range(6)))
    assert most == 2


async def test_cancelling_stops_the_jobs_also_those_that_start_later(spark: Spark, engine: Engine) -> None:
    started = threading.Event()
    ended: list[str] = []

    def two_jobs(session: SparkSession) -> None:
        started.set()
        for job in ("first", "second"):
            try:
                slow_rows(session, 30)
                ended.append(f"{job} done")
            except Exception:  # noqa: BLE001 - of whatever kind
                ended.append(f"{job} stopped")

    task = asyncio.create_task(spark.run(two_jobs, tag="cancel-me"))
    bystander = asyncio.create_task(spark.run(lambda session: session.range(100).count(), tag="cancel-me"))
    await asyncio.to_thread(started.wait)
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["first stopped", "second stopped"]
    assert await bystander == 100
    assert engine.work().jobs == 0


async def test_what_takes_too_long_is_cancelled_and_may_be_tried_again(engine: Engine) -> None:
    hasty = Spark.over(engine, call_timeout=timedelta(seconds=1))
    before = CALLS.labels("timed out")._value.get()
    with pytest.raises(Transient, match=r"not done with prepare/7 after 0:00:01 \(spark.call_timeout\)"):
        await hasty.run(lambda session: slow_rows(session, 60), tag="prepare/7")
    assert engine.work().jobs == 0
    assert CALLS.labels("timed out")._value.get() == before + 1
    patient = Spark.over(engine, call_timeout=timedelta(minutes=10))
    assert await patient.run(lambda session: session.range(3).count(), tag="next") == 3


async def test_a_cancelled_batch_leaves_no_job_no_scratch_and_no_manifest(
    spark: Spark, engine: Engine, tmp_path: Path
) -> None:
    batches = Batches(spark, tmp_path)
    columns = (Field("id", Type.INT64),)
    files = await batches.put_all({f"in/{n}.json": lines([{"id": k} for k in range(5000)]) for n in range(8)})
    request = batches.request(files, columns, shaping=Shaping(unique_columns=("id",)))
    work = asyncio.create_task(batches.preparer.prepare(request))
    while not spark.status()["calls"]:
        await asyncio.sleep(0.002)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert engine.work().jobs == 0
    assert await batches.names("staging/") == []
    assert [path for path in tmp_path.joinpath("scratch").iterdir() if any(path.iterdir())] == []
    prepared = await batches.preparer.prepare(request)
    assert prepared.outputs[0].rows == 5000


async def test_progress_is_told_while_work_runs(spark: Spark, engine: Engine) -> None:
    task = asyncio.create_task(spark.run(lambda session: slow_rows(session, 1), tag="look"))
    work = engine.work()
    while not work.tasks and not task.done():
        await asyncio.sleep(0.02)
        work = engine.work()
    assert (work.jobs, work.stages, work.tasks) == (1, 1, 2)
    (call,) = spark.status()["calls"]
    assert call["tag"].startswith("look-")
    await task
    assert spark.status()["calls"] == []


@pytest.mark.parametrize(
    ("statement", "kind", "words"),
    [
        ("SELECT nothing FROM range(3)", BadInput, "nothing"),
        ("SELEC 1", BadInput, "SELEC"),
        ("SELECT sum(CAST(concat('x', id) AS INT)) FROM range(3)", BadInput, "x"),
        ("SELECT sum(1 / (id - 1)) FROM range(3)", BadInput, "zero"),
        # Text that stands for trouble elsewhere, and here is only what the data say.
        ("SELECT sum(CAST(concat('No space left on device ', id) AS INT)) FROM range(3)", BadInput, "device"),
        ("SELECT sum(CAST(concat('UNAVAILABLE ', id) AS INT)) FROM range(3)", BadInput, "UNAVAILABLE"),
    ],
)
async def test_failures_of_statements_have_their_kind(
    spark: Spark, statement: str, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        await spark.run(lambda session: session.sql(statement).collect(), tag="wrong")
    assert "\tat " not in str(caught.value)


@pytest.mark.parametrize(
    ("trouble", "kind", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), Throttled, "room"),
        (ModuleNotFoundError("No module named 'ingestd'"), Fatal, "Python workers need this version of ingestd"),
        (ValueError("odd"), Transient, "ValueError: odd"),
    ],
    ids=["disk full", "not installed", "other"],
)
async def test_failures_of_python_workers_have_their_kind(
    spark: Spark, trouble: Exception, kind: type[Exception], words: str
) -> None:
    def work(session: SparkSession) -> None:
        def read(batches: Iterator[Any]) -> Iterator[Any]:
            def deep(level: int) -> None:
                if not level:
                    raise trouble
                deep(level - 1)

            deep(40)
            yield from batches

        session.range(1).mapInArrow(read, "id BIGINT").collect()

    with pytest.raises(kind, match=words) as caught:
        await spark.run(work, tag="wrong")
    assert "Traceback" not in str(caught.value)
    assert "deep" not in str(caught.value)


async def test_a_bug_in_the_work_is_fatal_and_a_known_kind_stays_itself(spark: Spark) -> None:
    def bug(_session: SparkSession) -> None:
        raise KeyError("column")

    def known(_session: SparkSession) -> None:
        raise Transient("try again")

    with pytest.raises(Fatal, match="KeyError"):
        await spark.run(bug, tag="bug")
    with pytest.raises(Transient, match="try again"):
        await spark.run(known, tag="known")


async def test_a_session_whose_files_were_cleared_away_is_no_longer_well(
    engine: Engine, spark_settings: SparkSettings, tmp_path: Path
) -> None:
    """It would answer for months, and fail every batch that shuffles."""
    engine.beat()
    assert spark_settings.scratch is not None
    (blocks,) = spark_settings.scratch.glob("spill-*/blockmgr-*")
    blocks.rename(tmp_path / "away")
    try:
        with pytest.raises(ConnectionError, match=rf"its files were cleared away: {blocks}.* is gone"):
            engine.beat()
    finally:
        (tmp_path / "away").rename(blocks)
    engine.beat()
