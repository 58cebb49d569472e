"""The local Pub/Sub itself: publish, pull, acknowledge, and what time does to leases.

Plain and synchronous: it never waits, and any thread may call it. Time comes from the injected clock; whoever embeds
the core calls `tick` at `next_wakeup` (every operation also catches up by itself, so virtual time needs no ticking).

Guarantees: an acknowledged publish survives SIGKILL, an acknowledged ack does too; a message is delivered until it is
acknowledged, outlives its retention, or is dead-lettered.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import RLock
from typing import Any, Protocol

import structlog
from google.protobuf.timestamp_pb2 import Timestamp

from ingestd.localcloud.faults import Hooks
from ingestd.localcloud.pubsub import recovery, wire
from ingestd.localcloud.pubsub.catalog import Catalog
from ingestd.localcloud.pubsub.entries import NOTHING, Counters, Entry, Holder, Message, Want
from ingestd.localcloud.pubsub.errors import INVALID_ACK_ID, Code, PubSubError, invalid
from ingestd.localcloud.pubsub.journal import Journal
from ingestd.localcloud.pubsub.names import project_of
from ingestd.localcloud.pubsub.queue import Queue
from ingestd.localcloud.pubsub.resources import Settings, too_large
from ingestd.localcloud.pubsub.state import State, Subscription, Topic, decode
from ingestd.model.clock import Clock

log = structlog.get_logger(__name__)

MAX_REQUEST_BYTES = 10 * 1024 * 1024
MAX_PUBLISH_MESSAGES = 1000
MAX_ATTRIBUTES = 100
MAX_ATTRIBUTE_KEY_BYTES = 256
MAX_ATTRIBUTE_VALUE_BYTES = 1024
MAX_ORDERING_KEY_BYTES = 1024
MAX_ACK_DEADLINE = 600
# A default gRPC client refuses responses over 4 MiB; Google's own clients take more, others need not.
PULL_BYTES = 3_500_000
MAX_PULL_MESSAGES = 1000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_TRIM_SECONDS = 60.0
_COMPACT_BYTES = 64 * 1024 * 1024
_COMPACT_BYTES_AT_START = 1024 * 1024
_GARBAGE_FACTOR = 3

_STALE_ACKS = (
    "Some acknowledgement ids in the request were invalid. This could be because the acknowledgement ids have expired "
    "or the acknowledgement ids were malformed."
)


class Listener(Protocol):
    """Told from any thread, while the core is locked: note it down, do not call back."""

    def messages_ready(self, subscription: str) -> None: ...

    def capacity_freed(self, subscription: str) -> None:
        """A stream that was at its flow-control limit has room again."""
        ...

    def subscription_changed(self, subscription: str) -> None:
        """Its settings changed, it was sought, detached or deleted."""
        ...

    def wakeup_moved(self) -> None:
        """`next_wakeup` became earlier."""
        ...


@dataclass(frozen=True, slots=True)
class Received:
    """A delivered message, decoded: for callers inside the process."""

    ack_id: str
    message_id: str
    data: bytes
    attributes: Mapping[str, str]
    ordering_key: str
    published: datetime
    delivery_attempt: int  # 0 without a dead-letter policy


@dataclass(frozen=True, slots=True)
class Pulled:
    """A delivery, encoded as the `received_messages` of a pull response."""

    body: bytes
    count: int


NOTHING_PULLED = Pulled(b"", 0)


@dataclass(frozen=True, slots=True)
class TopicStats:
    name: str
    subscriptions: int
    retained: int
    published: int
    published_bytes: int


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    name: str
    topic: str
    backlog: int  # unacknowledged, leased ones included
    outstanding: int
    oldest_unacked_seconds: float
    delivered: int
    acked: int
    nacked: int
    expired: int
    dead_lettered: int
    dropped_by_retention: int


@dataclass(frozen=True, slots=True)
class Stats:
    topics: tuple[TopicStats, ...]
    subscriptions: tuple[SubscriptionStats, ...]
    live_bytes: int
    log_bytes: int


class PubSubCore(Catalog):
    """`root` None keeps everything in memory, for simulations."""

    def __init__(self, root: Path | None, *, clock: Clock, hooks: Hooks, compact_bytes: int = _COMPACT_BYTES) -> None:
        self.hooks = hooks
        self.clock = clock
        self._lock = RLock()
        self._listeners: list[Listener] = []
        self._announced: float | None = None
        self._compact_bytes = compact_bytes
        self._compact_at = compact_bytes
        self._next_trim = clock.monotonic() + _TRIM_SECONDS
        self.state = State(self)
        self._journal = Journal(root) if root is not None else None
        if self._journal is not None:
            recovery.recover(self._journal, self.state)
        self.state.epoch += 1
        # Message ids are never reused, not even those of messages nobody wanted and the journal never saw.
        self.state.next_seq = max(self.state.next_seq, self._now_us())
        self.state.trim(self._now_us())
        for subscription in self.state.subscriptions.values():
            subscription.queue.begin(self.state.epoch)
            subscription.queue.counters = Counters()
        self._compact_if_worthwhile(_COMPACT_BYTES_AT_START)
        self._write(recovery.started(self.state.epoch))

    def close(self) -> None:
        with self._lock:
            if self._journal is not None:
                self._journal.close()
                self._journal = None

    def add_listener(self, listener: Listener) -> None:
        with self._lock:
            self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        with self._lock, suppress(ValueError):
            self._listeners.remove(listener)

    def publish(self, topic: str, messages: Iterable[tuple[bytes, Mapping[str, str], str]]) -> list[str]:
        """Publish (data, attributes, ordering key) triples; the message ids, in order.

        Also for the other services of the local cloud, from any thread. Rehearsed faults of Publish hit them too.
        """
        built = []
        for data, attributes, ordering_key in messages:
            message = wire.PubsubMessage(data=data, ordering_key=ordering_key)
            message.attributes.update(attributes)
            built.append(message)
        return self.publish_messages(topic, built)

    def publish_messages(self, topic: str, messages: Sequence[Any]) -> list[str]:
        """Publish PubsubMessage protobufs, which are stamped in place."""
        with self.hooks.operation("Publish", topic), self._lock:
            target = self._topic(topic)
            if not messages:
                raise invalid("The value for message_count is too small. You passed 0, but the minimum value is 1.")
            if len(messages) > MAX_PUBLISH_MESSAGES:
                raise too_large("message_count", len(messages), MAX_PUBLISH_MESSAGES)
            stamped = self._stamp(target, messages)
            self._publish_stamped(target, stamped)
            return [str(message.seq) for message in stamped]

    def lease(
        self, subscription: str, max_messages: int, *, ack_deadline: float | None = None, holder: Holder | None = None
    ) -> Pulled:
        """Lease messages and encode them; `holder` is the account of a stream with flow control.

        Neither counted nor failed on purpose: a server that polls wraps its whole request in `hooks.operation`.
        """
        with self._lock:
            now = self._catch_up()
            queue = self._attached(subscription).queue
            if queue.trim_due is not None and self._now_us() >= queue.trim_due:
                queue.trim(self._now_us())
            seconds = ack_deadline or queue.settings.ack_deadline
            taken = queue.take(Want(min(max_messages, MAX_PULL_MESSAGES), PULL_BYTES, seconds, holder), now, self.hooks)
            if taken is NOTHING:
                return NOTHING_PULLED
            self._announce()
            return Pulled(b"".join(taken.pieces), len(taken.pieces))

    def pull(self, subscription: str, max_messages: int, *, ack_deadline: float | None = None) -> list[Received]:
        """Lease and decode: the unary Pull that returns immediately, for callers inside the process."""
        check_max_messages(max_messages)
        with self.hooks.operation("Pull", subscription):
            pulled = self.lease(subscription, max_messages, ack_deadline=ack_deadline)
        return [_received(one) for one in wire.PullResponse.FromString(pulled.body).received_messages]

    def settings(self, subscription: str) -> Settings:
        with self._lock:
            return self._subscription(subscription).queue.settings

    def ready(self, subscription: str) -> bool:
        """Whether a pull would find something (at most a few stale entries make it say so wrongly)."""
        with self._lock:
            return bool(self._subscription(subscription).queue.ready)

    def acknowledge(self, subscription: str, ack_ids: Sequence[str]) -> None:
        with self.hooks.operation("Acknowledge", subscription), self._lock:
            self._catch_up()
            target = self._subscription(subscription)
            queue = target.queue
            entries, stale, malformed = queue.resolve(ack_ids, for_ack=True)
            _refuse_malformed(queue, malformed)
            if entries:
                self._write(recovery.acked(target, entries))
                queue.ack(entries)
                self._settled(queue)
            _refuse_stale(queue, [*stale, *malformed])

    def modify_ack_deadline(self, subscription: str, ack_ids: Sequence[str], seconds: int) -> None:
        """Zero seconds gives the messages back."""
        if not 0 <= seconds <= MAX_ACK_DEADLINE:
            raise too_large("ack_deadline_seconds", seconds, MAX_ACK_DEADLINE)
        with self.hooks.operation("ModifyAckDeadline", subscription), self._lock:
            now = self._catch_up()
            queue = self._subscription(subscription).queue
            entries, stale, malformed = queue.resolve(ack_ids, for_ack=False)
            _refuse_malformed(queue, malformed)
            if seconds:
                queue.extend(entries, seconds, now)
            else:
                queue.nack(entries, now)
                self._settled(queue)
            self._announce()
            _refuse_stale(queue, [*stale, *malformed])

    def tick(self) -> None:
        """Do what is due: expire leases, end backoffs, forget what outlived its retention."""
        with self._lock:
            self._catch_up()

    def next_wakeup(self) -> float:
        """When `tick` has something to do next, on the clock's monotonic scale.

        Whoever asks is told (`Listener.wakeup_moved`) when it becomes earlier than this answer.
        """
        with self._lock:
            self._announced = self._next_wakeup()
            return self._announced

    def compact(self) -> None:
        """Rewrite the log to what is alive. Happens by itself when garbage dominates."""
        with self._lock:
            if self._journal is not None:
                before = self._journal.size
                self._journal.rewrite(recovery.everything(self.state))
                log.info("pubsub.log_compacted", before_bytes=before, after_bytes=self._journal.size)

    def stats(self) -> Stats:
        with self._lock:
            now = self._now_us()
            return Stats(
                topics=tuple(
                    TopicStats(t.name, len(t.subscriptions), len(t.retained), t.published, t.published_bytes)
                    for t in self.state.topics.values()
                ),
                subscriptions=tuple(_subscription_stats(s, now) for s in self.state.subscriptions.values()),
                live_bytes=self.state.store.live_bytes,
                log_bytes=self._journal.size if self._journal else 0,
            )

    # What queues ask of their owner

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def became_ready(self, queue: Queue) -> None:
        if queue.ready:
            for listener in self._listeners:
                listener.messages_ready(queue.name)

    def dead_letter(self, queue: Queue, entries: list[Entry], now: float) -> None:
        topic = self.state.topics.get(queue.settings.dead_letter_topic)
        source = self.state.subscriptions[queue.name]
        if topic is None:
            # As in the cloud: while the dead-letter topic is missing, the messages go on being delivered.
            log.warning("pubsub.dead_letter_topic_missing", subscription=queue.name, messages=len(entries))
            queue.requeue(entries, now)
            return
        stamped = self._stamp(topic, [_dead_letter(entry, queue.name) for entry in entries])
        try:
            # One write: a crash cannot forward without removing, nor remove without forwarding.
            self._publish_stamped(topic, stamped, recovery.acked(source, entries))
        except PubSubError as error:
            log.warning("pubsub.dead_letter_failed", subscription=queue.name, reason=error.message)
            queue.requeue(entries, now)
            return
        queue.drop_dead_lettered(entries)

    def remember_attempts(self, queue: Queue, entries: list[Entry]) -> None:
        try:
            self._write(recovery.attempts(self.state.subscriptions[queue.name], entries))
        except PubSubError as error:
            # Only a count is at stake, and Google's own is approximate: the redelivery goes on.
            log.warning("pubsub.attempts_not_recorded", subscription=queue.name, reason=error.message)

    def _stamp(self, topic: Topic, messages: Sequence[Any]) -> list[Message]:
        """Check, number and encode; nothing is changed but the given protobufs."""
        seq = self.state.next_seq
        published = self._now_us()
        stamp = Timestamp()
        stamp.FromMicroseconds(published)
        stamped: list[Message] = []
        total = 0
        for message in messages:
            message.message_id = str(seq)
            message.publish_time.CopyFrom(stamp)
            encoded = message.SerializeToString()
            _check_message(message, encoded)
            total += len(encoded)
            stamped.append(Message(seq, published, wire.frame_message(encoded), message.ordering_key, topic.uid))
            seq += 1
        if total > MAX_REQUEST_BYTES:
            raise too_large("request_size", total, MAX_REQUEST_BYTES)
        return stamped

    def _publish_stamped(self, topic: Topic, messages: Sequence[Message], *together: bytes) -> None:
        if topic.wanted:
            self._write(recovery.published(topic, messages), *together)
        elif together:
            self._write(*together)
        self.state.next_seq = messages[-1].seq + 1
        for subscription in self.state.fan_out(topic, messages):
            self.became_ready(subscription.queue)

    def _settled(self, queue: Queue) -> None:
        if queue.freed_capacity:
            queue.freed_capacity = False
            for listener in self._listeners:
                listener.capacity_freed(queue.name)
        if queue.keys:
            self.became_ready(queue)  # the next messages of an ordering key may be due

    def _catch_up(self) -> float:
        now = self.clock.monotonic()
        self.state.schedule.run_due(now)
        if now >= self._next_trim:
            self.state.trim(self._now_us())
            self._next_trim = now + _TRIM_SECONDS
        return now

    def _next_wakeup(self) -> float:
        due = self.state.schedule.next_time()
        return self._next_trim if due is None else min(due, self._next_trim)

    def _announce(self) -> None:
        wakeup = self._next_wakeup()
        if self._announced is None or wakeup < self._announced:
            self._announced = wakeup
            for listener in self._listeners:
                listener.wakeup_moved()

    def _changed(self, subscription: str) -> None:
        for listener in self._listeners:
            listener.subscription_changed(subscription)

    def _now_us(self) -> int:
        return (self.clock.now() - _EPOCH) // _MICROSECOND

    def _write(self, *records: bytes) -> None:
        if self._journal is None:
            return
        if self._journal.size > self._compact_at:
            # Before the append: the state does not yet show what these records say.
            self._compact_if_worthwhile(self._compact_bytes)
        self._journal.append(*records)

    def _compact_if_worthwhile(self, threshold: int) -> None:
        if self._journal is None:
            return
        if self._journal.size > max(threshold, _GARBAGE_FACTOR * self.state.store.live_bytes):
            self.compact()
        self._compact_at = max(self._compact_bytes, _GARBAGE_FACTOR * self._journal.size)


def check_max_messages(value: int) -> None:
    if value <= 0:
        raise invalid(
            f"The value for max_messages is too small. You passed {value} in the request, but the minimum value is 1."
        )


def _check_message(message: Any, encoded: bytes) -> None:
    attributes = message.attributes
    if attributes:
        _check_attributes(attributes, longest_value=len(encoded) - len(message.data))
    elif not message.data:
        raise invalid("A message must have data or at least one attribute.")
    if len(message.ordering_key.encode()) > MAX_ORDERING_KEY_BYTES:
        raise too_large("ordering_key", len(message.ordering_key.encode()), MAX_ORDERING_KEY_BYTES)


def _check_attributes(attributes: Any, longest_value: int) -> None:
    """Reading values out of a protobuf map is slow, so they are left alone when none of them can be too long."""
    if len(attributes) > MAX_ATTRIBUTES:
        raise too_large("attribute count", len(attributes), MAX_ATTRIBUTES)
    for key in attributes:
        if not key or (len(key) * 4 > MAX_ATTRIBUTE_KEY_BYTES and len(key.encode()) > MAX_ATTRIBUTE_KEY_BYTES):
            raise invalid(f"Attribute keys have 1 to {MAX_ATTRIBUTE_KEY_BYTES} bytes (key={key[:40]}).")
        if key.startswith("goog"):
            raise invalid(f"Attribute keys must not start with 'goog' (key={key[:40]}).")
    if longest_value > MAX_ATTRIBUTE_VALUE_BYTES:
        for key, value in attributes.items():
            if len(value.encode()) > MAX_ATTRIBUTE_VALUE_BYTES:
                raise invalid(f"Attribute values have at most {MAX_ATTRIBUTE_VALUE_BYTES} bytes (key={key[:40]}).")


def _dead_letter(entry: Entry, subscription: str) -> Any:
    """The message with Google's attributes about where it came from."""
    message = decode(entry.message)
    message.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] = str(entry.attempts)
    message.attributes["CloudPubSubDeadLetterSourceSubscription"] = subscription.rpartition("/")[2]
    message.attributes["CloudPubSubDeadLetterSourceSubscriptionProject"] = project_of(subscription)
    message.attributes["CloudPubSubDeadLetterSourceTopicPublishTime"] = message.publish_time.ToJsonString()
    return message


def _refuse_malformed(queue: Queue, malformed: Sequence[str]) -> None:
    if malformed and not queue.settings.exactly_once:
        raise invalid(f"You have passed an invalid ack ID to the service (ack_id={malformed[0]}).")


def _refuse_stale(queue: Queue, stale: Sequence[str]) -> None:
    if stale and queue.settings.exactly_once:
        raise PubSubError(Code.INVALID_ARGUMENT, _STALE_ACKS, dict.fromkeys(stale, INVALID_ACK_ID))


def _received(one: Any) -> Received:
    message = one.message
    return Received(
        ack_id=one.ack_id,
        message_id=message.message_id,
        data=message.data,
        attributes=dict(message.attributes),
        ordering_key=message.ordering_key,
        published=message.publish_time.ToDatetime(tzinfo=UTC),
        delivery_attempt=one.delivery_attempt,
    )


def _subscription_stats(subscription: Subscription, now_us: int) -> SubscriptionStats:
    queue = subscription.queue
    counters = queue.counters
    oldest = next(iter(queue.backlog.values()), None)
    return SubscriptionStats(
        name=subscription.name,
        topic=subscription.config.topic,
        backlog=len(queue.backlog),
        outstanding=queue.outstanding,
        oldest_unacked_seconds=(now_us - oldest.message.published) / 1e6 if oldest else 0.0,
        delivered=counters.delivered,
        acked=counters.acked,
        nacked=counters.nacked,
        expired=counters.expired,
        dead_lettered=counters.dead_lettered,
        dropped_by_retention=counters.dropped_by_retention,
    )
