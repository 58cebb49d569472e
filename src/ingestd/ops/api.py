"""The JSON API under `/api/v1/`: read-only, paged, bounded. docs/console.md describes every answer.

This module knows HTTP and nothing of batches: a `Views` answers the documents. Every list takes `limit` (at most 500),
`offset` and `q`; a wrong parameter is a 400 that says what is wrong.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import orjson
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

log = structlog.get_logger(__name__)

DEFAULT_LIMIT, MAX_LIMIT = 100, 500
_EXPLAINING = 4  # at a time: each may read the journal
_EXPLAIN_SECONDS = 30.0

T = TypeVar("T")
Document = dict[str, Any]


class BadRequest(ValueError):  # noqa: N818 - named for the answer it becomes
    """A parameter that cannot be; the message is the answer."""


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list is asked for."""

    offset: int = 0
    limit: int = DEFAULT_LIMIT
    query: str = ""
    sort: str = ""
    kind: str = ""

    def of(self, items: Iterable[T], describe: Callable[[T], Document]) -> Document:
        """A page of the items; only those shown are described."""
        found = items if isinstance(items, list) else list(items)
        shown = found[self.offset : self.offset + self.limit]
        following = self.offset + len(shown)
        return {
            "total": len(found),
            "offset": self.offset,
            "next": following if following < len(found) else None,
            "items": [describe(item) for item in shown],
        }


class Views(Protocol):
    """What can be seen of the daemon. Everything but `batch` and `explain` is answered from memory."""

    async def overview(self) -> Document: ...
    async def series(self, minutes: int) -> Document: ...
    async def windows(self, page: Page) -> Document: ...
    async def running(self, page: Page) -> Document: ...
    async def batches(self, page: Page) -> Document: ...
    async def batch(self, event_id: str) -> Document | None: ...
    async def rules(self, page: Page) -> Document: ...
    async def errors(self, page: Page) -> Document: ...
    async def quotas(self) -> Document: ...
    async def settings(self) -> Document: ...
    async def explain(self, path: str, *, full: bool) -> Document: ...


def routes(views: Views) -> list[Route]:
    api = _Api(views)
    answers: dict[str, Callable[[Request], Awaitable[Document | None]]] = {
        "overview": lambda _: views.overview(),
        "series": api.series,
        "windows": lambda request: views.windows(_page(request, ("due", "files", "size", "rule", "dest"))),
        "running": lambda request: views.running(_page(request)),
        "batches": lambda request: views.batches(_page(request)),
        "batches/{event_id}": lambda request: views.batch(request.path_params["event_id"]),
        "rules": lambda request: views.rules(_page(request, ("name", "rows", "files", "freshness", "problems"))),
        "errors": lambda request: views.errors(_page(request)),
        "quotas": lambda _: views.quotas(),
        "settings": lambda _: views.settings(),
        "explain": api.explain,
    }
    return [Route(f"/api/v1/{path}", _endpoint(answer), methods=["GET"]) for path, answer in answers.items()]


class _Api:
    def __init__(self, views: Views) -> None:
        self._views = views
        self._explaining = asyncio.Semaphore(_EXPLAINING)

    async def series(self, request: Request) -> Document:
        return await self._views.series(_number(request, "minutes", 60, 1, 1_440))

    async def explain(self, request: Request) -> Document:
        path = request.query_params.get("path", "").strip()
        if not path.startswith("gs://") or not path.removeprefix("gs://").partition("/")[2]:
            raise BadRequest("path must be gs://bucket/object")
        full = request.query_params.get("full", "") in ("1", "true")
        try:
            async with asyncio.timeout(_EXPLAIN_SECONDS), self._explaining:
                return await self._views.explain(path, full=full)
        except TimeoutError:
            waited = f"no answer within {_EXPLAIN_SECONDS:.0f} s"
            raise BadRequest(f"{waited}; `ingestd explain {path}` has no limit") from None


def answer(document: Any, status: int = 200) -> Response:
    body = orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z, default=str)
    return Response(body, status, media_type="application/json", headers={"Cache-Control": "no-store"})


def _endpoint(view: Callable[[Request], Awaitable[Document | None]]) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        try:
            document = await view(request)
        except BadRequest as error:
            return answer({"error": str(error)}, 400)
        except Exception as error:  # noqa: BLE001 - a view that breaks must not take the daemon's page with it
            log.warning("console.view_failed", path=request.url.path, error=str(error))
            return answer({"error": f"{type(error).__name__}: {error}"}, 502)
        if document is None:
            return answer({"error": "not known here (any more)"}, 404)
        return answer(document)

    return respond


def _page(request: Request, sorts: tuple[str, ...] = ()) -> Page:
    query = request.query_params
    sort = query.get("sort", "")
    if sort and sort.removeprefix("-") not in sorts:
        known = f"one of {', '.join(sorts)}, with - before it for descending" if sorts else "left out here"
        raise BadRequest(f"sort must be {known}")
    return Page(
        offset=_number(request, "offset", 0, 0, 10_000_000),
        limit=_number(request, "limit", DEFAULT_LIMIT, 1, MAX_LIMIT),
        query=query.get("q", "").strip().lower()[:500],
        sort=sort,
        kind=query.get("kind", ""),
    )


def _number(request: Request, name: str, default: int, least: int, most: int) -> int:
    text = request.query_params.get(name, "")
    if not text:
        return default
    # Twelve digits at most: what is compared has to be what is answered, and a number may be padded with zeros.
    if not text.isascii() or not text.isdigit() or len(text) > 12 or not least <= int(text) <= most:
        raise BadRequest(f"{name} must be a whole number from {least} to {most}")
    return int(text)
