"""`Subscription` and `Publisher` on Pub/Sub's generated asyncio clients (unary pull, batched acknowledgement).

The generated types wrap every field access, which costs more than the network. So requests and answers are handled as
the plain protobuf messages inside the wrappers.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any

import grpc
from google.api_core import exceptions as api
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient, types

from ingestd.gcp.errors import translated
from ingestd.model.errors import Transient
from ingestd.ports import Message
from ingestd.retry import Retrier

# A request takes at most 512 KiB, and one that is larger is refused whole, every time. An ack id has some 200 bytes and
# nobody says how many it may have: Google's own clients went from 2,500 to this, after requests that were too large.
MAX_IDS_PER_REQUEST = 1_000

# Not IDLE: a connection that the service takes down in good order still serves the pulls that wait on it.
_UNCONNECTED = (grpc.ChannelConnectivity.CONNECTING, grpc.ChannelConnectivity.TRANSIENT_FAILURE)

_PullRequest: Any = types.PullRequest
_PullResponse: Any = types.PullResponse
_AcknowledgeRequest: Any = types.AcknowledgeRequest
_ModifyAckDeadlineRequest: Any = types.ModifyAckDeadlineRequest


class PubSubSubscription:
    def __init__(
        self,
        client: SubscriberAsyncClient,
        name: str,
        retrier: Retrier,
        *,
        timeout: float = 30.0,
        pull_timeout: float = 20.0,
    ) -> None:
        self._client = client
        self._name = name
        self._retrier = retrier
        self._timeout = timeout
        self._pull_timeout = pull_timeout

    @property
    def name(self) -> str:
        return self._name

    async def pull(self, limit: int) -> list[Message]:
        request = _wrapped(_PullRequest, subscription=self._name, max_messages=limit)

        async def attempt() -> list[Message]:
            with translated("pull", self._name):
                try:
                    answer = await self._client.pull(request=request, retry=None, timeout=self._pull_timeout)
                except api.DeadlineExceeded as error:
                    if self._connecting():
                        raise Transient(f"pull {self._name}: there is no connection: {error.message}") from error
                    return []
                return [PulledMessage(received) for received in _PullResponse.pb(answer).received_messages]

        return await self._retrier.call(attempt, "pubsub.pull", resource=self._name)

    def _connecting(self) -> bool:
        """Whether the pull that ran into its deadline was waiting for a connection, not for messages.

        Both end alike. A connection that goes silent is closed by gRPC's pings, 30 s after the last word and 60 s
        without an answer: for so long a network that is dead looks like a subscription that is empty, and no longer.
        """
        transport: Any = self._client.transport  # annotated as what it has in common with other ways to call
        return transport.grpc_channel.get_state() in _UNCONNECTED

    async def ack(self, ack_ids: Sequence[str]) -> None:
        for ids in _batches(ack_ids):
            request = _wrapped(_AcknowledgeRequest, subscription=self._name, ack_ids=ids)
            await self._call("ack", self._client.acknowledge, request)

    async def extend(self, ack_ids: Sequence[str], deadline: timedelta) -> None:
        for ids in _batches(ack_ids):
            request = _wrapped(
                _ModifyAckDeadlineRequest,
                subscription=self._name,
                ack_ids=ids,
                ack_deadline_seconds=int(deadline.total_seconds()),
            )
            await self._call("extend", self._client.modify_ack_deadline, request)

    async def _call(self, operation: str, rpc: Callable[..., Coroutine[Any, Any, None]], request: Any) -> None:
        async def attempt() -> None:
            with translated(operation, self._name):
                await rpc(request=request, retry=None, timeout=self._timeout)

        await self._retrier.call(attempt, f"pubsub.{operation}", resource=self._name)


class PubSubPublisher:
    """Publishes and waits: the daemon's own messages are few, and those of a backfill go together."""

    def __init__(self, client: PublisherAsyncClient, project: str, retrier: Retrier, *, timeout: float = 30.0) -> None:
        self._client = client
        self._project = project
        self._retrier = retrier
        self._timeout = timeout

    async def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> str:
        return (await self.publish_all(topic, [(data, attributes)]))[0]

    async def publish_all(self, topic: str, messages: Sequence[tuple[bytes, Mapping[str, str]]]) -> list[str]:
        path = topic if topic.startswith("projects/") else f"projects/{self._project}/topics/{topic}"
        sent = [types.PubsubMessage(data=data, attributes=dict(attributes)) for data, attributes in messages]

        async def attempt() -> list[str]:
            with translated("publish", path):
                answer = await self._client.publish(topic=path, messages=sent, retry=None, timeout=self._timeout)
                return list(answer.message_ids)

        return await self._retrier.call(attempt, "pubsub.publish", resource=path)


def _wrapped(kind: Any, **fields: Any) -> Any:
    """A request in the generated wrapper, filled as plain protobuf."""
    return kind.wrap(kind.pb()(**fields))


def _batches(ack_ids: Sequence[str]) -> list[Sequence[str]]:
    return [ack_ids[start : start + MAX_IDS_PER_REQUEST] for start in range(0, len(ack_ids), MAX_IDS_PER_REQUEST)]


class PulledMessage:
    """A `Message` that takes from protobuf at once only what every message is asked for."""

    __slots__ = ("_received", "ack_id", "attributes", "data")

    def __init__(self, received: Any) -> None:
        self._received = received
        self.ack_id: str = received.ack_id
        message = received.message
        self.data: bytes = message.data
        # Protobuf's own mapping: copying it costs more than the few look-ups it gets.
        self.attributes: Mapping[str, str] = message.attributes

    @property
    def message_id(self) -> str:
        found: str = self._received.message.message_id
        return found

    @property
    def delivery_attempt(self) -> int:
        found: int = self._received.delivery_attempt
        return found

    @property
    def published(self) -> int:
        found: int = self._received.message.publish_time.seconds
        return found
