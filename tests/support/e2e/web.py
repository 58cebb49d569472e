"""A small HTTP server on loopback: what `call` calls, and a stand-in for Slack."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs


@dataclass(frozen=True, slots=True)
class Received:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def form(self) -> dict[str, list[str]]:
        return parse_qs(self.body.decode())


@dataclass(slots=True)
class Web:
    """What came in, and what is answered: `answers[path]` is a list of statuses, the last of which stays."""

    host: str
    received: list[Received] = field(default_factory=list)
    answers: dict[str, list[int]] = field(default_factory=dict)
    meanwhile: dict[str, Callable[[], object]] = field(
        default_factory=dict
    )  # done once, before the path's first answer

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def of(self, path: str) -> list[Received]:
        return [one for one in self.received if one.path == path]

    def answer(self, request: Received) -> tuple[int, bytes]:
        self.meanwhile.pop(request.path, lambda: None)()
        planned = self.answers.get(request.path, [200])
        status = planned.pop(0) if len(planned) > 1 else planned[0]
        return status, json.dumps(self._document(request)).encode()

    def _document(self, request: Received) -> dict[str, Any]:
        match request.path:
            case "/api/files.getUploadURLExternal":
                return {"ok": True, "upload_url": f"{self.url}/upload/1", "file_id": "F1"}
            case path if path.startswith("/api/"):
                return {"ok": True, "ts": "1700000000.000100", "channel": "C012345678"}
            case _:
                return {"echo": request.body.decode(errors="replace")}


@contextmanager
def web_server() -> Iterator[Web]:
    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Received(self.command, self.path, headers, self.rfile.read(length))
            web.received.append(request)
            status, body = web.answer(request)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = _any  # noqa: N815 - the names http.server looks for

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web = Web(f"127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever, name="web", daemon=True)
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
