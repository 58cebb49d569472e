"""Batch requests: up to a hundred metadata calls in one HTTP body, each answered on its own."""

import secrets
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import urlsplit

from ingestd.localcloud.faults import FaultInjected
from ingestd.localcloud.http import Request, Response
from ingestd.localcloud.storage.errors import StorageError, invalid
from ingestd.localcloud.storage.server.multipart import Part, parse_multipart, render_multipart, split_head
from ingestd.localcloud.storage.server.wire import as_storage_error, error_response

MAX_CALLS = 100
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


async def run_batch(request: Request, run: Callable[[Request], Response | Awaitable[Response]]) -> Response:
    """Each call in turn; a refused one does not stop the rest. A lost answer loses the answer of the whole batch."""
    parts = parse_multipart(request.headers.get("content-type", ""), request.body)
    if len(parts) > MAX_CALLS:
        raise invalid(f"The batch request could not be processed: {len(parts)} calls, and {MAX_CALLS} are allowed.")
    answers: list[Part] = []
    for part in parts:
        try:
            inner = _inner_request(request, part)
            outcome = run(inner)
            response = outcome if isinstance(outcome, Response) else await outcome
        except (StorageError, FaultInjected) as error:
            response = error_response(as_storage_error(error))
        answers.append(_rendered(part, response))
    boundary = f"batch_{secrets.token_hex(16)}"
    body = render_multipart(boundary, answers)
    return Response(200, body, {"content-type": f"multipart/mixed; boundary={boundary}"})


def _inner_request(outer: Request, part: Part) -> Request:
    line, _, rest = part.body.lstrip().partition(b"\n")
    words = line.decode("latin-1").split()
    if len(words) < 2:
        raise invalid("A part of the batch is not an HTTP request.")
    url = urlsplit(words[1])
    if url.path.startswith(("/upload/", "/download/", "/batch/")) or "alt=media" in url.query:
        raise invalid("Media uploads and downloads are not allowed in a batch.")
    headers, body = split_head(rest)
    # Clients append a line end to the inner body; JSON does not mind, and calls without a body have none.
    return Request(words[0].upper(), url.path, url.query, headers, body.strip(), outer.host)


def _rendered(part: Part, response: Response) -> Part:
    head = [f"HTTP/1.1 {response.status} {_PHRASES.get(response.status, '')}".rstrip()]
    head += [f"{name}: {value}" for name, value in response.headers.items()]
    head.append(f"content-length: {len(response.body)}")
    headers = {"Content-Type": "application/http"}
    if content_id := part.headers.get("content-id"):
        inner = content_id.strip("<>")
        headers["Content-ID"] = f"<response-{inner}>"
    return Part(headers, "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + response.body)
