"""The parts a subscription's queue is made of: messages, their entries, leases and streams' accounts."""

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingestd.localcloud.pubsub.queue import Queue


class Message:
    """A published message, encoded. `holds` counts the backlogs, snapshots and retentions that still need it."""

    __slots__ = ("framed", "holds", "ordering_key", "published", "seq", "topic_uid")

    def __init__(self, seq: int, published: int, framed: bytes, ordering_key: str, topic_uid: int) -> None:
        self.seq = seq
        self.published = published  # microseconds since the epoch
        self.framed = framed
        self.ordering_key = ordering_key
        self.topic_uid = topic_uid
        self.holds = 0


class Store:
    """How many bytes are alive: what tells the journal when garbage dominates."""

    __slots__ = ("live_bytes",)

    def __init__(self) -> None:
        self.live_bytes = 0

    def hold(self, message: Message) -> None:
        message.holds += 1
        if message.holds == 1:
            self.live_bytes += len(message.framed)

    def release(self, message: Message) -> None:
        message.holds -= 1
        if message.holds == 0:
            self.live_bytes -= len(message.framed)


class State(StrEnum):
    READY = "ready"
    LEASED = "leased"
    PARKED = "parked"
    ACKED = "acked"


class Holder:
    """A stream's flow control: how much it may have outstanding, and has. Zero or less means no limit."""

    __slots__ = ("max_bytes", "max_messages", "messages", "size", "stalled")

    def __init__(self, max_messages: int = 0, max_bytes: int = 0) -> None:
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.messages = 0
        self.size = 0
        self.stalled = False  # it wanted more when it was full

    def room(self, limit: int) -> int:
        if self.max_bytes > 0 and self.size >= self.max_bytes:
            return 0
        return min(limit, self.max_messages - self.messages) if self.max_messages > 0 else limit


class Entry:
    """One message in one subscription."""

    __slots__ = ("ack_id", "attempts", "batch", "holder", "key", "message", "state")

    def __init__(self, message: Message, key: "KeyQueue | None") -> None:
        self.message = message
        self.key = key
        self.state = State.READY
        self.attempts = 0
        self.ack_id = ""
        self.batch: LeaseBatch | None = None
        self.holder: Holder | None = None


class KeyQueue:
    """The unsettled messages of one ordering key, oldest first."""

    __slots__ = ("entries", "not_before", "outstanding", "queued")

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque()
        self.outstanding = 0
        self.queued = False  # waiting in the ready queue or in a backoff
        self.not_before = 0.0


class LeaseBatch:
    """Leases that end together: one timer for a whole pull."""

    __slots__ = ("entries", "live", "queue")

    def __init__(self, queue: "Queue") -> None:
        self.queue = queue
        self.entries: list[Entry] = []
        self.live = 0

    def fire(self, when: float) -> None:
        self.queue.expire(self, when)

    def drop(self) -> None:
        self.live -= 1
        if self.live == 0:
            self.entries.clear()


class Backoff:
    """An entry or a key that rests before it is delivered again."""

    __slots__ = ("item", "live", "queue")

    def __init__(self, queue: "Queue", item: Entry | KeyQueue) -> None:
        self.queue = queue
        self.item = item
        self.live = 1

    def fire(self, when: float) -> None:
        self.queue.wake(self.item)


@dataclass(slots=True)
class Counters:
    delivered: int = 0
    acked: int = 0
    nacked: int = 0
    expired: int = 0
    dead_lettered: int = 0
    dropped_by_retention: int = 0


@dataclass(frozen=True, slots=True)
class Want:
    """What a pull asks for: at most so many messages and bytes, leased for so long, on a stream's account if any."""

    messages: int
    size: int
    seconds: float
    holder: Holder | None = None


@dataclass(slots=True)
class Taken:
    """What a pull got: the encoded `received_messages`, ready to send, and the entries behind them."""

    pieces: list[bytes] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    size: int = 0


NOTHING = Taken()


def forget_older(messages: dict[int, Message], horizon: int, store: Store) -> None:
    """Drop the front of a publish-ordered collection up to the horizon (microseconds)."""
    old: list[int] = []
    for seq, message in messages.items():
        if message.published > horizon:
            break
        old.append(seq)
    for seq in old:
        store.release(messages.pop(seq))
