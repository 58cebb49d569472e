"""Keys that a rule does not have: which are refused, and which are passed over with a warning.

bqtail passes over every key it does not know, so rule files that worked for years hold some: keys one level too deep
(`Batch.Window.MultiPath`), keys of an older version, notes. Taking such a rule out would stop its files, so by default
the key alone is passed over, and a warning names where it belongs. A key that is nearly one the rule has here is no
such leftover: it is a slip that changes what happens to data (`Overide: true` would append), and stays an error.
Whoever wants all of them refused, or none, says so (`rules.unknown_keys`).

The models themselves stay strict; keys are taken out of the document before it is read again, so a pinned rule and its
hash never hold one.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ingestd.documents import Document, DocumentError, LocatedDict, Place, Problem, Severity, dotted, locate
from ingestd.documents.models import problems_of
from ingestd.model.unknown_keys import UnknownKeys
from ingestd.rules.actions import ACTIONS, Action, action_name
from ingestd.rules.load_options import BigQueryResource
from ingestd.rules.schema import AS_WRITTEN, RuleSpec

_NEAR = 0.7
"""How alike two words are that are one word and its misspelling."""

_OURS = frozenset({"destinationtable", "sourceuris"})
"""Options of a load job that bqtail overwrites with the rule's own table and files."""
_UNAVAILABLE = {
    "schemainline": "write 'schema' with fields",
    "schemainlineformat": "write 'schema' with fields",
    "connectionproperties": "loads run in no session",
    "createsession": "loads run in no session",
}
"""Options of a load job that bqtail hands on: passing over them would change what happens to data."""

M = TypeVar("M", bound=Document)


def read_document(
    model: type[M], item: LocatedDict, url: str, policy: UnknownKeys = UnknownKeys.TYPOS
) -> tuple[M, list[Problem]]:
    """`item` as `model`, with warnings about the keys that were taken out of it; raises DocumentError."""
    ignored: list[Problem] = []
    while True:
        try:
            return model.model_validate(item, context=AS_WRITTEN), ignored
        except ValidationError as error:
            extras = [one for one in error.errors(include_url=False) if one["type"] == "extra_forbidden"]
            passed = [] if policy is UnknownKeys.REFUSE else list(_pass_over(extras, item, url, policy))
            if not passed:
                raise DocumentError(_explained(problems_of(error, item, url), extras, item, url)) from None
            ignored += passed


def _pass_over(extras: list[ErrorDetails], item: LocatedDict, url: str, policy: UnknownKeys) -> Iterator[Problem]:
    """Take out what may be; the warnings about it."""
    for details in extras:
        key = str(details["loc"][-1])
        place, path, container = locate(item, details["loc"], Place(url, 1, 1))
        if not isinstance(container, LocatedDict) or key not in container or _repeats(key, container):
            continue
        belongs, ours = _belongs(key, container), _is_dest(container) and key.lower() in _OURS
        if policy is UnknownKeys.TYPOS and not (belongs or ours) and (_near(key, container) or _lost(key, container)):
            continue
        del container[key]
        message = f"{key!r} has no effect here (nor in bqtail); it belongs to {belongs}"
        if ours:
            message = f"{key!r} has no effect here (nor in bqtail): the rule's own table and files count"
        elif not belongs:
            message = f"unknown key {key!r} has no effect (nor in bqtail)"
        yield Problem.at(place, dotted(path), message, Severity.WARNING)


def _explained(problems: list[Problem], extras: list[ErrorDetails], item: LocatedDict, url: str) -> list[Problem]:
    """Refused keys that the rule has elsewhere say where, instead of listing what is known here."""
    where: dict[tuple[Place, str], str] = {}
    for details in extras:
        place, path, container = locate(item, details["loc"], Place(url, 1, 1))
        key = str(details["loc"][-1])
        if not isinstance(container, LocatedDict) or _repeats(key, container):
            continue
        if lost := _lost(key, container):
            where[place, dotted(path)] = f"{key!r} is an option that loads do not have here: {lost}"
        elif belongs := _belongs(key, container):
            where[place, dotted(path)] = f"unknown key {key!r}; it belongs to {belongs}"
    return [
        Problem.at(one.place, one.path, where[one.place, one.path]) if (one.place, one.path) in where else one
        for one in problems
    ]


def _repeats(key: str, container: LocatedDict) -> bool:
    return any(written.lower() == key.lower() for written in container.names.values())


def _is_dest(container: LocatedDict) -> bool:
    return "WriteDisposition" in container.known


def _lost(key: str, container: LocatedDict) -> str:
    """Why an option of a load job is refused, or nothing."""
    return _UNAVAILABLE.get(key.lower(), "") if _is_dest(container) else ""


def _near(key: str, container: LocatedDict) -> bool:
    return bool(get_close_matches(key.lower(), [known.lower() for known in container.known], n=1, cutoff=_NEAR))


def _belongs(key: str, container: LocatedDict) -> str:
    """Where a rule has a key of that name: `Batch.MultiPath`, or nothing."""
    action = ACTIONS.get(action_name(container) or "")
    requests = _documents(action.model_fields["request"].annotation) if action else ()
    if any(key.lower() == known.lower() for model in requests for known in model.known_keys()):
        return "Request"
    return " or ".join(_places().get(key.lower(), ())[:3])


@cache
def _places() -> dict[str, tuple[str, ...]]:
    """Lower-cased key → where a rule has it; in actions and BigQuery's resources the same word means something else."""
    found: dict[str, tuple[str, ...]] = {}

    def walk(model: type[Document], path: str) -> None:
        for name, info in model.model_fields.items():
            key = info.alias or name
            found[key.lower()] = (*found.get(key.lower(), ()), f"{path}{key}")
            for inner in _documents(info.annotation):
                if not issubclass(inner, Action | BigQueryResource):
                    walk(inner, f"{path}{key}.")

    walk(RuleSpec, "")
    return found


def _documents(annotation: Any) -> Iterator[type[Document]]:
    """The models that a field's type speaks of."""
    if isinstance(annotation, type) and issubclass(annotation, Document):
        yield annotation
    elif get_origin(annotation) in {Annotated, Union, UnionType, tuple}:
        for inner in get_args(annotation):
            yield from _documents(inner)
