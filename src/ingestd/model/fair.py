"""Fair shares of a limited number of slots: whoever is slow keeps its own waiting, never the others.

A slot is held until its work has ended, which may take hours, so shares must hold before there is a queue: one table
alone may not have them all. Each key (a table) may hold so many times what would be left for the others (`SHARE`):
alone three quarters, two of them three sevenths each, and so on. One is always left for a table that has none.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

SHARE = 3


def admits(held: int, free: int) -> bool:
    """Whether somebody who holds so many slots may have one more of those that are free."""
    return free > 0 and (held == 0 or held + 1 <= SHARE * (free - 1))


class FairSlots:
    """A semaphore with keys. Freed slots go to whoever holds the fewest, then to whoever has waited longest."""

    def __init__(self, capacity: int) -> None:
        assert capacity > 0
        self._free = capacity
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def busy(self, key: str) -> bool:
        """Whether the key would have to wait."""
        return key in self._waiting or not admits(self._held[key], self._free)

    @asynccontextmanager
    async def slot(self, key: str) -> AsyncIterator[None]:
        await self.acquire(key)
        try:
            yield
        finally:
            self.release(key)

    async def acquire(self, key: str) -> None:
        if not self.busy(key):
            self._take(key)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(key)  # it came at the same moment
            elif key in self._waiting and turn in self._waiting[key]:
                self._waiting[key].remove(turn)
                self._drop_if_empty(key)
            raise

    def release(self, key: str) -> None:
        self._free += 1
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]
        self._grant()

    def _take(self, key: str) -> None:
        self._free -= 1
        self._held[key] += 1

    def _grant(self) -> None:
        while self._free and self._waiting:
            key = min(self._waiting, key=lambda one: self._held[one])  # the first of several: it has waited longest
            if not admits(self._held[key], self._free):
                return
            turn = self._waiting[key].popleft()
            # To the end of the line, if more of it wait: with equal holdings they take turns.
            rest = self._waiting.pop(key)
            if rest:
                self._waiting[key] = rest
            if not turn.done():
                self._take(key)
                turn.set_result(None)

    def _drop_if_empty(self, key: str) -> None:
        if not self._waiting[key]:
            del self._waiting[key]
