"""What both faces share: waiting where the core cannot, rehearsed delays, and one mapping of every refusal."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from google.protobuf.message import DecodeError

from ingestd.localcloud.faults import FaultInjected, ResponseLost
from ingestd.localcloud.pubsub.core import PubSubCore, Pulled, check_max_messages
from ingestd.localcloud.pubsub.errors import invalid, lost_response, rehearsed
from ingestd.localcloud.pubsub.hub import Hub
from ingestd.localcloud.pubsub.methods import Method


@contextmanager
def refusals() -> Iterator[None]:
    """Everything a core may raise, as the `PubSubError` the client shall see."""
    try:
        yield
    except FaultInjected as injected:
        raise rehearsed(injected.fault) from None
    except ResponseLost:
        raise lost_response() from None
    except DecodeError as error:
        raise invalid(f"The request cannot be decoded: {error}") from None


class Service:
    """The methods as coroutines that take protobufs and raise `PubSubError`."""

    def __init__(self, core: PubSubCore, hub: Hub, *, poll_seconds: float) -> None:
        self.core = core
        self.hub = hub
        self._poll_seconds = poll_seconds

    async def delay(self, method: str, resource: str) -> None:
        if seconds := self.core.hooks.delay(method, resource):
            await asyncio.sleep(seconds)

    async def call(self, method: Method, request: Any) -> Any:
        await self.delay(method.name, method.resource_of(request))
        with refusals():
            return method(self.core, request)

    async def publish(self, request: Any) -> list[str]:
        await self.delay("Publish", request.topic)
        with refusals():
            return self.core.publish_messages(request.topic, request.messages)

    async def pull(self, request: Any, patience: float | None) -> Pulled:
        """Messages as soon as there are some; nothing after a while, or at once with `return_immediately`.

        `patience` is how long the client itself will wait: an answer it no longer reads would lease for nothing.
        """
        subscription = request.subscription
        await self.delay("Pull", subscription)
        with refusals(), self.core.hooks.operation("Pull", subscription):
            check_max_messages(request.max_messages)
            seconds = self._poll_seconds if patience is None else min(self._poll_seconds, patience * 0.9)
            until = asyncio.get_running_loop().time() + seconds
            while True:
                pulled = self.core.lease(subscription, request.max_messages)
                if pulled.count or request.return_immediately:
                    self.hub.pass_on(subscription)
                    return pulled
                left = until - asyncio.get_running_loop().time()
                if left <= 0 or not await self.hub.wait(subscription, left):
                    return pulled
