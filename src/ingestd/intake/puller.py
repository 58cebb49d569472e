"""Pulling: several concurrent pulls on one subscription, within flow control, that mend themselves.

A handler looks at a message and either settles its receipt at once (the cheap, common case) or answers a coroutine that
will; coroutines run as tasks of the puller's group, so none is ever orphaned.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog
from prometheus_client import Counter, Gauge

from ingestd.intake.receipts import Desk, Receipt
from ingestd.model.clock import Clock
from ingestd.model.errors import IngestError
from ingestd.ports import Message, Subscription

log = structlog.get_logger(__name__)

RECEIVED = Counter("ingestd_messages_received", "Messages pulled.", ["subscription"])
LAST_PULL = Gauge("ingestd_last_pull_timestamp_seconds", "When a pull last answered.", ["subscription"])
PULL_ERRORS = Counter("ingestd_pull_errors", "Pulls that failed and were tried again.", ["subscription"])
SILENCES = Counter("ingestd_pull_silences", "Pulls given up by the watchdog.", ["subscription"])
RETURNED = Counter("ingestd_messages_returned", "Messages given back since a service failed.", ["subscription"])
HANDLER_ERRORS = Counter("ingestd_message_handler_errors", "Messages whose handling raised.", ["subscription"])

Handler = Callable[[Message, Receipt], Coroutine[Any, Any, None] | None]

_BACKOFF = (timedelta(milliseconds=200), timedelta(seconds=30))
_RETRY_AFTER_ERROR = timedelta(seconds=10)  # the call itself was retried for longer than that
_RETRY_AFTER_BUG = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class PullLimits:
    concurrent_pulls: int = 4
    messages_per_pull: int = 1000
    max_messages: int = 10_000
    max_bytes: int = 256 * 1024 * 1024
    lease: timedelta = timedelta(seconds=60)
    silence: timedelta = timedelta(seconds=90)


class Puller:
    """One subscription's intake. `run` ends when `stop` was called and everything in flight is settled."""

    def __init__(self, subscription: Subscription, handler: Handler, clock: Clock, limits: PullLimits) -> None:
        self._subscription = subscription
        self._handler = handler
        self._clock = clock
        self._limits = limits
        self._stopping = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self.desk = Desk(
            subscription,
            clock,
            max_messages=limits.max_messages,
            max_bytes=limits.max_bytes,
            lease=limits.lease,
        )
        name = subscription.name
        self._received = RECEIVED.labels(name)
        self._last_pull = LAST_PULL.labels(name)
        for metric in (PULL_ERRORS, SILENCES, RETURNED, HANDLER_ERRORS):
            metric.labels(name)

    def stop(self) -> None:
        """Stop pulling; what is in flight is finished first."""
        self._stopping.set()

    async def run(self) -> None:
        name = self._subscription.name
        async with asyncio.TaskGroup() as group:
            flusher = group.create_task(self.desk.flush_forever(), name=f"acks:{name}")
            keeper = group.create_task(self.desk.keep_leases_forever(), name=f"leases:{name}")
            async with asyncio.TaskGroup() as work:
                self._tasks = work
                for number in range(self._limits.concurrent_pulls):
                    work.create_task(self._pull_forever(), name=f"pull:{name}:{number}")
            await self.desk.drained()
            flusher.cancel()
            keeper.cancel()
            await self.desk.flush()

    async def _pull_forever(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            room = await self.desk.reserve(self._limits.messages_per_pull)
            try:
                for message in await self._pull(room):
                    self._handle(message)
            except (IngestError, TimeoutError) as error:
                failures += 1
                PULL_ERRORS.labels(self._subscription.name).inc()
                delay = min(_BACKOFF[1], _BACKOFF[0] * 2 ** min(failures, 16))
                log.warning("intake.pull_failed", subscription=self._subscription.name, error=str(error), again=delay)
                self.desk.release(room)
                await self._pause(delay)
                continue
            failures = 0
            self.desk.release(room)
            await asyncio.sleep(0)

    async def _pull(self, limit: int) -> list[Message]:
        """One pull, given up when it stays silent for longer than any healthy pull does, or when we are stopping."""
        pull = asyncio.ensure_future(self._subscription.pull(limit))
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            async with asyncio.timeout(self._limits.silence.total_seconds()):
                await asyncio.wait((pull, stop), return_when=asyncio.FIRST_COMPLETED)
            # A pull cut off by stopping may have taken messages with it: their leases expire and they come back.
            messages = pull.result() if pull.done() else []
        except TimeoutError:
            SILENCES.labels(self._subscription.name).inc()
            raise TimeoutError(f"no answer for {self._limits.silence}; pulling anew") from None
        else:
            self._last_pull.set(self._clock.now().timestamp())
            self._received.inc(len(messages))
            return messages
        finally:
            pull.cancel()
            stop.cancel()

    async def _pause(self, delay: timedelta) -> None:
        try:
            async with asyncio.timeout(delay.total_seconds()):
                await self._stopping.wait()
        except TimeoutError:
            return

    def _handle(self, message: Message) -> None:
        receipt = Receipt(self.desk, message)
        try:
            work = self._handler(message, receipt)
        except Exception:  # noqa: BLE001 - one message must never stop the stream; _give_back logs and counts
            self._give_back(receipt)
            return
        if not receipt.settled:
            self.desk.track(receipt)
        if work is not None:
            assert self._tasks is not None
            self._tasks.create_task(self._finish(work, receipt), name=f"message:{message.message_id}")

    async def _finish(self, work: Coroutine[Any, Any, None], receipt: Receipt) -> None:
        try:
            await work
        except IngestError as error:
            RETURNED.labels(self._subscription.name).inc()
            log.warning("intake.message_returned", message_id=receipt.message.message_id, error=str(error))
            receipt.retry_later(_RETRY_AFTER_ERROR)
        except Exception:  # noqa: BLE001 - one message must never stop the stream; _give_back logs and counts
            self._give_back(receipt)

    def _give_back(self, receipt: Receipt) -> None:
        """A handler broke on one message: that message comes back later, the stream goes on."""
        HANDLER_ERRORS.labels(self._subscription.name).inc()
        log.exception("intake.handler_failed", message_id=receipt.message.message_id)
        receipt.retry_later(_RETRY_AFTER_BUG)
