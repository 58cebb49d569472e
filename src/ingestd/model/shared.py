"""One look for everybody who asks at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(slots=True)
class _Seen(Generic[T]):
    began: int = -1
    found: T | None = None
    asking: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class SharedLook(Generic[K, T]):
    """What is there now, by a look that began after the question: one answers all who asked before it began.

    Nothing is remembered once nobody asks any more. A look that fails fails for the one who made it; the next makes
    another.
    """

    def __init__(self, look: Callable[[K], Awaitable[T]]) -> None:
        self._look = look
        self._moments = count()
        self._seen: dict[K, _Seen[T]] = {}

    async def now(self, key: K) -> T:
        asked = next(self._moments)
        seen = self._seen.setdefault(key, _Seen())
        seen.asking += 1
        try:
            await asyncio.sleep(0)  # whoever asks in the same moment joins
            async with seen.lock:
                if seen.found is None or seen.began < asked:
                    began = next(self._moments)
                    seen.found = await self._look(key)
                    seen.began = began
                return seen.found
        finally:
            seen.asking -= 1
            if not seen.asking:
                del self._seen[key]
