"""One rule file: its bytes to rules and routes, or to a list of everything wrong with it."""

import posixpath
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from ingestd.documents import DocumentError, LocatedDict, LocatedList, Place, Problem, dotted, locate, read_documents
from ingestd.documents.models import problems_of
from ingestd.rules.actions import Action, CallRequest, InsertRequest, QueryRequest
from ingestd.rules.routes import Route, RoutesFile
from ingestd.rules.rule import Rule
from ingestd.rules.schema import RuleSpec
from ingestd.rules.support import unsupported

RULE_SUFFIXES = (".json", ".yaml", ".yml")

Fetch = Callable[[str], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class ParsedRule:
    """A rule with the document it was read from, for messages about it."""

    rule: Rule
    document: LocatedDict


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """Everything one file says. `references` are the other files (SQL, bodies) it was read with."""

    url: str
    rules: tuple[ParsedRule, ...] = ()
    routes: tuple[Route, ...] = ()
    references: tuple[str, ...] = ()


def is_rule_file(url: str) -> bool:
    return url.lower().endswith(RULE_SUFFIXES)


async def parse_file(url: str, data: bytes, root: str, fetch: Fetch) -> ParsedFile:
    """Raises DocumentError with every problem of the file. `fetch` reads files it refers to under `root`."""
    items = list(_items(read_documents(data, url)))
    problems: list[Problem] = []
    specs: list[tuple[RuleSpec, LocatedDict]] = []
    routes: list[Route] = []
    references: list[str] = []
    for item in items:
        if not isinstance(item, LocatedDict):
            place = getattr(item, "place", Place(url, 1, 1))
            problems.append(Problem.at(place, "", "a rule must be a mapping with Dest"))
            continue
        try:
            if item.spelled("Routes") is not None:
                found = RoutesFile.model_validate(item).routes
                start = len(routes)
                routes += [
                    Route.of(spec, url, start + at, _name(url, root, start + at, 2)) for at, spec in enumerate(found)
                ]
                continue
            spec = await _with_files(RuleSpec.model_validate(item), item, url, root, fetch, references)
        except ValidationError as error:
            problems += problems_of(error, item, url)
            continue
        except DocumentError as error:
            problems += error.problems
            continue
        problems += _not_yet(spec, item, url)
        specs.append((spec, item))
    if problems:
        raise DocumentError(sorted(problems))
    count = len(specs)
    parsed = tuple(
        ParsedRule(Rule.of(spec, url, index, spec.info.workflow or _name(url, root, index, count)), item)
        for index, (spec, item) in enumerate(specs)
    )
    return ParsedFile(url, parsed, tuple(routes), tuple(references))


def _items(documents: list[Any]) -> Iterator[Any]:
    """Rules of a file: each document is one, or a list of them."""
    for document in documents:
        if isinstance(document, LocatedList):
            yield from document
        else:
            yield document


def _name(url: str, root: str, index: int, count: int) -> str:
    """`sub/orders` for the only rule of `<root>sub/orders.yaml`, `sub/orders#2` for its third."""
    stem = posixpath.splitext(url.removeprefix(root))[0]
    return stem if count == 1 else f"{stem}#{index}"


def _not_yet(spec: RuleSpec, item: LocatedDict, url: str) -> list[Problem]:
    problems = []
    for path, message in unsupported(spec):
        place, found, _ = locate(item, path, Place(url, 1, 1))
        problems.append(Problem.at(place, dotted(found), message))
    return problems


async def _with_files(
    spec: RuleSpec, item: LocatedDict, url: str, root: str, fetch: Fetch, references: list[str]
) -> RuleSpec:
    """The rule with SQL and bodies from files beside it; URLs elsewhere are left for the action to read."""
    update: dict[str, Any] = {}
    problems: list[Problem] = []
    for field in ("on_success", "on_failure"):
        actions = getattr(spec, field)
        if actions:
            filled = [await _fill(action, url, root, fetch, references, problems) for action in actions]
            update[field] = tuple(filled)
    if problems:
        raise DocumentError(Problem.at(item.place, problem.path, problem.message) for problem in problems)
    return spec.model_copy(update=update) if update else spec


async def _fill(
    action: Any, url: str, root: str, fetch: Fetch, references: list[str], problems: list[Problem]
) -> Action:
    request = action.body
    update: dict[str, Any] = {
        "on_success": tuple([await _fill(a, url, root, fetch, references, problems) for a in action.on_success]),
        "on_failure": tuple([await _fill(a, url, root, fetch, references, problems) for a in action.on_failure]),
    }
    wanted: tuple[str, str] | None = None
    if isinstance(request, (QueryRequest, InsertRequest)) and request.sql_url and not request.sql:
        wanted = "sql", request.sql_url
    elif isinstance(request, CallRequest) and request.body_url and request.body is None:
        wanted = "body", request.body_url
    if wanted and (target := _within(wanted[1], url, root)):
        key = "SQLURL" if wanted[0] == "sql" else "BodyURL"
        try:
            content = (await fetch(target)).decode()
        except Exception as error:  # noqa: BLE001 - whatever the source raises, the rule cannot be read
            problems.append(Problem(url, 0, 0, f"{action.name}.{key}", f"cannot read {target}: {error}"))
        else:
            references.append(target)
            update["request"] = request.model_copy(update={wanted[0]: content})
    filled: Action = action.model_copy(update=update)
    return filled


def _within(target: str, url: str, root: str) -> str | None:
    """The absolute URL when it lies under `root` (relative ones are taken from the rule's folder), else None."""
    if "$" in target:
        return None
    absolute = target if "://" in target or target.startswith("/") else posixpath.join(posixpath.dirname(url), target)
    scheme, separator, path = absolute.rpartition("://")
    normal = scheme + separator + posixpath.normpath(path)
    return normal if normal.startswith(root.removeprefix("./")) else None
