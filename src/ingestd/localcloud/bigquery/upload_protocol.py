"""Google's upload protocols for jobs.insert: multipart in one request, resumable in several."""

import re
import secrets
from dataclasses import dataclass, field
from typing import Any

import orjson

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.http import Request, Response

UPLOAD_PATH = re.compile(r"^(?:/resumable)?/upload/bigquery/v2/projects/(?P<project>[^/]+)/jobs$")
_BOUNDARY = re.compile(r"""boundary=(?:"([^"]+)"|'([^']+)'|([^;\s]+))""")
_RANGE = re.compile(r"^bytes (?:(?P<first>\d+)-(?P<last>\d+)|\*)/(?P<total>\d+|\*)$")


@dataclass(frozen=True, slots=True)
class Posted:
    """A complete upload: the job and its bytes."""

    project: str
    resource: dict[str, Any]
    data: bytes


@dataclass(slots=True)
class _Session:
    project: str
    resource: dict[str, Any]
    data: bytearray = field(default_factory=bytearray)


class UploadSessions:
    """Turns upload requests into `Posted`, or into the answer that asks for more."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}

    def handle(self, request: Request, project: str) -> Posted | Response:
        kind = request.query.get("uploadType", "")
        if request.method == "POST" and kind == "multipart":
            resource, data = _multipart(request)
            return Posted(project, resource, data)
        if request.method == "POST" and kind == "resumable":
            return self._open(request, project)
        if request.method == "PUT" and kind == "resumable":
            return self._receive(request)
        raise BigQueryError("invalid", f"Unsupported upload: {request.method} with uploadType {kind or 'unset'}")

    def _open(self, request: Request, project: str) -> Response:
        upload_id = secrets.token_hex(16)
        self._sessions[upload_id] = _Session(project, request.json())
        location = f"http://{request.host}{request.path}?uploadType=resumable&upload_id={upload_id}"
        return Response(200, b"", {"location": location, "x-guploader-uploadid": upload_id})

    def _receive(self, request: Request) -> Posted | Response:
        upload_id = request.query.get("upload_id", "")
        session = self._sessions.get(upload_id)
        if session is None:
            raise BigQueryError("notFound", f"Not found: upload {upload_id}")
        content_range = request.headers.get("content-range")
        if content_range is None:
            session.data[:] = request.body
        else:
            found = _RANGE.match(content_range.strip())
            if found is None:
                raise BigQueryError("invalid", f"Invalid Content-Range: {content_range}")
            if found["first"] is not None:
                # A chunk may repeat bytes that arrived before the client lost the answer.
                del session.data[int(found["first"]) :]
                session.data += request.body
            if found["total"] == "*" or len(session.data) < int(found["total"]):
                return _incomplete(len(session.data))
        del self._sessions[upload_id]
        return Posted(session.project, session.resource, bytes(session.data))


def _incomplete(received: int) -> Response:
    return Response(308, b"", {"range": f"bytes=0-{received - 1}"} if received else {})


def _multipart(request: Request) -> tuple[dict[str, Any], bytes]:
    found = _BOUNDARY.search(request.headers.get("content-type", ""))
    if found is None:
        raise BigQueryError("invalid", "A multipart upload needs a boundary")
    boundary = b"--" + next(group for group in found.groups() if group).encode()
    parts = []
    for chunk in request.body.split(boundary)[1:]:
        if chunk.startswith(b"--"):
            break
        headers, separator, content = _split_head(chunk)
        if not separator:
            raise BigQueryError("invalid", "Malformed multipart body")
        parts.append((headers, _without_last_newline(content)))
    if len(parts) != 2:
        raise BigQueryError("invalid", "A multipart upload has two parts: the job and its data")
    resource = orjson.loads(parts[0][1]) if parts[0][1].strip() else {}
    return resource, parts[1][1]


def _split_head(chunk: bytes) -> tuple[bytes, bytes, bytes]:
    crlf, lf = chunk.find(b"\r\n\r\n"), chunk.find(b"\n\n")
    if crlf >= 0 and (lf < 0 or crlf < lf):
        return chunk[:crlf], b"\r\n\r\n", chunk[crlf + 4 :]
    return chunk.partition(b"\n\n")


def _without_last_newline(content: bytes) -> bytes:
    """The line end before a boundary belongs to the boundary."""
    if content.endswith(b"\r\n"):
        return content[:-2]
    return content[:-1] if content.endswith(b"\n") else content
