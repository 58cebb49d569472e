"""What a publish may hold."""

from typing import Any

import pytest

from ingestd.localcloud.pubsub.errors import Code, PubSubError

TOPIC = "projects/p/topics/events"


def refused(broker: Any, messages: list[tuple[bytes, dict[str, str], str]]) -> str:
    with pytest.raises(PubSubError) as error:
        broker.core.publish(TOPIC, messages)
    assert error.value.code is Code.INVALID_ARGUMENT
    return error.value.message


@pytest.fixture(autouse=True)
def subscribed(broker: Any) -> None:
    broker.subscription()


def test_an_empty_message_is_refused(broker: Any) -> None:
    assert "data or at least one attribute" in refused(broker, [(b"", {}, "")])


def test_attributes_alone_are_enough(broker: Any) -> None:
    broker.core.publish(TOPIC, [(b"", {"a": ""}, "")])
    assert broker.pull()[0].attributes == {"a": ""}


def test_more_than_a_thousand_messages_are_refused(broker: Any) -> None:
    assert "maximum value is 1000" in refused(broker, [(b"x", {}, "")] * 1001)
    assert len(broker.core.publish(TOPIC, [(b"x", {}, "")] * 1000)) == 1000


def test_no_messages_at_all_are_refused(broker: Any) -> None:
    assert "too small" in refused(broker, [])


def test_a_request_above_ten_mebibytes_is_refused_whole(broker: Any) -> None:
    assert "10485760" in refused(broker, [(b"x" * 6_000_000, {}, "")] * 2)
    assert broker.stats().backlog == 0


@pytest.mark.parametrize(
    "attributes",
    [
        {f"k{n}": "v" for n in range(101)},
        {"k" * 257: "v"},
        {"ä" * 129: "v"},
        {"k": "v" * 1025},
        {"k": "ä" * 513},
        {"": "v"},
        {"googclient": "v"},
    ],
    ids=["101 of them", "long key", "long key in bytes", "long value", "long value in bytes", "empty key", "goog key"],
)
def test_attributes_beyond_their_limits_are_refused(broker: Any, attributes: dict[str, str]) -> None:
    refused(broker, [(b"x", attributes, "")])


@pytest.mark.parametrize("attributes", [{f"k{n}": "v" for n in range(100)}, {"k" * 256: "v" * 1024}])
def test_attributes_at_their_limits_are_accepted(broker: Any, attributes: dict[str, str]) -> None:
    broker.core.publish(TOPIC, [(b"x", attributes, "")])
    assert broker.pull()[0].attributes == attributes


def test_an_ordering_key_above_a_kibibyte_is_refused(broker: Any) -> None:
    refused(broker, [(b"x", {}, "k" * 1025)])


def test_one_bad_message_refuses_the_whole_request(broker: Any) -> None:
    refused(broker, [(b"good", {}, ""), (b"", {}, "")])
    assert broker.texts() == []


def test_message_ids_are_unique_and_grow(broker: Any) -> None:
    ids = [int(one) for _ in range(5) for one in broker.publish("a", "b")]
    assert ids == sorted(set(ids))


def test_publishing_to_a_missing_topic_says_so(broker: Any) -> None:
    with pytest.raises(PubSubError) as error:
        broker.publish("a", topic="projects/p/topics/nowhere")
    assert error.value.code is Code.NOT_FOUND
