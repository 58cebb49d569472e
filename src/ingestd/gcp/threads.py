"""A bounded pool for Google's blocking clients, so that no call ever stops the event loop.

Cancelling the awaiting task does not stop the thread: the call ends by its own timeout, and its result is dropped.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Threads:
    def __init__(self, name: str, size: int) -> None:
        self.size = size
        self._pool = ThreadPoolExecutor(max_workers=size, thread_name_prefix=f"ingestd-{name}")

    async def run(self, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: fn(*args, **kwargs))

    async def close(self) -> None:
        """Wait for running calls (each has its own timeout); those still queued are dropped."""
        await asyncio.get_running_loop().run_in_executor(None, lambda: self._pool.shutdown(cancel_futures=True))
