"""A server on loopback that answers as it is told: what Google's services may say, and no local cloud does."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast


@dataclass(frozen=True, slots=True)
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


Said = tuple[int, Mapping[str, str], bytes]


@contextmanager
def answering(answer: Callable[[Asked], Said | None]) -> Iterator[str]:
    """Its address. None: it cuts the connection. An answer that claims a length, which may be wrong, is the last."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = Asked(self.command, self.path, cast("Mapping[str, str]", self.headers), body)
            told = answer(asked)
            if told is None:
                self.close_connection = True
                return
            status, headers, said = told
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            if "Content-Length" in headers:
                self.close_connection = True
            else:
                self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - the names that http.server looks for

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{httpd.server_port}"
        finally:
            httpd.shutdown()
            thread.join()
