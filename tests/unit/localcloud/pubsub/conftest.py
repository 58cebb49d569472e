"""A Pub/Sub core in virtual time, with short words for what tests do to it."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.manual_clock import ManualClock

from ingestd.localcloud.faults import Fault, FaultKind, Hooks
from ingestd.localcloud.pubsub import wire
from ingestd.localcloud.pubsub.core import PubSubCore, Received, SubscriptionStats

TOPIC = "projects/p/topics/events"
SUBSCRIPTION = "projects/p/subscriptions/worker"


class Broker:
    def __init__(self, root: Path | None = None, **options: Any) -> None:
        self.clock = ManualClock()
        self.hooks = Hooks("pubsub")
        self.root = root
        self._options = options
        self.core = self._open()

    def _open(self) -> PubSubCore:
        return PubSubCore(self.root, clock=self.clock, hooks=self.hooks, **self._options)

    def restart(self) -> None:
        """As after SIGKILL: nothing is flushed or closed in order, only the files remain."""
        self.core.close()
        self.core = self._open()

    def topic(self, name: str = TOPIC, **fields: Any) -> str:
        self.core.create_topic(wire.Topic(name=name, **fields))
        return name

    def subscription(self, name: str = SUBSCRIPTION, topic: str = TOPIC, **fields: Any) -> str:
        if topic not in self.core.state.topics:
            self.topic(topic)
        self.core.create_subscription(wire.Subscription(name=name, topic=topic, **fields))
        return name

    def publish(self, *texts: str, topic: str = TOPIC, key: str = "", **attributes: str) -> list[str]:
        return self.core.publish(topic, [(text.encode(), attributes, key) for text in texts])

    def pull(self, maximum: int = 100, subscription: str = SUBSCRIPTION) -> list[Received]:
        return self.core.pull(subscription, maximum)

    def texts(self, maximum: int = 100, subscription: str = SUBSCRIPTION) -> list[str]:
        return [one.data.decode() for one in self.pull(maximum, subscription)]

    def ack(self, *received: Received, subscription: str = SUBSCRIPTION) -> None:
        self.core.acknowledge(subscription, [one.ack_id for one in received])

    def nack(self, *received: Received, subscription: str = SUBSCRIPTION) -> None:
        self.core.modify_ack_deadline(subscription, [one.ack_id for one in received], 0)

    def after(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    def fault(self, method: str, kind: FaultKind, **fields: Any) -> None:
        self.hooks.plan.add(Fault("pubsub", method, kind, **fields))

    def stats(self, subscription: str = SUBSCRIPTION) -> SubscriptionStats:
        return next(one for one in self.core.stats().subscriptions if one.name == subscription)


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path / "pubsub")
    yield made
    made.core.close()


@pytest.fixture
def durable_with(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    brokers: list[Broker] = []

    def make(**options: Any) -> Broker:
        brokers.append(Broker(tmp_path / f"pubsub-{len(brokers)}", **options))
        return brokers[-1]

    yield make
    for one in brokers:
        one.core.close()
