"""Calls of Google's JSON services over a session that is authorized, without the client's objects around them.

Those cost more than the calls: what the daemon does for every batch goes this way, what it does once in a while through
the clients. Errors are the clients' own, so that one place tells them apart.
"""

from typing import Any

import orjson
import requests
from google.api_core import exceptions as api

from ingestd.model.errors import Transient

_JSON = "application/json"


class Rest:
    """It blocks, and is to be called from a thread."""

    def __init__(self, session: requests.Session, *, timeout: float) -> None:
        self._session = session
        self._timeout = timeout

    def get(self, url: str) -> dict[str, Any]:
        return _document(self._send("GET", url), url)

    def post(self, url: str, body: bytes, content_type: str = _JSON) -> dict[str, Any]:
        return _document(self._send("POST", url, body, content_type), url)

    def delete(self, url: str) -> None:
        self._send("DELETE", url)

    def _send(self, method: str, url: str, body: bytes | None = None, content_type: str = "") -> requests.Response:
        headers = {"Content-Type": content_type} if content_type else None
        response = self._session.request(method, url, data=body, headers=headers, timeout=self._timeout)
        if not 200 <= response.status_code < 300:
            raise api.from_http_response(response)  # type: ignore[no-untyped-call]
        return response


def _document(response: requests.Response, url: str) -> dict[str, Any]:
    try:
        found = orjson.loads(response.content)
    except orjson.JSONDecodeError as error:
        raise Transient(f"{url.partition('?')[0]}: the answer is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Transient(f"{url.partition('?')[0]}: the answer is a JSON {type(found).__name__}, not an object")
    return found
