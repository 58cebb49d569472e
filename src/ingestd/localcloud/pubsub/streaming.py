"""One StreamingPull: deliveries go out under flow control, acknowledgements and deadlines come in.

Messages delivered on a stream that is cut stay leased until their deadline, as in the cloud.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from ingestd.localcloud.pubsub import wire
from ingestd.localcloud.pubsub.core import MAX_PULL_MESSAGES
from ingestd.localcloud.pubsub.entries import Holder
from ingestd.localcloud.pubsub.errors import PubSubError, invalid
from ingestd.localcloud.pubsub.service import Service, refusals

KEEPALIVE_SECONDS = 30.0

Write = Callable[[bytes], Awaitable[None]]


class Stream:
    def __init__(self, service: Service, first: Any, write: Write) -> None:
        self._service = service
        self._core = service.core
        self._subscription: str = first.subscription
        self._deadline = _stream_deadline(first)
        self._holder = Holder(first.max_outstanding_messages, first.max_outstanding_bytes)
        self._keepalive = first.protocol_version >= 1
        self._write = write
        self._writing = asyncio.Lock()  # deliveries and confirmations share one outgoing stream
        self._properties = b""

    async def run(self, first: Any, requests: AsyncIterator[Any]) -> None:
        """Until the client closes its half; raises `PubSubError` when the stream has to end otherwise."""
        await self._service.delay("StreamingPull", self._subscription)
        with refusals(), self._core.hooks.operation("StreamingPull", self._subscription):
            self._core.lease(self._subscription, 0)  # refuses a missing or detached subscription
        await self._send_properties()
        incoming = asyncio.create_task(self._receive(first, requests), name="pubsub:stream-requests")
        outgoing = asyncio.create_task(self._deliver(), name="pubsub:stream-deliveries")
        try:
            await asyncio.wait((incoming, outgoing), return_when=asyncio.FIRST_COMPLETED)
            for task in (incoming, outgoing):
                if task.done():
                    task.result()
        finally:
            for task in (incoming, outgoing):
                task.cancel()
                with suppress(asyncio.CancelledError, PubSubError):
                    await task

    async def _receive(self, first: Any, requests: AsyncIterator[Any]) -> None:
        await self._apply(first)
        async for request in requests:
            if request.stream_ack_deadline_seconds:
                self._deadline = _stream_deadline(request)
            await self._apply(request)

    async def _apply(self, request: Any) -> None:
        if request.ack_ids:
            await self._settle(
                "acknowledge_confirmation",
                list(request.ack_ids),
                partial(self._core.acknowledge, self._subscription),
            )
        if len(request.modify_deadline_ack_ids) != len(request.modify_deadline_seconds):
            raise invalid("modify_deadline_ack_ids and modify_deadline_seconds must have the same length.")
        by_seconds: dict[int, list[str]] = {}
        for ack_id, seconds in zip(request.modify_deadline_ack_ids, request.modify_deadline_seconds, strict=True):
            by_seconds.setdefault(seconds, []).append(ack_id)
        for seconds, ack_ids in by_seconds.items():
            await self._settle(
                "modify_ack_deadline_confirmation",
                ack_ids,
                partial(self._core.modify_ack_deadline, self._subscription, seconds=seconds),
            )

    async def _settle(self, confirmation: str, ack_ids: list[str], call: Callable[[list[str]], None]) -> None:
        """Exactly-once subscriptions confirm each id on the stream; others only hear of malformed requests."""
        failed: list[str] = []
        try:
            with refusals():
                call(ack_ids)
        except PubSubError as error:
            if not error.ack_failures:
                raise
            failed = list(error.ack_failures)
        if self._exactly_once:
            response = wire.StreamingPullResponse()
            target = getattr(response, confirmation)
            target.ack_ids.extend(ack_id for ack_id in ack_ids if ack_id not in failed)
            target.invalid_ack_ids.extend(failed)
            await self._send(response.SerializeToString() + self._properties)

    async def _deliver(self) -> None:
        hub = self._service.hub
        while True:
            await self._send_properties()
            if self._holder.room(1) > 0 and self._core.ready(self._subscription):
                await self._service.delay("StreamingPull", self._subscription)
                with refusals(), self._core.hooks.operation("StreamingPull", self._subscription):
                    pulled = self._lease()
            else:
                pulled = self._lease()
            if pulled.count:
                hub.pass_on(self._subscription)
                await self._send(pulled.body + self._properties)
                continue
            woken = await hub.wait(self._subscription, KEEPALIVE_SECONDS, stalled=self._holder.stalled)
            if not woken and self._keepalive:
                await self._send(self._properties)

    def _lease(self) -> Any:
        return self._core.lease(self._subscription, MAX_PULL_MESSAGES, ack_deadline=self._deadline, holder=self._holder)

    async def _send_properties(self) -> None:
        """First on the stream, and again when they change; every other response carries them too.

        Google's Python client reads them off each response: one without them would turn exactly-once off in it.
        """
        properties = self._settings()
        if properties != self._properties:
            self._properties = properties
            await self._send(properties)

    def _settings(self) -> bytes:
        settings = self._core.settings(self._subscription)
        self._exactly_once = settings.exactly_once
        response = wire.StreamingPullResponse()
        response.subscription_properties.exactly_once_delivery_enabled = settings.exactly_once
        response.subscription_properties.message_ordering_enabled = settings.ordered
        return bytes(response.SerializeToString())

    async def _send(self, body: bytes) -> None:
        async with self._writing:
            await self._write(body)


def _stream_deadline(request: Any) -> int:
    seconds = int(request.stream_ack_deadline_seconds)
    if not 10 <= seconds <= 600:
        raise invalid(f"stream_ack_deadline_seconds must be between 10 and 600 (it is {seconds}).")
    return seconds
