"""The state as journal records: what each change writes, how a restart reads it back, what a compaction keeps."""

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ingestd.localcloud.pubsub import wire
from ingestd.localcloud.pubsub.entries import Entry, Message
from ingestd.localcloud.pubsub.journal import Journal, Record, RecordKind, encode
from ingestd.localcloud.pubsub.state import Snapshot, State, Subscription, Topic

_UID = struct.Struct("<Q")
_TWO_UIDS = struct.Struct("<QQ")
_UIDS_AND_SIZE = struct.Struct("<QQI")
_PUBLISHED = struct.Struct("<QQq")  # topic, first sequence number, microseconds
_SIZES = struct.Struct("<IH")  # framed message, ordering key

_STORE_CHUNK = 1 << 20


def started(epoch: int) -> bytes:
    return encode(RecordKind.STARTED, _UID.pack(epoch))


def topic(uid: int, config: Any) -> bytes:
    return encode(RecordKind.TOPIC, _UID.pack(uid), config.SerializeToString())


def topic_deleted(uid: int) -> bytes:
    return encode(RecordKind.TOPIC_DELETED, _UID.pack(uid))


def subscription(uid: int, topic: Topic | None, config: Any) -> bytes:
    return encode(RecordKind.SUBSCRIPTION, _TWO_UIDS.pack(uid, topic.uid if topic else 0), config.SerializeToString())


def subscription_deleted(uid: int) -> bytes:
    return encode(RecordKind.SUBSCRIPTION_DELETED, _UID.pack(uid))


def snapshot(uid: int, topic: Topic | None, config: Any, messages: Iterable[Message]) -> bytes:
    body = config.SerializeToString()
    head = _UIDS_AND_SIZE.pack(uid, topic.uid if topic else 0, len(body))
    return encode(RecordKind.SNAPSHOT, head, body, _seqs(message.seq for message in messages))


def snapshot_deleted(name: str) -> bytes:
    return encode(RecordKind.SNAPSHOT_DELETED, name.encode())


def policy(resource: str, value: Any) -> bytes:
    name = resource.encode()
    return encode(RecordKind.POLICY, _UID.pack(len(name)), name, value.SerializeToString())


def published(topic: Topic, messages: Sequence[Message]) -> bytes:
    parts = [_PUBLISHED.pack(topic.uid, messages[0].seq, messages[0].published)]
    for message in messages:
        key = message.ordering_key.encode()
        parts += (_SIZES.pack(len(message.framed), len(key)), key, message.framed)
    return encode(RecordKind.PUBLISHED, *parts)


def acked(subscription: Subscription, entries: Iterable[Entry]) -> bytes:
    return encode(RecordKind.ACKED, _UID.pack(subscription.uid), _seqs(entry.message.seq for entry in entries))


def backlog(subscription: Subscription, messages: Iterable[Message]) -> bytes:
    return encode(RecordKind.BACKLOG, _UID.pack(subscription.uid), _seqs(message.seq for message in messages))


def attempts(subscription: Subscription, entries: Iterable[Entry]) -> bytes:
    pairs = (number for entry in entries for number in (entry.message.seq, entry.attempts))
    return encode(RecordKind.ATTEMPTS, _UID.pack(subscription.uid), _seqs(pairs))


def recover(journal: Journal, state: State) -> None:
    """Replay the journal into an empty state."""
    reader = _Reader(state)
    for record in journal.replay():
        reader.apply(record)


def everything(state: State) -> Iterator[bytes]:
    """The whole state as records: what a compaction writes."""
    yield started(state.epoch)
    yield encode(RecordKind.COUNTERS, _TWO_UIDS.pack(state.next_uid, state.next_seq))
    for one in state.topics.values():
        yield topic(one.uid, one.config)
    for resource, value in state.policies.items():
        yield policy(resource, value)
    yield from _stored(state)
    for each in state.subscriptions.values():
        yield subscription(each.uid, each.topic, each.config)
        unacked = each.queue.unacked()
        yield backlog(each, [entry.message for entry in unacked])
        if tried := [entry for entry in unacked if entry.attempts and each.queue.settings.max_delivery_attempts]:
            yield attempts(each, tried)
        if each.queue.retained:
            yield encode(RecordKind.RETAINED_BY_SUBSCRIPTION, _UID.pack(each.uid), _seqs(each.queue.retained))
    for one in state.topics.values():
        if one.retained:
            yield encode(RecordKind.RETAINED_BY_TOPIC, _UID.pack(one.uid), _seqs(one.retained))
    for shot in state.snapshots.values():
        yield snapshot(shot.uid, shot.topic, shot.config, shot.messages.values())


def _stored(state: State) -> Iterator[bytes]:
    alive: dict[int, Message] = {}
    for each in state.subscriptions.values():
        alive.update((entry.message.seq, entry.message) for entry in each.queue.unacked())
        alive.update(each.queue.retained)
    for one in state.topics.values():
        alive.update(one.retained)
    for shot in state.snapshots.values():
        alive.update(shot.messages)
    parts: list[bytes] = []
    size = 0
    for seq in sorted(alive):
        message = alive[seq]
        key = message.ordering_key.encode()
        parts += (
            _PUBLISHED.pack(message.topic_uid, seq, message.published),
            _SIZES.pack(len(message.framed), len(key)),
            key,
            message.framed,
        )
        size += len(message.framed)
        if size >= _STORE_CHUNK:
            yield encode(RecordKind.STORED, *parts)
            parts, size = [], 0
    if parts:
        yield encode(RecordKind.STORED, *parts)


def _seqs(numbers: Iterable[int]) -> bytes:
    return array("Q", numbers).tobytes()


class _Reader:
    """Applies records; knows every message read so far, since later records name them by sequence number."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._messages: dict[int, Message] = {}

    def apply(self, record: Record) -> None:
        payload = record.payload
        match record.kind:
            case RecordKind.STARTED:
                self._state.epoch = max(self._state.epoch, _UID.unpack(payload)[0])
            case RecordKind.COUNTERS:
                uid, seq = _TWO_UIDS.unpack(payload)
                self._state.next_uid = max(self._state.next_uid, uid)
                self._state.next_seq = max(self._state.next_seq, seq)
            case RecordKind.TOPIC:
                self._state.put_topic(self._uid(payload), wire.Topic.FromString(payload[_UID.size :]))
            case RecordKind.TOPIC_DELETED:
                self._state.drop_topic(self._state.topics_by_uid[self._uid(payload)])
            case RecordKind.SUBSCRIPTION:
                uid, topic_uid = _TWO_UIDS.unpack_from(payload)
                config = wire.Subscription.FromString(payload[_TWO_UIDS.size :])
                self._state.put_subscription(uid, self._state.topics_by_uid.get(topic_uid), config)
            case RecordKind.SUBSCRIPTION_DELETED:
                self._state.drop_subscription(self._subscription(payload))
            case RecordKind.SNAPSHOT:
                self._put_snapshot(payload)
            case RecordKind.SNAPSHOT_DELETED:
                self._drop_snapshot(self._state.snapshots.get(payload.decode()))
            case RecordKind.POLICY:
                end = _UID.size + self._uid(payload)
                self._state.policies[payload[_UID.size : end].decode()] = wire.Policy.FromString(payload[end:])
            case RecordKind.PUBLISHED:
                self._publish(payload)
            case RecordKind.STORED:
                self._store(payload)
            case RecordKind.ACKED:
                queue = self._subscription(payload).queue
                seqs = self._numbers(payload)
                queue.ack([queue.backlog[seq] for seq in seqs if seq in queue.backlog])
            case RecordKind.BACKLOG:
                self._subscription(payload).queue.reset(self._named(payload))
            case RecordKind.RETAINED_BY_SUBSCRIPTION:
                self._subscription(payload).queue.restore_retained(self._named(payload))
            case RecordKind.RETAINED_BY_TOPIC:
                self._state.retain(self._state.topics_by_uid[self._uid(payload)], self._named(payload))
            case RecordKind.ATTEMPTS:
                self._remember_attempts(payload)

    def _publish(self, payload: bytes) -> None:
        topic_uid, seq, micros = _PUBLISHED.unpack_from(payload)
        messages: list[Message] = []
        at = _PUBLISHED.size
        while at < len(payload):
            at = self._read(payload, at, topic_uid, seq + len(messages), micros, messages)
        self._state.fan_out(self._state.topics_by_uid[topic_uid], messages)

    def _store(self, payload: bytes) -> None:
        at = 0
        while at < len(payload):
            topic_uid, seq, micros = _PUBLISHED.unpack_from(payload, at)
            at = self._read(payload, at + _PUBLISHED.size, topic_uid, seq, micros, [])

    def _read(self, payload: bytes, at: int, topic_uid: int, seq: int, micros: int, into: list[Message]) -> int:
        size, key_size = _SIZES.unpack_from(payload, at)
        start = at + _SIZES.size + key_size
        key = payload[at + _SIZES.size : start].decode()
        message = Message(seq, micros, payload[start : start + size], key, topic_uid)
        self._messages[seq] = message
        self._state.next_seq = max(self._state.next_seq, seq + 1)
        into.append(message)
        return int(start + size)

    def _put_snapshot(self, payload: bytes) -> None:
        uid, topic_uid, size = _UIDS_AND_SIZE.unpack_from(payload)
        end = _UIDS_AND_SIZE.size + size
        config = wire.Snapshot.FromString(payload[_UIDS_AND_SIZE.size : end])
        messages = [self._messages[seq] for seq in array("Q", payload[end:]) if seq in self._messages]
        self._state.put_snapshot(uid, self._state.topics_by_uid.get(topic_uid), config, messages)

    def _drop_snapshot(self, found: Snapshot | None) -> None:
        if found is not None:
            self._state.drop_snapshot(found)

    def _remember_attempts(self, payload: bytes) -> None:
        backlog = self._subscription(payload).queue.backlog
        numbers = self._numbers(payload)
        for seq, tries in zip(numbers[::2], numbers[1::2], strict=True):
            if seq in backlog:
                backlog[seq].attempts = tries

    def _subscription(self, payload: bytes) -> Subscription:
        return self._state.subscriptions_by_uid[self._uid(payload)]

    def _named(self, payload: bytes) -> list[Message]:
        return [self._messages[seq] for seq in self._numbers(payload) if seq in self._messages]

    @staticmethod
    def _uid(payload: bytes) -> int:
        (uid,) = _UID.unpack_from(payload)
        return int(uid)

    @staticmethod
    def _numbers(payload: bytes) -> "array[int]":
        return array("Q", payload[_UID.size :])
