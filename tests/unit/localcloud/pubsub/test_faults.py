"""Rehearsed failures of the core."""

from typing import Any

import pytest

from ingestd.localcloud.faults import FaultInjected, FaultKind, ResponseLost

SUBSCRIPTION = "projects/p/subscriptions/worker"


def test_a_failed_publish_does_nothing(broker: Any) -> None:
    broker.subscription()
    broker.fault("Publish", FaultKind.FAIL, times=1)
    with pytest.raises(FaultInjected):
        broker.publish("a")
    broker.publish("b")
    assert broker.texts() == ["b"]


def test_a_lost_publish_answer_leaves_the_message_published(broker: Any) -> None:
    broker.subscription()
    broker.fault("Publish", FaultKind.DROP_RESPONSE, times=1)
    with pytest.raises(ResponseLost):
        broker.publish("a")
    assert broker.texts() == ["a"]


def test_a_lost_ack_answer_leaves_the_message_acknowledged(broker: Any) -> None:
    broker.subscription()
    broker.publish("a")
    received = broker.pull()
    broker.fault("Acknowledge", FaultKind.DROP_RESPONSE, times=1)
    with pytest.raises(ResponseLost):
        broker.ack(*received)
    broker.after(60)
    assert broker.texts() == []


def test_faults_hit_the_resource_they_name(broker: Any) -> None:
    broker.subscription()
    broker.topic("projects/p/topics/other")
    broker.fault("Publish", FaultKind.FAIL, resource="*/other")
    broker.publish("a")
    with pytest.raises(FaultInjected):
        broker.publish("b", topic="projects/p/topics/other")


def test_a_duplicated_message_comes_twice_and_either_ack_ends_it(broker: Any) -> None:
    for chosen in (0, 1):
        subscription = broker.subscription(f"projects/p/subscriptions/sub-{chosen}")
        broker.fault("deliver", FaultKind.DUPLICATE, resource=subscription, times=1)
        broker.publish("a")
        both = broker.pull(subscription=subscription)
        assert len({one.message_id for one in both}) == 1
        assert len({one.ack_id for one in both}) == 2
        broker.ack(both[chosen], subscription=subscription)
        broker.after(60)
        assert broker.texts(subscription=subscription) == []


def test_a_withheld_message_comes_when_the_fault_is_over(broker: Any) -> None:
    broker.subscription()
    broker.fault("deliver", FaultKind.WITHHOLD, resource=SUBSCRIPTION)
    broker.publish("a")
    for _ in range(5):
        assert broker.texts() == []
        broker.after(1)
    broker.hooks.plan.clear()
    assert broker.texts() == ["a"]
    assert broker.stats().delivered == 1


def test_one_withheld_message_does_not_hold_up_the_others(broker: Any) -> None:
    broker.subscription()
    broker.fault("deliver", FaultKind.WITHHOLD, times=1)
    broker.publish("a", "b")
    assert broker.texts() == ["b"]
    broker.after(1)
    assert broker.texts() == ["a"]


def test_withholding_keeps_the_order_of_a_key(broker: Any) -> None:
    broker.subscription(enable_message_ordering=True)
    broker.fault("deliver", FaultKind.WITHHOLD, times=1)
    broker.publish("a", "b", key="k")
    assert broker.texts() == []
    broker.after(1)
    assert broker.texts() == ["a", "b"]
