"""Rehearsed failures of the core."""

from typing import Any

import pytest

from ingestd.localcloud.faults import FaultInjected, FaultKind, ResponseLost

SUBSCRIPTION = "projects/p/subscriptions/worker"


def test_a_failed_publish_does_nothing(world: Any) -> None:
    world.subscription()
    world.fault("Publish", FaultKind.FAIL, times=1)
    with pytest.raises(FaultInjected):
        world.publish("a")
    world.publish("b")
    assert world.texts() == ["b"]


def test_a_lost_publish_answer_leaves_the_message_published(world: Any) -> None:
    world.subscription()
    world.fault("Publish", FaultKind.DROP_RESPONSE, times=1)
    with pytest.raises(ResponseLost):
        world.publish("a")
    assert world.texts() == ["a"]


def test_a_lost_ack_answer_leaves_the_message_acknowledged(world: Any) -> None:
    world.subscription()
    world.publish("a")
    received = world.pull()
    world.fault("Acknowledge", FaultKind.DROP_RESPONSE, times=1)
    with pytest.raises(ResponseLost):
        world.ack(*received)
    world.after(60)
    assert world.texts() == []


def test_faults_hit_the_resource_they_name(world: Any) -> None:
    world.subscription()
    world.topic("projects/p/topics/other")
    world.fault("Publish", FaultKind.FAIL, resource="*/other")
    world.publish("a")
    with pytest.raises(FaultInjected):
        world.publish("b", topic="projects/p/topics/other")


def test_a_duplicated_message_comes_twice_and_either_ack_ends_it(world: Any) -> None:
    for chosen in (0, 1):
        subscription = world.subscription(f"projects/p/subscriptions/sub-{chosen}")
        world.fault("deliver", FaultKind.DUPLICATE, resource=subscription, times=1)
        world.publish("a")
        both = world.pull(subscription=subscription)
        assert len({one.message_id for one in both}) == 1
        assert len({one.ack_id for one in both}) == 2
        world.ack(both[chosen], subscription=subscription)
        world.after(60)
        assert world.texts(subscription=subscription) == []


def test_a_withheld_message_comes_when_the_fault_is_over(world: Any) -> None:
    world.subscription()
    world.fault("deliver", FaultKind.WITHHOLD, resource=SUBSCRIPTION)
    world.publish("a")
    for _ in range(5):
        assert world.texts() == []
        world.after(1)
    world.hooks.plan.clear()
    assert world.texts() == ["a"]
    assert world.stats().delivered == 1


def test_one_withheld_message_does_not_hold_up_the_others(world: Any) -> None:
    world.subscription()
    world.fault("deliver", FaultKind.WITHHOLD, times=1)
    world.publish("a", "b")
    assert world.texts() == ["b"]
    world.after(1)
    assert world.texts() == ["a"]


def test_withholding_keeps_the_order_of_a_key(world: Any) -> None:
    world.subscription(enable_message_ordering=True)
    world.fault("deliver", FaultKind.WITHHOLD, times=1)
    world.publish("a", "b", key="k")
    assert world.texts() == []
    world.after(1)
    assert world.texts() == ["a", "b"]
