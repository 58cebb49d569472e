import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.support.sim.world import World
from tests.support.virtual_time import VirtualLoop, run


@pytest.fixture
def simulate(tmp_path: Path) -> Callable[..., None]:
    """`simulate(story)` runs `async def story(world)` in a fresh world, in virtual time."""
    count = 0

    def runner(story: Callable[[World], Coroutine[Any, Any, None]], **options: Any) -> None:
        nonlocal count
        count += 1
        folder = tmp_path / str(count)
        folder.mkdir()
        loop = VirtualLoop()
        world = World(folder, loop, **options)

        async def whole() -> None:
            await story(world)
            await asyncio.sleep(1)  # daemons that were killed at its end unwind before the loop goes

        try:
            run(whole(), loop)
        finally:
            world.close()

    return runner
