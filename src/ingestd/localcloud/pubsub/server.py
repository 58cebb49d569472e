"""The gRPC face on loopback, and the life of both faces.

The hot methods (Publish, Pull, Acknowledge, StreamingPull) take and give raw bytes: a pull response is concatenated
from messages as they were stored, never rebuilt.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from ingestd.localcloud.http import HttpServer
from ingestd.localcloud.pubsub import wire
from ingestd.localcloud.pubsub.core import PubSubCore
from ingestd.localcloud.pubsub.errors import PubSubError, invalid, unsupported
from ingestd.localcloud.pubsub.hub import Hub
from ingestd.localcloud.pubsub.methods import IAM, METHODS, PUBLISHER, SCHEMA_METHODS, SCHEMAS, SUBSCRIBER, Method
from ingestd.localcloud.pubsub.rest import RestFace
from ingestd.localcloud.pubsub.service import Service, refusals
from ingestd.localcloud.pubsub.streaming import Stream
from ingestd.localcloud.statefolder import LOOPBACK

POLL_SECONDS = 10.0

# Larger than any lawful request, so that an oversized one gets Pub/Sub's own refusal.
_MAX_WIRE_BYTES = 64 * 1024 * 1024

_OPTIONS = (
    ("grpc.max_receive_message_length", _MAX_WIRE_BYTES),
    ("grpc.max_send_message_length", _MAX_WIRE_BYTES),
    ("grpc.so_reuseport", 0),
    # Google's clients ping more often than gRPC's default tolerates.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
)


class PubSubServer:
    """`grpc_port` serves Google's clients; `rest_port` (None: not served) the JSON API that gcloud speaks."""

    def __init__(
        self, core: PubSubCore, *, grpc_port: int = 0, rest_port: int | None = None, poll_seconds: float = POLL_SECONDS
    ) -> None:
        self.core = core
        self.grpc_port = grpc_port
        self.rest_port = rest_port
        self._poll_seconds = poll_seconds
        self._hub: Hub | None = None
        self._server: Any = None
        self._rest: HttpServer | None = None

    @property
    def endpoint(self) -> str:
        """What PUBSUB_EMULATOR_HOST wants."""
        return f"{LOOPBACK}:{self.grpc_port}"

    async def start(self) -> None:
        self._hub = Hub(self.core)
        service = Service(self.core, self._hub, poll_seconds=self._poll_seconds)
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers(_Handlers(service).all())
        try:
            self.grpc_port = self._server.add_insecure_port(f"{LOOPBACK}:{self.grpc_port}")
        except RuntimeError as error:
            await self._hub.close()
            raise OSError(f"cannot listen on {LOOPBACK}:{self.grpc_port}: {error}") from error
        await self._server.start()
        if self.rest_port is not None:
            self._rest = HttpServer(RestFace(service).handle, port=self.rest_port)
            await self._rest.start()
            self.rest_port = self._rest.port

    async def stop(self, grace: float = 0.2) -> None:
        if self._rest is not None:
            await self._rest.stop()
            self._rest = None
        if self._server is not None:
            await self._server.stop(grace)
            self._server = None
        if self._hub is not None:
            await self._hub.close()
            self._hub = None


class _Handlers:
    def __init__(self, service: Service) -> None:
        self._service = service

    def all(self) -> tuple[Any, ...]:
        services: dict[str, dict[str, Any]] = {PUBLISHER: {}, SUBSCRIBER: {}, IAM: {}, SCHEMAS: {}}
        for method in METHODS.values():
            services[method.service][method.name] = self._unary(method)
        services[PUBLISHER]["Publish"] = _raw_unary(self._publish)
        services[SUBSCRIBER]["Pull"] = _raw_unary(self._pull)
        services[SUBSCRIBER]["StreamingPull"] = grpc.stream_stream_rpc_method_handler(
            self._streaming_pull, request_deserializer=wire.StreamingPullRequest.FromString
        )
        for name in SCHEMA_METHODS:
            services[SCHEMAS][name] = _raw_unary(self._no_schemas)
        return tuple(grpc.method_handlers_generic_handler(name, handlers) for name, handlers in services.items())

    def _unary(self, method: Method) -> Any:
        async def handle(request: Any, context: Any) -> Any:
            return await self._service.call(method, request)

        return grpc.unary_unary_rpc_method_handler(
            _answering(handle),
            request_deserializer=method.request.FromString,
            response_serializer=method.response.SerializeToString,
        )

    async def _publish(self, raw: bytes, context: Any) -> bytes:
        with refusals():
            request = wire.PublishRequest.FromString(raw)
        return wire.publish_response(await self._service.publish(request))

    async def _pull(self, raw: bytes, context: Any) -> bytes:
        with refusals():
            request = wire.PullRequest.FromString(raw)
        return (await self._service.pull(request, context.time_remaining())).body

    async def _no_schemas(self, raw: bytes, context: Any) -> bytes:
        raise unsupported("schemas")

    async def _streaming_pull(self, requests: AsyncIterator[Any], context: Any) -> None:
        try:
            async for first in requests:
                await Stream(self._service, first, context.write).run(first, requests)
                return
            raise invalid("A StreamingPull starts with a request that names the subscription.")
        except PubSubError as error:
            await _abort(context, error)


def _raw_unary(handler: Callable[[bytes, Any], Awaitable[bytes]]) -> Any:
    return grpc.unary_unary_rpc_method_handler(_answering(handler))


def _answering(handler: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    async def answer(request: Any, context: Any) -> Any:
        try:
            return await handler(request, context)
        except PubSubError as error:
            return await _abort(context, error)

    return answer


async def _abort(context: Any, error: PubSubError) -> None:
    code = grpc.StatusCode[error.code.name]
    await context.abort(code, error.message, trailing_metadata=_details(code, error))


def _details(code: Any, error: PubSubError) -> tuple[tuple[str, bytes], ...]:
    """Which ack ids failed, where the clients of exactly-once subscriptions look for it."""
    if not error.ack_failures:
        return ()
    info = error_details_pb2.ErrorInfo(
        reason="EXACTLY_ONCE_ACKID_FAILURE", domain="pubsub.googleapis.com", metadata=error.ack_failures
    )
    packed = any_pb2.Any()
    packed.Pack(info)
    status = status_pb2.Status(code=code.value[0], message=error.message, details=[packed])
    return (("grpc-status-details-bin", status.SerializeToString()),)
