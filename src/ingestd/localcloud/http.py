"""The HTTP front shared by the local cloud's REST faces: bytes in, a `Request`, a handler, bytes out.

uvicorn does the protocol work. Handlers are plain functions (or coroutines, when the answer has to wait); they never
see ASGI. A handler that raises `DropConnection` has its connection cut with no usable answer.
"""

import asyncio
import inspect
import socket
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote_plus

import orjson
import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ingestd.localcloud.statefolder import LOOPBACK

log = structlog.get_logger(__name__)


def parse_query(text: str) -> dict[str, str]:
    """What `parse_qsl` says, at a third of its cost: this runs on every request."""
    query: dict[str, str] = {}
    for pair in text.split("&"):
        if pair:
            key, _, value = pair.partition("=")
            query[unquote_plus(key) if "%" in key or "+" in key else key] = (
                unquote_plus(value) if "%" in value or "+" in value else value
            )
    return query


@dataclass(slots=True)
class Request:
    method: str
    path: str  # still percent-encoded: object names may hold an encoded slash
    query_string: str
    headers: dict[str, str]  # keys in lower case
    body: bytes
    host: str = ""
    _query: dict[str, str] | None = None

    @property
    def query(self) -> dict[str, str]:
        """Query parameters; the last of repeated keys wins (`query_list` has all)."""
        if self._query is None:
            self._query = parse_query(self.query_string) if self.query_string else {}
        return self._query

    def query_list(self, key: str) -> list[str]:
        return [value for name, value in parse_qsl(self.query_string, keep_blank_values=True) if name == key]

    def json(self) -> Any:
        return orjson.loads(self.body) if self.body else {}


@dataclass(slots=True)
class Response:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> "Response":
        merged = {"content-type": "application/json; charset=UTF-8", **(headers or {})}
        return cls(status, orjson.dumps(value), merged)


class DropConnection(Exception):  # noqa: N818
    """The work is done but the client shall not learn of it."""


Handler = Callable[[Request], Response | Awaitable[Response]]


def as_asgi(handler: Handler) -> Callable[..., Awaitable[None]]:
    async def app(scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        chunks: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            if body := message.get("body"):
                chunks.append(body)
            if not message.get("more_body"):
                break
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        request = Request(
            method=scope["method"],
            path=scope["raw_path"].partition(b"?")[0].decode("latin-1"),
            query_string=scope["query_string"].decode("latin-1"),
            headers=headers,
            body=chunks[0] if len(chunks) == 1 else b"".join(chunks),
            host=headers.get("host", ""),
        )
        try:
            answer = handler(request)
            response = await answer if inspect.isawaitable(answer) else answer
        except DropConnection:
            # A start without its promised body makes uvicorn cut the connection.
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})
            return
        except Exception as error:
            log.exception("localcloud.handler_failed", method=request.method, path=request.path)
            response = Response.json({"error": {"code": 500, "message": f"{type(error).__name__}: {error}"}}, 500)
        raw = [(key.encode("latin-1"), value.encode("latin-1")) for key, value in response.headers.items()]
        if "content-length" not in response.headers:  # an answer to HEAD names the length of what it does not send
            raw.append((b"content-length", str(len(response.body)).encode()))
        await send({"type": "http.response.start", "status": response.status, "headers": raw})
        await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else response.body})

    return app


class _JoinedWrites:
    """A transport whose writes of one turn of the loop leave together.

    uvicorn writes the head and the body of an answer separately; joined, they cost half the system calls and wake the
    client once instead of twice.
    """

    __slots__ = ("_loop", "_transport", "_waiting")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._waiting: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not data:
            return
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._transport.writelines(waiting)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Protocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_JoinedWrites(transport, self.loop))  # type: ignore[arg-type]


class _Server(uvicorn.Server):
    """uvicorn, leaving signals to the process that embeds it."""

    def install_signal_handlers(self) -> None:
        return

    def capture_signals(self) -> Any:
        return nullcontext()


class HttpServer:
    """One REST face on loopback. The port is bound in `start`, so a busy port fails there with a clear error."""

    def __init__(self, handler: Handler, *, port: int = 0) -> None:
        self._wanted_port = port
        self._config = uvicorn.Config(
            as_asgi(handler),
            http=_Protocol,
            loop="none",
            lifespan="off",
            interface="asgi3",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            timeout_keep_alive=300,
            timeout_graceful_shutdown=2,
        )
        self._server = _Server(self._config)
        self._task: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> None:
        # Named as TCP, since asyncio turns Nagle's delay off only on sockets that say what they are.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, self._wanted_port))
        except OSError as error:
            listener.close()
            raise OSError(error.errno, f"cannot listen on {LOOPBACK}:{self._wanted_port}: {error.strerror}") from error
        self.port = listener.getsockname()[1]
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name=f"http:{self.port}")
        while not self._server.started:
            if self._task.done():
                self._task.result()
                raise RuntimeError("the HTTP server ended while starting")
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        if self._task is None:
            return
        self._server.should_exit = True
        await self._task
        self._task = None
