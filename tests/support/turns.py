"""How often others have their turn on the event loop while something works: whether it holds them up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    def __init__(self) -> None:
        self.count = 0

    async def take(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


@asynccontextmanager
async def turns_beside() -> AsyncIterator[Turns]:
    """The turns that somebody else had since the block began."""
    turns = Turns()
    beside = asyncio.create_task(turns.take())
    try:
        yield turns
    finally:
        beside.cancel()
