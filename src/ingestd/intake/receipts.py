"""Settling messages: acknowledgements leave in batches, leases of unfinished messages are kept alive.

Invariant: a message is acknowledged only by its handler (see `Receipt.ack`), and a message that is neither settled nor
extended comes back by itself, so that losing this process loses nothing.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import structlog
from prometheus_client import Counter, Gauge

from ingestd.model.clock import Clock
from ingestd.model.errors import IngestError
from ingestd.ports import Message, PlainMessage, Subscription

log = structlog.get_logger(__name__)

SETTLED = Counter("ingestd_messages_settled", "Messages settled, by how.", ["subscription", "how"])
IN_FLIGHT = Gauge("ingestd_messages_in_flight", "Messages pulled and not settled yet.", ["subscription"])
IN_FLIGHT_BYTES = Gauge("ingestd_messages_in_flight_bytes", "Payload bytes of messages in flight.", ["subscription"])

_FLUSH_EVERY = timedelta(milliseconds=50)
_FLUSH_AT = 1000
_MAX_DELAY = timedelta(seconds=600)  # Pub/Sub's longest ack deadline
_FORGOTTEN = PlainMessage("", b"", {})


class Receipt:
    """What a handler holds for one message: settle it once, by `ack` or `retry_later`."""

    __slots__ = ("_desk", "ack_id", "kept", "message", "settled", "size", "tracked")

    def __init__(self, desk: "Desk", message: Message) -> None:
        self._desk = desk
        self.ack_id = message.ack_id
        self.message = message
        self.size = len(message.data)
        self.settled = False
        self.tracked = False
        self.kept: Kept | None = None  # it could not be dealt with so far, and is tried again here

    def ack(self) -> None:
        self._desk.settle(self, None)

    @property
    def forgotten(self) -> bool:
        return self.message is _FORGOTTEN

    @property
    def crowded(self) -> bool:
        """Whether so many messages are in flight that nobody should keep one for long."""
        return self._desk.crowded

    def forget_payload(self) -> None:
        """Keep only what settling needs: a file may wait in its window for a while, with a million others."""
        self.message = _FORGOTTEN

    def retry_later(self, delay: timedelta) -> None:
        """It cannot be dealt with now: it is tried again after the delay, here or by whoever it is delivered to."""
        self._desk.settle(self, min(delay, _MAX_DELAY))


@dataclass(slots=True)
class Kept:
    """A message that is tried again without being delivered again, which Pub/Sub would count."""

    since: float
    tries: int = 0
    waiting: bool = False


class Desk:
    """All messages in flight of one subscription, within caps on count and bytes."""

    def __init__(
        self,
        subscription: Subscription,
        clock: Clock,
        *,
        max_messages: int,
        max_bytes: int,
        lease: timedelta,
        on_full: Callable[[], None] = lambda: None,
        keep: Callable[[Receipt, timedelta], bool] = lambda receipt, delay: False,
    ) -> None:
        self._subscription = subscription
        self._clock = clock
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._lease = lease
        self._open: dict[str, Receipt] = {}
        self._bytes = 0
        self._asked = 0  # messages that pulls under way may bring
        self._acks: list[str] = []
        self._delays: dict[timedelta, list[str]] = {}
        self._room = asyncio.Event()
        self._room.set()
        self._some = asyncio.Event()
        self._full = asyncio.Event()
        self._emptied: asyncio.Event | None = None
        self._on_full = on_full  # asked to settle what can be settled early
        self._keep = keep  # asked to try it again itself
        self.name = name = subscription.name
        self._acked = SETTLED.labels(name, "ack")
        self._returned = SETTLED.labels(name, "retry")
        self._gauge = IN_FLIGHT.labels(name)
        self._gauge_bytes = IN_FLIGHT_BYTES.labels(name)

    def track(self, receipt: Receipt) -> None:
        """Count a message whose handling takes time, and keep its lease until it is settled."""
        receipt.tracked = True
        self._open[receipt.ack_id] = receipt
        self._bytes += receipt.size

    def settle(self, receipt: Receipt, delay: timedelta | None) -> None:
        if receipt.settled or (delay is not None and receipt.kept is not None and receipt.kept.waiting):
            return  # the first word counts
        if delay is not None and self._keep(receipt, delay):
            return
        receipt.settled = True
        ack_id = receipt.ack_id
        if receipt.tracked:
            self._untrack(receipt)
        if not self._acks and not self._delays:
            self._some.set()
        if delay is None:
            self._acks.append(ack_id)
            if len(self._acks) == _FLUSH_AT:
                self._full.set()
        else:
            self._delays.setdefault(delay, []).append(ack_id)

    def _untrack(self, receipt: Receipt) -> None:
        del self._open[receipt.ack_id]
        self._bytes -= receipt.size
        if not self._full_up():
            self._room.set()
        if self._emptied is not None and not self._open:
            self._emptied.set()

    @property
    def crowded(self) -> bool:
        return 2 * len(self._open) >= self._max_messages or 2 * self._bytes >= self._max_bytes

    def _full_up(self) -> bool:
        return len(self._open) + self._asked >= self._max_messages or self._bytes >= self._max_bytes

    async def reserve(self, wanted: int) -> int:
        """Wait until more messages fit, and keep room for as many as the coming pull may bring: at most `wanted`."""
        while self._full_up():
            if 2 * len(self._open) >= self._max_messages:
                self._on_full()
            self._room.clear()
            await self._room.wait()
        room = min(wanted, self._max_messages - len(self._open) - self._asked)
        self._asked += room
        return room

    def release(self, room: int) -> None:
        """The pull is over, and what it brought is tracked or settled."""
        self._asked -= room
        if not self._full_up():
            self._room.set()

    async def drained(self) -> None:
        """Wait until every message in flight is settled."""
        if self._open:
            self._emptied = asyncio.Event()
            await self._emptied.wait()

    @property
    def in_flight(self) -> int:
        return len(self._open)

    @property
    def size(self) -> int:
        """Payload bytes in flight."""
        return self._bytes

    async def flush_forever(self) -> None:
        """Root task: send acknowledgements in batches: when there are many, or the first has waited long enough."""
        while True:
            await self._some.wait()
            try:
                async with asyncio.timeout(_FLUSH_EVERY.total_seconds()):
                    await self._full.wait()
            except TimeoutError:
                pass
            self._some.clear()
            self._full.clear()
            await self.flush()

    async def flush(self) -> None:
        acks, self._acks = self._acks, []
        delays, self._delays = self._delays, {}
        self._gauge.set(len(self._open))
        self._gauge_bytes.set(self._bytes)
        try:
            if acks:
                await self._subscription.ack(acks)
                self._acked.inc(len(acks))
            for delay, ack_ids in delays.items():
                await self._subscription.extend(ack_ids, delay)
                self._returned.inc(len(ack_ids))
        except IngestError as error:
            # Not acknowledged means delivered again, and every handler is idempotent: safe, but worth seeing.
            SETTLED.labels(self._subscription.name, "failed").inc(len(acks))
            log.warning("intake.ack_failed", subscription=self._subscription.name, count=len(acks), error=str(error))

    async def keep_leases_forever(self) -> None:
        """Root task: extend every message still in flight, at half of its lease."""
        while True:
            await self._clock.sleep(self._lease / 2)
            if not self._open:
                continue
            try:
                await self._subscription.extend(list(self._open), self._lease)
            except IngestError as error:
                SETTLED.labels(self._subscription.name, "lease_failed").inc()
                log.warning("intake.lease_failed", subscription=self._subscription.name, error=str(error))
