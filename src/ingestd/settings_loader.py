"""Settings from a YAML file, overlaid by environment variables, into any pydantic model.

`INGESTD_INTAKE__MAX_BYTES=64MiB` sets `intake.max_bytes`; a model's `other_variables` are honoured under their own
names, after the file and before `INGESTD_…` (its `fallback_variables` only where the file says nothing). Keys may be
written `journal_url`, `journalUrl` or `JournalURL`. Whatever is unknown is refused with the place (file and line, or
the variable's name) and a suggestion: a setting that silently does nothing is worse than none. Messages do not repeat
texts, which may be secret.

A Service called `ingestd` makes Kubernetes give every pod of the namespace `INGESTD_PORT`, `INGESTD_SERVICE_HOST` and
more: those are no settings, and are known by name and value together (`INGESTD_PORT=9090` is still a mistake).
"""

import re
from collections.abc import Collection, Mapping
from ipaddress import ip_address
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic.fields import FieldInfo

from ingestd.documents import (
    DocumentError,
    LocatedDict,
    LocatedList,
    Place,
    PlainText,
    Problem,
    did_you_mean,
    dotted,
    native,
    problems_of,
    read_documents,
)

M = TypeVar("M", bound=BaseModel)

# Service links: https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
_LINK_NAMES = re.compile(
    r"(?P<host>SERVICE_HOST)|(?P<port>SERVICE_PORT(_[A-Z0-9_]+)?)|(?P<url>PORT(_[0-9]+_(TCP|UDP|SCTP))?)"
    r"|PORT_[0-9]+_(TCP|UDP|SCTP)_((?P<proto>PROTO)|(?P<number>PORT)|(?P<address>ADDR))"
)
_LINK_URL = re.compile(r"(?:tcp|udp|sctp)://(?P<host>\[[0-9a-fA-F:.]+\]|[0-9.]+):(?P<port>[0-9]+)")


def load_settings(
    model: type[M],
    file: Path | None,
    environ: Mapping[str, str],
    *,
    prefix: str = "INGESTD_",
    ignore: Collection[str] = (),
) -> M:
    """`model` from `file` and `environ`; raises DocumentError. `ignore` names variables that are no settings."""
    root = str(file) if file else "environment"
    data = _read(file) if file else LocatedDict(Place(root))
    problems: list[Problem] = []
    _overlay_others(data, environ, model)
    _overlay(data, environ, prefix, frozenset(ignore), problems)
    fitted = _fit(model, data, [], problems)
    if problems:
        raise DocumentError(sorted(problems))
    try:
        return model.model_validate(fitted)
    except ValidationError as error:
        raise DocumentError(problems_of(error, fitted, root, show_input=False)) from None


def service_links(environ: Mapping[str, str], prefix: str = "INGESTD_") -> list[str]:
    """The variables that Kubernetes gave the pod for a Service whose name begins like our settings."""
    found = ((name, name.removeprefix(prefix)) for name in sorted(environ) if name.startswith(prefix))
    return [name for name, rest in found if _is_service_link(rest, environ[name])]


def _is_service_link(name: str, value: str) -> bool:
    """`name` without the prefix; Services `ingestd-…` put the rest of theirs in front."""
    if "__" in name:
        return False  # a setting of a section
    found = _LINK_NAMES.fullmatch(name) or re.fullmatch(rf"[A-Z0-9_]+?_(?:{_LINK_NAMES.pattern})", name)
    if found is None:
        return False
    if found["url"]:
        parts = _LINK_URL.fullmatch(value)
        return parts is not None and _is_address(parts["host"].strip("[]")) and _is_port(parts["port"])
    if found["proto"]:
        return value in {"tcp", "udp", "sctp"}
    return _is_address(value) if found["host"] or found["address"] else _is_port(value)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 0 < int(text) < 1 << 16


def _read(file: Path) -> LocatedDict:
    try:
        documents = read_documents(file.read_bytes(), str(file))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise DocumentError([Problem(str(file), 0, 0, "", f"cannot be read: {reason}")]) from error
    if not documents:
        return LocatedDict(Place(str(file), 1, 1))
    if len(documents) > 1 or not isinstance(documents[0], LocatedDict):
        raise DocumentError([Problem(str(file), 1, 1, "", "settings must be one mapping of keys to values")])
    return documents[0]


def _overlay(
    data: LocatedDict, environ: Mapping[str, str], prefix: str, ignore: frozenset[str], problems: list[Problem]
) -> None:
    """Put each variable where its name says; later (sorted) names win over the file, not over each other."""
    placed: dict[tuple[str, ...], str] = {}
    for name in sorted(environ):
        if not name.startswith(prefix) or name in ignore or _is_service_link(name.removeprefix(prefix), environ[name]):
            continue
        path = tuple(name.removeprefix(prefix).split("__"))
        place = Place(name)
        if not all(path):
            problems.append(Problem.at(place, "", f"write it {prefix}SECTION__KEY"))
            continue
        folded = tuple(_fold(part) for part in path)
        clash = next((other for at, other in placed.items() if at == folded[: len(at)]), None)
        if clash:
            problems.append(Problem.at(place, "", f"contradicts {clash}; set one of them"))
            continue
        placed[folded] = name
        try:
            _put(data, path, _environment_value(environ[name], name), place)
        except DocumentError as error:
            problems += error.problems


def _overlay_others(data: LocatedDict, environ: Mapping[str, str], model: type[BaseModel]) -> None:
    """Variables that the model knows under names of their own; an empty one is not set."""
    variables: Mapping[str, str] = getattr(model, "other_variables", {})
    fallbacks: Collection[str] = getattr(model, "fallback_variables", ())
    converters = getattr(model, "converted_variables", {})
    for name, dots in sorted(variables.items(), key=lambda item: item[0] in fallbacks):
        path = tuple(dots.split("."))
        if environ.get(name) and not (name in fallbacks and _has(model, data, path)):
            _put(data, path, PlainText(converters.get(name, str)(environ[name])), Place(name))


def _has(model: Any, data: Any, path: tuple[str, ...]) -> bool:
    """Whether the document says it, by any of its spellings."""
    info = model.model_fields[path[0]]
    folded = {_fold(text) for text in texts_of(path[0], info)}
    found = next((data[key] for key in data if _fold(key) in folded), None) if isinstance(data, LocatedDict) else None
    if found is None or len(path) == 1:
        return found is not None
    return _has(_without_none(info.annotation), found, path[1:])


def _environment_value(text: str, name: str) -> Any:
    """A plain value; a list or mapping when the text is one in brackets."""
    if text.lstrip()[:1] not in {"[", "{"}:
        return PlainText(text)
    documents = read_documents(text, name)
    return documents[0] if documents else PlainText(text)


def _put(data: LocatedDict, path: tuple[str, ...], value: Any, place: Place) -> None:
    for part in path[:-1]:
        key = next((known for known in data if _fold(known) == _fold(part)), part.lower())
        inner = data.get(key)
        if not isinstance(inner, LocatedDict):
            inner = LocatedDict(place)
            data.put(key, inner, place, place)
        data = inner
    for key in [known for known in data if _fold(known) == _fold(path[-1])]:
        del data[key]
    data.put(path[-1].lower(), value, place, place)


def _fold(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


def _fit(model: type[BaseModel], data: LocatedDict, path: list[str], problems: list[Problem]) -> LocatedDict:
    """`data` with the model's own keys, nested models included; unknown keys become problems."""
    spellings = {_fold(text): name for name, info in model.model_fields.items() for text in texts_of(name, info)}
    fitted = LocatedDict(data.place)
    for key, value in data.items():
        here, place = [*path, key], data.key_places[key]
        name = spellings.get(_fold(key))
        if name is None:
            known = [*model.model_fields]
            hint = did_you_mean(key, known) or f"; known keys are {', '.join(known)}"
            problems.append(Problem.at(place, dotted(here), f"unknown key {key!r}{hint}"))
            continue
        target = _target(name, model.model_fields[name], model)
        if target in fitted:
            problems.append(Problem.at(place, dotted(here), f"key {key!r} repeats {fitted.names[target]!r}"))
            continue
        if isinstance(value, PlainText) and value.is_null:
            continue
        annotation = model.model_fields[name].annotation
        fitted.put(target, _fit_value(annotation, value, here, problems), place, data.value_places[key])
        fitted.names[target] = key
    # Places belong to the document's spelling; the error reader looks them up by either.
    for target, key in fitted.names.items():
        fitted.names[target] = target
        fitted.key_places[target] = data.key_places[key]
    return fitted


def texts_of(name: str, info: FieldInfo) -> list[str]:
    """The field's name and its aliases."""
    alias = info.validation_alias
    choices = list(alias.choices) if isinstance(alias, AliasChoices) else [alias]
    return [name, *(choice for choice in [*choices, info.alias] if isinstance(choice, str))]


def _target(name: str, info: FieldInfo, model: type[BaseModel]) -> str:
    """The key under which pydantic takes the field."""
    config = model.model_config
    if info.validation_alias is None or config.get("populate_by_name") or config.get("validate_by_name"):
        return name
    return texts_of(name, info)[1]


def _fit_value(annotation: Any, value: Any, path: list[str], problems: list[Problem]) -> Any:
    inner = _without_none(annotation)
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        return _fit(inner, value, path, problems) if isinstance(value, LocatedDict) else value
    origin, arguments = get_origin(inner), get_args(inner)
    if origin in {tuple, list, set, frozenset} and arguments:
        items = value if isinstance(value, LocatedList) else _single(value)
        fitted = LocatedList(items.place)
        for index, item in enumerate(items):
            here = [*path, f"[{index}]"]
            fitted.put(_fit_value(arguments[0], item, here, problems), items.item_places[index])
        return fitted
    if origin is dict and isinstance(value, LocatedDict):
        fitted_map = LocatedDict(value.place)
        for key, item in value.items():
            converted = _fit_value(arguments[1], item, [*path, key], problems)
            fitted_map.put(key, converted, value.key_places[key], value.value_places[key])
        return fitted_map
    return native(value) if inner is Any else value


def _single(value: Any) -> LocatedList:
    """One value where a list is asked for."""
    place = getattr(value, "place", Place(""))
    items = LocatedList(place)
    items.put(value, place)
    return items


def _without_none(annotation: Any) -> Any:
    """`X | None` → `X`; other unions stay."""
    if get_origin(annotation) in {Union, UnionType}:
        members = [member for member in get_args(annotation) if member is not NoneType]
        return members[0] if len(members) == 1 else annotation
    return annotation
