"""The HTTP session of Google's blocking clients, without what they never use of it.

`requests` works out anew for every call what is the same for all of them: proxies and certificates of the environment,
`.netrc`, cookies, the spelling of the URL. That costs more than the call itself. So a call as Google's clients make it
goes straight to the connections; all others, and all of them where there is a proxy, go the usual way.
"""

import os
from typing import Any
from urllib.request import getproxies

import requests
from google.auth.credentials import Credentials
from google.auth.transport.requests import AuthorizedSession
from requests.adapters import HTTPAdapter
from requests.cookies import RequestsCookieJar
from requests.models import PreparedRequest, Response
from requests.structures import CaseInsensitiveDict

from ingestd.gcp.errors import plain_error

_PROXIES = frozenset({"http", "https", "all"})
_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_KNOWN = frozenset({"data", "headers", "timeout", "stream"})
_WITH_BODY = ("POST", "PUT", "PATCH")


class _Direct(requests.Session):
    """Below `AuthorizedSession`: what that one sends, with its token in the headers."""

    def __init__(self) -> None:
        super().__init__()
        self._proxied = not _PROXIES.isdisjoint(getproxies())
        self._trusted = next(filter(None, map(os.environ.get, _CERTIFICATES)), True)

    def request(self, method: str, url: str, **given: Any) -> Response:  # type: ignore[override]
        response = self._answered(method, url, **given)
        if response.status_code >= 400:
            response._content = plain_error(response.content)
        return response

    def _answered(self, method: str, url: str, **given: Any) -> Response:
        data, stream = given.get("data"), bool(given.get("stream"))
        if self._proxied or self.cert or not given.keys() <= _KNOWN or not isinstance(data, bytes | str | None):
            return super().request(method, url, **given)
        sent = _prepared(method, url, given.get("headers") or {}, data)
        adapter = self.get_adapter(url)
        response = adapter.send(sent, stream=stream, timeout=given.get("timeout"), verify=self._trusted)
        if response.is_redirect:
            response.close()
            return super().request(method, url, **given)
        if not stream:
            response.content  # noqa: B018 - read to its end, so that the connection can be used again
        return response


class Session(AuthorizedSession, _Direct):
    """A session that keeps enough connections for its threads: the default of ten makes busy pools reconnect.

    Two per thread, since one whose answer was not read to its end stays out until it is collected.
    """

    def __init__(self, credentials: Credentials, threads: int) -> None:
        super().__init__(credentials)  # type: ignore[no-untyped-call]
        self.mount("https://", HTTPAdapter(pool_connections=2, pool_maxsize=2 * threads))
        self.mount("http://", HTTPAdapter(pool_connections=2, pool_maxsize=2 * threads))


def _prepared(method: str, url: str, headers: dict[str, str], data: bytes | str | None) -> PreparedRequest:
    """The request as it is given: Google's clients quote their URLs themselves."""
    body = data.encode() if isinstance(data, str) else data
    request = PreparedRequest()
    request.method, request.url, request.body = method, url, body
    request.headers = CaseInsensitiveDict(headers)
    if body or method in _WITH_BODY:
        request.headers["Content-Length"] = str(len(body or b""))
    request._cookies = RequestsCookieJar()
    return request
