"""An event loop whose clock jumps: waiting costs nothing, and a run repeats exactly.

When nothing is ready, time moves to the next timer. Nothing in a simulation may use threads or sockets.
"""

import asyncio
import heapq
import random
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
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


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    def _run_once(self) -> None:
        """As the base does it, without asking for sockets: this loop turns thousands of times per simulated minute."""
        timers, ready = self._scheduled, self._ready
        if self._timer_cancelled_count > 100 and self._timer_cancelled_count * 2 > len(timers):
            for timer in timers:
                timer._scheduled = not timer._cancelled
            self._timer_cancelled_count = 0
            timers[:] = [timer for timer in timers if not timer._cancelled]
            heapq.heapify(timers)
        while timers and timers[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(timers)._scheduled = False
        now = self._virtual.now
        if not ready and not self._stopping:
            if not timers:
                raise RuntimeError("the simulation is stuck: nothing is ready and no timer is set")
            if timers[0]._when > now:
                # Less than a microsecond would vanish in rounding, and the same timer would fire for ever.
                now = self._virtual.now = max(timers[0]._when, now + 1e-6)
        now += 1e-9
        while timers and timers[0]._when < now:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()
        handle = None  # it would keep a cycle alive

    def _write_to_self(self) -> None:
        """Wakes a loop that waits for sockets; this one never does."""


class VirtualClock:
    """The loop's time as a `Clock`, possibly `skew`ed as replicas' clocks are."""

    def __init__(self, loop: VirtualLoop, skew: timedelta = timedelta()) -> None:
        self._loop = loop
        self._skew = skew

    def now(self) -> datetime:
        return START + timedelta(seconds=self._loop.time()) + self._skew

    def monotonic(self) -> float:
        return self._loop.time()

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
