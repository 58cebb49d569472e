"""`HttpClient` on httpx, with Google's tokens.

Redirects are not followed: a host on the allow-list must not be able to send the daemon (and its token) elsewhere.
"""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, timedelta

import google.auth
import httpx
import orjson
from google.auth.transport.requests import Request
from google.oauth2 import id_token

from ingestd.gcp.errors import translated
from ingestd.gcp.threads import Threads
from ingestd.model.clock import Clock, SystemClock
from ingestd.model.errors import BadInput
from ingestd.ports import HttpAnswer
from ingestd.retry import Retrier

_RENEW_BEFORE = timedelta(minutes=5)
_MAX_ANSWER = 16 * 1024 * 1024


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
    ) -> None:
        self._client = client
        self._threads = threads
        self._retrier = retrier
        self._clock = clock or SystemClock()
        self._fetch_identity = fetch_identity or _google_identity_token
        self._fetch_access = fetch_access or _google_access_token
        self._tokens: dict[tuple[str, ...], tuple[str, float]] = {}

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes, limit: timedelta
    ) -> HttpAnswer:
        """One attempt: whether a request may be repeated is for the action to say."""
        shown = url.partition("?")[0]  # a query may hold secrets, and messages are logged
        with translated(method, shown):
            try:
                async with self._client.stream(
                    method, url, headers=dict(headers), content=body, timeout=limit.total_seconds()
                ) as answer:
                    chunks, size = [], 0
                    async for chunk in answer.aiter_bytes():
                        chunks.append(chunk)
                        size += len(chunk)
                        if size > _MAX_ANSWER:
                            raise BadInput(f"{method} {shown}: the answer is larger than {_MAX_ANSWER} bytes")
            except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
                raise BadInput(f"{method} {shown}: {error}") from error
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
        if known and known[1] - _RENEW_BEFORE.total_seconds() > self._clock.now().timestamp():
            return known[0]

        def translating() -> tuple[str, float]:
            with translated("token", " ".join(key)):
                return fetch()

        token = await self._retrier.call(lambda: self._threads.run(translating), "auth.token", resource=key[-1])
        self._tokens[key] = token
        return token[0]


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
