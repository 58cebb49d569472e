"""Work that no message waits for: batches that are driven, ordered tables moved on. Sweeps find what fails."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from ingestd.ops.survival import surviving

Work = Coroutine[Any, Any, None]


class Background:
    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._stopping = asyncio.Event()

    async def run(self, sweep: Work | None) -> None:
        """Root task: until `stop`, then until what is under way has ended; the sweep goes on until `stop`."""
        if sweep is None:
            await self._stopping.wait()
            return
        async with asyncio.TaskGroup() as group:
            self._group = group
            sweeping = group.create_task(sweep, name="sweep:ordered")
            await self._stopping.wait()
            sweeping.cancel()

    def stop(self) -> None:
        self._stopping.set()

    def spawn(self, work: Work, name: str) -> None:
        if self._group is None or self._stopping.is_set():
            work.close()  # whoever is started next finds it
            return
        self._group.create_task(_tolerant(work), name=name)


async def _tolerant(work: Work) -> None:
    """One batch must not take the others down."""
    with surviving("success", "success.failed"):
        await work
