"""A clock that is moved by hand: lease expiry, windows and retries without waiting."""

import asyncio
import heapq
from datetime import UTC, datetime, timedelta


class ManualClock:
    """Stands still until `advance` is called; sleepers wake in deadline order."""

    def __init__(self, start: datetime = datetime(2024, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = timedelta()
        self._sleepers: list[tuple[timedelta, int, asyncio.Future[None]]] = []
        self._sequence = 0

    def now(self) -> datetime:
        return self._start + self._elapsed

    def monotonic(self) -> float:
        return self._elapsed.total_seconds()

    async def sleep(self, duration: timedelta) -> None:
        if duration <= timedelta():
            await asyncio.sleep(0)
            return
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sequence += 1
        heapq.heappush(self._sleepers, (self._elapsed + duration, self._sequence, wake))
        await wake

    def advance(self, duration: timedelta) -> None:
        """Move time forward and wake every sleeper that is due."""
        self._elapsed += duration
        while self._sleepers and self._sleepers[0][0] <= self._elapsed:
            _, _, wake = heapq.heappop(self._sleepers)
            if not wake.done():
                wake.set_result(None)
