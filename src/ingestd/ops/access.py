"""Who may look: a bearer token before everything but probes (and metrics, where settings say so).

Without a token only the daemon's own machine may look, which includes `kubectl port-forward`: object and table names
are nobody else's business until somebody says so. What is asked for is decided by the path that requests are routed by,
never by a URL put together from headers.

Command lines send `Authorization: Bearer …`. A browser that opens the page is asked for the token once; it then carries
a cookie that is derived from the token by HMAC and ends with it: changing the token ends every session. Tokens are
compared in constant time and never logged.
"""

import hashlib
import hmac
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

COOKIE = "ingestd_session"
SESSION_SECONDS = 12 * 3600
_FORM_BYTES = 4_096
_OPEN = frozenset({"/healthz", "/readyz", "/login", "/page/login.css"})
_ONLY_HERE = (
    "without a token (http.token_file) this daemon answers only its own machine, by the name localhost or a loopback "
    "address; kubectl port-forward is one way there\n"
)

Token = Callable[[], str]


class TokenFile:
    """A token in a file, read again when the file changes: secrets are rotated under running pods."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._token = ""
        if not self():
            raise ValueError(f"{path} holds no token")

    def __call__(self) -> str:
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_ino)
            if seen != self._seen:
                self._token, self._seen = self._path.read_text().strip() or self._token, seen
        except OSError:
            if self._seen is None:
                raise
        return self._token


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, token: Token | None, *, login: Callable[[bool], Response], metrics: bool) -> None:
        self._app = app
        self._token = token
        self._login = login
        self._open = _OPEN if metrics else _OPEN | {"/metrics"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        path = scope["path"]
        if path == "/login" and request.method == "POST" and self._token is not None:
            await (await self._admit(request))(scope, receive, send)
        elif path in self._open or self._allowed(request):
            await self._app(scope, receive, send)
        else:
            await self._refuse(request)(scope, receive, send)

    def _allowed(self, request: Request) -> bool:
        if self._token is None:
            return _from_here(request)
        token = self._token()
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(given.strip(), token):
            return True
        return _valid(_cookie(request), token)

    def _refuse(self, request: Request) -> Response:
        if self._token is None:
            return PlainTextResponse(_ONLY_HERE, 403)
        wants_page = request.scope["path"] == "/" and "text/html" in request.headers.get("accept", "")
        response = self._login(False) if wants_page else PlainTextResponse("a bearer token is needed\n", 401)
        response.headers["WWW-Authenticate"] = 'Bearer realm="ingestd"'
        return response

    async def _admit(self, request: Request) -> Response:
        assert self._token is not None
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _FORM_BYTES:
                return PlainTextResponse("too long\n", 413)
        given = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0].strip()
        token = self._token()
        if not _same(given, token):
            return self._login(True)
        response = RedirectResponse("./", 303)
        secure = request.headers.get("x-forwarded-proto", request.scope.get("scheme", "http")) == "https"
        response.set_cookie(
            COOKIE, _session(token), max_age=SESSION_SECONDS, httponly=True, samesite="strict", secure=secure
        )
        return response


def _from_here(request: Request) -> bool:
    """Who asks is this machine, and so is the name it asked for: any web page can ask a loopback address by its own."""
    try:
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        return False
    return request.client is not None and _loopback(request.client.host) and (host == "localhost" or _loopback(host))


def _loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def _cookie(request: Request) -> str:
    try:
        morsel = SimpleCookie(request.headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel else ""


def _session(token: str, until: int | None = None) -> str:
    until = int(time.time()) + SESSION_SECONDS if until is None else until
    proof = hmac.new(token.encode(), f"ingestd console until {until}".encode(), hashlib.sha256).hexdigest()
    return f"{until}.{proof}"


def _valid(cookie: str, token: str) -> bool:
    until, _, _ = cookie.partition(".")
    if not (until.isascii() and until.isdigit() and len(until) < 15) or int(until) < time.time():
        return False
    return hmac.compare_digest(cookie.encode("utf-8", "replace"), _session(token, int(until)).encode())
