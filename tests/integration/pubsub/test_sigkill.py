"""Kill -9 in the middle of the work: every acknowledged publish is delivered, no acknowledged ack is undone."""

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from google.pubsub_v1.types import pubsub as types
from tests.support.killable import killable

TOPIC = "projects/p/topics/events"
SUBSCRIPTION = "projects/p/subscriptions/worker"

SERVER = """
import asyncio, sys
from pathlib import Path
from ingestd.localcloud.faults import Hooks
from ingestd.localcloud.pubsub.core import PubSubCore
from ingestd.localcloud.pubsub.server import PubSubServer
from ingestd.model.clock import SystemClock

async def main():
    core = PubSubCore(Path(sys.argv[1]), clock=SystemClock(), hooks=Hooks("pubsub"), compact_bytes=200_000)
    server = PubSubServer(core, poll_seconds=0.5)
    await server.start()
    print(server.grpc_port, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@contextmanager
def server(root: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with killable("-c", SERVER, str(root)) as (process, port):
        yield process, f"127.0.0.1:{port}"


Topic, Subscription, Message = types.Topic.pb(), types.Subscription.pb(), types.PubsubMessage.pb()
Publish, Pull, Acknowledge = types.PublishRequest.pb(), types.PullRequest.pb(), types.AcknowledgeRequest.pb()


class Client:
    def __init__(self, channel: Any) -> None:
        def method(path: str, request: Any, response: Any) -> Any:
            return channel.unary_unary(
                f"/google.pubsub.v1.{path}",
                request_serializer=request.pb().SerializeToString,
                response_deserializer=response.pb().FromString if response else None,
            )

        self.create_topic = method("Publisher/CreateTopic", types.Topic, types.Topic)
        self.create_subscription = method("Subscriber/CreateSubscription", types.Subscription, types.Subscription)
        self.publish = method("Publisher/Publish", types.PublishRequest, types.PublishResponse)
        self.pull = method("Subscriber/Pull", types.PullRequest, types.PullResponse)
        self.acknowledge = method("Subscriber/Acknowledge", types.AcknowledgeRequest, None)


async def work_until_killed(endpoint: str, kill: Any, first: bool) -> tuple[set[str], set[str], set[str]]:
    """Publish and acknowledge concurrently; the ids the server confirmed, and the acks it may or may not have done."""
    published: set[str] = set()
    acked: set[str] = set()
    unsure: set[str] = set()
    async with grpc.aio.insecure_channel(endpoint) as channel:
        client = Client(channel)
        if first:
            await client.create_topic(Topic(name=TOPIC))
            await client.create_subscription(Subscription(name=SUBSCRIPTION, topic=TOPIC))

        async def publish(number: int) -> None:
            messages = [Message(data=b"x" * 500, attributes={"worker": str(number)})] * 7
            while True:
                response = await client.publish(Publish(topic=TOPIC, messages=messages))
                published.update(response.message_ids)

        async def acknowledge() -> None:
            while True:
                response = await client.pull(Pull(subscription=SUBSCRIPTION, max_messages=5))
                ids = {one.message.message_id for one in response.received_messages}
                assert not ids & acked, "an acknowledged message came back"
                unsure.update(ids)
                ack_ids = [one.ack_id for one in response.received_messages]
                await client.acknowledge(Acknowledge(subscription=SUBSCRIPTION, ack_ids=ack_ids))
                unsure.difference_update(ids)
                acked.update(ids)

        tasks = [asyncio.create_task(publish(number)) for number in range(4)]
        tasks += [asyncio.create_task(acknowledge()) for _ in range(2)]
        await asyncio.sleep(0.4)
        kill()
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        for result in results:
            assert isinstance(result, grpc.RpcError), repr(result)
    return published, acked, unsure


async def drain(endpoint: str) -> set[str]:
    async with grpc.aio.insecure_channel(endpoint, options=[("grpc.max_receive_message_length", -1)]) as channel:
        client = Client(channel)
        found: set[str] = set()
        while True:
            response = await client.pull(Pull(subscription=SUBSCRIPTION, max_messages=1000))
            if not response.received_messages:
                return found
            found.update(one.message.message_id for one in response.received_messages)


async def test_nothing_acknowledged_is_lost_or_undone_by_sigkill(tmp_path: Path) -> None:
    published: set[str] = set()
    acked: set[str] = set()
    unsure: set[str] = set()
    for number in range(3):
        with server(tmp_path / "pubsub") as (process, endpoint):
            new, done, open_acks = await work_until_killed(
                endpoint, lambda process=process: process.send_signal(signal.SIGKILL), first=number == 0
            )
            assert process.wait() == -signal.SIGKILL
        published |= new
        acked |= done
        unsure |= open_acks
    assert len(published) > 100
    assert len(acked) > 20
    with server(tmp_path / "pubsub") as (_, endpoint):
        left = await drain(endpoint)
    assert not published - acked - unsure - left, "an acknowledged publish was lost"
    assert not left & acked, "an acknowledged message came back"
