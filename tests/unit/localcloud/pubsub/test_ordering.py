"""Ordering keys: in order per key, one run at a time, replays from the first that came back."""

from datetime import timedelta
from typing import Any


def test_messages_of_a_key_arrive_in_order(world: Any) -> None:
    world.subscription(enable_message_ordering=True)
    for text in "abc":
        world.publish(text, key="k")
    assert world.texts() == ["a", "b", "c"]


def test_no_further_message_of_a_key_is_delivered_before_the_earlier_are_acknowledged(world: Any) -> None:
    world.subscription(enable_message_ordering=True)
    world.publish("a", "b", key="k")
    (first,) = world.pull(1)
    world.publish("other", key="j")
    assert world.texts() == ["other"]
    world.ack(first)
    assert world.texts() == ["b"]


def test_messages_without_a_key_are_not_held_up(world: Any) -> None:
    world.subscription(enable_message_ordering=True)
    world.publish("a", "b", key="k")
    world.publish("free")
    world.pull(1)
    assert world.texts() == ["free"]


def test_a_nack_replays_the_later_ones_of_its_key(world: Any) -> None:
    world.subscription(enable_message_ordering=True)
    world.publish("a", "b", "c", key="k")
    _, second, _ = world.pull()
    world.nack(second)
    assert world.texts() == [], "the first is still leased"
    world.after(10)
    assert world.texts() == ["a", "b", "c"]


def test_a_nack_replays_even_acknowledged_later_ones(world: Any) -> None:
    world.subscription(enable_message_ordering=True)
    world.publish("a", "b", "c", key="k")
    first, second, third = world.pull()
    world.ack(second, third)
    world.nack(first)
    again = world.pull()
    assert [one.data for one in again] == [b"a", b"b", b"c"]
    world.ack(*again)
    assert world.stats().backlog == 0


def test_exactly_once_never_replays_acknowledged_ones(world: Any) -> None:
    world.subscription(enable_message_ordering=True, enable_exactly_once_delivery=True)
    world.publish("a", "b", "c", key="k")
    first, second, _ = world.pull()
    world.ack(second)
    world.nack(first)
    assert world.texts() == ["a", "c"]


def test_out_of_order_acks_settle_the_key(world: Any) -> None:
    world.subscription(enable_message_ordering=True)
    world.publish("a", "b", "c", "d", key="k")
    first, second, third = world.pull(3)
    world.ack(third)
    world.ack(second)
    assert world.texts() == []
    world.ack(first)
    assert world.texts() == ["d"]


def test_expiry_replays_in_order(world: Any) -> None:
    world.subscription(enable_message_ordering=True)
    world.publish("a", "b", key="k")
    world.publish("c", key="k")
    world.pull()
    world.after(10)
    assert world.texts() == ["a", "b", "c"]


def test_a_backoff_holds_up_its_key_only(world: Any) -> None:
    world.subscription(enable_message_ordering=True, retry_policy={"minimum_backoff": timedelta(seconds=30)})
    world.publish("a1", "a2", key="a")
    world.publish("b1", key="b")
    first, *_ = world.pull()
    world.nack(first)
    world.publish("a3", key="a")
    world.publish("b2", key="b")
    assert world.texts() == [], "b1 is still leased, a rests"
    world.after(30)
    assert world.texts() == ["a1", "a2", "a3"]
    world.after(10)
    assert world.texts() == ["b1", "b2"], "its lease ended after 10 s, its backoff 30 s later"


def test_without_ordering_keys_do_not_matter(world: Any) -> None:
    world.subscription()
    world.publish("a", "b", key="k")
    world.pull(1)
    assert world.texts() == ["b"]


def test_the_key_is_delivered_with_the_message(world: Any) -> None:
    world.subscription()
    world.publish("a", key="customer-7")
    assert world.pull()[0].ordering_key == "customer-7"


def test_order_survives_a_restart(durable: Any) -> None:
    durable.subscription(enable_message_ordering=True)
    durable.publish("a", "b", "c", key="k")
    first, *_ = durable.pull()
    durable.ack(first)
    durable.restart()
    (second,) = durable.pull(1)
    assert second.data == b"b"
    assert durable.texts() == []
