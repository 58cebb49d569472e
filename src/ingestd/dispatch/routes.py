"""Which route follows a finished BigQuery job."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import structlog
from prometheus_client import Counter

from ingestd.actions.values import job_destination, job_source
from ingestd.documents import read_documents, validate
from ingestd.model.jobs import JobState
from ingestd.rules.actions import Action
from ingestd.rules.routes import Route, RouteSpec, matching_routes
from ingestd.rules.rule import pinned

log = structlog.get_logger(__name__)

AMBIGUOUS = Counter("ingestd_routes_ambiguous", "Jobs that several routes matched; none of them ran.")


@dataclass(frozen=True, slots=True)
class ChosenRoute:
    """A route as a batch pins it: its actions as plain JSON, and what names it."""

    document: dict[str, Any]
    url: str
    content_hash: str


class RouteBook:
    """All routes; one at most follows a job."""

    def __init__(self, routes: Sequence[Route] = ()) -> None:
        self._routes = tuple(routes)

    @classmethod
    def from_settings(cls, documents: Sequence[dict[str, Any]]) -> "RouteBook":
        specs = []
        for index, document in enumerate(documents):
            place = f"settings: routes[{index}]"
            (located,) = read_documents(orjson.dumps(document), f"{place}.json")
            specs.append(validate(RouteSpec, located, place))
        return cls([Route.of(spec, "settings", index) for index, spec in enumerate(specs)])

    def extended(self, routes: Sequence[Route]) -> "RouteBook":
        """These routes together with those of the rule files."""
        return RouteBook((*self._routes, *routes)) if routes else self

    def __bool__(self) -> bool:
        return bool(self._routes)

    def actions(self, name: str) -> tuple[Action, ...] | None:
        """All actions of the route of that name."""
        return next((route.actions for route in self._routes if route.name == name), None)

    def match(self, job: JobState) -> ChosenRoute | None:
        found = matching_routes(self._routes, job.kind, job_source(job), job_destination(job))
        if len(found) > 1:
            AMBIGUOUS.inc()
            log.error("route.ambiguous", job=str(job.ref), routes=[route.name for route in found])
            return None
        if not found:
            return None
        (route,) = found
        return ChosenRoute(pinned(route.spec), route.name, route.content_hash)
