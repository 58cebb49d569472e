"""A Pub/Sub service on loopback and Google's own clients pointed at it.

The conformance tests run against the local Pub/Sub and, where the Cloud SDK is installed, against Google's emulator
too: what both pass is what the protocol means.
"""

import os
import shutil
import subprocess
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import grpc
import pytest
from google.cloud import pubsub_v1
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient
from tests.support.background import Background
from tests.support.google import PROJECT
from tests.support.ports import free_port
from tests.support.waiting import Patience

from ingestd.localcloud.faults import Hooks
from ingestd.localcloud.pubsub.core import PubSubCore
from ingestd.localcloud.pubsub.server import PubSubServer
from ingestd.model.clock import SystemClock

# What Google's emulator does otherwise than the service it stands for, by feature.
GOOGLE_EMULATOR_LACKS = {
    "detach": "DetachSubscription is not implemented",
    "setting ranges": "an ack deadline of 5 s is accepted",
    "filters": "filters are stored but neither checked nor applied",
}


def sdk_root() -> Path | None:
    """Where the Cloud SDK lives, if it is installed."""
    if named := os.environ.get("CLOUDSDK_ROOT_DIR"):
        return Path(named)
    gcloud = shutil.which("gcloud")
    return Path(gcloud).resolve().parent.parent if gcloud else None


def emulator_jar() -> Path | None:
    root = sdk_root()
    found = sorted((root / "platform" / "pubsub-emulator" / "lib").glob("cloud-pubsub-emulator-*.jar")) if root else []
    return found[-1] if found else None


class LocalPubSub:
    """The service in a thread of its own, so that blocking clients can call it."""

    def __init__(self, root: Path | None) -> None:
        self.hooks = Hooks("pubsub")
        self.core = PubSubCore(root, clock=SystemClock(), hooks=self.hooks)
        self.server = PubSubServer(self.core, rest_port=0, poll_seconds=3)

    def start(self) -> None:
        self._beside = Background("pubsub-server")
        self.run(self.server.start())

    def stop(self) -> None:
        self.run(self.server.stop())
        self.core.close()
        self._beside.close()

    def run(self, coroutine: Any) -> Any:
        return self._beside.run(coroutine)


@dataclass
class Target:
    """A Pub/Sub under test, with the real clients connected to it."""

    name: str
    endpoint: str
    publisher: pubsub_v1.PublisherClient = field(init=False)
    subscriber: pubsub_v1.SubscriberClient = field(init=False)

    def __post_init__(self) -> None:
        with patch.dict(os.environ, {"PUBSUB_EMULATOR_HOST": self.endpoint}):
            self.publisher = pubsub_v1.PublisherClient()
            self.subscriber = pubsub_v1.SubscriberClient()

    def close(self) -> None:
        self.publisher.stop()
        self.publisher.transport.close()
        self.subscriber.close()

    def needs(self, feature: str) -> None:
        """Skip, by name and reason, what Google's emulator does not do."""
        if self.name == "google" and feature in GOOGLE_EMULATOR_LACKS:
            pytest.skip(f"Google's emulator: {GOOGLE_EMULATOR_LACKS[feature]}")

    def async_publisher(self) -> PublisherAsyncClient:
        with patch.dict(os.environ, {"PUBSUB_EMULATOR_HOST": self.endpoint}):
            return PublisherAsyncClient(transport=self._async_transport(PublisherAsyncClient))

    def async_subscriber(self) -> SubscriberAsyncClient:
        with patch.dict(os.environ, {"PUBSUB_EMULATOR_HOST": self.endpoint}):
            return SubscriberAsyncClient(transport=self._async_transport(SubscriberAsyncClient))

    def _async_transport(self, client: Any) -> Any:
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        channel = grpc.aio.insecure_channel(self.endpoint, options=options)
        return client.get_transport_class("grpc_asyncio")(channel=channel)

    def topic(self, **fields: Any) -> str:
        name = f"projects/{PROJECT}/topics/topic-{uuid4().hex[:8]}"
        self.publisher.create_topic(request={"name": name, **fields})
        return name

    def subscription(self, topic: str, **fields: Any) -> str:
        name = f"projects/{PROJECT}/subscriptions/sub-{uuid4().hex[:8]}"
        self.subscriber.create_subscription(request={"name": name, "topic": topic, **fields})
        return name

    def pair(self, **fields: Any) -> tuple[str, str]:
        topic = self.topic()
        return topic, self.subscription(topic, **fields)

    def publish(self, topic: str, *texts: str, **attributes: str) -> list[str]:
        return [
            future.result(60) for future in [self.publisher.publish(topic, t.encode(), **attributes) for t in texts]
        ]

    def pull(self, subscription: str, *, at_least: int = 1, seconds: float = 10) -> list[Any]:
        """Pull until so many arrived; what came by then."""
        got: list[Any] = []
        patience = Patience(seconds)
        while len(got) < at_least and not patience.look(len(got)):
            with warnings.catch_warnings():
                # Deprecated for good reasons, none of which concern a test that wants to see nothing quickly.
                warnings.filterwarnings("ignore", "The return_immediately flag", DeprecationWarning)
                response = self.subscriber.pull(
                    request={"subscription": subscription, "max_messages": 100, "return_immediately": True}, timeout=60
                )
            got += response.received_messages
            if not response.received_messages:
                time.sleep(0.02)
        return got

    def nothing_left(self, subscription: str, seconds: float = 0.3) -> bool:
        return not self.pull(subscription, seconds=seconds)

    def ack(self, subscription: str, received: list[Any]) -> None:
        self.subscriber.acknowledge(subscription=subscription, ack_ids=[one.ack_id for one in received])


@pytest.fixture(scope="session")
def local_pubsub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPubSub]:
    service = LocalPubSub(tmp_path_factory.mktemp("pubsub"))
    service.start()
    yield service
    service.stop()


@pytest.fixture(scope="session")
def local(local_pubsub: LocalPubSub) -> Iterator[Target]:
    made = Target("local", local_pubsub.server.endpoint)
    yield made
    made.close()


@pytest.fixture(scope="session")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    jar, java = emulator_jar(), shutil.which("java")
    if jar is None or java is None:
        pytest.skip("Google's Pub/Sub emulator needs the Cloud SDK (with pubsub-emulator) and java")
    port = free_port()
    process = subprocess.Popen(
        [java, "-Xmx512m", "-jar", str(jar), "--host=127.0.0.1", f"--port={port}"],
        cwd=tmp_path_factory.mktemp("google-emulator"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        endpoint = f"127.0.0.1:{port}"
        with grpc.insecure_channel(endpoint) as channel:
            grpc.channel_ready_future(channel).result(timeout=60)
        made = Target("google", endpoint)
        yield made
        made.close()
    finally:
        process.kill()
        process.wait()


@pytest.fixture(params=["local", pytest.param("google", marks=pytest.mark.sdk)])
def target(request: pytest.FixtureRequest) -> Target:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Target)
    return found
