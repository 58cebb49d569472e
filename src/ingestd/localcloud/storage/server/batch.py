"""Batch requests: up to a hundred metadata calls in one HTTP body, each answered on its own.

They are committed together, before the answer: a crash leaves all of a batch or nothing. Where a call has to wait (a
planned delay), what comes before it is committed first.
"""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from http import HTTPStatus
from urllib.parse import urlsplit

from ingestd.localcloud.faults import FaultInjected, ResponseLost
from ingestd.localcloud.http import Request, Response
from ingestd.localcloud.storage.errors import StorageError, invalid
from ingestd.localcloud.storage.server.multipart import Part, parse_multipart, render_multipart, split_head
from ingestd.localcloud.storage.server.wire import as_storage_error, error_response

MAX_CALLS = 100
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


Run = Callable[[Request], Response | Awaitable[Response]]
Together = Callable[[], AbstractContextManager[None]]


async def run_batch(request: Request, run: Run, together: Together) -> Response:
    """Each call in turn; a refused one does not stop the rest. A lost answer loses the answer of the whole batch."""
    parts = parse_multipart(request.headers.get("content-type", ""), request.body)
    if len(parts) > MAX_CALLS:
        raise invalid(f"The batch request could not be processed: {len(parts)} calls, and {MAX_CALLS} are allowed.")
    answers: list[Part] = []
    while len(answers) < len(parts):
        with together():
            stopped = _run_some(request, parts, answers, run)
        if isinstance(stopped, ResponseLost):
            raise stopped
        if stopped is not None:
            try:
                response = await stopped
            except (StorageError, FaultInjected) as error:
                response = error_response(as_storage_error(error))
            answers.append(_rendered(parts[len(answers)], response))
    boundary = f"batch_{secrets.token_hex(16)}"
    body = render_multipart(boundary, answers)
    return Response(200, body, {"content-type": f"multipart/mixed; boundary={boundary}"})


def _run_some(
    outer: Request, parts: Sequence[Part], answers: list[Part], run: Run
) -> Awaitable[Response] | ResponseLost | None:
    """Answer calls up to the first that has to wait, or whose answer is lost: that is given back."""
    for part in parts[len(answers) :]:
        try:
            response = run(_inner_request(outer, part))
        except (StorageError, FaultInjected) as error:
            response = error_response(as_storage_error(error))
        except ResponseLost as lost:
            return lost
        if not isinstance(response, Response):
            return response
        answers.append(_rendered(part, response))
    return None


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
