"""Calls of Google's JSON services without the client's objects and threads around them.

Those cost several times what the calls do: what the daemon does for every batch goes this way, on the event loop; what
it does once in a while, and whole files, through the clients. Errors are the clients' own, so that one place tells them
apart.
"""

import asyncio
import base64
import io
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import getproxies

import aiohttp
import certifi
import google_crc32c
import orjson
import requests
from google.api_core import exceptions as api
from google.auth.credentials import Credentials, TokenState
from google.auth.transport.requests import Request
from yarl import URL

from ingestd.gcp.errors import plain_error
from ingestd.gcp.threads import Threads
from ingestd.model.errors import Transient

_JSON = "application/json"
_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_LARGE = 2**20  # bytes of a body from which on it is sent in pieces
_SLOWEST = 2**16  # bytes a second
_UNTOLD = 2**24  # the most bytes of an answer that does not say how long it is
_UNAUTHORIZED = 401


class Tokens:
    """The headers that authorize a call; a new token is asked for in a thread, and by one call for all.

    All that wait for it fail with it: one after the other, each would wait for the failures of all before it. Renewal
    begins minutes before the token ends, and until then nobody waits for it: who issues tokens may be away meanwhile.
    """

    def __init__(self, credentials: Credentials, threads: Threads) -> None:
        self._credentials = credentials
        self._threads = threads
        self._renewal: asyncio.Future[None] | None = None

    async def headers(self) -> dict[str, str]:
        if not self._credentials.valid:
            renewal = self._renewing()
            if self._credentials.token_state is not TokenState.STALE:
                await asyncio.shield(renewal)  # who gives up waiting does so for itself
        return self._current()

    async def renew(self, refused: Mapping[str, str]) -> None:
        """The service refused these headers."""
        if self._current() == dict(refused):
            await asyncio.shield(self._renewing())

    def _current(self) -> dict[str, str]:
        found: dict[str, str] = {}
        self._credentials.apply(found)  # type: ignore[no-untyped-call]
        return found

    def _renewing(self) -> asyncio.Future[None]:
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.ensure_future(self._threads.run(self._refresh))
            self._renewal.add_done_callback(_seen)
        return self._renewal

    def _refresh(self) -> None:
        self._credentials.refresh(Request())  # type: ignore[no-untyped-call]


def _seen(renewal: asyncio.Future[None]) -> None:
    """Its failure is told to whoever waits, and is none of the event loop's when nobody does any more."""
    if not renewal.cancelled():
        renewal.exception()


class Connections:
    """Connections that are kept, and how long a call over one of them may take.

    `silence` bounds the seconds in which a service takes no connection, or says nothing after the request. That alone
    would let a request that nobody takes, or an answer that drips, go on for ever: so bytes have to move at `_SLOWEST`,
    in either direction. The wait for a free connection does not count: it is ours.
    """

    def __init__(self, session: aiohttp.ClientSession, at_once: int, silence: float) -> None:
        self.session = session
        self.free = asyncio.Semaphore(at_once)
        self._silence = silence

    def until_answered(self, sent: int) -> float:
        """Seconds from the beginning of a call to its answer's."""
        return 2 * self._silence + sent / _SLOWEST

    def until_read(self, length: int | None) -> float:
        """Seconds from there to the end of the answer."""
        return self._silence + (_UNTOLD if length is None else length) / _SLOWEST


@asynccontextmanager
async def connections(at_once: int, *, silence: float) -> AsyncIterator[Connections]:
    connector = aiohttp.TCPConnector(limit=at_once, keepalive_timeout=60, ssl=_trusted())
    async with aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=silence, sock_read=silence),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=bool(getproxies()),  # which is asked anew for every call, `.netrc` included
    ) as session:
        yield Connections(session, at_once, silence)


def _trusted() -> ssl.SSLContext:
    """Whom `requests` would trust, through which everything else goes."""
    named = Path(next(filter(None, map(os.environ.get, _CERTIFICATES)), certifi.where()))
    if named.is_dir():
        return ssl.create_default_context(capath=named)
    return ssl.create_default_context(cafile=named)


class _Answer:
    """An answer as the clients' errors want it."""

    def __init__(self, method: str, url: str, status: int, headers: Mapping[str, str], content: bytes) -> None:
        self.request = requests.Request(method, url)
        self.status_code = status
        self.headers = headers
        self.content = plain_error(content)

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")

    def json(self) -> Any:
        return orjson.loads(self.content)


class Rest:
    def __init__(self, connections: Connections, tokens: Tokens) -> None:
        self._connections = connections
        self._tokens = tokens

    async def get(self, url: str) -> dict[str, Any]:
        return _document(url, (await self._send("GET", url))[0])

    async def post(self, url: str, body: bytes, content_type: str = _JSON) -> dict[str, Any]:
        return _document(url, (await self._send("POST", url, body, {"Content-Type": content_type}))[0])

    async def delete(self, url: str) -> None:
        await self._send("DELETE", url)

    async def media(self, url: str) -> tuple[bytes, Mapping[str, str]]:
        """An object's bytes as they are stored, checked, and the headers that came with them."""
        data, headers = await self._send("GET", url, given=_AS_STORED)
        _check(url, data, headers)
        return data, headers

    async def _send(
        self, method: str, url: str, body: bytes | None = None, given: Mapping[str, str] | None = None
    ) -> tuple[bytes, Mapping[str, str]]:
        for again in (False, True):
            authority = await self._tokens.headers()
            headers = {"Accept-Encoding": "identity", **(given or {}), **authority}
            status, content, answered = await self._exchange(method, url, body, headers)
            if 200 <= status < 300:
                return content, answered
            if status != _UNAUTHORIZED or again:
                answer = _Answer(method, url, status, answered, content)
                raise api.from_http_response(answer)  # type: ignore[no-untyped-call]
            await self._tokens.renew(authority)
        raise AssertionError("the second answer is the last")

    async def _exchange(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes, Mapping[str, str]]:
        data = io.BytesIO(body) if body is not None and len(body) > _LARGE else body
        limits = self._connections
        async with limits.free:
            try:
                async with (
                    asyncio.timeout(limits.until_answered(len(body or b""))) as whole,
                    limits.session.request(method, URL(url, encoded=True), data=data, headers=headers) as response,
                ):
                    now = asyncio.get_running_loop().time()
                    whole.reschedule(now + limits.until_read(response.content_length))
                    return response.status, await response.read(), response.headers
            except TimeoutError as error:
                if whole.expired():
                    raise Transient(f"{method} {url.partition('?')[0]}: not sent and answered in time") from error
                raise


# Who does not say that gzip will do gets `Content-Encoding: gzip` objects unpacked by the service.
_AS_STORED = {"Accept-Encoding": "gzip"}


def download(session: requests.Session, url: str, *, span: str = "", timeout: float) -> tuple[bytes, Mapping[str, str]]:
    """The same of a whole file, or of a part of it, as HTTP writes it; it blocks, and is called from a thread."""
    headers = {**_AS_STORED, **({"Range": f"bytes={span}"} if span else {})}
    response = session.request("GET", url, headers=headers, timeout=timeout, stream=True)
    if not 200 <= response.status_code < 300:
        raise api.from_http_response(response)  # type: ignore[no-untyped-call]
    data = bytes(response.raw.read(decode_content=False))
    _check(url, data, response.headers, whole=not span)
    return data, response.headers


def _check(url: str, data: bytes, headers: Mapping[str, str], *, whole: bool = True) -> None:
    """Whether all of it came; a whole object is checked against the checksum that comes with it."""
    length = headers.get("Content-Length", "")
    if length and int(length) != len(data):
        raise Transient(f"{url.partition('?')[0]}: {len(data):,} bytes came of {length}")
    told = headers.get("X-Goog-Hash", "")
    expected = next((part.strip()[7:] for part in told.split(",") if part.strip().startswith("crc32c=")), "")
    if whole and expected and base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode() != expected:
        raise Transient(f"{url.partition('?')[0]}: what came has another checksum than {expected}")


def _document(url: str, content: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise Transient(f"{url.partition('?')[0]}: the answer is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Transient(f"{url.partition('?')[0]}: the answer is a JSON {type(found).__name__}, not an object")
    return found
