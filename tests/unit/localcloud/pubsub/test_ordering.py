"""Ordering keys: in order per key, one run at a time, replays from the first that came back."""

from datetime import timedelta
from typing import Any


def test_messages_of_a_key_arrive_in_order(broker: Any) -> None:
    broker.subscription(enable_message_ordering=True)
    for text in "abc":
        broker.publish(text, key="k")
    assert broker.texts() == ["a", "b", "c"]


def test_no_further_message_of_a_key_is_delivered_before_the_earlier_are_acknowledged(broker: Any) -> None:
    broker.subscription(enable_message_ordering=True)
    broker.publish("a", "b", key="k")
    (first,) = broker.pull(1)
    broker.publish("other", key="j")
    assert broker.texts() == ["other"]
    broker.ack(first)
    assert broker.texts() == ["b"]


def test_messages_without_a_key_are_not_held_up(broker: Any) -> None:
    broker.subscription(enable_message_ordering=True)
    broker.publish("a", "b", key="k")
    broker.publish("free")
    broker.pull(1)
    assert broker.texts() == ["free"]


def test_a_nack_replays_the_later_ones_of_its_key(broker: Any) -> None:
    broker.subscription(enable_message_ordering=True)
    broker.publish("a", "b", "c", key="k")
    _, second, _ = broker.pull()
    broker.nack(second)
    assert broker.texts() == [], "the first is still leased"
    broker.after(10)
    assert broker.texts() == ["a", "b", "c"]


def test_a_nack_replays_even_acknowledged_later_ones(broker: Any) -> None:
    broker.subscription(enable_message_ordering=True)
    broker.publish("a", "b", "c", key="k")
    first, second, third = broker.pull()
    broker.ack(second, third)
    broker.nack(first)
    again = broker.pull()
    assert [one.data for one in again] == [b"a", b"b", b"c"]
    broker.ack(*again)
    assert broker.stats().backlog == 0


def test_exactly_once_never_replays_acknowledged_ones(broker: Any) -> None:
    broker.subscription(enable_message_ordering=True, enable_exactly_once_delivery=True)
    broker.publish("a", "b", "c", key="k")
    first, second, _ = broker.pull()
    broker.ack(second)
    broker.nack(first)
    assert broker.texts() == ["a", "c"]


def test_out_of_order_acks_settle_the_key(broker: Any) -> None:
    broker.subscription(enable_message_ordering=True)
    broker.publish("a", "b", "c", "d", key="k")
    first, second, third = broker.pull(3)
    broker.ack(third)
    broker.ack(second)
    assert broker.texts() == []
    broker.ack(first)
    assert broker.texts() == ["d"]


def test_expiry_replays_in_order(broker: Any) -> None:
    broker.subscription(enable_message_ordering=True)
    broker.publish("a", "b", key="k")
    broker.publish("c", key="k")
    broker.pull()
    broker.after(10)
    assert broker.texts() == ["a", "b", "c"]


def test_a_backoff_holds_up_its_key_only(broker: Any) -> None:
    broker.subscription(enable_message_ordering=True, retry_policy={"minimum_backoff": timedelta(seconds=30)})
    broker.publish("a1", "a2", key="a")
    broker.publish("b1", key="b")
    first, *_ = broker.pull()
    broker.nack(first)
    broker.publish("a3", key="a")
    broker.publish("b2", key="b")
    assert broker.texts() == [], "b1 is still leased, a rests"
    broker.after(30)
    assert broker.texts() == ["a1", "a2", "a3"]
    broker.after(10)
    assert broker.texts() == ["b1", "b2"], "its lease ended after 10 s, its backoff 30 s later"


def test_without_ordering_keys_do_not_matter(broker: Any) -> None:
    broker.subscription()
    broker.publish("a", "b", key="k")
    broker.pull(1)
    assert broker.texts() == ["b"]


def test_the_key_is_delivered_with_the_message(broker: Any) -> None:
    broker.subscription()
    broker.publish("a", key="customer-7")
    assert broker.pull()[0].ordering_key == "customer-7"


def test_order_survives_a_restart(durable: Any) -> None:
    durable.subscription(enable_message_ordering=True)
    durable.publish("a", "b", "c", key="k")
    first, *_ = durable.pull()
    durable.ack(first)
    durable.restart()
    (second,) = durable.pull(1)
    assert second.data == b"b"
    assert durable.texts() == []
