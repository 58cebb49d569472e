"""What the local server adds to the core: waiting, waking, streams that notice, and rehearsed failures on the wire."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest
from google.api_core import exceptions
from google.cloud import pubsub_v1
from google.pubsub_v1 import PublisherClient as PlainPublisherClient
from google.pubsub_v1.types import pubsub as types
from tests.support.waiting import HOPELESS

from ingestd.localcloud.faults import Fault, FaultKind

PROJECT = "projects/test-project"


@pytest.fixture
def faults(local_pubsub: Any) -> Iterator[Any]:
    yield lambda method, kind, **fields: local_pubsub.hooks.plan.add(Fault("pubsub", method, kind, **fields))
    local_pubsub.hooks.plan.clear()


class TestWaiting:
    def test_an_idle_pull_answers_empty_before_the_client_gives_up(self, local: Any) -> None:
        _, subscription = local.pair()
        started = time.monotonic()
        response = local.subscriber.pull(subscription=subscription, max_messages=1, timeout=2)
        assert not response.received_messages
        assert time.monotonic() - started > 0.5

    def test_an_idle_pull_answers_empty_after_a_while_by_itself(self, local: Any) -> None:
        _, subscription = local.pair()
        started = time.monotonic()
        # A pull that waits for as long as its client does would end with the client's deadline, and raise.
        answer = local.subscriber.pull(subscription=subscription, max_messages=1, timeout=HOPELESS)
        assert not answer.received_messages
        assert time.monotonic() - started > 2.5

    def test_a_publish_from_another_thread_wakes_a_waiting_pull(self, local: Any, local_pubsub: Any) -> None:
        topic, subscription = local.pair()
        publish = threading.Timer(0.3, local_pubsub.core.publish, (topic, [(b"in process", {"a": "b"}, "")]))
        publish.start()
        (received,) = local.subscriber.pull(subscription=subscription, max_messages=1, timeout=60).received_messages
        assert received.message.data == b"in process"

    async def test_waiting_pulls_are_served_in_turn(self, local: Any, local_pubsub: Any) -> None:
        topic, subscription = local.pair()
        subscriber = local.async_subscriber()
        order: list[int] = []

        async def wait(number: int) -> None:
            response = await subscriber.pull(subscription=subscription, max_messages=2, timeout=60)
            assert 1 <= len(response.received_messages) <= 2
            order.append(number)

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(wait(number))
                await asyncio.sleep(0.1)
            local_pubsub.core.publish(topic, [(b"x", {}, "")] * 7)
        assert sorted(order) == [0, 1, 2, 3], "one publish of seven messages served all four"
        await subscriber.transport.close()

    async def test_a_cancelled_pull_takes_nothing_with_it(self, local: Any, local_pubsub: Any) -> None:
        topic, subscription = local.pair()
        subscriber = local.async_subscriber()
        waiting = asyncio.create_task(subscriber.pull(subscription=subscription, max_messages=10, timeout=60))
        await asyncio.sleep(0.3)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.sleep(0.2)
        local_pubsub.core.publish(topic, [(b"x", {}, "")])
        response = await subscriber.pull(subscription=subscription, max_messages=10, timeout=60)
        assert len(response.received_messages) == 1
        await subscriber.transport.close()

    def test_an_expired_lease_wakes_a_waiting_pull(self, local: Any) -> None:
        topic, subscription = local.pair()
        local.publish(topic, "a")
        (first,) = local.pull(subscription)
        local.subscriber.modify_ack_deadline(subscription=subscription, ack_ids=[first.ack_id], ack_deadline_seconds=1)
        started = time.monotonic()
        (second,) = local.subscriber.pull(subscription=subscription, max_messages=1, timeout=60).received_messages
        assert second.message.message_id == first.message.message_id
        assert time.monotonic() - started > 0.8


class TestStreams:
    @pytest.fixture
    def stream(self, local: Any) -> Iterator[Any]:
        channel = grpc.insecure_channel(local.endpoint)
        call = channel.stream_stream(
            "/google.pubsub.v1.Subscriber/StreamingPull",
            request_serializer=types.StreamingPullRequest.serialize,
            response_deserializer=types.StreamingPullResponse.deserialize,
        )

        def open_stream(requests: Any) -> Any:
            return call(iter(requests), timeout=60)

        yield open_stream
        channel.close()

    def test_the_first_response_tells_the_subscriptions_properties(self, local: Any, stream: Any) -> None:
        _, subscription = local.pair(enable_exactly_once_delivery=True, enable_message_ordering=True)
        responses = stream(_open(subscription))
        properties = next(responses).subscription_properties
        assert properties.exactly_once_delivery_enabled
        assert properties.message_ordering_enabled
        responses.cancel()

    def test_a_changed_property_is_told_on_the_open_stream(self, local: Any, stream: Any) -> None:
        _, subscription = local.pair()
        responses = stream(_open(subscription))
        assert not next(responses).subscription_properties.exactly_once_delivery_enabled
        local.subscriber.update_subscription(
            subscription={"name": subscription, "enable_exactly_once_delivery": True},
            update_mask={"paths": ["enable_exactly_once_delivery"]},
        )
        assert next(responses).subscription_properties.exactly_once_delivery_enabled
        responses.cancel()

    def test_exactly_once_acks_on_the_stream_are_confirmed_one_by_one(self, local: Any, stream: Any) -> None:
        topic, subscription = local.pair(enable_exactly_once_delivery=True)
        local.publish(topic, "a")
        (received,) = local.pull(subscription)
        first = types.StreamingPullRequest(
            subscription=subscription, stream_ack_deadline_seconds=10, ack_ids=[received.ack_id, "1-2-3-4"]
        )
        responses = stream(_open(subscription, first))
        next(responses)
        confirmation = next(responses).acknowledge_confirmation
        assert list(confirmation.ack_ids) == [received.ack_id]
        assert list(confirmation.invalid_ack_ids) == ["1-2-3-4"]
        responses.cancel()

    def test_deleting_the_subscription_ends_its_stream(self, local: Any, stream: Any) -> None:
        _, subscription = local.pair()
        responses = stream(_open(subscription))
        next(responses)
        local.subscriber.delete_subscription(subscription=subscription)
        with pytest.raises(grpc.RpcError) as ended:
            next(responses)
        assert ended.value.code() is grpc.StatusCode.NOT_FOUND

    def test_a_stream_without_a_lawful_deadline_is_refused(self, local: Any, stream: Any) -> None:
        _, subscription = local.pair()
        responses = stream([types.StreamingPullRequest(subscription=subscription, stream_ack_deadline_seconds=5)])
        with pytest.raises(grpc.RpcError) as ended:
            next(responses)
        assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    def test_bytes_outstanding_are_bounded(self, local: Any, stream: Any) -> None:
        topic, subscription = local.pair()
        local.publish(topic, *["x" * 1000] * 5)
        first = types.StreamingPullRequest(
            subscription=subscription, stream_ack_deadline_seconds=10, max_outstanding_bytes=1500
        )
        responses = stream(_open(subscription, first, seconds=1))
        got = [len(response.received_messages) for response in responses]
        assert sum(got) < 5

    def test_two_streams_share_the_work(self, local: Any) -> None:
        topic, subscription = local.pair()
        counts = [0, 0]
        done = threading.Event()

        def callback(which: int) -> Any:
            def receive(message: Any) -> None:
                counts[which] += 1
                time.sleep(0.002)
                message.ack()
                if sum(counts) >= 200:
                    done.set()

            return receive

        flow = pubsub_v1.types.FlowControl(max_messages=5)
        futures = [local.subscriber.subscribe(subscription, callback(n), flow_control=flow) for n in (0, 1)]
        local.publish(topic, *map(str, range(200)))
        assert done.wait(120)
        for future in futures:
            future.cancel()
            future.result(60)
        assert sum(counts) == 200
        assert min(counts) > 40


def _open(subscription: str, first: Any = None, seconds: float = 15) -> Iterator[Any]:
    yield first or types.StreamingPullRequest(subscription=subscription, stream_ack_deadline_seconds=10)
    time.sleep(seconds)


class TestFaults:
    @pytest.mark.parametrize(
        ("status", "expected"),
        [
            (503, exceptions.ServiceUnavailable),
            (429, exceptions.ResourceExhausted),
            (403, exceptions.PermissionDenied),
            (404, exceptions.NotFound),
            (500, exceptions.InternalServerError),
            (504, exceptions.DeadlineExceeded),
            (409, exceptions.AlreadyExists),
        ],
    )
    def test_a_failure_arrives_as_googles_status(self, local: Any, faults: Any, status: int, expected: type) -> None:
        topic = local.topic()
        faults("GetTopic", FaultKind.FAIL, status=status, message="rehearsed")
        with pytest.raises(expected, match="rehearsed"):
            local.publisher.get_topic(topic=topic, retry=None, timeout=5)

    def test_the_client_retries_over_a_failure_that_passes(self, local: Any, faults: Any) -> None:
        topic, subscription = local.pair()
        faults("Publish", FaultKind.FAIL, status=503, times=2)
        (message_id,) = local.publish(topic, "a")
        assert [one.message.message_id for one in local.pull(subscription)] == [message_id]

    def test_a_lost_answer_makes_the_client_publish_twice(self, local: Any, faults: Any) -> None:
        topic, subscription = local.pair()
        faults("Publish", FaultKind.DROP_RESPONSE, times=1)
        local.publish(topic, "a")
        received = local.pull(subscription, at_least=2)
        assert [one.message.data for one in received] == [b"a", b"a"]
        assert len({one.message.message_id for one in received}) == 2

    def test_a_delay_holds_up_its_call_only(self, local: Any, faults: Any) -> None:
        slow, fast = local.topic(), local.topic()
        faults("Publish", FaultKind.DELAY, resource=slow, seconds=3)
        started = time.monotonic()
        pending = local.publisher.publish(slow, b"x")
        local.publisher.publish(fast, b"x").result(60)
        assert not pending.done()
        pending.result(60)
        assert time.monotonic() - started > 3

    def test_a_failing_stream_is_reopened_by_the_client(self, local: Any, faults: Any) -> None:
        topic, subscription = local.pair()
        faults("StreamingPull", FaultKind.FAIL, resource=subscription, status=503, times=2)
        done = threading.Event()

        def callback(message: Any) -> None:
            message.ack()
            done.set()

        future = local.subscriber.subscribe(subscription, callback)
        local.publish(topic, "a")
        assert done.wait(120)
        future.cancel()
        future.result(60)

    def test_a_duplicated_delivery_reaches_the_client_twice(self, local: Any, faults: Any) -> None:
        topic, subscription = local.pair()
        faults("deliver", FaultKind.DUPLICATE, resource=subscription, times=1)
        local.publish(topic, "a")
        received = local.pull(subscription)
        assert len(received) == 2
        local.ack(subscription, received[:1])
        assert local.nothing_left(subscription)


class TestHonesty:
    def test_schemas_are_refused_by_name(self, local: Any) -> None:
        with grpc.insecure_channel(local.endpoint) as channel:
            client = pubsub_v1.SchemaServiceClient(
                transport=pubsub_v1.SchemaServiceClient.get_transport_class("grpc")(channel=channel)
            )
            with pytest.raises(exceptions.MethodNotImplemented, match="schemas"):
                client.list_schemas(parent=PROJECT)

    def test_push_subscriptions_are_refused_by_name(self, local: Any) -> None:
        with pytest.raises(exceptions.MethodNotImplemented, match="push"):
            local.pair(push_config={"push_endpoint": "https://example.com"})

    def test_a_request_above_ten_mebibytes_gets_pubsubs_own_refusal(self, local: Any) -> None:
        topic = local.topic()
        with pytest.raises(exceptions.InvalidArgument, match="10485760"):
            messages = [types.PubsubMessage(data=b"x" * 6_000_000)] * 2
            PlainPublisherClient.publish(local.publisher, topic=topic, messages=messages)

    def test_policies_read_back(self, local: Any) -> None:
        topic = local.topic()
        policy = {"bindings": [{"role": "roles/pubsub.publisher", "members": ["user:a@example.com"]}]}
        local.publisher.set_iam_policy(request={"resource": topic, "policy": policy})
        found = local.publisher.get_iam_policy(request={"resource": topic})
        assert found.bindings[0].role == "roles/pubsub.publisher"
        allowed = local.publisher.test_iam_permissions(
            request={"resource": topic, "permissions": ["pubsub.topics.publish"]}
        )
        assert list(allowed.permissions) == ["pubsub.topics.publish"]


class TestRest:
    @pytest.fixture
    def rest(self, local_pubsub: Any) -> Iterator[httpx.Client]:
        with httpx.Client(base_url=f"http://127.0.0.1:{local_pubsub.server.rest_port}/v1") as client:
            yield client

    def test_publish_pull_and_acknowledge_in_json(self, local: Any, rest: httpx.Client) -> None:
        topic, subscription = local.pair()
        message = {"data": "aGVsbG8=", "attributes": {"colour": "red"}}
        (message_id,) = rest.post(f"/{topic}:publish", json={"messages": [message]}).json()["messageIds"]
        (received,) = rest.post(f"/{subscription}:pull", json={"maxMessages": 5}).json()["receivedMessages"]
        assert received["message"] | message | {"messageId": message_id} == received["message"]
        assert rest.post(f"/{subscription}:acknowledge", json={"ackIds": [received["ackId"]]}).json() == {}
        assert local.nothing_left(subscription)

    def test_resources_live_their_life_in_json(self, local: Any, rest: httpx.Client) -> None:
        topic, subscription = f"{PROJECT}/topics/rest-topic", f"{PROJECT}/subscriptions/rest-sub"
        assert rest.put(f"/{topic}", json={"labels": {"a": "b"}}).json()["name"] == topic
        made = rest.put(f"/{subscription}", json={"topic": topic, "ackDeadlineSeconds": 33}).json()
        assert made["ackDeadlineSeconds"] == 33
        patch = {"subscription": {"ackDeadlineSeconds": 44, "labels": {"x": "y"}}, "updateMask": "ackDeadlineSeconds"}
        updated = rest.patch(f"/{subscription}", json=patch).json()
        assert updated["ackDeadlineSeconds"] == 44
        assert "labels" not in updated
        listed = rest.get(f"/{PROJECT}/subscriptions", params={"pageSize": 1000}).json()["subscriptions"]
        assert subscription in [one["name"] for one in listed]
        assert rest.get(f"/{topic}/subscriptions").json() == {"subscriptions": [subscription]}
        snapshot = f"{PROJECT}/snapshots/rest-snap"
        assert rest.put(f"/{snapshot}", json={"subscription": subscription}).json()["topic"] == topic
        assert rest.post(f"/{subscription}:seek", json={"snapshot": snapshot}).json() == {}
        assert rest.post(f"/{subscription}:seek", json={"time": "2024-01-01T00:00:00Z"}).json() == {}
        for name in (snapshot, subscription, topic):
            assert rest.delete(f"/{name}").json() == {}
            assert rest.get(f"/{name}").status_code == 404

    @pytest.mark.parametrize(
        ("verb", "path", "body", "status", "name"),
        [
            ("GET", f"{PROJECT}/topics/none", None, 404, "NOT_FOUND"),
            ("PUT", f"{PROJECT}/topics/ab", {}, 400, "INVALID_ARGUMENT"),
            ("PUT", f"{PROJECT}/topics/fine", {"nonsense": 1}, 400, "INVALID_ARGUMENT"),
            ("GET", f"{PROJECT}/schemas", None, 501, "UNIMPLEMENTED"),
            ("GET", "elsewhere", None, 404, "NOT_FOUND"),
        ],
    )
    def test_refusals_look_like_googles(
        self, rest: httpx.Client, verb: str, path: str, body: Any, status: int, name: str
    ) -> None:
        response = rest.request(verb, f"/{path}", json=body)
        assert response.status_code == status
        assert response.json()["error"]["code"] == status
        assert response.json()["error"]["status"] == name
