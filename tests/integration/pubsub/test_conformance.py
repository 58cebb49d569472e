"""What Google's clients may expect of any Pub/Sub: run against the local one and against Google's own emulator."""

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.subscriber.exceptions import AcknowledgeError, AcknowledgeStatus

PROJECT = "projects/test-project"


def data_of(received: list[Any]) -> list[str]:
    return [one.message.data.decode() for one in received]


class TestResources:
    def test_a_topic_is_created_read_listed_and_deleted(self, target: Any) -> None:
        topic = target.topic(labels={"team": "a"})
        assert dict(target.publisher.get_topic(topic=topic).labels) == {"team": "a"}
        assert topic in [one.name for one in target.publisher.list_topics(project=PROJECT)]
        target.publisher.delete_topic(topic=topic)
        with pytest.raises(exceptions.NotFound):
            target.publisher.get_topic(topic=topic)

    def test_creating_twice_answers_already_exists(self, target: Any) -> None:
        topic, subscription = target.pair()
        with pytest.raises(exceptions.AlreadyExists):
            target.publisher.create_topic(name=topic)
        with pytest.raises(exceptions.AlreadyExists):
            target.subscriber.create_subscription(name=subscription, topic=topic)

    def test_what_is_missing_answers_not_found(self, target: Any) -> None:
        missing = f"{PROJECT}/subscriptions/missing"
        with pytest.raises(exceptions.NotFound):
            target.subscriber.get_subscription(subscription=missing)
        with pytest.raises(exceptions.NotFound):
            target.subscriber.pull(subscription=missing, max_messages=1, timeout=60)
        with pytest.raises(exceptions.NotFound):
            target.subscriber.delete_subscription(subscription=missing)
        with pytest.raises(exceptions.NotFound):
            target.subscriber.create_subscription(name=missing, topic=f"{PROJECT}/topics/missing")
        with pytest.raises(exceptions.NotFound):
            target.publisher.publish(f"{PROJECT}/topics/missing", b"x").result(60)

    def test_a_subscription_reads_back_as_created(self, target: Any) -> None:
        dead = target.topic()
        topic, subscription = target.pair(
            ack_deadline_seconds=42,
            enable_message_ordering=True,
            filter='attributes.kind = "x"',
            dead_letter_policy={"dead_letter_topic": dead, "max_delivery_attempts": 7},
            retry_policy={"minimum_backoff": timedelta(seconds=3), "maximum_backoff": timedelta(seconds=30)},
            labels={"team": "a"},
        )
        found = target.subscriber.get_subscription(subscription=subscription)
        assert found.topic == topic
        assert found.ack_deadline_seconds == 42
        assert found.enable_message_ordering
        assert found.filter == 'attributes.kind = "x"'
        assert found.dead_letter_policy.max_delivery_attempts == 7
        assert found.retry_policy.minimum_backoff == timedelta(seconds=3)
        assert dict(found.labels) == {"team": "a"}

    def test_an_update_changes_only_what_its_mask_names(self, target: Any) -> None:
        _, subscription = target.pair(ack_deadline_seconds=20)
        updated = target.subscriber.update_subscription(
            subscription={"name": subscription, "ack_deadline_seconds": 60, "retain_acked_messages": True},
            update_mask={"paths": ["ack_deadline_seconds"]},
        )
        assert updated.ack_deadline_seconds == 60
        assert not updated.retain_acked_messages

    def test_a_topics_subscriptions_are_listed(self, target: Any) -> None:
        topic, first = target.pair()
        second = target.subscription(topic)
        assert set(target.publisher.list_topic_subscriptions(topic=topic)) == {first, second}
        names = [one.name for one in target.subscriber.list_subscriptions(project=PROJECT)]
        assert {first, second} <= set(names)

    def test_lists_come_in_pages(self, target: Any) -> None:
        project = "projects/paged-project"
        wanted = [f"{project}/topics/topic-{number}" for number in range(5)]
        for name in wanted:
            target.publisher.create_topic(name=name)
        pages = list(target.publisher.list_topics(request={"project": project, "page_size": 2}).pages)
        assert sorted(topic.name for page in pages for topic in page.topics) == wanted
        assert all(len(page.topics) <= 2 for page in pages)

    def test_a_deleted_topic_is_remembered_as_deleted(self, target: Any) -> None:
        topic, subscription = target.pair()
        target.publish(topic, "kept")
        target.publisher.delete_topic(topic=topic)
        assert target.subscriber.get_subscription(subscription=subscription).topic == "_deleted-topic_"
        assert data_of(target.pull(subscription)) == ["kept"]

    def test_a_detached_subscription_refuses_to_deliver(self, target: Any) -> None:
        target.needs("detach")
        topic, subscription = target.pair()
        target.publish(topic, "a")
        target.publisher.detach_subscription(request={"subscription": subscription})
        assert target.subscriber.get_subscription(subscription=subscription).detached
        with pytest.raises(exceptions.FailedPrecondition):
            target.subscriber.pull(subscription=subscription, max_messages=1, timeout=60)

    def test_a_malformed_name_is_refused(self, target: Any) -> None:
        with pytest.raises(exceptions.InvalidArgument):
            target.publisher.create_topic(name="not-a-topic-name")

    def test_an_ack_deadline_out_of_range_is_refused(self, target: Any) -> None:
        target.needs("setting ranges")
        with pytest.raises(exceptions.InvalidArgument):
            target.pair(ack_deadline_seconds=5)

    def test_a_broken_filter_is_refused(self, target: Any) -> None:
        target.needs("filters")
        with pytest.raises(exceptions.InvalidArgument):
            target.pair(filter="colour is red")


class TestPublishAndPull:
    def test_a_message_arrives_whole(self, target: Any) -> None:
        topic, subscription = target.pair()
        before = datetime.now(UTC) - timedelta(seconds=5)
        (message_id,) = target.publish(topic, "hello", colour="red", size="9")
        (received,) = target.pull(subscription)
        assert received.message.message_id == message_id
        assert received.message.data == b"hello"
        assert dict(received.message.attributes) == {"colour": "red", "size": "9"}
        assert before < received.message.publish_time < datetime.now(UTC) + timedelta(seconds=5)

    def test_acknowledged_messages_are_gone_and_others_come_back(self, target: Any) -> None:
        topic, subscription = target.pair()
        target.publish(topic, "a", "b")
        received = target.pull(subscription, at_least=2)
        target.ack(subscription, [one for one in received if one.message.data == b"a"])
        others = [one.ack_id for one in received if one.message.data == b"b"]
        target.subscriber.modify_ack_deadline(subscription=subscription, ack_ids=others, ack_deadline_seconds=0)
        again = target.pull(subscription)
        assert data_of(again) == ["b"]
        target.ack(subscription, again)
        assert target.nothing_left(subscription)

    def test_an_expired_lease_brings_the_message_back(self, target: Any) -> None:
        topic, subscription = target.pair()
        target.publish(topic, "a")
        (first,) = target.pull(subscription)
        target.subscriber.modify_ack_deadline(subscription=subscription, ack_ids=[first.ack_id], ack_deadline_seconds=1)
        started = time.monotonic()
        (second,) = target.pull(subscription)
        assert time.monotonic() - started > 0.5
        assert second.message.message_id == first.message.message_id
        assert second.ack_id != first.ack_id

    def test_every_subscription_gets_every_message(self, target: Any) -> None:
        topic, first = target.pair()
        second = target.subscription(topic)
        target.publish(topic, "a", "b")
        assert sorted(data_of(target.pull(first, at_least=2))) == ["a", "b"]
        assert sorted(data_of(target.pull(second, at_least=2))) == ["a", "b"]

    def test_a_waiting_pull_gets_what_is_published_meanwhile(self, target: Any) -> None:
        topic, subscription = target.pair()
        threading.Timer(0.3, target.publish, (topic, "late")).start()
        response = target.subscriber.pull(subscription=subscription, max_messages=10, timeout=60)
        assert data_of(response.received_messages) == ["late"]

    def test_a_filter_lets_only_its_messages_through(self, target: Any) -> None:
        target.needs("filters")
        topic, subscription = target.pair(filter='attributes.kind = "keep" AND hasPrefix(attributes.path, "data/")')
        target.publish(topic, "a", kind="drop", path="data/1")
        target.publish(topic, "b", kind="keep", path="data/2")
        target.publish(topic, "c", kind="keep", path="other/3")
        assert data_of(target.pull(subscription)) == ["b"]
        assert target.nothing_left(subscription)

    def test_an_empty_message_is_refused(self, target: Any) -> None:
        topic = target.topic()
        with pytest.raises(exceptions.InvalidArgument):
            target.publisher.publish(topic, b"").result(60)

    def test_a_message_of_several_megabytes_arrives(self, target: Any) -> None:
        topic, subscription = target.pair()
        target.publisher.publish(topic, b"x" * 4_000_000).result(60)
        (received,) = target.pull(subscription)
        assert len(received.message.data) == 4_000_000

    def test_ordering_keys_keep_their_order(self, target: Any) -> None:
        topic, subscription = target.pair(enable_message_ordering=True)
        for number in range(10):
            target.publisher.transport.publish(
                pubsub_v1.types.PublishRequest(
                    topic=topic, messages=[{"data": str(number).encode(), "ordering_key": f"key-{number % 2}"}]
                )
            )
        seen: dict[str, list[str]] = {"key-0": [], "key-1": []}
        until = time.monotonic() + 60
        while sum(map(len, seen.values())) < 10 and time.monotonic() < until:
            received = target.pull(subscription)
            for one in received:
                seen[one.message.ordering_key].append(one.message.data.decode())
            target.ack(subscription, received)
        assert seen == {"key-0": ["0", "2", "4", "6", "8"], "key-1": ["1", "3", "5", "7", "9"]}

    def test_after_five_attempts_a_message_is_a_dead_letter(self, target: Any) -> None:
        dead = target.topic()
        grave = target.subscription(dead)
        topic, subscription = target.pair(dead_letter_policy={"dead_letter_topic": dead, "max_delivery_attempts": 5})
        target.publish(topic, "poison", kind="bad")
        attempts = []
        for _ in range(5):
            (received,) = target.pull(subscription)
            attempts.append(received.delivery_attempt)
            target.subscriber.modify_ack_deadline(
                subscription=subscription, ack_ids=[received.ack_id], ack_deadline_seconds=0
            )
        assert attempts == [1, 2, 3, 4, 5]
        assert target.nothing_left(subscription)
        (buried,) = target.pull(grave)
        assert buried.message.data == b"poison"
        assert buried.message.attributes["kind"] == "bad"
        assert buried.message.attributes["CloudPubSubDeadLetterSourceSubscription"] == subscription.rpartition("/")[2]
        assert buried.message.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"


class TestSeek:
    def test_seeking_to_the_future_acknowledges_everything(self, target: Any) -> None:
        topic, subscription = target.pair()
        target.publish(topic, "a", "b")
        target.subscriber.seek(request={"subscription": subscription, "time": datetime.now(UTC) + timedelta(minutes=1)})
        assert target.nothing_left(subscription)

    def test_retained_messages_come_back(self, target: Any) -> None:
        topic, subscription = target.pair(retain_acked_messages=True)
        target.publish(topic, "a")
        target.ack(subscription, target.pull(subscription))
        assert target.nothing_left(subscription)
        target.subscriber.seek(request={"subscription": subscription, "time": datetime.now(UTC) - timedelta(minutes=5)})
        assert data_of(target.pull(subscription)) == ["a"]

    def test_a_snapshot_brings_back_its_moment(self, target: Any) -> None:
        topic, subscription = target.pair()
        target.publish(topic, "a")
        snapshot = f"{PROJECT}/snapshots/snap-{subscription[-8:]}"
        made = target.subscriber.create_snapshot(name=snapshot, subscription=subscription)
        assert made.topic == topic
        target.ack(subscription, target.pull(subscription))
        target.subscriber.seek(request={"subscription": subscription, "snapshot": snapshot})
        assert data_of(target.pull(subscription)) == ["a"]
        assert snapshot in [one.name for one in target.subscriber.list_snapshots(project=PROJECT)]
        target.subscriber.delete_snapshot(snapshot=snapshot)


class TestStreaming:
    def test_subscribe_delivers_and_acknowledges_everything(self, target: Any) -> None:
        topic, subscription = target.pair()
        wanted = set(target.publish(topic, *map(str, range(300))))
        seen: set[str] = set()
        done = threading.Event()

        def callback(message: Any) -> None:
            seen.add(message.message_id)
            message.ack()
            if seen == wanted:
                done.set()

        future = target.subscriber.subscribe(subscription, callback, await_callbacks_on_shutdown=True)
        assert done.wait(120), f"{len(seen)} of {len(wanted)}"
        future.cancel()
        future.result(60)
        assert target.nothing_left(subscription)

    def test_a_callback_that_nacks_gets_the_message_again(self, target: Any) -> None:
        topic, subscription = target.pair()
        attempts: list[str] = []
        done = threading.Event()

        def callback(message: Any) -> None:
            attempts.append(message.message_id)
            if len(attempts) < 3:
                message.nack()
            else:
                message.ack()
                done.set()

        future = target.subscriber.subscribe(subscription, callback)
        (message_id,) = target.publish(topic, "a")
        assert done.wait(120)
        future.cancel()
        future.result(60)
        assert attempts == [message_id] * 3

    def test_flow_control_bounds_what_is_outstanding(self, target: Any) -> None:
        topic, subscription = target.pair()
        target.publish(topic, *"abcdef")
        held: list[Any] = []
        third = threading.Event()

        def callback(message: Any) -> None:
            held.append(message)
            if len(held) >= 3:
                third.set()

        future = target.subscriber.subscribe(
            subscription, callback, flow_control=pubsub_v1.types.FlowControl(max_messages=2)
        )
        assert not third.wait(0.7)
        assert len(held) == 2
        held[0].ack()
        assert third.wait(120)
        for message in held:
            message.ack()
        future.cancel()
        future.result(60)

    def test_exactly_once_acks_are_confirmed(self, target: Any) -> None:
        topic, subscription = target.pair(enable_exactly_once_delivery=True)
        outcomes: list[Any] = []
        done = threading.Event()

        def callback(message: Any) -> None:
            outcomes.append(message.ack_with_response().result(60))
            done.set()

        future = target.subscriber.subscribe(subscription, callback)
        target.publish(topic, "a")
        assert done.wait(120)
        future.cancel()
        future.result(60)
        assert outcomes == [AcknowledgeStatus.SUCCESS]

    def test_an_exactly_once_ack_of_an_expired_lease_fails(self, target: Any) -> None:
        topic, subscription = target.pair(enable_exactly_once_delivery=True)
        outcomes: list[Any] = []
        done = threading.Event()

        def callback(message: Any) -> None:
            if outcomes:
                message.ack()
                return
            # Behind the client's back, as when its process was paused past the deadline.
            target.subscriber.modify_ack_deadline(
                subscription=subscription, ack_ids=[message.ack_id], ack_deadline_seconds=0
            )
            try:
                outcomes.append(message.ack_with_response().result(60))
            except AcknowledgeError as error:
                outcomes.append(error.error_code)
            done.set()

        future = target.subscriber.subscribe(subscription, callback)
        target.publish(topic, "a")
        assert done.wait(120)
        future.cancel()
        future.result(60)
        assert outcomes[0] is AcknowledgeStatus.INVALID_ACK_ID


class TestAsyncClients:
    async def test_publish_pull_and_acknowledge(self, target: Any) -> None:
        topic, subscription = target.pair()
        publisher, subscriber = target.async_publisher(), target.async_subscriber()
        messages = [{"data": str(number).encode(), "attributes": {"n": str(number)}} for number in range(200)]
        published = await publisher.publish(topic=topic, messages=messages)
        got: dict[str, str] = {}
        async with asyncio.timeout(60):
            while len(got) < 200:
                response = await subscriber.pull(subscription=subscription, max_messages=100)
                got |= {one.message.message_id: one.message.attributes["n"] for one in response.received_messages}
                ids = [one.ack_id for one in response.received_messages]
                await subscriber.acknowledge(subscription=subscription, ack_ids=ids)
        assert list(got) == list(published.message_ids) or set(got) == set(published.message_ids)
        assert target.nothing_left(subscription)
        await publisher.transport.close()
        await subscriber.transport.close()

    async def test_streaming_pull_with_acks_on_the_stream(self, target: Any) -> None:
        topic, subscription = target.pair()
        subscriber = target.async_subscriber()
        target.publish(topic, *"abcde")
        acks: asyncio.Queue[list[str]] = asyncio.Queue()

        async def requests() -> Any:
            yield pubsub_v1.types.StreamingPullRequest(
                subscription=subscription, stream_ack_deadline_seconds=30, max_outstanding_messages=2
            )
            while ids := await acks.get():
                yield pubsub_v1.types.StreamingPullRequest(ack_ids=ids)

        got: list[str] = []
        async with asyncio.timeout(60):
            async for response in await subscriber.streaming_pull(requests=requests()):
                got += [one.message.data.decode() for one in response.received_messages]
                if response.received_messages:
                    acks.put_nowait([one.ack_id for one in response.received_messages])
                if len(got) >= 5:
                    break
        acks.put_nowait([])
        assert sorted(got) == list("abcde")
        await asyncio.sleep(0.2)
        assert target.nothing_left(subscription)
        await subscriber.transport.close()
