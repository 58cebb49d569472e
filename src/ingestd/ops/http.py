"""The daemon's own HTTP face: `/metrics`, `/healthz`, `/readyz`, `/status`.

`/healthz` answers whether the event loop still turns, and nothing else: a struggling BigQuery must not get the pod
killed. `/readyz` answers whether the daemon takes work.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import uvicorn
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

Status = Callable[[], Awaitable[dict[str, Any]]]


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
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        self._ready = ready
        self._status = status
        self._registry = registry
        routes = [
            Route("/metrics", self._metrics),
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/status", self._show_status),
        ]
        self._address = (host, port)
        config = uvicorn.Config(
            Starlette(routes=routes),
            lifespan="off",
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=2,
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> None:
        try:
            listener = socket.create_server(self._address)
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
        return JSONResponse(await self._status())
