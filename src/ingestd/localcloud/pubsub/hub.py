"""Who waits for messages: long polls and streams, woken fairly and from any thread.

Waiters of a subscription form one line. A wake-up goes to the first; having taken its share, it hands the wake-up on
while messages remain. Streams at their flow-control limit stand apart and are woken by acknowledgements.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterable

import structlog

from ingestd.localcloud.pubsub.core import PubSubCore
from ingestd.localcloud.pubsub.errors import PubSubError

log = structlog.get_logger(__name__)

Waiter = asyncio.Future[None]


class Hub:
    """A `Listener` of the core on one event loop, and the core's timekeeper there."""

    def __init__(self, core: PubSubCore) -> None:
        self._core = core
        self._loop = asyncio.get_running_loop()
        self._ready: defaultdict[str, deque[Waiter]] = defaultdict(deque)
        self._stalled: defaultdict[str, deque[Waiter]] = defaultdict(deque)
        self._news: deque[tuple[str, str]] = deque()
        self._posted = False
        self._moved = asyncio.Event()
        self._timekeeper = asyncio.create_task(self._keep_time(), name="pubsub:time")
        core.add_listener(self)

    async def close(self) -> None:
        self._core.remove_listener(self)
        self._timekeeper.cancel()
        await asyncio.wait([self._timekeeper])
        for line in (*self._ready.values(), *self._stalled.values()):
            _wake_all(line)

    def messages_ready(self, subscription: str) -> None:
        self._post("ready", subscription)

    def capacity_freed(self, subscription: str) -> None:
        self._post("freed", subscription)

    def subscription_changed(self, subscription: str) -> None:
        self._post("changed", subscription)

    def wakeup_moved(self) -> None:
        self._post("moved", "")

    async def wait(self, subscription: str, seconds: float, *, stalled: bool = False) -> bool:
        """Wait for messages (or, `stalled`, for room on the stream); False when the time is over."""
        line = (self._stalled if stalled else self._ready)[subscription]
        waiter: Waiter = self._loop.create_future()
        line.append(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            # Perhaps woken at the very last moment: then the wake-up is ours to use.
            return waiter.done() and not waiter.cancelled()
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.pass_on(subscription)
            raise
        finally:
            if waiter in line:
                line.remove(waiter)
        return True

    def pass_on(self, subscription: str) -> None:
        """Wake the next in line if there is something left for it."""
        line = self._ready[subscription]
        if line:
            try:
                more = self._core.ready(subscription)
            except PubSubError:
                more = True  # it is gone: everyone has to notice
            if more:
                _wake_first(line)

    def _post(self, kind: str, subscription: str) -> None:
        self._news.append((kind, subscription))
        if not self._posted:
            self._posted = True
            self._loop.call_soon_threadsafe(self._spread)

    def _spread(self) -> None:
        self._posted = False
        while self._news:
            kind, subscription = self._news.popleft()
            if kind == "ready":
                _wake_first(self._ready[subscription])
            elif kind == "freed":
                _wake_all(self._stalled[subscription])
            elif kind == "changed":
                _wake_all(self._ready[subscription])
                _wake_all(self._stalled[subscription])
            else:
                self._moved.set()

    async def _keep_time(self) -> None:
        clock = self._core.clock
        while True:
            self._moved.clear()
            delay = self._core.next_wakeup() - clock.monotonic()
            if delay > 0:
                try:
                    async with asyncio.timeout(delay):
                        await self._moved.wait()
                except TimeoutError:
                    pass
                continue
            try:
                self._core.tick()
            except PubSubError as error:
                log.warning("pubsub.tick_failed", reason=error.message)
            await asyncio.sleep(0.001)


def _wake_first(line: deque[Waiter]) -> None:
    while line:
        waiter = line.popleft()
        if not waiter.done():
            waiter.set_result(None)
            return


def _wake_all(line: Iterable[Waiter]) -> None:
    for waiter in line:
        if not waiter.done():
            waiter.set_result(None)
