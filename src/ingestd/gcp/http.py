"""`HttpClient` on httpx, with Google's tokens.

Redirects are not followed: a host on the allow-list must not be able to send the daemon (and its token) elsewhere. A
name is resolved once per request, and the connection made to an address that was asked about, not to what the name
leads to a moment later. Behind a proxy (`HTTPS_PROXY` and the like) the proxy resolves names, and has to be careful.
"""

import asyncio
import base64
import binascii
import socket
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, timedelta
from functools import partial
from ipaddress import ip_address
from urllib.request import getproxies

import google.auth
import httpx
import orjson
from google.auth.exceptions import DefaultCredentialsError
from google.auth.transport.requests import Request
from google.oauth2 import id_token

from ingestd.gcp.errors import translated
from ingestd.gcp.threads import Threads
from ingestd.model.addresses import Address, public
from ingestd.model.clock import Clock, SystemClock
from ingestd.model.errors import BadInput, Transient
from ingestd.ports import HttpAnswer
from ingestd.retry import Retrier

_RENEW_BEFORE = timedelta(minutes=5)
_MAX_ANSWER = 16 * 1024 * 1024
_TOKENS = 200
_PROXIES = frozenset({"http", "https", "all"})


class HttpxClient:
    def __init__(
        self,
        client: httpx.AsyncClient,
        threads: Threads,
        retrier: Retrier,
        *,
        clock: Clock | None = None,
        fetch_identity: Callable[[str], str] | None = None,
        fetch_access: Callable[[Sequence[str]], tuple[str, float]] | None = None,
        proxied: bool | None = None,
    ) -> None:
        self._client = client
        self._threads = threads
        self._retrier = retrier
        self._clock = clock or SystemClock()
        self._fetch_identity = fetch_identity or _google_identity_token
        self._fetch_access = fetch_access or _google_access_token
        self._tokens: OrderedDict[tuple[str, ...], tuple[str, float]] = OrderedDict()
        self._authenticated = False
        self._proxied = not _PROXIES.isdisjoint(getproxies()) if proxied is None else proxied

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        limit: timedelta,
        reach: Callable[[Address], bool] = public,
    ) -> HttpAnswer:
        """One attempt: whether a request may be repeated is for the action to say.

        `limit` is for all of it: names, connections and the whole answer, however slowly it drips.
        """
        shown = url.partition("?")[0]  # a query may hold secrets, and messages are logged
        with translated(method, shown):
            try:
                async with asyncio.timeout(limit.total_seconds()) as whole:
                    return await self._answered(method, httpx.URL(url), headers, body, limit.total_seconds(), reach)
            except TimeoutError as error:
                if whole.expired():
                    raise Transient(f"{method} {shown}: not answered in full within {limit}") from error
                raise
            except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
                raise BadInput(f"{method} {shown}: {error}") from error

    async def _answered(
        self,
        method: str,
        url: httpx.URL,
        headers: Mapping[str, str],
        body: bytes,
        seconds: float,
        reach: Callable[[Address], bool],
    ) -> HttpAnswer:
        if self._proxied or url.scheme not in ("http", "https"):
            return await self._send(method, url, headers=headers, body=body, connect=seconds)
        addresses = _open(url, await _resolved(url), reach)
        # One that takes no connection must leave time for the next.
        sent = partial(self._send, method, url, headers=headers, body=body, connect=seconds / len(addresses))
        *others, last = addresses
        for address in others:
            with suppress(httpx.ConnectError, httpx.ConnectTimeout):
                return await sent(address)
        return await sent(last)

    async def _send(
        self,
        method: str,
        url: httpx.URL,
        address: Address | None = None,
        *,
        headers: Mapping[str, str],
        body: bytes,
        connect: float,
    ) -> HttpAnswer:
        """To that address, in the host's name: for the server, and for its certificate."""
        extensions: dict[str, str] = {}
        if address is not None:
            if "host" not in {name.lower() for name in headers}:
                headers = {"Host": url.netloc.decode("ascii"), **headers}
            extensions = {"sni_hostname": url.raw_host.decode("ascii")}
            url = url.copy_with(host=str(address).partition("%")[0])
        async with self._client.stream(
            method,
            url,
            headers=dict(headers),
            content=body,
            timeout=httpx.Timeout(None, connect=connect),  # for the whole of it, the caller has a limit
            extensions=extensions,
        ) as answer:
            chunks, size = [], 0
            async for chunk in answer.aiter_bytes():
                chunks.append(chunk)
                size += len(chunk)
                if size > _MAX_ANSWER:
                    raise BadInput(f"the answer of {url.host} is larger than {_MAX_ANSWER} bytes")
        return HttpAnswer(answer.status_code, dict(answer.headers), b"".join(chunks))

    async def identity_token(self, audience: str) -> str:
        def fetch() -> tuple[str, float]:
            token = self._fetch_identity(audience)
            return token, _expiry(token)

        return await self._token(("identity", audience), fetch)

    async def access_token(self, scopes: Sequence[str]) -> str:
        """An OAuth token of the daemon's account for these scopes."""
        return await self._token(("access", *scopes), lambda: self._fetch_access(scopes))

    async def _token(self, key: tuple[str, ...], fetch: Callable[[], tuple[str, float]]) -> str:
        known = self._tokens.get(key)
        if known and self._lasts(known):
            self._tokens.move_to_end(key)
            return known[0]

        def translating() -> tuple[str, float]:
            with translated("token", " ".join(key)):
                try:
                    return fetch()
                except DefaultCredentialsError as error:
                    # Each time anew it is found out what there is to authenticate with: a metadata server that does
                    # not answer counts as none.
                    if self._authenticated:
                        raise Transient(f"token {' '.join(key)}: {error}") from error
                    raise

        token = await self._retrier.call(lambda: self._threads.run(translating), "auth.token", resource=key[-1])
        self._authenticated = True
        self._keep(key, token)
        return token[0]

    def _lasts(self, token: tuple[str, float]) -> bool:
        return token[1] - _RENEW_BEFORE.total_seconds() > self._clock.now().timestamp()

    def _keep(self, key: tuple[str, ...], token: tuple[str, float]) -> None:
        """A URL that holds a variable has a token per event: only what was used lately is kept, and while it lasts."""
        self._tokens.pop(key, None)
        if self._lasts(token):
            self._tokens[key] = token
        while self._tokens and (len(self._tokens) > _TOKENS or not self._lasts(next(iter(self._tokens.values())))):
            self._tokens.popitem(last=False)


async def _resolved(url: httpx.URL) -> list[Address]:
    port = url.port or (443 if url.scheme == "https" else 80)
    found = await asyncio.get_running_loop().getaddrinfo(url.host, port, type=socket.SOCK_STREAM)
    return [ip_address(address) for address in dict.fromkeys(str(one[4][0]) for one in found)]


def _open(url: httpx.URL, addresses: list[Address], reach: Callable[[Address], bool]) -> list[Address]:
    found = [address for address in addresses if reach(address)]
    if not found:
        raise BadInput(
            f"{url.host} leads to {', '.join(map(str, addresses))}, where nothing may be called: list the host without"
            " a wildcard, or (for this machine) the address, in actions.allowed_hosts"
        )
    return found


def _google_identity_token(audience: str) -> str:
    return str(id_token.fetch_id_token(Request(), audience))  # type: ignore[no-untyped-call]


def _google_access_token(scopes: Sequence[str]) -> tuple[str, float]:
    credentials, _ = google.auth.default(scopes=list(scopes))
    credentials.refresh(Request())  # type: ignore[no-untyped-call]
    expiry = credentials.expiry.replace(tzinfo=UTC).timestamp() if credentials.expiry else 0.0  # naive, but UTC
    return str(credentials.token), expiry


def _expiry(token: str) -> float:
    """The `exp` claim, unverified: it only decides when to fetch the next token. Unreadable means: never keep it."""
    try:
        payload = token.split(".")[1]
        claims = orjson.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return 0.0
