"""The resource half of the core: topics, subscriptions, snapshots and policies, created, read, changed and deleted.

Every change is checked, written to the journal, and only then made, in that order.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from threading import RLock
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from ingestd.localcloud.faults import Hooks
from ingestd.localcloud.pubsub import names, recovery, resources, wire
from ingestd.localcloud.pubsub.entries import Message
from ingestd.localcloud.pubsub.errors import Code, PubSubError, invalid, not_found, unsupported
from ingestd.localcloud.pubsub.state import Snapshot, State, Subscription, Topic, attributes_of

DEFAULT_PAGE = 100
MAX_PAGE = 1000


class Catalog:
    hooks: Hooks
    state: State
    _lock: RLock

    @abstractmethod
    def _write(self, *records: bytes) -> None: ...

    @abstractmethod
    def _now_us(self) -> int: ...

    @abstractmethod
    def _catch_up(self) -> float: ...

    @abstractmethod
    def _changed(self, subscription: str) -> None: ...

    # Topics

    def create_topic(self, topic: Any) -> Any:
        with self.hooks.operation("CreateTopic", topic.name), self._lock:
            config = resources.new_topic(topic)
            if config.name in self.state.topics:
                raise _exists(config.name)
            uid = self.state.next_uid
            self._write(recovery.topic(uid, config))
            return self.state.put_topic(uid, config).config

    def get_topic(self, name: str) -> Any:
        with self.hooks.operation("GetTopic", name), self._lock:
            return self._topic(name).config

    def update_topic(self, topic: Any, paths: Iterable[str]) -> Any:
        with self.hooks.operation("UpdateTopic", topic.name), self._lock:
            current = self._topic(topic.name)
            config = resources.updated_topic(current.config, topic, paths)
            self._write(recovery.topic(current.uid, config))
            return self.state.put_topic(current.uid, config).config

    def delete_topic(self, name: str) -> None:
        with self.hooks.operation("DeleteTopic", name), self._lock:
            topic = self._topic(name)
            self._write(recovery.topic_deleted(topic.uid))
            self.state.drop_topic(topic)

    def list_topics(self, project: str, page_size: int = 0, page_token: str = "") -> tuple[list[Any], str]:
        with self.hooks.operation("ListTopics", project), self._lock:
            found, token = self._page(self.state.topics, names.check_project(project), page_size, page_token)
            return [self.state.topics[name].config for name in found], token

    def list_topic_subscriptions(self, name: str, page_size: int = 0, page_token: str = "") -> tuple[list[str], str]:
        with self.hooks.operation("ListTopicSubscriptions", name), self._lock:
            return _page(sorted(self._topic(name).subscriptions), page_size, page_token)

    def list_topic_snapshots(self, name: str, page_size: int = 0, page_token: str = "") -> tuple[list[str], str]:
        with self.hooks.operation("ListTopicSnapshots", name), self._lock:
            return _page(sorted(self._topic(name).snapshots), page_size, page_token)

    # Subscriptions

    def create_subscription(self, subscription: Any) -> Any:
        with self.hooks.operation("CreateSubscription", subscription.name), self._lock:
            config = resources.new_subscription(subscription)
            if config.name in self.state.subscriptions:
                raise _exists(config.name)
            topic = self._topic(config.topic)
            self._check_dead_letter_topic(config)
            uid = self.state.next_uid
            self._write(recovery.subscription(uid, topic, config))
            return self.state.put_subscription(uid, topic, config).config

    def get_subscription(self, name: str) -> Any:
        with self.hooks.operation("GetSubscription", name), self._lock:
            return self._subscription(name).config

    def update_subscription(self, subscription: Any, paths: Iterable[str]) -> Any:
        with self.hooks.operation("UpdateSubscription", subscription.name), self._lock:
            current = self._subscription(subscription.name)
            config = resources.updated_subscription(current.config, subscription, paths)
            self._check_dead_letter_topic(config)
            return self._replace_subscription(current, config)

    def delete_subscription(self, name: str) -> None:
        with self.hooks.operation("DeleteSubscription", name), self._lock:
            subscription = self._subscription(name)
            self._write(recovery.subscription_deleted(subscription.uid))
            self.state.drop_subscription(subscription)
            self._changed(name)

    def detach_subscription(self, name: str) -> None:
        """Cut the subscription off its topic; what it had not delivered is dropped."""
        with self.hooks.operation("DetachSubscription", name), self._lock:
            current = self._subscription(name)
            config = wire.Subscription()
            config.CopyFrom(current.config)
            config.detached = True
            self._replace_subscription(current, config)

    def modify_push_config(self, name: str, push_config: Any) -> None:
        with self.hooks.operation("ModifyPushConfig", name), self._lock:
            self._subscription(name)
            if push_config.push_endpoint:
                raise unsupported("push subscriptions")

    def list_subscriptions(self, project: str, page_size: int = 0, page_token: str = "") -> tuple[list[Any], str]:
        with self.hooks.operation("ListSubscriptions", project), self._lock:
            found, token = self._page(self.state.subscriptions, names.check_project(project), page_size, page_token)
            return [self.state.subscriptions[name].config for name in found], token

    # Snapshots and seeking

    def create_snapshot(self, name: str, subscription: str, labels: Mapping[str, str] | None = None) -> Any:
        with self.hooks.operation("CreateSnapshot", name), self._lock:
            names.check(name, "snapshots")
            self._catch_up()
            source = self._attached(subscription)
            if name in self.state.snapshots:
                raise _exists(name)
            if source.topic is None:
                raise PubSubError(Code.FAILED_PRECONDITION, "The subscription's topic has been deleted.")
            now = self._now_us()
            messages = [entry.message for entry in source.queue.unacked()]
            expires = min((message.published for message in messages), default=now) + resources.SNAPSHOT_LIFE_US
            if expires - now < resources.MIN_SNAPSHOT_LIFE_US:
                raise PubSubError(Code.FAILED_PRECONDITION, "The snapshot would expire within an hour.")
            config = wire.Snapshot(name=name, topic=source.topic.name, expire_time=_timestamp(expires))
            config.labels.update(labels or {})
            resources.check_labels(config.labels)
            uid = self.state.next_uid
            self._write(recovery.snapshot(uid, source.topic, config, messages))
            return self.state.put_snapshot(uid, source.topic, config, messages).config

    def get_snapshot(self, name: str) -> Any:
        with self.hooks.operation("GetSnapshot", name), self._lock:
            return self._snapshot(name).config

    def update_snapshot(self, snapshot: Any, paths: Iterable[str]) -> Any:
        with self.hooks.operation("UpdateSnapshot", snapshot.name), self._lock:
            current = self._snapshot(snapshot.name)
            config = resources.updated_snapshot(current.config, snapshot, paths)
            self._write(recovery.snapshot(current.uid, current.topic, config, current.messages.values()))
            return self.state.put_snapshot(current.uid, current.topic, config).config

    def delete_snapshot(self, name: str) -> None:
        with self.hooks.operation("DeleteSnapshot", name), self._lock:
            snapshot = self._snapshot(name)
            self._write(recovery.snapshot_deleted(name))
            self.state.drop_snapshot(snapshot)

    def list_snapshots(self, project: str, page_size: int = 0, page_token: str = "") -> tuple[list[Any], str]:
        with self.hooks.operation("ListSnapshots", project), self._lock:
            self.state.trim(self._now_us())
            found, token = self._page(self.state.snapshots, names.check_project(project), page_size, page_token)
            return [self.state.snapshots[name].config for name in found], token

    def seek_to_time(self, subscription: str, time_us: int) -> None:
        """Everything published before is acknowledged, everything retained from then on is not."""
        with self.hooks.operation("Seek", subscription), self._lock:
            self._catch_up()
            target = self._attached(subscription)
            queue = target.queue
            kept = {entry.message.seq: entry.message for entry in queue.unacked()}
            kept.update(queue.retained)
            if target.topic is not None:
                kept.update(target.topic.retained)
            self._reset(target, (message for message in kept.values() if message.published >= time_us))

    def seek_to_snapshot(self, subscription: str, snapshot: str) -> None:
        """The backlog becomes what the snapshot holds."""
        with self.hooks.operation("Seek", subscription), self._lock:
            self._catch_up()
            target = self._attached(subscription)
            source = self._snapshot(snapshot)
            if source.topic is not target.topic:
                raise invalid("The snapshot and the subscription belong to different topics.")
            self._reset(target, source.messages.values())

    # Policies

    def get_iam_policy(self, resource: str) -> Any:
        with self.hooks.operation("GetIamPolicy", resource), self._lock:
            self._check_exists(resource)
            return self.state.policies.get(resource) or wire.Policy(etag=b"ACAB")

    def set_iam_policy(self, resource: str, policy: Any) -> Any:
        """Stored and returned; nothing is enforced, since the local cloud knows no identities."""
        with self.hooks.operation("SetIamPolicy", resource), self._lock:
            self._check_exists(resource)
            self._write(recovery.policy(resource, policy))
            self.state.policies[resource] = policy
            return policy

    def test_iam_permissions(self, resource: str, permissions: Sequence[str]) -> list[str]:
        """Everything is allowed on what exists; of anything else nothing is known, which is no error."""
        with self.hooks.operation("TestIamPermissions", resource), self._lock:
            known = resource in self.state.topics or resource in self.state.subscriptions
            return list(permissions) if known else []

    def _topic(self, name: str) -> Topic:
        topic = self.state.topics.get(name)
        if topic is None:
            names.check(name, "topics")
            raise not_found(name)
        return topic

    def _subscription(self, name: str) -> Subscription:
        subscription = self.state.subscriptions.get(name)
        if subscription is None:
            names.check(name, "subscriptions")
            raise not_found(name)
        return subscription

    def _attached(self, name: str) -> Subscription:
        subscription = self._subscription(name)
        if subscription.queue.settings.detached:
            raise PubSubError(Code.FAILED_PRECONDITION, f"The subscription is detached from its topic ({name}).")
        return subscription

    def _snapshot(self, name: str) -> Snapshot:
        snapshot = self.state.snapshots.get(name)
        if snapshot is None or snapshot.expires_us <= self._now_us():
            names.check(name, "snapshots")
            raise not_found(name)
        return snapshot

    def _check_exists(self, resource: str) -> None:
        found = (
            resource in self.state.topics or resource in self.state.subscriptions or resource in self.state.snapshots
        )
        if not found:
            raise not_found(resource)

    def _check_dead_letter_topic(self, config: Any) -> None:
        name = config.dead_letter_policy.dead_letter_topic
        if name and name not in self.state.topics:
            raise not_found(name)

    def _replace_subscription(self, current: Subscription, config: Any) -> Any:
        self._write(recovery.subscription(current.uid, current.topic, config))
        updated = self.state.put_subscription(current.uid, current.topic, config)
        self._changed(updated.name)
        return updated.config

    def _reset(self, target: Subscription, messages: Iterable[Message]) -> None:
        predicate = target.queue.settings.predicate
        ordered = sorted(messages, key=lambda message: message.seq)
        if predicate is not None:
            ordered = [message for message in ordered if predicate(attributes_of(message))]
        self._write(recovery.backlog(target, ordered))
        target.queue.reset(ordered)
        self._changed(target.name)

    def _page(self, resources: Mapping[str, Any], project: str, size: int, token: str) -> tuple[list[str], str]:
        return _page(sorted(name for name in resources if name.startswith(f"{project}/")), size, token)


def _page(ordered: list[str], size: int, token: str) -> tuple[list[str], str]:
    """A page of sorted names; the token is the last name of the page before."""
    if size < 0:
        raise invalid("The page_size must not be negative.")
    rest = [name for name in ordered if name > token] if token else ordered
    page = rest[: min(size or DEFAULT_PAGE, MAX_PAGE)]
    return page, page[-1] if len(page) < len(rest) else ""


def _timestamp(micros: int) -> Timestamp:
    stamp = Timestamp()
    stamp.FromMicroseconds(micros)
    return stamp


def _exists(name: str) -> PubSubError:
    return PubSubError(
        Code.ALREADY_EXISTS, f"Resource already exists in the project (resource={name.rpartition('/')[2]})."
    )
