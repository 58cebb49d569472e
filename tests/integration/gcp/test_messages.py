"""What `Subscription` and `Publisher` promise, kept over the wire and by the bindings alike."""

import asyncio
from datetime import timedelta

import pytest

from ingestd.localcloud.faults import FaultKind
from ingestd.model.errors import NotFound, Transient


async def pull_all(subscription, count: int) -> list:
    found = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await subscription.pull(1000)
    return found


async def test_what_is_published_is_pulled_with_its_attributes(ports, topic):
    subscription = ports.subscription(topic)
    message_id = await ports.publisher.publish(topic, b"\x00data", {"eventType": "OBJECT_FINALIZE", "n": "1"})
    (message,) = await pull_all(subscription, 1)
    assert (message.data, dict(message.attributes), message.message_id) == (
        b"\x00data",
        {"eventType": "OBJECT_FINALIZE", "n": "1"},
        message_id,
    )
    assert subscription.name == f"projects/test-project/subscriptions/{topic}"
    await subscription.ack([message.ack_id])


async def test_an_empty_pull_is_empty_after_a_while(ports, topic):
    async with asyncio.timeout(60):
        assert await ports.subscription(topic).pull(10) == []


async def test_a_waiting_pull_wakes_for_a_message(ports, topic):
    waiting = asyncio.create_task(pull_all(ports.subscription(topic), 1))
    await asyncio.sleep(0.05)
    await ports.publisher.publish(topic, b"x", {})
    (message,) = await waiting
    assert message.data == b"x"


async def test_a_message_given_back_comes_again_and_an_acked_one_does_not(ports, topic):
    subscription = ports.subscription(topic)
    for data in (b"keep", b"return"):
        await ports.publisher.publish(topic, data, {})
    first = {message.data: message for message in await pull_all(subscription, 2)}
    await subscription.ack([first[b"keep"].ack_id])
    await subscription.extend([first[b"return"].ack_id], timedelta(0))
    (again,) = await pull_all(subscription, 1)
    assert again.data == b"return"
    await subscription.extend([again.ack_id], timedelta(seconds=60))
    assert await subscription.pull(10) == []
    await subscription.ack([again.ack_id])


async def test_thousands_of_acks_are_split_into_requests_that_fit(ports, cloud, topic):
    name = f"projects/test-project/topics/{topic}"
    for _ in range(6):
        cloud.pubsub.publish(name, [(b"x", {}, "")] * 1000)
    subscription = ports.subscription(topic)
    messages = await pull_all(subscription, 6000)
    assert len({message.message_id for message in messages}) == 6000
    await subscription.ack([message.ack_id for message in messages])
    await subscription.ack([])
    stats = {one.name: one for one in cloud.pubsub.stats().subscriptions}
    assert stats[subscription.name].backlog == 0


async def test_ack_ids_of_twice_the_usual_length_still_fit(ports, topic):
    """They are of no promised length; a request of too many bytes loses the leases of all its messages."""
    subscription = ports.subscription(topic)
    await ports.publisher.publish(topic, b"x", {})
    (message,) = await pull_all(subscription, 1)
    lease = message.ack_id.rpartition("-")[0]
    late = [f"{lease}-{number:0380x}" for number in range(2_600)]  # of deliveries before this one
    await subscription.extend(late, timedelta(seconds=60))
    await subscription.ack(late)


async def test_a_missing_subscription_or_topic_is_not_found(ports):
    with pytest.raises(NotFound):
        await ports.subscription("no-such-subscription").pull(1)
    with pytest.raises(NotFound):
        await ports.publisher.publish("no-such-topic", b"", {})


async def test_an_outage_is_retried_and_a_lasting_one_transient(ports, topic, fault):
    await ports.publisher.publish(topic, b"x", {})
    fault("pubsub", "Pull", status=503, times=2)
    (message,) = await pull_all(ports.subscription(topic), 1)
    fault("pubsub", "Acknowledge", status=503)
    with pytest.raises(Transient):
        await ports.subscription(topic).ack([message.ack_id])


async def test_a_publish_whose_answer_was_lost_is_repeated(ports, topic, fault):
    """At least once, never lost: receivers tell the copies apart by attributes, which is what keys are for."""
    fault("pubsub", "Publish", FaultKind.DROP_RESPONSE, times=1)
    await ports.publisher.publish(topic, b"x", {"key": "1"})
    messages = await pull_all(ports.subscription(topic), 2)
    assert [message.attributes["key"] for message in messages] == ["1", "1"]
