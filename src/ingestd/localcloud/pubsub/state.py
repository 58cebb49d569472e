"""Everything the local Pub/Sub knows, and the changes that can be made to it.

Requests and the journal's replay go through the same methods, so a restart arrives at the same state. Nothing here
checks a request or writes the journal: the catalog and the core do that first.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingestd.localcloud.pubsub import wire
from ingestd.localcloud.pubsub.entries import Message, Store, forget_older
from ingestd.localcloud.pubsub.names import DELETED_TOPIC
from ingestd.localcloud.pubsub.queue import Owner, Queue
from ingestd.localcloud.pubsub.resources import Settings, microseconds
from ingestd.localcloud.pubsub.schedule import Schedule


@dataclass(slots=True)
class Topic:
    uid: int
    config: Any  # the Topic protobuf
    subscriptions: dict[str, "Subscription"] = field(default_factory=dict)
    snapshots: dict[str, "Snapshot"] = field(default_factory=dict)
    retained: dict[int, Message] = field(default_factory=dict)
    retention_us: int = 0  # 0: the topic itself retains nothing
    published: int = 0
    published_bytes: int = 0

    @property
    def name(self) -> str:
        return str(self.config.name)

    @property
    def wanted(self) -> bool:
        """Whether anybody would ever see a message published now."""
        return bool(self.subscriptions or self.snapshots or self.retention_us)


@dataclass(slots=True)
class Subscription:
    uid: int
    config: Any  # the Subscription protobuf
    topic: Topic | None
    queue: Queue

    @property
    def name(self) -> str:
        return str(self.config.name)


@dataclass(slots=True)
class Snapshot:
    """The messages unacknowledged at its creation, and all published to the topic since."""

    uid: int
    config: Any  # the Snapshot protobuf
    topic: Topic | None
    messages: dict[int, Message] = field(default_factory=dict)

    @property
    def expires_us(self) -> int:
        return int(self.config.expire_time.ToMicroseconds())


def attributes_of(message: Message) -> Any:
    return decode(message).attributes


def decode(message: Message) -> Any:
    return wire.PubsubMessage.FromString(wire.unframe_message(message.framed))


class State:
    def __init__(self, owner: Owner) -> None:
        self.topics: dict[str, Topic] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.policies: dict[str, Any] = {}
        self.topics_by_uid: dict[int, Topic] = {}
        self.subscriptions_by_uid: dict[int, Subscription] = {}
        self.store = Store()
        self.schedule = Schedule()
        self.next_uid = 1
        self.next_seq = 1
        self.epoch = 0  # how many times the core started: makes ack ids of earlier runs recognisable
        self._owner = owner

    def put_topic(self, uid: int, config: Any) -> Topic:
        topic = self.topics_by_uid.get(uid)
        if topic is None:
            topic = self.topics[config.name] = self.topics_by_uid[uid] = Topic(uid, config)
            self.next_uid = max(self.next_uid, uid + 1)
        topic.config = config
        topic.retention_us = microseconds(config.message_retention_duration)
        if not topic.retention_us:
            self._release_all(topic.retained)
        for subscription in topic.subscriptions.values():
            self._mirror_topic_retention(subscription)
        return topic

    def drop_topic(self, topic: Topic) -> None:
        del self.topics[topic.name], self.topics_by_uid[topic.uid]
        self.policies.pop(topic.name, None)
        self._release_all(topic.retained)
        for subscription in topic.subscriptions.values():
            subscription.topic = None
            subscription.config.topic = DELETED_TOPIC
            self._mirror_topic_retention(subscription)
        for snapshot in topic.snapshots.values():
            snapshot.topic = None
            snapshot.config.topic = DELETED_TOPIC

    def put_subscription(self, uid: int, topic: Topic | None, config: Any) -> Subscription:
        subscription = self.subscriptions_by_uid.get(uid)
        settings = Settings.of(config)
        if subscription is None:
            queue = Queue(config.name, uid, settings, self.store, self.schedule, self._owner)
            queue.begin(self.epoch)
            subscription = Subscription(uid, config, topic, queue)
            self.subscriptions[config.name] = self.subscriptions_by_uid[uid] = subscription
            self.next_uid = max(self.next_uid, uid + 1)
        subscription.config = config
        queue = subscription.queue
        queue.settings = settings
        queue.trim_due = 0 if queue.backlog else None  # the retention may have changed: look again at the next chance
        if not settings.retain_acked:
            self._release_all(queue.retained)
        if settings.detached:
            queue.clear()
            if topic is not None:
                topic.subscriptions.pop(config.name, None)
        elif topic is not None:
            topic.subscriptions[config.name] = subscription
        self._mirror_topic_retention(subscription)
        return subscription

    def drop_subscription(self, subscription: Subscription) -> None:
        del self.subscriptions[subscription.name], self.subscriptions_by_uid[subscription.uid]
        self.policies.pop(subscription.name, None)
        if subscription.topic is not None:
            subscription.topic.subscriptions.pop(subscription.name, None)
        subscription.queue.clear()

    def put_snapshot(self, uid: int, topic: Topic | None, config: Any, messages: Iterable[Message] = ()) -> Snapshot:
        snapshot = self.snapshots.get(config.name)
        if snapshot is None or snapshot.uid != uid:
            snapshot = self.snapshots[config.name] = Snapshot(uid, config, topic)
            self.next_uid = max(self.next_uid, uid + 1)
            if topic is not None:
                topic.snapshots[config.name] = snapshot
            for message in messages:
                self.store.hold(message)
                snapshot.messages[message.seq] = message
        snapshot.config = config
        return snapshot

    def drop_snapshot(self, snapshot: Snapshot) -> None:
        name = snapshot.config.name
        del self.snapshots[name]
        self.policies.pop(name, None)
        if snapshot.topic is not None:
            snapshot.topic.snapshots.pop(name, None)
        self._release_all(snapshot.messages)

    def fan_out(self, topic: Topic, messages: Sequence[Message]) -> list[Subscription]:
        """Give published messages to everyone who wants them; the subscriptions that got some."""
        reached: list[Subscription] = []
        topic.published += len(messages)
        for message in messages:
            topic.published_bytes += len(message.framed)
        for subscription in topic.subscriptions.values():
            offer = subscription.queue.offer
            predicate = subscription.queue.settings.predicate
            if predicate is None:
                for message in messages:
                    offer(message)
                reached.append(subscription)
                continue
            passing = [message for message in messages if predicate(attributes_of(message))]
            for message in passing:
                offer(message)
            if passing:
                reached.append(subscription)
        keepers = [snapshot.messages for snapshot in topic.snapshots.values()]
        if topic.retention_us:
            keepers.append(topic.retained)
        for keeper in keepers:
            for message in messages:
                self.store.hold(message)
                keeper[message.seq] = message
        return reached

    def retain(self, topic: Topic, messages: Iterable[Message]) -> None:
        for message in messages:
            self.store.hold(message)
            topic.retained[message.seq] = message

    def trim(self, now_us: int) -> None:
        """Forget what has outlived its retention, everywhere."""
        for subscription in self.subscriptions.values():
            subscription.queue.trim(now_us)
        for topic in self.topics.values():
            if topic.retention_us:
                forget_older(topic.retained, now_us - topic.retention_us, self.store)
        for snapshot in list(self.snapshots.values()):
            if snapshot.expires_us <= now_us:
                self.drop_snapshot(snapshot)

    def _mirror_topic_retention(self, subscription: Subscription) -> None:
        """A subscription shows its topic's retention, output only."""
        config = subscription.config
        config.ClearField("topic_message_retention_duration")
        topic = subscription.topic
        if topic is not None and topic.retention_us:
            config.topic_message_retention_duration.CopyFrom(topic.config.message_retention_duration)

    def _release_all(self, messages: dict[int, Message]) -> None:
        for message in messages.values():
            self.store.release(message)
        messages.clear()
