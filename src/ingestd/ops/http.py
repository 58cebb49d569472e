"""The daemon's own HTTP face: `/metrics`, `/healthz`, `/readyz`, `/status`, the console at `/` and its API.

`/healthz` answers whether the event loop still turns, and nothing else: a struggling BigQuery must not get the pod
killed. `/readyz` answers whether the daemon takes work. The page has no assets from elsewhere, and a policy that lets
it load none.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import uvicorn
from prometheus_client import REGISTRY, CollectorRegistry, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ingestd.ops import api
from ingestd.ops.access import Guard, Token

Status = Callable[[], Awaitable[dict[str, Any]]]

PAGE = Path(__file__).with_name("page")
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class _Server(uvicorn.Server):
    """uvicorn, leaving signals to the daemon."""

    def capture_signals(self) -> Any:
        return nullcontext()


class OpsServer:
    def __init__(
        self,
        host: str,
        port: int,
        *,
        ready: Callable[[], list[str]],
        status: Status,
        views: api.Views | None = None,
        token: Token | None = None,
        protect_metrics: bool = True,
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        self._ready = ready
        self._status = status
        self._registry = registry
        # One sample more per counter, two per histogram: nothing reads them, and a managed Prometheus bills by sample.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        routes = [
            Route("/metrics", self._metrics),
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/status", self._show_status),
        ]
        if views is not None:
            routes += [Route("/", _page), Route("/page/{name}", _asset), *api.routes(views)]
        self._address = (host, port)
        app = _Headers(Guard(Starlette(routes=routes), token, login=_login_page, metrics=protect_metrics))
        config = uvicorn.Config(
            app,
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,  # who asks is who connects, whatever a header or the environment says
            timeout_graceful_shutdown=2,
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> None:
        try:
            listener = _listen(*self._address)
        except OSError as error:
            host, port = self._address
            raise OSError(error.errno, f"cannot serve /metrics on {host}:{port}: {error.strerror}") from error
        self.port = listener.getsockname()[1]
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name="ops:http")

    @property
    def url(self) -> str:
        """Where it listens: with port 0 only this tells."""
        return f"http://{self._address[0]}:{self.port}"

    async def stop(self) -> None:
        if self._task is not None:
            self._server.should_exit = True
            await self._task

    async def _metrics(self, request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(self._registry), media_type=content_type)

    async def _healthz(self, _request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _readyz(self, _request: Request) -> Response:
        missing = self._ready()
        if missing:
            return PlainTextResponse("not ready: " + "; ".join(missing) + "\n", 503)
        return PlainTextResponse("ready\n")

    async def _show_status(self, _request: Request) -> Response:
        return api.answer(await self._status())


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket that names its protocol: only then does asyncio send small answers without delay.

    Without it every answer on a connection that is kept waits 40 ms for the acknowledgement of its first packet.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


class _Headers:
    """Every answer tells the browser how little it may do."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, with_headers)


async def _page(_request: Request) -> Response:
    return FileResponse(PAGE / "index.html", media_type="text/html", headers={"Cache-Control": "no-cache"})


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    file = PAGE / name
    if Path(name).name != name or file.suffix not in _TYPES or not file.is_file():
        return PlainTextResponse("there is no such page\n", 404)
    return FileResponse(file, media_type=_TYPES[file.suffix], headers={"Cache-Control": "no-cache"})


def _login_page(refused: bool) -> Response:
    text = (PAGE / "login.html").read_text()
    if refused:
        text = text.replace(" hidden>", ">")
    return HTMLResponse(text, 401)
