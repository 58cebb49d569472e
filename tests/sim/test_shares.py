"""A table whose loads are slow keeps its own files waiting, never those of another table."""

import pytest
from tests.support.sim.stories import Simulate
from tests.support.sim.world import World

SLOW = 3000.0


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("windowed", [False, True])
def test_a_slow_table_does_not_keep_another_one_waiting(simulate: Simulate, asynchronous: bool, windowed: bool) -> None:
    async def story(world: World) -> None:
        for table in ("slow", "fast"):
            world.create_table(table)
            rule = {"When": {"Prefix": f"/{table}/"}, "Dest": {"Table": f"bqtail.{table}"}, "Async": asynchronous}
            window = {"Batch": {"Window": {"DurationInSec": 10}}} if windowed else {}
            world.rule(f"{table}.json", rule | window)
        with world.daemon(jobs={"max_running": 4}, max_concurrent_load=4) as daemon:
            for number in range(12):
                # Files of one folder share a window: here, each has its own.
                world.upload(f"slow/{number}/a.json", {"id": number, "name": "x"})
            await world.until(lambda: len(submitted(world, "slow")) >= 3)
            began = world.loop.time()
            world.upload("fast/a.json", {"id": 1, "name": "x"})
            await world.until(lambda: bool(submitted(world, "fast")))
            assert world.loop.time() - began < 120
            assert len(submitted(world, "slow")) < 12, "the slots were no limit: this shows nothing"
            await world.settled(12 * SLOW)
            await daemon.stopped()
        assert (len(world.rows("slow")), len(world.rows("fast"))) == (12, 1)

    simulate(story, job_latency=SLOW, plain=True)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_files_that_wait_for_a_slow_table_leave_room_for_other_messages(simulate: Simulate, asynchronous: bool) -> None:
    """Far more of them than messages may be in flight: each would keep its message until its turn came."""

    async def story(world: World) -> None:
        for table in ("slow", "fast"):
            world.create_table(table)
            rule = {"When": {"Prefix": f"/{table}/"}, "Dest": {"Table": f"bqtail.{table}"}, "Async": asynchronous}
            world.rule(f"{table}.json", rule)
        limits = {"jobs": {"max_running": 4}, "max_concurrent_load": 4, "intake": {"max_messages": 8}}
        with world.daemon(**limits) as daemon:
            for number in range(12):
                world.upload(f"slow/{number}/a.json", {"id": number, "name": "x"})
            await world.until(lambda: len(submitted(world, "slow")) >= 3)
            began = world.loop.time()
            world.upload("fast/a.json", {"id": 1, "name": "x"})
            await world.until(lambda: bool(submitted(world, "fast")))
            assert world.loop.time() - began < 120
            assert len(submitted(world, "slow")) < 8, "the slots were no limit: this shows nothing"
            await world.settled(12 * SLOW)
            await daemon.stopped()
        assert (len(world.rows("slow")), len(world.rows("fast"))) == (12, 1)

    simulate(story, job_latency=SLOW, plain=True)


def submitted(world: World, table: str) -> list[str]:
    assert world.plain is not None
    return [name for name in world.plain.known if f"_{table}--" in name]
