"""Every foreign exception becomes one of the daemon's kinds here, and nowhere else.

The message keeps what was being done, to what, what the service said and what a person can do about it.
"""

import http.client
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import aiohttp
import grpc
import httpx
import orjson
import requests
import urllib3
from google.api_core import exceptions as api
from google.auth import exceptions as auth
from google.cloud.storage.exceptions import DataCorruption

from ingestd.model.errors import Fatal, IngestError, Transient
from ingestd.warehouse.errors import from_status

# The same request may pass in a moment, whatever the service calls it.
_NETWORK_ERRORS: tuple[type[BaseException], ...] = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
    requests.exceptions.JSONDecodeError,  # an answer that is none of Google's
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    httpx.TimeoutException,
    httpx.NetworkError,
    httpx.ProtocolError,
    httpx.ProxyError,
    aiohttp.ClientConnectionError,
    aiohttp.ClientPayloadError,
    aiohttp.ClientResponseError,  # an answer that is no HTTP
    DataCorruption,
    api.RetryError,
    TimeoutError,
    OSError,
)


# The statuses that google.rpc.Code gives them, and the client does not.
_UNMAPPED = {grpc.StatusCode.UNKNOWN: 500, grpc.StatusCode.DATA_LOSS: 500}

_PARAMETERS = re.compile(r"(https?://[^\s?]+)\?\S*?: ")
_LONGEST = timedelta(days=1)
_LISTS = ("errors", "details")
_SHOWN = 1_000  # bytes of a document that says nothing we know
_MESSAGE = re.compile(r'"message":\s*"((?:[^"\\]|\\.)*)"')


@contextmanager
def translated(doing: str, resource: str) -> Iterator[None]:
    """Inside, only the daemon's own kinds of error get out."""
    try:
        yield
    except IngestError:
        raise
    except Exception as error:
        raise translate(error, doing, resource) from error


def translate(error: Exception, doing: str, resource: str) -> IngestError:
    """The kind this error is. An unknown error is `Fatal`: it stops one batch, visibly, and never loops."""
    if isinstance(error, IngestError):
        return error
    if isinstance(error, grpc.RpcError):
        error = api.from_grpc_error(error)  # type: ignore[no-untyped-call]
    where = f"{doing} {resource}"
    if isinstance(error, api.GoogleAPICallError):
        return _from_service(error, where)
    if isinstance(error, auth.GoogleAuthError):
        if _away(error):
            return Transient(f"{where}: could not authenticate: {error}")
        return Fatal(f"{where}: could not authenticate: {error}; check the application default credentials")
    # requests' invalid-URL errors are OSErrors too, and no retry makes a URL valid.
    if isinstance(error, requests.RequestException) and not isinstance(error, _NETWORK_ERRORS[:5]):
        return Fatal(f"{where}: {error}")
    if isinstance(error, _NETWORK_ERRORS):
        return Transient(f"{where}: {type(error).__name__}: {error}")
    return Fatal(f"{where}: {type(error).__name__}: {error}")


def _away(error: auth.GoogleAuthError) -> bool:
    """Whether what issues tokens could not be asked, or was not well: not whether it refuses the daemon's account.

    Google's credentials wrap the one as they do the other. A metadata server that is away, say, is the cause of a
    `RefreshError` that does not call itself retryable.
    """
    wrapped = error.__cause__ or (error.args[0] if error.args else None)
    for one in (error, wrapped):
        if not isinstance(one, auth.GoogleAuthError):
            continue
        status = _status_told(one)
        unwell = status >= 500 or status in (408, 429)
        if one.retryable or unwell or (isinstance(one, auth.TransportError) and not status):
            return True
    return False


def _status_told(error: auth.GoogleAuthError) -> int:
    """The status that the issuer of tokens answered with; 0 when the error does not have it.

    Besides its message, an error has the metadata server's answer, or the document that another issuer gave.
    """
    for told in error.args[1:]:
        status = getattr(told, "status", None)
        if isinstance(status, int):
            return status
        try:
            document = orjson.loads(told) if isinstance(told, str | bytes) else told
            return int(document["error"]["code"])
        except (ValueError, LookupError, TypeError):
            continue
    return 0


def _from_service(error: api.GoogleAPICallError, where: str) -> IngestError:
    code = int(error.code or _UNMAPPED.get(error.grpc_status_code, 0))
    message = f"{where}: {code} {_said(str(error.message or ''))}"
    if isinstance(error, api.FailedPrecondition):
        return Fatal(message)
    if isinstance(error, api.Aborted):
        return Transient(message)
    return from_status(code, message, reason=reason_of(error), until=retry_after(_headers(error)))


def _said(message: str) -> str:
    """The service's words: without the address's parameters, and out of the document an upload answers with."""
    message = _PARAMETERS.sub(r"\1: ", message, count=1)
    before, brace, document = message.partition('{"error"')
    if brace and (told := _MESSAGE.search(document)):
        return f"{before}{told[1]}"
    return message


def reason_of(error: api.GoogleAPICallError) -> str:
    """BigQuery's and Storage's `errors[0].reason`, where the service gave one."""
    try:
        items = error.errors
    except TypeError:  # the service's document had something else in their place
        return ""
    for item in items:
        if isinstance(item, Mapping) and isinstance(item.get("reason"), str):
            return str(item["reason"])
    return ""


def plain_error(content: bytes) -> bytes:
    """The document of an answer that is an error, in the form that Google's clients take for granted.

    They look for `error.message`, `error.errors` and `error.details` without asking. Proxies and front ends answer 503
    with JSON of their own, and what came out was a bug of the client's, which nobody retries.
    """
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        return content  # then they take it for text
    if isinstance(found, list):
        found = next((one for one in found if isinstance(one, dict)), {})
    error = found.get("error", {}) if isinstance(found, dict) else None
    if isinstance(error, dict) and all(_documents(error.get(key, [])) for key in _LISTS):
        return content
    if not isinstance(error, dict):
        error = {"message": content[:_SHOWN].decode(errors="replace")}
    kept = {key: value for key, value in error.items() if key not in _LISTS or _documents(value)}
    return orjson.dumps({"error": kept})


def _documents(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(one, dict) for one in found)


def retry_after(headers: Mapping[str, str]) -> datetime | None:
    """`Retry-After`, which is seconds or an HTTP date; nobody is waited for longer than a day, which quotas take."""
    value = headers.get("Retry-After") or headers.get("retry-after") or ""
    if value.isdecimal() and len(value) < 10:
        return datetime.now(UTC) + min(timedelta(seconds=int(value)), _LONGEST)
    try:
        when = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return min(when if when.tzinfo else when.replace(tzinfo=UTC), datetime.now(UTC) + _LONGEST)


def _headers(error: api.GoogleAPICallError) -> Mapping[str, str]:
    headers = getattr(error.response, "headers", None)
    return headers if isinstance(headers, Mapping) else {}
