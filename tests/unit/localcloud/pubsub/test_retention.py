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


def test_messages_outlive_nobody_longer_than_the_retention(world: Any) -> None:
    world.subscription(message_retention_duration=timedelta(minutes=10))
    world.publish("old")
    world.after(300)
    world.publish("young")
    world.after(301)
    assert world.texts() == ["young"]
    assert world.stats().dropped_by_retention == 1


def test_an_expired_message_frees_its_memory_even_when_nobody_pulls(world: Any) -> None:
    world.subscription(message_retention_duration=timedelta(minutes=10))
    world.publish("x" * 1000)
    world.after(661)
    world.core.tick()
    assert world.core.stats().live_bytes == 0
    assert world.stats().backlog == 0


def test_a_leased_message_past_its_retention_is_gone(world: Any) -> None:
    world.subscription(message_retention_duration=timedelta(minutes=10), ack_deadline_seconds=600)
    world.publish("a")
    world.after(590)
    (received,) = world.pull()
    world.after(61)
    world.core.tick()
    assert world.stats().outstanding == 0
    world.ack(received)


def test_seeking_to_now_acknowledges_everything(world: Any) -> None:
    world.subscription()
    world.publish("a", "b")
    world.pull(1)
    world.after(1)
    world.core.seek_to_time(SUBSCRIPTION, micros(world.clock.now()))
    world.after(60)
    assert world.texts() == []


def test_seeking_back_without_retention_keeps_only_what_is_unacknowledged(world: Any) -> None:
    world.subscription()
    start = world.clock.now()
    world.publish("a", "b")
    first, _ = world.pull()
    world.ack(first)
    world.core.seek_to_time(SUBSCRIPTION, micros(start))
    assert world.texts() == ["b"]


def test_retained_acknowledged_messages_come_back_after_a_seek(world: Any) -> None:
    world.subscription(retain_acked_messages=True)
    world.publish("a")
    world.after(60)
    middle = world.clock.now()
    world.publish("b")
    world.after(60)
    world.publish("c")
    world.ack(*world.pull())
    world.core.seek_to_time(SUBSCRIPTION, micros(middle))
    again = world.pull()
    assert [one.data for one in again] == [b"b", b"c"]
    world.ack(*again)
    world.core.seek_to_time(SUBSCRIPTION, 0)
    assert world.texts() == ["a", "b", "c"]


def test_a_topics_retention_serves_subscriptions_made_later(world: Any) -> None:
    world.topic(message_retention_duration=timedelta(days=1))
    world.publish("before", kind="x")
    world.publish("before too")
    world.subscription(filter="attributes:kind")
    assert world.core.get_subscription(SUBSCRIPTION).topic_message_retention_duration.seconds == DAY
    world.core.seek_to_time(SUBSCRIPTION, 0)
    assert world.texts() == ["before"]


def test_a_topics_retention_ends(world: Any) -> None:
    world.topic(message_retention_duration=timedelta(days=1))
    world.publish("a")
    world.after(DAY + 61)
    world.core.tick()
    assert world.core.stats().live_bytes == 0


def test_seeking_keeps_the_order_of_keys(world: Any) -> None:
    world.subscription(retain_acked_messages=True, enable_message_ordering=True)
    world.publish("a", "b", key="k")
    world.ack(*world.pull())
    world.publish("c", key="k")
    world.pull()
    world.core.seek_to_time(SUBSCRIPTION, 0)
    assert world.texts() == ["a", "b", "c"]


def test_a_snapshot_brings_back_what_was_unacknowledged_and_all_since(world: Any) -> None:
    world.subscription()
    world.publish("acked", "open")
    acked, _ = world.pull()
    world.ack(acked)
    snapshot = world.core.create_snapshot(SNAPSHOT, SUBSCRIPTION, {"why": "deploy"})
    assert snapshot.topic == TOPIC
    assert snapshot.expire_time.ToMicroseconds() == micros(world.clock.now()) + 7 * DAY * 1_000_000
    world.publish("later")
    world.after(10)
    world.ack(*world.pull())
    assert world.texts() == []
    world.core.seek_to_snapshot(SUBSCRIPTION, SNAPSHOT)
    assert world.texts() == ["open", "later"]


def test_a_snapshot_serves_another_subscription_of_the_topic_only(world: Any) -> None:
    world.subscription()
    world.publish("a")
    world.core.create_snapshot(SNAPSHOT, SUBSCRIPTION)
    sibling = world.subscription("projects/p/subscriptions/sibling")
    world.core.seek_to_snapshot(sibling, SNAPSHOT)
    assert world.texts(subscription=sibling) == ["a"]
    stranger = world.subscription("projects/p/subscriptions/stranger", topic="projects/p/topics/other")
    with pytest.raises(PubSubError) as refused:
        world.core.seek_to_snapshot(stranger, SNAPSHOT)
    assert refused.value.code is Code.INVALID_ARGUMENT


def test_a_snapshot_expires_with_its_oldest_message(world: Any) -> None:
    world.subscription()
    world.publish("a")
    world.after(DAY)
    world.core.create_snapshot(SNAPSHOT, SUBSCRIPTION)
    world.after(6 * DAY + 61)
    with pytest.raises(PubSubError) as refused:
        world.core.get_snapshot(SNAPSHOT)
    assert refused.value.code is Code.NOT_FOUND
    world.core.tick()
    assert world.core.stats().live_bytes == 0


def test_snapshots_are_listed_updated_and_deleted(world: Any) -> None:
    world.subscription()
    world.publish("a")
    world.core.create_snapshot(SNAPSHOT, SUBSCRIPTION)
    assert world.core.list_topic_snapshots(TOPIC) == ([SNAPSHOT], "")
    world.core.update_snapshot(wire.Snapshot(name=SNAPSHOT, labels={"a": "b"}), ["labels"])
    (listed,), _ = world.core.list_snapshots("projects/p")
    assert dict(listed.labels) == {"a": "b"}
    world.ack(*world.pull())
    assert world.core.stats().live_bytes > 0
    world.core.delete_snapshot(SNAPSHOT)
    assert world.core.stats().live_bytes == 0


def test_a_deleted_topic_takes_its_retained_messages_with_it(world: Any) -> None:
    world.topic(message_retention_duration=timedelta(days=1))
    world.publish("a")
    world.core.delete_topic(TOPIC)
    assert world.core.stats().live_bytes == 0
