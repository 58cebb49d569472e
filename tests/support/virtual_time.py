"""An event loop whose clock jumps: waiting costs nothing, and a run repeats exactly.

When nothing is ready, time moves to the next timer. Nothing in a simulation may use threads or sockets.
"""

import asyncio
import random
import selectors
from collections.abc import Coroutine
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeVar

T = TypeVar("T")
START = datetime(2024, 1, 1, 12, tzinfo=UTC)


class _Selector(selectors.SelectSelector):
    """Selecting with a timeout is the loop's way to sleep: let time pass instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("the simulation is stuck: nothing is ready and no timer is set")
        if timeout > 0:
            self.now += max(timeout, 1e-6)  # less would vanish in rounding, and the same timer would fire for ever
        return []


class _Handle(list[Any]):
    """Callback, arguments and context; empty once it is cancelled. A list, since a run makes millions of them."""

    __slots__ = ()

    def cancel(self) -> None:
        self.clear()

    def cancelled(self) -> bool:
        return not self


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        self._timers: list[tuple[float, int, _Handle]] = []
        self._order = count()  # timers of the same moment go off as they were set
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        if self._closed:
            self._check_closed()
        handle = _Handle((callback, args, context or copy_context()))
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        return self.call_soon(callback, *args, context=context)  # there are no threads

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        return self.call_at(self._virtual.now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        if self._closed:
            self._check_closed()
        handle = _Handle((callback, args, context or copy_context()))
        heappush(self._timers, (when, next(self._order), handle))
        return handle

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> "asyncio.Task[Any]":
        return asyncio.Task(coro, loop=self, name=name, context=context)  # there is no debug mode to look after

    def sleeping(self, seconds: float) -> "asyncio.Future[None]":
        """What `asyncio.sleep` waits for, at half its price."""
        future: asyncio.Future[None] = asyncio.Future(loop=self)
        self.call_at(self._virtual.now + seconds, _wake, future)
        return future

    def close(self) -> None:
        self._timers.clear()
        super().close()

    def _run_once(self) -> None:
        """As the base does it, without asking for sockets: this loop turns thousands of times per simulated minute."""
        timers, ready, virtual = self._timers, self._ready, self._virtual
        while True:
            while timers and not timers[0][2]:
                heappop(timers)
            now = virtual.now
            if not ready and not self._stopping:
                if not timers:
                    raise RuntimeError("the simulation is stuck: nothing is ready and no timer is set")
                if timers[0][0] > now:
                    # Less than a microsecond would vanish in rounding, and the same timer would fire for ever.
                    now = virtual.now = max(timers[0][0], now + 1e-6)
            now += 1e-9
            while timers and timers[0][0] < now:
                ready.append(heappop(timers)[2])
            for _ in range(len(ready)):
                if handle := ready.popleft():
                    callback, args, context = handle
                    try:
                        context.run(callback, *args)
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:  # noqa: BLE001 - as the base does: whoever runs this is told
                        self.call_exception_handler({"message": f"{callback} failed", "exception": error})
            if self._stopping:
                return

    def _write_to_self(self) -> None:
        """Wakes a loop that waits for sockets; this one never does."""


def _wake(sleeper: "asyncio.Future[None]") -> None:
    if not sleeper.done():
        sleeper.set_result(None)


class VirtualClock:
    """The loop's time as a `Clock`, possibly `skew`ed as replicas' clocks are; `uptime`: their node's at the start."""

    def __init__(self, loop: VirtualLoop, skew: timedelta = timedelta(), uptime: timedelta = timedelta()) -> None:
        self._moment = loop._virtual
        self._start = START + skew
        self._uptime = uptime.total_seconds()

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._moment.now)

    def monotonic(self) -> float:
        return self._uptime + self._moment.now

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(duration.total_seconds())


def run(main: Coroutine[Any, Any, T], loop: VirtualLoop) -> T:
    """Run on a virtual loop; a task left behind is cancelled, an exception nobody saw fails the run."""
    unseen: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unseen.append(context))
    random.seed(0)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        result = runner.run(main)
    assert not unseen, unseen
    return result
