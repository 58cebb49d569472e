"""Publish, lease, acknowledge, expire: what a subscriber may rely on."""

from datetime import timedelta
from typing import Any

import pytest

from ingestd.localcloud.pubsub.errors import Code, PubSubError

SUBSCRIPTION = "projects/p/subscriptions/worker"


def test_a_published_message_arrives_whole(broker: Any) -> None:
    broker.subscription()
    (message_id,) = broker.publish("hello", colour="red", size="9")
    (received,) = broker.pull()
    assert received.message_id == message_id
    assert received.data == b"hello"
    assert received.attributes == {"colour": "red", "size": "9"}
    assert received.published == broker.clock.now()
    assert received.delivery_attempt == 0


def test_every_subscription_gets_its_own_copy(broker: Any) -> None:
    first = broker.subscription()
    second = broker.subscription("projects/p/subscriptions/other")
    broker.publish("a", "b")
    broker.ack(*broker.pull(subscription=first))
    assert broker.texts(subscription=second) == ["a", "b"]


def test_a_subscription_sees_nothing_published_before_it(broker: Any) -> None:
    broker.topic()
    broker.publish("early")
    broker.subscription()
    assert broker.texts() == []


def test_a_leased_message_is_not_delivered_again_before_its_deadline(broker: Any) -> None:
    broker.subscription(ack_deadline_seconds=30)
    broker.publish("a")
    assert broker.texts() == ["a"]
    broker.after(29.9)
    assert broker.texts() == []


def test_an_expired_lease_brings_the_message_back_under_a_new_ack_id(broker: Any) -> None:
    broker.subscription(ack_deadline_seconds=30)
    broker.publish("a")
    (first,) = broker.pull()
    broker.after(30)
    (second,) = broker.pull()
    assert second.message_id == first.message_id
    assert second.ack_id != first.ack_id


def test_an_acknowledged_message_never_comes_back(broker: Any) -> None:
    broker.subscription()
    broker.publish("a")
    broker.ack(*broker.pull())
    broker.after(3600)
    assert broker.texts() == []
    assert broker.stats().backlog == 0


def test_acknowledging_twice_is_harmless(broker: Any) -> None:
    broker.subscription()
    broker.publish("a", "b")
    first, _ = broker.pull()
    broker.ack(first, first)
    broker.ack(first)
    assert broker.stats().acked == 1


def test_a_late_ack_is_honoured_while_nobody_else_acked(broker: Any) -> None:
    broker.subscription()
    broker.publish("a")
    (late,) = broker.pull()
    broker.after(60)
    broker.ack(late)
    assert broker.texts() == []


def test_a_malformed_ack_id_is_refused_and_acks_nothing(broker: Any) -> None:
    broker.subscription()
    broker.publish("a")
    (received,) = broker.pull()
    with pytest.raises(PubSubError) as refused:
        broker.core.acknowledge(SUBSCRIPTION, [received.ack_id, "nonsense"])
    assert refused.value.code is Code.INVALID_ARGUMENT
    broker.after(60)
    assert broker.texts() == ["a"]


def test_an_ack_id_of_another_subscription_is_refused(broker: Any) -> None:
    first = broker.subscription()
    second = broker.subscription("projects/p/subscriptions/other")
    broker.publish("a")
    (received,) = broker.pull(subscription=first)
    with pytest.raises(PubSubError, match="invalid ack ID"):
        broker.ack(received, subscription=second)
    assert broker.texts(subscription=second) == ["a"]


def test_extending_the_deadline_keeps_the_lease(broker: Any) -> None:
    broker.subscription(ack_deadline_seconds=10)
    broker.publish("a", "b")
    first, _ = broker.pull()
    broker.core.modify_ack_deadline(SUBSCRIPTION, [first.ack_id], 60)
    broker.after(59)
    assert broker.texts() == ["b"]
    broker.after(1)
    assert broker.texts() == ["a"]


def test_shortening_the_deadline_brings_the_message_back_sooner(broker: Any) -> None:
    broker.subscription(ack_deadline_seconds=600)
    broker.publish("a")
    (received,) = broker.pull()
    broker.core.modify_ack_deadline(SUBSCRIPTION, [received.ack_id], 5)
    broker.after(5)
    assert broker.texts() == ["a"]


def test_a_nack_gives_the_message_back_at_once(broker: Any) -> None:
    broker.subscription()
    broker.publish("a")
    broker.nack(*broker.pull())
    assert broker.texts() == ["a"]
    assert broker.stats().nacked == 1


def test_a_nack_of_a_stale_delivery_does_not_disturb_the_current_one(broker: Any) -> None:
    broker.subscription()
    broker.publish("a")
    (stale,) = broker.pull()
    broker.after(10)
    assert broker.texts() == ["a"]
    broker.nack(stale)
    assert broker.texts() == []


@pytest.mark.parametrize("seconds", [-1, 601])
def test_deadlines_outside_their_range_are_refused(broker: Any, seconds: int) -> None:
    broker.subscription()
    with pytest.raises(PubSubError) as refused:
        broker.core.modify_ack_deadline(SUBSCRIPTION, [], seconds)
    assert refused.value.code is Code.INVALID_ARGUMENT


def test_a_pull_takes_no_more_than_asked(broker: Any) -> None:
    broker.subscription()
    broker.publish(*"abcde")
    assert broker.texts(2) == ["a", "b"]
    assert broker.texts(2) == ["c", "d"]
    assert broker.texts(2) == ["e"]


def test_a_pull_response_stays_below_what_a_default_client_accepts(broker: Any) -> None:
    broker.subscription()
    for _ in range(6):
        broker.publish("x" * 1_000_000)
    sizes = []
    while got := broker.pull():
        sizes.append(sum(len(one.data) for one in got))
    assert sum(sizes) == 6_000_000
    assert max(sizes) < 4 * 1024 * 1024


def test_a_message_larger_than_that_is_still_delivered(broker: Any) -> None:
    broker.subscription()
    broker.publish("x" * 9_000_000, "small")
    assert [len(one) for one in (*broker.texts(), *broker.texts())] == [9_000_000, 5]


def test_the_next_wakeup_is_the_earliest_deadline_still_alive(broker: Any) -> None:
    broker.subscription(ack_deadline_seconds=20)
    idle = broker.core.next_wakeup()
    broker.publish("a", "b")
    (first,) = broker.pull(1)
    broker.after(5)
    broker.pull(1)
    assert broker.core.next_wakeup() == 20
    broker.ack(first)
    assert broker.core.next_wakeup() == 25
    assert idle == 60


def test_an_earlier_wakeup_is_announced_even_after_one_that_came_to_nothing(broker: Any) -> None:
    """A timekeeper that asked once must hear of every earlier deadline, whatever became of the ones before."""

    class Timekeeper:
        moved = 0

        def wakeup_moved(self) -> None:
            self.moved += 1

        def messages_ready(self, subscription: str) -> None: ...

    timekeeper = Timekeeper()
    broker.core.add_listener(timekeeper)
    broker.subscription()
    broker.publish("a")
    broker.core.next_wakeup()
    broker.ack(*broker.pull())
    assert timekeeper.moved == 1
    broker.after(10)
    assert broker.core.next_wakeup() == 60
    broker.publish("b")
    broker.pull()
    assert timekeeper.moved == 2


def test_ticking_expires_leases_without_anyone_pulling(broker: Any) -> None:
    broker.subscription()
    broker.publish("a")
    broker.pull()
    broker.after(10)
    assert broker.stats().outstanding == 1
    broker.core.tick()
    assert broker.stats().outstanding == 0
    assert broker.stats().expired == 1


def test_counters_tell_what_happened(broker: Any) -> None:
    broker.subscription()
    broker.publish("a", "b", "c")
    first, second, _ = broker.pull()
    broker.ack(first)
    broker.nack(second)
    broker.after(4)
    stats = broker.stats()
    assert (stats.backlog, stats.outstanding, stats.delivered, stats.acked, stats.nacked) == (2, 1, 3, 1, 1)
    assert stats.oldest_unacked_seconds == 4
    assert broker.core.stats().topics[0].published == 3
    assert broker.hooks.operations["Publish"] == 1


class TestRetryPolicy:
    def test_redelivery_waits_and_doubles_up_to_its_maximum(self, broker: Any) -> None:
        broker.subscription(
            retry_policy={"minimum_backoff": timedelta(seconds=5), "maximum_backoff": timedelta(seconds=12)}
        )
        broker.publish("a")
        for wait in (5, 10, 12, 12):
            (received,) = broker.pull()
            broker.nack(received)
            broker.after(wait - 0.1)
            assert broker.texts() == []
            broker.after(0.1)
        assert broker.texts() == ["a"]

    def test_other_messages_are_not_held_up(self, broker: Any) -> None:
        broker.subscription(retry_policy={"minimum_backoff": timedelta(seconds=60)})
        broker.publish("bad")
        broker.nack(*broker.pull())
        broker.publish("good")
        assert broker.texts() == ["good"]

    def test_an_expired_lease_waits_too(self, broker: Any) -> None:
        broker.subscription(retry_policy={"minimum_backoff": timedelta(seconds=20)})
        broker.publish("a")
        broker.pull()
        broker.after(10)
        assert broker.texts() == []
        broker.after(20)
        assert broker.texts() == ["a"]


class TestExactlyOnce:
    def test_an_ack_after_expiry_fails_and_names_the_ack_id(self, broker: Any) -> None:
        broker.subscription(enable_exactly_once_delivery=True)
        broker.publish("a", "b")
        late, kept = broker.pull()
        broker.core.modify_ack_deadline(SUBSCRIPTION, [kept.ack_id], 600)
        broker.after(10)
        with pytest.raises(PubSubError) as refused:
            broker.ack(late, kept)
        assert refused.value.ack_failures == {late.ack_id: "PERMANENT_FAILURE_INVALID_ACK_ID"}
        assert broker.texts() == ["a"], "the valid ack id of the same request was acknowledged"

    def test_a_second_ack_fails(self, broker: Any) -> None:
        broker.subscription(enable_exactly_once_delivery=True)
        broker.publish("a")
        (received,) = broker.pull()
        broker.ack(received)
        with pytest.raises(PubSubError) as refused:
            broker.ack(received)
        assert received.ack_id in refused.value.ack_failures

    def test_extending_an_expired_lease_fails(self, broker: Any) -> None:
        broker.subscription(enable_exactly_once_delivery=True)
        broker.publish("a")
        (received,) = broker.pull()
        broker.after(10)
        with pytest.raises(PubSubError) as refused:
            broker.core.modify_ack_deadline(SUBSCRIPTION, [received.ack_id], 30)
        assert received.ack_id in refused.value.ack_failures

    def test_acks_from_before_a_restart_fail(self, durable: Any) -> None:
        durable.subscription(enable_exactly_once_delivery=True)
        durable.publish("a")
        (received,) = durable.pull()
        durable.restart()
        with pytest.raises(PubSubError):
            durable.ack(received)
        assert durable.texts() == ["a"]
