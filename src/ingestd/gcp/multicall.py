"""Cloud Storage's batch requests: up to a hundred calls in one HTTP body, each answered on its own.

Google's own `Batch` builds and takes apart its bodies with the `email` package, which costs as much as the requests it
saves, and raises one error for all; so bodies are written and read here. Answers are found by the id that each call was
given, since the service may run (and answer) the calls in any order.
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import orjson
import requests
from google.api_core import exceptions as api

from ingestd.gcp.errors import retry_after
from ingestd.model.errors import IngestError, Transient
from ingestd.model.objects import ObjectRef
from ingestd.warehouse.errors import from_status

MOST = 100  # calls that one request may hold
_BOUNDARY = re.compile(r"boundary=(?:\"([^\"]+)\"|([^;\s]+))", re.IGNORECASE)
_ID = re.compile(rb"^content-id:\s*<response-[^>]*\+(\d+)>", re.IGNORECASE | re.MULTILINE)
_STATUS = re.compile(rb"HTTP/[\d.]+ (\d{3})")


@dataclass(frozen=True, slots=True)
class Call:
    """One metadata call; media cannot be in a batch."""

    method: str
    path: str
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def document(self) -> dict[str, Any]:
        try:
            found = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def message(self) -> str:
        error = self.document.get("error")
        return str(error.get("message", "")) if isinstance(error, dict) else ""

    def error(self, doing: str, ref: ObjectRef) -> IngestError:
        """The kind of failure that this answer is."""
        error = self.document.get("error")
        told = error.get("errors") if isinstance(error, dict) else None
        first = told[0] if isinstance(told, list) and told else None
        reason = str(first.get("reason", "")) if isinstance(first, dict) else ""
        message = f"{doing} {ref}: {self.status} {self.message}"
        return from_status(self.status, message, reason=reason, until=retry_after(self.headers))


def object_path(ref: ObjectRef, **parameters: object) -> str:
    """The path of an object's resource; parameters that are None are left out."""
    asked = urlencode({key: value for key, value in parameters.items() if value is not None})
    path = f"/storage/v1/b/{quote(ref.bucket, safe='')}/o/{quote(ref.name, safe='')}"
    return f"{path}?{asked}" if asked else path


class Multicall:
    """Sends batches over a session that is authorized; it blocks, and is to be called from a thread."""

    def __init__(self, session: requests.Session, endpoint: str, *, timeout: float = 60.0) -> None:
        self._session = session
        self._url = f"{endpoint.rstrip('/')}/batch/storage/v1"
        self._timeout = timeout

    def send(self, calls: Sequence[Call]) -> list[Answer]:
        """The answers, in the order of the calls. A call without an answer counts as failed for now."""
        boundary, body = render(calls)
        headers = {"Content-Type": f"multipart/mixed; boundary={boundary}"}
        response = self._session.request("POST", self._url, data=body, headers=headers, timeout=self._timeout)
        if not 200 <= response.status_code < 300:
            raise api.from_http_response(response)  # type: ignore[no-untyped-call]
        found = parse(response.headers.get("content-type", ""), response.content)
        return [found.get(number, _UNANSWERED) for number in range(len(calls))]


_UNANSWERED = Answer(503, {}, b'{"error": {"message": "the batch was answered without this call"}}')


def render(calls: Sequence[Call]) -> tuple[str, bytes]:
    """The boundary and the body."""
    mark = uuid.uuid4().hex
    boundary = f"batch_{mark}"
    out = bytearray()
    for number, call in enumerate(calls):
        out += (
            f"--{boundary}\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n"
            f"Content-ID: <{mark}+{number}>\r\n\r\n{call.method} {call.path} HTTP/1.1\r\n"
        ).encode()
        if call.body:
            out += f"Content-Type: application/json\r\nContent-Length: {len(call.body)}\r\n\r\n".encode() + call.body
        else:
            out += b"\r\n"
        out += b"\r\n"
    out += f"--{boundary}--\r\n".encode()
    return boundary, bytes(out)


def parse(content_type: str, body: bytes) -> dict[int, Answer]:
    """The answers by the number of their call."""
    named = _BOUNDARY.search(content_type)
    if named is None:
        raise Transient(f"a batch was answered with {content_type or 'nothing'!r} instead of its parts")
    delimiter = b"--" + (named[1] or named[2]).encode()
    found: dict[int, Answer] = {}
    # A line of its own: object names and metadata cannot hold a line end here, JSON escapes it.
    for part in (b"\n" + body).split(b"\n" + delimiter)[1:]:
        head, _, inner = _split(part)
        number = _ID.search(head)
        status = _STATUS.match(inner)
        if number is None or status is None:
            continue  # the end of the body, or an answer to nothing we asked
        lines, _, content = _split(inner)
        found[int(number[1])] = Answer(int(status[1]), _headers(lines), content.strip())
    return found


def _split(data: bytes) -> tuple[bytes, bytes, bytes]:
    """What is before and after the first empty line, whichever line ends are used."""
    crlf, lf = data.find(b"\r\n\r\n"), data.find(b"\n\n")
    return data.partition(b"\r\n\r\n" if crlf >= 0 and (lf < 0 or crlf < lf) else b"\n\n")


def _headers(lines: bytes) -> dict[str, str]:
    found = {}
    for line in lines.decode("latin-1").splitlines()[1:]:
        name, _, value = line.partition(":")
        found[name.strip().lower()] = value.strip()
    return found
