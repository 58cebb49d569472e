"""Retention, seeking back and forth, and snapshots."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from ingestd.localcloud.pubsub import wire
from ingestd.localcloud.pubsub.errors import Code, PubSubError

TOPIC = "projects/p/topics/events"
SUBSCRIPTION = "projects/p/subscriptions/worker"
SNAPSHOT = "projects/p/snapshots/before"
DAY = 86_400


def micros(when: datetime) -> int:
    return round(when.timestamp() * 1_000_000)


def test_messages_outlive_nobody_longer_than_the_retention(broker: Any) -> None:
    broker.subscription(message_retention_duration=timedelta(minutes=10))
    broker.publish("old")
    broker.after(300)
    broker.publish("young")
    broker.after(301)
    assert broker.texts() == ["young"]
    assert broker.stats().dropped_by_retention == 1


def test_an_expired_message_frees_its_memory_even_when_nobody_pulls(broker: Any) -> None:
    broker.subscription(message_retention_duration=timedelta(minutes=10))
    broker.publish("x" * 1000)
    broker.after(661)
    broker.core.tick()
    assert broker.core.stats().live_bytes == 0
    assert broker.stats().backlog == 0


def test_a_leased_message_past_its_retention_is_gone(broker: Any) -> None:
    broker.subscription(message_retention_duration=timedelta(minutes=10), ack_deadline_seconds=600)
    broker.publish("a")
    broker.after(590)
    (received,) = broker.pull()
    broker.after(61)
    broker.core.tick()
    assert broker.stats().outstanding == 0
    broker.ack(received)


def test_seeking_to_now_acknowledges_everything(broker: Any) -> None:
    broker.subscription()
    broker.publish("a", "b")
    broker.pull(1)
    broker.after(1)
    broker.core.seek_to_time(SUBSCRIPTION, micros(broker.clock.now()))
    broker.after(60)
    assert broker.texts() == []


def test_seeking_back_without_retention_keeps_only_what_is_unacknowledged(broker: Any) -> None:
    broker.subscription()
    start = broker.clock.now()
    broker.publish("a", "b")
    first, _ = broker.pull()
    broker.ack(first)
    broker.core.seek_to_time(SUBSCRIPTION, micros(start))
    assert broker.texts() == ["b"]


def test_retained_acknowledged_messages_come_back_after_a_seek(broker: Any) -> None:
    broker.subscription(retain_acked_messages=True)
    broker.publish("a")
    broker.after(60)
    middle = broker.clock.now()
    broker.publish("b")
    broker.after(60)
    broker.publish("c")
    broker.ack(*broker.pull())
    broker.core.seek_to_time(SUBSCRIPTION, micros(middle))
    again = broker.pull()
    assert [one.data for one in again] == [b"b", b"c"]
    broker.ack(*again)
    broker.core.seek_to_time(SUBSCRIPTION, 0)
    assert broker.texts() == ["a", "b", "c"]


def test_a_topics_retention_serves_subscriptions_made_later(broker: Any) -> None:
    broker.topic(message_retention_duration=timedelta(days=1))
    broker.publish("before", kind="x")
    broker.publish("before too")
    broker.subscription(filter="attributes:kind")
    assert broker.core.get_subscription(SUBSCRIPTION).topic_message_retention_duration.seconds == DAY
    broker.core.seek_to_time(SUBSCRIPTION, 0)
    assert broker.texts() == ["before"]


def test_a_topics_retention_ends(broker: Any) -> None:
    broker.topic(message_retention_duration=timedelta(days=1))
    broker.publish("a")
    broker.after(DAY + 61)
    broker.core.tick()
    assert broker.core.stats().live_bytes == 0


def test_seeking_keeps_the_order_of_keys(broker: Any) -> None:
    broker.subscription(retain_acked_messages=True, enable_message_ordering=True)
    broker.publish("a", "b", key="k")
    broker.ack(*broker.pull())
    broker.publish("c", key="k")
    broker.pull()
    broker.core.seek_to_time(SUBSCRIPTION, 0)
    assert broker.texts() == ["a", "b", "c"]


def test_a_snapshot_brings_back_what_was_unacknowledged_and_all_since(broker: Any) -> None:
    broker.subscription()
    broker.publish("acked", "open")
    acked, _ = broker.pull()
    broker.ack(acked)
    snapshot = broker.core.create_snapshot(SNAPSHOT, SUBSCRIPTION, {"why": "deploy"})
    assert snapshot.topic == TOPIC
    assert snapshot.expire_time.ToMicroseconds() == micros(broker.clock.now()) + 7 * DAY * 1_000_000
    broker.publish("later")
    broker.after(10)
    broker.ack(*broker.pull())
    assert broker.texts() == []
    broker.core.seek_to_snapshot(SUBSCRIPTION, SNAPSHOT)
    assert broker.texts() == ["open", "later"]


def test_a_snapshot_serves_another_subscription_of_the_topic_only(broker: Any) -> None:
    broker.subscription()
    broker.publish("a")
    broker.core.create_snapshot(SNAPSHOT, SUBSCRIPTION)
    sibling = broker.subscription("projects/p/subscriptions/sibling")
    broker.core.seek_to_snapshot(sibling, SNAPSHOT)
    assert broker.texts(subscription=sibling) == ["a"]
    stranger = broker.subscription("projects/p/subscriptions/stranger", topic="projects/p/topics/other")
    with pytest.raises(PubSubError) as refused:
        broker.core.seek_to_snapshot(stranger, SNAPSHOT)
    assert refused.value.code is Code.INVALID_ARGUMENT


def test_a_snapshot_expires_with_its_oldest_message(broker: Any) -> None:
    broker.subscription()
    broker.publish("a")
    broker.after(DAY)
    broker.core.create_snapshot(SNAPSHOT, SUBSCRIPTION)
    broker.after(6 * DAY + 61)
    with pytest.raises(PubSubError) as refused:
        broker.core.get_snapshot(SNAPSHOT)
    assert refused.value.code is Code.NOT_FOUND
    broker.core.tick()
    assert broker.core.stats().live_bytes == 0


def test_snapshots_are_listed_updated_and_deleted(broker: Any) -> None:
    broker.subscription()
    broker.publish("a")
    broker.core.create_snapshot(SNAPSHOT, SUBSCRIPTION)
    assert broker.core.list_topic_snapshots(TOPIC) == ([SNAPSHOT], "")
    broker.core.update_snapshot(wire.Snapshot(name=SNAPSHOT, labels={"a": "b"}), ["labels"])
    (listed,), _ = broker.core.list_snapshots("projects/p")
    assert dict(listed.labels) == {"a": "b"}
    broker.ack(*broker.pull())
    assert broker.core.stats().live_bytes > 0
    broker.core.delete_snapshot(SNAPSHOT)
    assert broker.core.stats().live_bytes == 0


def test_a_deleted_topic_takes_its_retained_messages_with_it(broker: Any) -> None:
    broker.topic(message_retention_duration=timedelta(days=1))
    broker.publish("a")
    broker.core.delete_topic(TOPIC)
    assert broker.core.stats().live_bytes == 0
