"""Dead letters: counted attempts, and where the hopeless end up."""

from typing import Any

import pytest

from ingestd.localcloud.pubsub.errors import Code, PubSubError

DEAD = "projects/p/topics/dead"
GRAVE = "projects/p/subscriptions/grave"
POLICY = {"dead_letter_topic": DEAD, "max_delivery_attempts": 5}


@pytest.fixture
def mourned(broker: Any) -> Any:
    broker.topic(DEAD)
    broker.subscription(GRAVE, topic=DEAD)
    broker.subscription(dead_letter_policy=POLICY)
    return broker


def test_attempts_are_counted_from_one(mourned: Any) -> None:
    mourned.publish("a")
    seen = []
    for _ in range(3):
        (received,) = mourned.pull()
        seen.append(received.delivery_attempt)
        mourned.nack(received)
    assert seen == [1, 2, 3]


def test_after_the_last_attempt_the_message_moves_to_the_dead_letter_topic(mourned: Any) -> None:
    (message_id,) = mourned.publish("poison", kind="bad", key="k")
    published = mourned.clock.now()
    for _ in range(4):
        mourned.nack(*mourned.pull())
    mourned.pull()
    mourned.after(10)
    assert mourned.texts() == []
    (dead,) = mourned.pull(subscription=GRAVE)
    assert dead.data == b"poison"
    assert dead.ordering_key == "k"
    assert dead.message_id != message_id
    assert dead.attributes == {
        "kind": "bad",
        "CloudPubSubDeadLetterSourceDeliveryCount": "5",
        "CloudPubSubDeadLetterSourceSubscription": "worker",
        "CloudPubSubDeadLetterSourceSubscriptionProject": "p",
        "CloudPubSubDeadLetterSourceTopicPublishTime": published.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    assert mourned.stats().dead_lettered == 1
    assert mourned.stats().backlog == 0


def test_an_ack_on_the_last_attempt_saves_it(mourned: Any) -> None:
    mourned.publish("a")
    for _ in range(4):
        mourned.nack(*mourned.pull())
    mourned.ack(*mourned.pull())
    assert mourned.texts(subscription=GRAVE) == []


def test_while_the_dead_letter_topic_is_missing_delivery_goes_on(mourned: Any) -> None:
    mourned.publish("a")
    mourned.core.delete_topic(DEAD)
    for attempt in range(1, 8):
        (received,) = mourned.pull()
        assert received.delivery_attempt == attempt
        mourned.nack(received)


def test_attempts_and_dead_letters_survive_a_restart(durable: Any) -> None:
    durable.topic(DEAD)
    durable.subscription(GRAVE, topic=DEAD)
    durable.subscription(dead_letter_policy=POLICY)
    durable.publish("a")
    for _ in range(4):
        durable.nack(*durable.pull())
    durable.restart()
    (received,) = durable.pull()
    assert received.delivery_attempt == 5
    durable.nack(received)
    durable.restart()
    assert durable.texts() == []
    assert durable.texts(subscription=GRAVE) == ["a"]


def test_a_missing_dead_letter_topic_is_refused_at_creation(broker: Any) -> None:
    with pytest.raises(PubSubError) as refused:
        broker.subscription(dead_letter_policy=POLICY)
    assert refused.value.code is Code.NOT_FOUND


@pytest.mark.parametrize("attempts", [4, 101])
def test_attempts_outside_five_to_a_hundred_are_refused(broker: Any, attempts: int) -> None:
    broker.topic(DEAD)
    with pytest.raises(PubSubError) as refused:
        broker.subscription(dead_letter_policy={"dead_letter_topic": DEAD, "max_delivery_attempts": attempts})
    assert refused.value.code is Code.INVALID_ARGUMENT


def test_an_ordered_dead_letter_lets_its_key_go_on(broker: Any) -> None:
    broker.topic(DEAD)
    broker.subscription(GRAVE, topic=DEAD)
    broker.subscription(enable_message_ordering=True, dead_letter_policy=POLICY)
    broker.publish("poison", "next", key="k")
    for _ in range(5):
        poison, *_ = broker.pull()
        assert poison.data == b"poison"
        broker.nack(poison)
    assert broker.texts() == ["next"]
    assert broker.texts(subscription=GRAVE) == ["poison"]
