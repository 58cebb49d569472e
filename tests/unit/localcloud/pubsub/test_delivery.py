"""Publish, lease, acknowledge, expire: what a subscriber may rely on."""

from datetime import timedelta
from typing import Any

import pytest

from ingestd.localcloud.pubsub.errors import Code, PubSubError

SUBSCRIPTION = "projects/p/subscriptions/worker"


def test_a_published_message_arrives_whole(world: Any) -> None:
    world.subscription()
    (message_id,) = world.publish("hello", colour="red", size="9")
    (received,) = world.pull()
    assert received.message_id == message_id
    assert received.data == b"hello"
    assert received.attributes == {"colour": "red", "size": "9"}
    assert received.published == world.clock.now()
    assert received.delivery_attempt == 0


def test_every_subscription_gets_its_own_copy(world: Any) -> None:
    first = world.subscription()
    second = world.subscription("projects/p/subscriptions/other")
    world.publish("a", "b")
    world.ack(*world.pull(subscription=first))
    assert world.texts(subscription=second) == ["a", "b"]


def test_a_subscription_sees_nothing_published_before_it(world: Any) -> None:
    world.topic()
    world.publish("early")
    world.subscription()
    assert world.texts() == []


def test_a_leased_message_is_not_delivered_again_before_its_deadline(world: Any) -> None:
    world.subscription(ack_deadline_seconds=30)
    world.publish("a")
    assert world.texts() == ["a"]
    world.after(29.9)
    assert world.texts() == []


def test_an_expired_lease_brings_the_message_back_under_a_new_ack_id(world: Any) -> None:
    world.subscription(ack_deadline_seconds=30)
    world.publish("a")
    (first,) = world.pull()
    world.after(30)
    (second,) = world.pull()
    assert second.message_id == first.message_id
    assert second.ack_id != first.ack_id


def test_an_acknowledged_message_never_comes_back(world: Any) -> None:
    world.subscription()
    world.publish("a")
    world.ack(*world.pull())
    world.after(3600)
    assert world.texts() == []
    assert world.stats().backlog == 0


def test_acknowledging_twice_is_harmless(world: Any) -> None:
    world.subscription()
    world.publish("a", "b")
    first, _ = world.pull()
    world.ack(first, first)
    world.ack(first)
    assert world.stats().acked == 1


def test_a_late_ack_is_honoured_while_nobody_else_acked(world: Any) -> None:
    world.subscription()
    world.publish("a")
    (late,) = world.pull()
    world.after(60)
    world.ack(late)
    assert world.texts() == []


def test_a_malformed_ack_id_is_refused_and_acks_nothing(world: Any) -> None:
    world.subscription()
    world.publish("a")
    (received,) = world.pull()
    with pytest.raises(PubSubError) as refused:
        world.core.acknowledge(SUBSCRIPTION, [received.ack_id, "nonsense"])
    assert refused.value.code is Code.INVALID_ARGUMENT
    world.after(60)
    assert world.texts() == ["a"]


def test_an_ack_id_of_another_subscription_is_refused(world: Any) -> None:
    first = world.subscription()
    second = world.subscription("projects/p/subscriptions/other")
    world.publish("a")
    (received,) = world.pull(subscription=first)
    with pytest.raises(PubSubError, match="invalid ack ID"):
        world.ack(received, subscription=second)
    assert world.texts(subscription=second) == ["a"]


def test_extending_the_deadline_keeps_the_lease(world: Any) -> None:
    world.subscription(ack_deadline_seconds=10)
    world.publish("a", "b")
    first, _ = world.pull()
    world.core.modify_ack_deadline(SUBSCRIPTION, [first.ack_id], 60)
    world.after(59)
    assert world.texts() == ["b"]
    world.after(1)
    assert world.texts() == ["a"]


def test_shortening_the_deadline_brings_the_message_back_sooner(world: Any) -> None:
    world.subscription(ack_deadline_seconds=600)
    world.publish("a")
    (received,) = world.pull()
    world.core.modify_ack_deadline(SUBSCRIPTION, [received.ack_id], 5)
    world.after(5)
    assert world.texts() == ["a"]


def test_a_nack_gives_the_message_back_at_once(world: Any) -> None:
    world.subscription()
    world.publish("a")
    world.nack(*world.pull())
    assert world.texts() == ["a"]
    assert world.stats().nacked == 1


def test_a_nack_of_a_stale_delivery_does_not_disturb_the_current_one(world: Any) -> None:
    world.subscription()
    world.publish("a")
    (stale,) = world.pull()
    world.after(10)
    assert world.texts() == ["a"]
    world.nack(stale)
    assert world.texts() == []


@pytest.mark.parametrize("seconds", [-1, 601])
def test_deadlines_outside_their_range_are_refused(world: Any, seconds: int) -> None:
    world.subscription()
    with pytest.raises(PubSubError) as refused:
        world.core.modify_ack_deadline(SUBSCRIPTION, [], seconds)
    assert refused.value.code is Code.INVALID_ARGUMENT


def test_a_pull_takes_no_more_than_asked(world: Any) -> None:
    world.subscription()
    world.publish(*"abcde")
    assert world.texts(2) == ["a", "b"]
    assert world.texts(2) == ["c", "d"]
    assert world.texts(2) == ["e"]


def test_a_pull_response_stays_below_what_a_default_client_accepts(world: Any) -> None:
    world.subscription()
    for _ in range(6):
        world.publish("x" * 1_000_000)
    sizes = []
    while got := world.pull():
        sizes.append(sum(len(one.data) for one in got))
    assert sum(sizes) == 6_000_000
    assert max(sizes) < 4 * 1024 * 1024


def test_a_message_larger_than_that_is_still_delivered(world: Any) -> None:
    world.subscription()
    world.publish("x" * 9_000_000, "small")
    assert [len(one) for one in (*world.texts(), *world.texts())] == [9_000_000, 5]


def test_the_next_wakeup_is_the_earliest_deadline_still_alive(world: Any) -> None:
    world.subscription(ack_deadline_seconds=20)
    idle = world.core.next_wakeup()
    world.publish("a", "b")
    (first,) = world.pull(1)
    world.after(5)
    world.pull(1)
    assert world.core.next_wakeup() == 20
    world.ack(first)
    assert world.core.next_wakeup() == 25
    assert idle == 60


def test_an_earlier_wakeup_is_announced_even_after_one_that_came_to_nothing(world: Any) -> None:
    """A timekeeper that asked once must hear of every earlier deadline, whatever became of the ones before."""

    class Timekeeper:
        moved = 0

        def wakeup_moved(self) -> None:
            self.moved += 1

        def messages_ready(self, subscription: str) -> None: ...

    timekeeper = Timekeeper()
    world.core.add_listener(timekeeper)
    world.subscription()
    world.publish("a")
    world.core.next_wakeup()
    world.ack(*world.pull())
    assert timekeeper.moved == 1
    world.after(10)
    assert world.core.next_wakeup() == 60
    world.publish("b")
    world.pull()
    assert timekeeper.moved == 2


def test_ticking_expires_leases_without_anyone_pulling(world: Any) -> None:
    world.subscription()
    world.publish("a")
    world.pull()
    world.after(10)
    assert world.stats().outstanding == 1
    world.core.tick()
    assert world.stats().outstanding == 0
    assert world.stats().expired == 1


def test_counters_tell_what_happened(world: Any) -> None:
    world.subscription()
    world.publish("a", "b", "c")
    first, second, _ = world.pull()
    world.ack(first)
    world.nack(second)
    world.after(4)
    stats = world.stats()
    assert (stats.backlog, stats.outstanding, stats.delivered, stats.acked, stats.nacked) == (2, 1, 3, 1, 1)
    assert stats.oldest_unacked_seconds == 4
    assert world.core.stats().topics[0].published == 3
    assert world.hooks.operations["Publish"] == 1


class TestRetryPolicy:
    def test_redelivery_waits_and_doubles_up_to_its_maximum(self, world: Any) -> None:
        world.subscription(
            retry_policy={"minimum_backoff": timedelta(seconds=5), "maximum_backoff": timedelta(seconds=12)}
        )
        world.publish("a")
        for wait in (5, 10, 12, 12):
            (received,) = world.pull()
            world.nack(received)
            world.after(wait - 0.1)
            assert world.texts() == []
            world.after(0.1)
        assert world.texts() == ["a"]

    def test_other_messages_are_not_held_up(self, world: Any) -> None:
        world.subscription(retry_policy={"minimum_backoff": timedelta(seconds=60)})
        world.publish("bad")
        world.nack(*world.pull())
        world.publish("good")
        assert world.texts() == ["good"]

    def test_an_expired_lease_waits_too(self, world: Any) -> None:
        world.subscription(retry_policy={"minimum_backoff": timedelta(seconds=20)})
        world.publish("a")
        world.pull()
        world.after(10)
        assert world.texts() == []
        world.after(20)
        assert world.texts() == ["a"]


class TestExactlyOnce:
    def test_an_ack_after_expiry_fails_and_names_the_ack_id(self, world: Any) -> None:
        world.subscription(enable_exactly_once_delivery=True)
        world.publish("a", "b")
        late, kept = world.pull()
        world.core.modify_ack_deadline(SUBSCRIPTION, [kept.ack_id], 600)
        world.after(10)
        with pytest.raises(PubSubError) as refused:
            world.ack(late, kept)
        assert refused.value.ack_failures == {late.ack_id: "PERMANENT_FAILURE_INVALID_ACK_ID"}
        assert world.texts() == ["a"], "the valid ack id of the same request was acknowledged"

    def test_a_second_ack_fails(self, world: Any) -> None:
        world.subscription(enable_exactly_once_delivery=True)
        world.publish("a")
        (received,) = world.pull()
        world.ack(received)
        with pytest.raises(PubSubError) as refused:
            world.ack(received)
        assert received.ack_id in refused.value.ack_failures

    def test_extending_an_expired_lease_fails(self, world: Any) -> None:
        world.subscription(enable_exactly_once_delivery=True)
        world.publish("a")
        (received,) = world.pull()
        world.after(10)
        with pytest.raises(PubSubError) as refused:
            world.core.modify_ack_deadline(SUBSCRIPTION, [received.ack_id], 30)
        assert received.ack_id in refused.value.ack_failures

    def test_acks_from_before_a_restart_fail(self, durable: Any) -> None:
        durable.subscription(enable_exactly_once_delivery=True)
        durable.publish("a")
        (received,) = durable.pull()
        durable.restart()
        with pytest.raises(PubSubError):
            durable.ack(received)
        assert durable.texts() == ["a"]
