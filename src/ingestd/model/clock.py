"""Time is a dependency: everything that waits or stamps takes a `Clock`.

That makes lease expiry, windows and retries testable without waiting: tests have clocks that are moved by hand.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The current instant, UTC-aware."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards, for measuring and for deadlines inside one process."""
        ...

    async def sleep(self, duration: timedelta) -> None: ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(duration.total_seconds())
