"""A table whose loads are slow keeps its own files waiting, never those of another table."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.support.sim.stories import Simulate
from tests.support.sim.world import World

SLOW = 600.0  # many times what the other table may wait, and every virtual second is polled through

Story = Callable[[World], Coroutine[Any, Any, None]]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("windowed", [False, True])
def test_a_slow_table_does_not_keep_another_one_waiting(simulate: Simulate, asynchronous: bool, windowed: bool) -> None:
    window = {"Batch": {"Window": {"DurationInSec": 10}}} if windowed else {}
    simulate(_slow_beside_fast({"Async": asynchronous} | window, at_most=11), job_latency=SLOW, plain=True)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_files_that_wait_for_a_slow_table_leave_room_for_other_messages(simulate: Simulate, asynchronous: bool) -> None:
    """Far more of them than messages may be in flight: each would keep its message until its turn came."""
    story = _slow_beside_fast({"Async": asynchronous}, at_most=7, intake={"max_messages": 8})
    simulate(story, job_latency=SLOW, plain=True)


def _slow_beside_fast(
    rule: dict[str, Any], at_most: int, **limits: Any
) -> Callable[[World], Coroutine[Any, Any, None]]:
    """Twelve files of a slow table, then one of a fast one; `at_most`: of the slow ones, when that one's turn came."""

    async def story(world: World) -> None:
        for table in ("slow", "fast"):
            world.create_table(table)
            where = {"When": {"Prefix": f"/{table}/"}, "Dest": {"Table": f"bqtail.{table}"}}
            world.rule(f"{table}.json", where | rule)
        with world.daemon(jobs={"max_running": 4}, max_concurrent_load=4, **limits) as daemon:
            for number in range(12):
                # Files of one folder share a window: here, each has its own.
                world.upload(f"slow/{number}/a.json", {"id": number, "name": "x"})
            await world.until(lambda: len(submitted(world, "slow")) >= 3)
            began = world.loop.time()
            world.upload("fast/a.json", {"id": 1, "name": "x"})
            await world.until(lambda: bool(submitted(world, "fast")))
            assert world.loop.time() - began < 120
            assert len(submitted(world, "slow")) <= at_most, "the slots were no limit: this shows nothing"
            await world.settled(12 * SLOW)
            await daemon.stopped()
        assert (len(world.rows("slow")), len(world.rows("fast"))) == (12, 1)

    return story


def submitted(world: World, table: str) -> list[str]:
    assert world.plain is not None
    return [name for name in world.plain.known if f"_{table}--" in name]
