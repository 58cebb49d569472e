"""Files that are overwritten around the load of their window are counted once."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.sim.seeds import FEATURES, run_seeds
from tests.sim.test_individual_loads import modes
from tests.sim.test_windows import prepared, upload
from tests.sim.world import World

Simulate = Callable[..., None]


@pytest.mark.parametrize("after", [9.0, 12.3, 13.0, 14.0, 20.0])
@modes
def test_a_file_overwritten_around_the_load_of_its_window_is_counted_once(
    simulate: Simulate, asynchronous: bool, after: float
) -> None:
    async def story(world: World) -> None:
        prepared(world, asynchronous)
        with world.daemon(), world.daemon():
            name, _ = upload(world, 1)
            upload(world, 2)
            await asyncio.sleep(after)
            world.upload(name, {"id": 8, "name": "newer"}, {"id": 9, "name": "newer"})
            await world.settled()
        rows = world.rows()
        assert rows.count(("8", "newer")) == rows.count(("9", "newer")) == 1
        assert rows.count(("1", "x")) <= 1
        assert not world.exists(name)

    simulate(story, job_latency=2.0)


def test_seeds_full_of_overwritten_files_hold() -> None:
    assert run_seeds(range(25), replace(FEATURES, overwrites=0.8)).failures == {}
