"""One rule file: its bytes to rules and routes, or to a list of everything wrong with it."""

import posixpath
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ingestd.documents import (
    DocumentError,
    LocatedDict,
    LocatedList,
    Place,
    Problem,
    Severity,
    dotted,
    locate,
    read_documents,
)
from ingestd.model.unknown_keys import UnknownKeys
from ingestd.rules.actions import Action, CallRequest, InsertRequest, QueryRequest, SparkRequest
from ingestd.rules.names import names_of
from ingestd.rules.routes import Route, RoutesFile, RouteSpec, open_ends
from ingestd.rules.rule import Rule
from ingestd.rules.schema import RuleSpec
from ingestd.rules.unknown_keys import read_document

RULE_SUFFIXES = (".json", ".yaml", ".yml")

Fetch = Callable[[str], Awaitable[bytes]]
KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class ParsedRule:
    """A rule with the document it was read from, for messages about it."""

    rule: Rule
    document: LocatedDict
    ignored: tuple[Problem, ...] = ()
    """Warnings about keys of the document that the rule does not have."""


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """Everything one file says. `references` are the other files (SQL, bodies) it was read with."""

    url: str
    rules: tuple[ParsedRule, ...] = ()
    routes: tuple[Route, ...] = ()
    references: tuple[str, ...] = ()
    ignored: tuple[Problem, ...] = ()
    """Warnings about keys, of rules and routes, that were passed over."""
    route_warnings: tuple[Problem, ...] = ()
    """Everything to be said about the routes."""


def is_rule_file(url: str) -> bool:
    return url.lower().endswith(RULE_SUFFIXES)


async def parse_file(
    url: str, data: bytes, root: str, fetch: Fetch, unknown: UnknownKeys = UnknownKeys.TYPOS
) -> ParsedFile:
    """Raises DocumentError with every problem of the file. `fetch` reads files it refers to under `root`."""
    items = list(_items(read_documents(data, url)))
    problems: list[Problem] = []
    specs: list[tuple[RuleSpec, LocatedDict, list[Problem]]] = []
    routes: list[Route] = []
    warnings: list[Problem] = []
    route_ignored: list[Problem] = []
    references: list[str] = []
    for item in items:
        if not isinstance(item, LocatedDict):
            place = getattr(item, "place", Place(url, 1, 1))
            problems.append(Problem.at(place, "", "a rule must be a mapping with Dest"))
            continue
        try:
            if found := _routes(item, url, unknown, route_ignored):
                for spec, _ in found:
                    routes.append(Route.of(spec, url, len(routes), names_of(url, root, len(routes), 2)[0]))
                warnings += _open_ends(found, item, url)
                continue
            rule, ignored = read_document(RuleSpec, item, url, unknown)
        except DocumentError as error:
            problems += error.problems
            continue
        files = _Files(item, url, root, fetch)
        rule = await files.fill(rule)
        references += files.references
        problems += files.problems
        specs.append((rule, item, ignored))
    if problems:
        raise DocumentError(sorted(problems))
    count = len(specs)
    parsed = tuple(
        ParsedRule(
            Rule.of(spec, url, index, *names_of(url, root, index, count, spec.info.workflow)), item, tuple(ignored)
        )
        for index, (spec, item, ignored) in enumerate(specs)
    )
    passed = [*(problem for rule in parsed for problem in rule.ignored), *route_ignored]
    return ParsedFile(url, parsed, tuple(routes), tuple(references), tuple(passed), (*route_ignored, *warnings))


def _routes(
    item: LocatedDict, url: str, unknown: UnknownKeys, ignored: list[Problem]
) -> list[tuple[RouteSpec, KeyPath]]:
    """The routes of a document with their places, or none when it is a rule; bqtail's dispatcher had bare lists."""
    if item.spelled("Routes") is not None:
        file, passed = read_document(RoutesFile, item, url, unknown)
        ignored += passed
        return [(spec, ("Routes", at)) for at, spec in enumerate(file.routes)]
    if _is_route(item):
        route, passed = read_document(RouteSpec, item, url, unknown)
        ignored += passed
        return [(route, ())]
    return []


def _open_ends(routes: list[tuple[RouteSpec, KeyPath]], item: LocatedDict, url: str) -> Iterator[Problem]:
    for spec, path in routes:
        for key, message in open_ends(spec.when):
            place, known, _ = locate(item, (*path, "When", key), Place(url, 1, 1))
            yield Problem.at(place, dotted(known), message, Severity.WARNING)


_ROUTE_KEYS = frozenset({"dest", "source", "type"})


def _is_route(item: LocatedDict) -> bool:
    """A rule says where rows go; a route says after which job something happens."""
    when = item.get(item.spelled("When") or "")
    return (
        item.spelled("Dest") is None
        and isinstance(when, LocatedDict)
        and bool(when)
        and {key.lower() for key in when} <= _ROUTE_KEYS
    )


def _items(documents: list[Any]) -> Iterator[Any]:
    """Rules of a file: each document is one, or a list of them."""
    for document in documents:
        if isinstance(document, LocatedList):
            yield from document
        else:
            yield document


class _Files:
    """Puts SQL and bodies from files beside a rule into its actions; URLs elsewhere are left for the action to read."""

    def __init__(self, item: LocatedDict, url: str, root: str, fetch: Fetch) -> None:
        self._item = item
        self._url = url
        self._root = root
        self._fetch = fetch
        self.references: list[str] = []
        self.problems: list[Problem] = []

    async def fill(self, spec: RuleSpec) -> RuleSpec:
        update = {
            "on_success": await self._list(spec.on_success, ("OnSuccess",)),
            "on_failure": await self._list(spec.on_failure, ("OnFailure",)),
            "on_blocked": await self._list(spec.on_blocked, ("OnBlocked",)),
        }
        if spec.batch and spec.batch.group and spec.batch.group.on_done:
            done = await self._list(spec.batch.group.on_done, ("Batch", "Group", "OnDone"))
            group = spec.batch.group.model_copy(update={"on_done": done})
            spec = spec.model_copy(update={"batch": spec.batch.model_copy(update={"group": group})})
        return spec.model_copy(update={key: actions for key, actions in update.items() if actions})

    async def _list(self, actions: tuple[Any, ...], path: KeyPath) -> tuple[Any, ...]:
        return tuple([await self._action(action, (*path, index)) for index, action in enumerate(actions)])

    async def _action(self, action: Action, path: KeyPath) -> Action:
        request = action.body
        update: dict[str, Any] = {
            "on_success": await self._list(action.on_success, (*path, "OnSuccess")),
            "on_failure": await self._list(action.on_failure, (*path, "OnFailure")),
        }
        if isinstance(request, (QueryRequest, InsertRequest, SparkRequest)) and request.sql_url and not request.sql:
            text = await self._read(request.sql_url, (*path, "Request", "SQLURL"))
            update["request"] = request if text is None else request.model_copy(update={"sql": text})
        elif isinstance(request, CallRequest) and request.body_url and request.body is None:
            text = await self._read(request.body_url, (*path, "Request", "BodyURL"))
            update["request"] = request if text is None else request.model_copy(update={"body": text})
        return action.model_copy(update=update)

    async def _read(self, target: str, path: KeyPath) -> str | None:
        absolute = _within(target, self._url, self._root)
        if absolute is None:
            return None
        try:
            text = (await self._fetch(absolute)).decode()
        except Exception as error:  # noqa: BLE001 - whatever the source raises, the rule cannot be read
            place, found, _ = locate(self._item, path, Place(self._url, 1, 1))
            self.problems.append(Problem.at(place, dotted(found), f"cannot read {absolute}: {error}"))
            return None
        self.references.append(absolute)
        return text


def _within(target: str, url: str, root: str) -> str | None:
    """The absolute URL when it lies under `root` (relative ones are taken from the rule's folder), else None."""
    if "$" in target:
        return None
    absolute = target if "://" in target or target.startswith("/") else posixpath.join(posixpath.dirname(url), target)
    scheme, separator, path = absolute.rpartition("://")
    normal = scheme + separator + posixpath.normpath(path)
    return normal if normal.startswith(_normal_root(root)) else None


def _normal_root(root: str) -> str:
    scheme, separator, path = root.rpartition("://")
    folder = posixpath.normpath(path)
    return "" if folder == "." else f"{scheme}{separator}{folder.rstrip('/')}/"
