"""How fast the local Pub/Sub is, over the wire, with Google's clients and with a bare gRPC client.

Messages are shaped like GCS notifications: a payload of 789 bytes and 7 attributes. The server runs in a process of
its own with its log on disk; the clients share this process. `python -m bench.localcloud_pubsub` prints a table and,
last, one line of JSON.
"""

import asyncio
import json
import os
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio
from google.cloud import pubsub_v1
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient
from google.pubsub_v1.types import pubsub as types

from bench.servers import pubsub_server

MESSAGES = 60_000
SLOW_CLIENT_MESSAGES = 15_000
PER_PUBLISH = 500
PER_PULL = 1000
PULLERS = 4
TARGET = 40_000

PROJECT = "projects/bench"
DATA = b"x" * 789
ATTRIBUTES = {
    "notificationConfig": "projects/_/buckets/bench-trigger/notificationConfigs/1",
    "eventType": "OBJECT_FINALIZE",
    "payloadFormat": "JSON_API_V1",
    "bucketId": "bench-trigger",
    "objectId": "data/case002/dummy-000001.json",
    "objectGeneration": "1700000000000000",
    "eventTime": "2024-01-01T00:00:00.000000Z",
}


class _Raw:
    """A bare grpc.aio client with the pb types: what the server itself can do."""

    def __init__(self, channel: Any) -> None:
        def method(path: str, request: str, response: Any) -> Any:
            return channel.unary_unary(
                f"/google.pubsub.v1.{path}",
                request_serializer=getattr(types, request).pb().SerializeToString,
                response_deserializer=response,
            )

        self.publish = method("Publisher/Publish", "PublishRequest", types.PublishResponse.pb().FromString)
        self.pull = method("Subscriber/Pull", "PullRequest", types.PullResponse.pb().FromString)
        self.acknowledge = method("Subscriber/Acknowledge", "AcknowledgeRequest", None)
        self.stream = channel.stream_stream(
            "/google.pubsub.v1.Subscriber/StreamingPull",
            request_serializer=types.StreamingPullRequest.pb().SerializeToString,
            response_deserializer=types.StreamingPullResponse.pb().FromString,
        )


async def _timed(count: int, work: Callable[[], Awaitable[None]]) -> float:
    started = time.perf_counter()
    await work()
    return round(count / (time.perf_counter() - started))


class _Bench:
    def __init__(self, endpoint: str) -> None:
        os.environ["PUBSUB_EMULATOR_HOST"] = endpoint
        self._channel = grpc.aio.insecure_channel(endpoint, options=[("grpc.max_receive_message_length", -1)])
        self._raw = _Raw(self._channel)
        self._publisher = PublisherAsyncClient(transport=_transport("Publisher", endpoint))
        self._subscriber = SubscriberAsyncClient(transport=_transport("Subscriber", endpoint))
        self._number = 0

    async def run(self) -> dict[str, float]:
        figures: dict[str, float] = {}
        topic, subscription = await self._fresh()
        figures["publish_raw"] = await _timed(MESSAGES, lambda: self._publish(topic, MESSAGES))
        figures["pull_ack_raw"] = await _timed(MESSAGES, lambda: self._drain_raw(subscription, MESSAGES))
        await self._publish(topic, MESSAGES)
        figures["streaming_pull_raw"] = await _timed(MESSAGES, lambda: self._drain_stream(subscription, MESSAGES))
        figures["publish_async_client"] = await _timed(
            SLOW_CLIENT_MESSAGES, lambda: self._publish_with_client(topic, SLOW_CLIENT_MESSAGES)
        )
        figures["pull_ack_async_client"] = await _timed(
            SLOW_CLIENT_MESSAGES, lambda: self._drain_with_client(subscription, SLOW_CLIENT_MESSAGES)
        )
        await self._publish(topic, SLOW_CLIENT_MESSAGES)
        figures["subscribe_sync_client"] = await _timed(
            SLOW_CLIENT_MESSAGES, lambda: asyncio.to_thread(_subscribe, subscription, SLOW_CLIENT_MESSAGES)
        )
        await self._channel.close()
        return figures

    async def _fresh(self) -> tuple[str, str]:
        self._number += 1
        topic, subscription = f"{PROJECT}/topics/t{self._number:03}", f"{PROJECT}/subscriptions/s{self._number:03}"
        await self._publisher.create_topic(name=topic)
        request = types.Subscription(name=subscription, topic=topic, ack_deadline_seconds=60)
        await self._subscriber.create_subscription(request=request)
        return topic, subscription

    async def _publish(self, topic: str, count: int) -> None:
        message = types.PubsubMessage.pb()(data=DATA, attributes=ATTRIBUTES)
        request = types.PublishRequest.pb()(topic=topic, messages=[message] * PER_PUBLISH)
        todo = count // PER_PUBLISH

        async def worker() -> None:
            nonlocal todo
            while todo > 0:
                todo -= 1
                await self._raw.publish(request)

        await asyncio.gather(*(worker() for _ in range(PULLERS)))

    async def _publish_with_client(self, topic: str, count: int) -> None:
        message = types.PubsubMessage(data=DATA, attributes=ATTRIBUTES)
        for _ in range(count // PER_PUBLISH):
            await self._publisher.publish(topic=topic, messages=[message] * PER_PUBLISH)

    async def _drain_raw(self, subscription: str, count: int) -> None:
        pull = types.PullRequest.pb()(subscription=subscription, max_messages=PER_PULL)
        acknowledge = types.AcknowledgeRequest.pb()
        got = 0

        async def worker() -> None:
            nonlocal got
            while got < count:
                received = (await self._raw.pull(pull, timeout=5)).received_messages
                got += len(received)
                if received:
                    ids = [one.ack_id for one in received]
                    await self._raw.acknowledge(acknowledge(subscription=subscription, ack_ids=ids))

        workers = [asyncio.create_task(worker()) for _ in range(PULLERS)]
        while got < count:
            await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
        for one in workers:
            one.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    async def _drain_stream(self, subscription: str, count: int) -> None:
        request = types.StreamingPullRequest.pb()
        call = self._raw.stream()
        await call.write(request(subscription=subscription, stream_ack_deadline_seconds=60))
        got = 0
        while got < count:
            received = (await call.read()).received_messages
            if received:
                got += len(received)
                await call.write(request(ack_ids=[one.ack_id for one in received]))
        await call.done_writing()
        await call.read()

    async def _drain_with_client(self, subscription: str, count: int) -> None:
        got = 0
        while got < count:
            response = await self._subscriber.pull(subscription=subscription, max_messages=PER_PULL)
            got += len(response.received_messages)
            ids = [one.ack_id for one in response.received_messages]
            await self._subscriber.acknowledge(subscription=subscription, ack_ids=ids)


def _transport(service: str, endpoint: str) -> Any:
    from google.pubsub_v1.services import publisher, subscriber

    module = publisher if service == "Publisher" else subscriber
    client = getattr(module, f"{service}AsyncClient")
    transport = client.get_transport_class("grpc_asyncio")
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    return transport(channel=grpc.aio.insecure_channel(endpoint, options=options))


def _subscribe(subscription: str, count: int) -> None:
    """The threaded client people know: `SubscriberClient.subscribe` with a callback."""
    done = threading.Event()
    got = 0
    lock = threading.Lock()

    def callback(message: Any) -> None:
        nonlocal got
        message.ack()
        with lock:
            got += 1
            if got >= count:
                done.set()

    with pubsub_v1.SubscriberClient() as client:
        future = client.subscribe(subscription, callback)
        if not done.wait(120):
            raise TimeoutError(f"only {got} of {count} messages arrived")
        future.cancel()
        future.result(10)


async def _measure(endpoint: str) -> dict[str, float]:
    return await _Bench(endpoint).run()  # made inside the loop, which its channels belong to


def run() -> dict[str, Any]:
    """Messages per second, per way of using it."""
    with pubsub_server() as endpoint:
        figures = asyncio.run(_measure(endpoint))
    return {
        "service": "pubsub",
        "messages_per_second": figures,
        "target_pull_ack_raw": TARGET,
        "ratio_to_target": round(figures["pull_ack_raw"] / TARGET, 2),
    }


def main() -> None:
    result = run()
    print(f"local Pub/Sub, messages of {len(DATA)} bytes and {len(ATTRIBUTES)} attributes")
    for name, value in result["messages_per_second"].items():
        print(f"  {name:<24}{value:>12,.0f} messages/s")
    print(f"  target for pull_ack_raw {TARGET:>12,} messages/s: {result['ratio_to_target']}x")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
