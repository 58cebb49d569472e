"""Settings from a YAML file, overlaid by environment variables, into any pydantic model.

`INGESTD_INTAKE__MAX_BYTES=64MiB` sets `intake.max_bytes`; a model's `other_variables` are honoured under their own
names, after the file and before `INGESTD_…`. Keys may be written `journal_url`, `journalUrl` or `JournalURL`. Whatever
is unknown is refused with the place (file and line, or the variable's name) and a suggestion: a setting that silently
does nothing is worse than none. Messages do not repeat texts, which may be secret.
"""

from collections.abc import Collection, Mapping
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
    _overlay_others(data, environ, getattr(model, "other_variables", {}))
    _overlay(data, environ, prefix, frozenset(ignore), problems)
    fitted = _fit(model, data, [], problems)
    if problems:
        raise DocumentError(sorted(problems))
    try:
        return model.model_validate(fitted)
    except ValidationError as error:
        raise DocumentError(problems_of(error, fitted, root, show_input=False)) from None


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
        if not name.startswith(prefix) or name in ignore:
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


def _overlay_others(data: LocatedDict, environ: Mapping[str, str], variables: Mapping[str, str]) -> None:
    """Variables that the model knows under names of their own; an empty one is not set."""
    for name, path in variables.items():
        if environ.get(name):
            _put(data, tuple(path.split(".")), PlainText(environ[name]), Place(name))


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
    spellings = {_fold(text): name for name, info in model.model_fields.items() for text in _texts(name, info)}
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


def _texts(name: str, info: FieldInfo) -> list[str]:
    alias = info.validation_alias
    choices = list(alias.choices) if isinstance(alias, AliasChoices) else [alias]
    return [name, *(choice for choice in [*choices, info.alias] if isinstance(choice, str))]


def _target(name: str, info: FieldInfo, model: type[BaseModel]) -> str:
    """The key under which pydantic takes the field."""
    config = model.model_config
    if info.validation_alias is None or config.get("populate_by_name") or config.get("validate_by_name"):
        return name
    return _texts(name, info)[1]


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
