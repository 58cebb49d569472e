"""Calls of Google's JSON services over a session that is authorized, without the client's objects around them.

Those cost more than the calls: what the daemon does for every batch goes this way, what it does once in a while through
the clients. Errors are the clients' own, so that one place tells them apart.
"""

import base64
from collections.abc import Mapping
from typing import Any

import google_crc32c
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

    def media(self, url: str, *, span: str = "") -> tuple[bytes, Mapping[str, str]]:
        """An object's bytes as they are stored, and the headers; `span` asks for a part of them, as HTTP writes it.

        A whole object is checked against the checksum that comes with it.
        """
        # Who does not say that gzip will do gets `Content-Encoding: gzip` objects unpacked by the service.
        headers = {"Accept-Encoding": "gzip", **({"Range": f"bytes={span}"} if span else {})}
        response = self._send("GET", url, headers=headers, stream=True)
        data = bytes(response.raw.read(decode_content=False))
        length = response.headers.get("Content-Length", "")
        if length and int(length) != len(data):
            raise Transient(f"{url.partition('?')[0]}: {len(data):,} bytes came of {length}")
        told = response.headers.get("X-Goog-Hash", "")
        expected = next((part.strip()[7:] for part in told.split(",") if part.strip().startswith("crc32c=")), "")
        if (
            not span
            and expected
            and base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode() != expected
        ):
            raise Transient(f"{url.partition('?')[0]}: what came has another checksum than {expected}")
        return data, response.headers

    def _send(
        self,
        method: str,
        url: str,
        body: bytes | None = None,
        content_type: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        stream: bool = False,
    ) -> requests.Response:
        headers = {"Content-Type": content_type} if content_type else headers
        response = self._session.request(method, url, data=body, headers=headers, timeout=self._timeout, stream=stream)
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
