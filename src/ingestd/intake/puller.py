"""Pulling: several concurrent pulls on one subscription, within flow control, that mend themselves.

A handler looks at a message and either settles its receipt at once (the cheap, common case) or answers a coroutine that
will; coroutines run as tasks of the puller's group, so none is ever orphaned.

When pulling fails (no such subscription, no permission, no network) all pulls pause together, for twice as long each
time up to a bound; it is logged at the first failure, when the reason changes, and then ever more rarely.

A message that cannot be dealt with now (our own storage is down, a permission is missing) is kept and tried again here:
giving it back would spend one of the deliveries after which a subscription with a dead-letter policy drops it for good.
Not for ever, since another replica may be luckier, and not too many, since others want to be pulled: those go back.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog
from prometheus_client import Counter, Gauge

from ingestd.intake.receipts import Desk, Kept, Receipt
from ingestd.model.clock import Clock
from ingestd.model.errors import IngestError
from ingestd.ports import Message, Subscription

log = structlog.get_logger(__name__)

RECEIVED = Counter("ingestd_messages_received", "Messages pulled.", ["subscription"])
LAST_PULL = Gauge(
    "ingestd_last_pull_timestamp_seconds",
    "When a pull last answered; before the first, when pulling began.",
    ["subscription"],
)
PULL_ERRORS = Counter("ingestd_pull_errors", "Pulls that failed and were tried again.", ["subscription"])
SILENCES = Counter("ingestd_pull_silences", "Pulls given up by the watchdog.", ["subscription"])
RETURNED = Counter("ingestd_messages_returned", "Messages given back since a service failed.", ["subscription"])
KEPT = Gauge("ingestd_messages_kept", "Messages that could not be dealt with and are tried again.", ["subscription"])
HANDLER_ERRORS = Counter("ingestd_message_handler_errors", "Messages whose handling raised.", ["subscription"])

Handler = Callable[[Message, Receipt], Coroutine[Any, Any, None] | None]

_BACKOFF = (timedelta(milliseconds=200), timedelta(seconds=30))
_RETRY_AFTER_ERROR = timedelta(seconds=10)  # the call itself was retried for longer than that
_RETRY_AFTER_BUG = timedelta(seconds=30)
_SLOWEST_TRY = timedelta(seconds=60)
_KEPT_FOR = timedelta(minutes=10)
_ENOUGH = 200  # messages for which a pull is worth its cost
_REST = timedelta(milliseconds=50)
_FRESH = 2.0  # seconds since it was published within which a message has not waited


@dataclass(frozen=True, slots=True)
class PullLimits:
    concurrent_pulls: int = 4
    messages_per_pull: int = 1000
    max_messages: int = 10_000
    max_bytes: int = 256 * 1024 * 1024
    lease: timedelta = timedelta(seconds=60)
    silence: timedelta = timedelta(seconds=90)


class _Trouble:
    """What keeps the pulls of a subscription from working: theirs together, so that one failure is one pause.

    A round is what the pulls do between two pauses. Whoever fails in a round that has failed already joins its pause.
    """

    def __init__(self, subscription: str) -> None:
        self._subscription = subscription
        self._failures = 0
        self._reason = ""
        self._until = 0.0
        self.round = 0

    def failed(self, error: Exception, began: int, now: float) -> timedelta:
        """How long to pause."""
        PULL_ERRORS.labels(self._subscription).inc()
        if began == self.round:
            self.round += 1
            self._failures += 1
            delay = min(_BACKOFF[1], _BACKOFF[0] * 2 ** min(self._failures, 16))
            self._until = now + delay.total_seconds()
            self._tell(str(error), delay)
        return timedelta(seconds=max(self._until - now, 0.0))

    def _tell(self, reason: str, delay: timedelta) -> None:
        rarely = self._failures & (self._failures - 1) == 0  # the 1st, 2nd, 4th, 8th …
        if reason != self._reason or rarely:
            log.warning(
                "intake.pull_failed",
                subscription=self._subscription,
                error=reason,
                failures=self._failures,
                again=delay,
            )
        self._reason = reason

    def over(self) -> None:
        if self._failures:
            log.info("intake.pulling_again", subscription=self._subscription, failures=self._failures)
        self._failures, self._reason = 0, ""


class Puller:
    """One subscription's intake. `run` ends when `stop` was called and everything in flight is settled."""

    def __init__(
        self,
        subscription: Subscription,
        handler: Handler,
        clock: Clock,
        limits: PullLimits,
        on_full: Callable[[], None] = lambda: None,
    ) -> None:
        self._subscription = subscription
        self._handler = handler
        self._clock = clock
        self._limits = limits
        self._stopping = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._trouble = _Trouble(subscription.name)
        self.desk = Desk(
            subscription,
            clock,
            max_messages=limits.max_messages,
            max_bytes=limits.max_bytes,
            lease=limits.lease,
            on_full=on_full,
            keep=self._keep,
        )
        self._kept = 0
        self._rested = 0.0  # when the last of the pulls that rest goes on
        name = subscription.name
        KEPT.labels(name).set(0)
        self._received = RECEIVED.labels(name)
        self._last_pull = LAST_PULL.labels(name)
        for metric in (PULL_ERRORS, SILENCES, RETURNED, HANDLER_ERRORS):
            metric.labels(name)

    def stop(self) -> None:
        """Stop pulling; what is in flight is finished first."""
        self._stopping.set()

    async def run(self) -> None:
        name = self._subscription.name
        # A subscription that never answers is silent from here on: at 0 nobody would ever be told.
        self._last_pull.set(self._clock.now().timestamp())
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
        now = asyncio.get_running_loop().time
        while not self._stopping.is_set():
            room = await self.desk.reserve(self._limits.messages_per_pull)
            began = self._trouble.round
            try:
                messages = await self._pull(room)
            except (IngestError, TimeoutError) as error:
                self.desk.release(room)
                await self._pause(self._trouble.failed(error, began, now()))
                continue
            if began == self._trouble.round:
                self._trouble.over()
            for message in messages:
                self._try(Receipt(self.desk, message))
            self.desk.release(room)
            resting = self._may_rest(messages)
            del messages  # their payloads, which nobody needs while the next pull waits
            if resting:
                self._rested = max(self._rested, now()) + _REST.total_seconds()
                await self._pause(timedelta(seconds=self._rested - now()))
            else:
                await asyncio.sleep(0)

    def _may_rest(self, messages: list[Message]) -> bool:
        """Whether this one of the pulls rests for a moment, so that messages of a stream come together.

        A pull costs as much as fifty messages. Those that rest go on one after the other, so that a stream is looked at
        every `_REST`; the others wait meanwhile, so a message that comes alone is not held up. With a backlog, which
        shows in the age of what comes, none rests.
        """
        if not 0 < len(messages) < _ENOUGH or self._limits.concurrent_pulls == 1:
            return False
        return self._clock.now().timestamp() - messages[0].published < _FRESH

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

    def _try(self, receipt: Receipt) -> None:
        try:
            work = self._handler(receipt.message, receipt)
        except Exception:  # noqa: BLE001 - one message must never stop the stream; _give_back logs and counts
            self._give_back(receipt)
            return
        finally:
            if not receipt.settled and not receipt.tracked:
                self.desk.track(receipt)
        if work is not None:
            assert self._tasks is not None
            self._tasks.create_task(self._finish(work, receipt), name=f"message:{receipt.message.message_id}")

    async def _finish(self, work: Coroutine[Any, Any, None], receipt: Receipt) -> None:
        try:
            await work
        except IngestError as error:
            RETURNED.labels(self._subscription.name).inc()
            log.warning("intake.message_returned", message_id=receipt.message.message_id, error=str(error))
            receipt.retry_later(_RETRY_AFTER_ERROR)
        except Exception:  # noqa: BLE001 - one message must never stop the stream; _give_back logs and counts
            self._give_back(receipt)

    def _keep(self, receipt: Receipt, delay: timedelta) -> bool:
        """Whether the message is tried again here; otherwise it goes back to Pub/Sub."""
        now = self._clock.monotonic()
        kept = receipt.kept or Kept(now)
        crowded = 2 * self._kept >= self._limits.max_messages or 2 * self.desk.size >= self._limits.max_bytes
        if self._stopping.is_set() or receipt.forgotten or crowded or now - kept.since >= _KEPT_FOR.total_seconds():
            return False
        assert self._tasks is not None
        pause = min(delay * 2 ** min(kept.tries, 16), max(delay, _SLOWEST_TRY))
        kept.tries += 1
        kept.waiting, receipt.kept = True, kept
        self._count_kept(1)
        self._tasks.create_task(self._try_again(receipt, kept, pause), name=f"kept:{receipt.message.message_id}")
        return True

    async def _try_again(self, receipt: Receipt, kept: Kept, pause: timedelta) -> None:
        try:
            await self._pause_by_clock(pause)
        finally:
            kept.waiting = False
            self._count_kept(-1)
        if receipt.settled:
            return
        if self._stopping.is_set():
            receipt.retry_later(timedelta())
        else:
            self._try(receipt)

    async def _pause_by_clock(self, pause: timedelta) -> None:
        timer = asyncio.ensure_future(self._clock.sleep(pause))
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((timer, stop), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            stop.cancel()

    def _count_kept(self, change: int) -> None:
        self._kept += change
        KEPT.labels(self._subscription.name).set(self._kept)

    def _give_back(self, receipt: Receipt) -> None:
        """A handler broke on one message: that message comes back later, the stream goes on."""
        HANDLER_ERRORS.labels(self._subscription.name).inc()
        log.exception("intake.handler_failed", message_id=receipt.message.message_id)
        receipt.retry_later(_RETRY_AFTER_BUG)
