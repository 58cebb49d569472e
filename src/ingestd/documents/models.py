"""Pydantic models over located data: case-insensitive keys, and errors that say where and what to write instead."""

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from ingestd.documents.located import LocatedDict, LocatedList, PlainText, dotted, locate, native
from ingestd.documents.problems import DocumentError, Place, Problem, did_you_mean
from ingestd.documents.secrecy import names_a_secret

_ACRONYMS = {"url": "URL", "urls": "URLs", "sql": "SQL", "id": "ID", "ids": "IDs"}


def camel(field: str) -> str:
    """`dest_url` → `DestURL`: the spelling of rule files."""
    return "".join(_ACRONYMS.get(word, word[:1].upper() + word[1:]) for word in field.split("_"))


class Document(BaseModel):
    """Base of everything written in files: keys in any case, unknown keys refused, null means not given, immutable."""

    model_config = ConfigDict(
        alias_generator=camel,
        coerce_numbers_to_str=True,
        defer_build=True,  # most commands read few kinds of documents: a model is built when it is first used
        extra="forbid",
        frozen=True,
        validate_by_alias=True,
        validate_by_name=True,
    )

    other_names: ClassVar[Mapping[str, str]] = {}
    """Further accepted keys → the key they stand for."""

    completed: ClassVar[frozenset[str]] = frozenset()
    """Required keys that `complete` fills in where they are not given."""

    @classmethod
    def whole_fields(cls) -> dict[str, FieldInfo]:
        """`model_fields`, also of a model that names classes further down in its module."""
        if not cls.__pydantic_fields_complete__:
            cls.model_rebuild()
        return cls.model_fields

    @classmethod
    def known_keys(cls) -> tuple[str, ...]:
        return tuple(info.alias or name for name, info in cls.whole_fields().items())

    @model_validator(mode="before")
    @classmethod
    def _fold_keys(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        names: dict[str, str] = {}
        folded: dict[str, Any] = {}
        for key, value in data.items():
            known = cls.resolve_key(str(key), value)
            if known is None or known in names:
                folded[key] = value
                continue
            names[known] = key
            if not (value is None or (isinstance(value, PlainText) and value.is_null)):
                folded[known] = value
        if isinstance(data, LocatedDict):
            data.names, data.known = names, cls.known_keys()
        return cls.complete(folded)

    @classmethod
    def complete(cls, data: dict[str, Any]) -> dict[str, Any]:
        """A hook for defaults that depend on what else is given; `data` has canonical keys."""
        return data

    @classmethod
    def resolve_key(cls, key: str, value: Any) -> str | None:
        """The canonical key for a spelling, or None. A subclass may also look at the exact case and the value."""
        return spellings(cls).get(key.lower())


@cache
def spellings(model: type[Document]) -> dict[str, str]:
    """Lower-cased spelling → canonical key; field names count too, for values built in code."""
    fields = {name: info.alias or name for name, info in model.whole_fields().items()}
    return {
        **fields,
        **{name.lower(): target for name, target in model.other_names.items()},
        **{key.lower(): key for key in fields.values()},
    }


T = TypeVar("T")


def _as_list(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return value
    return [value]


Many = Annotated[tuple[T, ...], BeforeValidator(_as_list)]
"""A list that may be written as a single value."""

AnyValue = Annotated[Any, BeforeValidator(native)]
"""Any data, as plain Python values."""

MOST_PROBLEMS = 1_000  # of one document: nobody mends more at once, and a document may come from anywhere

M = TypeVar("M", bound=BaseModel)


def validate(model: type[M], data: Any, file: str, context: Any = None) -> M:
    """`data` as `model`; raises a DocumentError that lists every problem with its place."""
    try:
        return model.model_validate(data, context=context)
    except ValidationError as error:
        raise DocumentError(problems_of(error, data, file)) from None


def problems_of(error: ValidationError, data: Any, file: str, *, show_input: bool = True) -> list[Problem]:
    fallback = Place(file, 1, 1)
    found = [
        _problem(details, data, fallback, show_input)
        for details in error.errors(include_url=False)[:MOST_PROBLEMS]
        # A list whose elements were all refused is not also empty.
        if not (details["type"] == "too_short" and details["input"])
    ]
    # A misspelt required key is one mistake, not two.
    mended = {f"did you mean {problem.path.rpartition('.')[2]!r}?" for problem in found if _is_missing(problem)}
    if not mended:
        return sorted(set(found))
    suggested = {
        problem.path.rpartition(".")[0] + "." + hint for problem in found for hint in mended if hint in problem.message
    }
    return sorted({p for p in found if not _is_missing(p) or _as_suggestion(p) not in suggested})


def _is_missing(problem: Problem) -> bool:
    return problem.message.startswith("required key")


def _as_suggestion(problem: Problem) -> str:
    parent, _, key = problem.path.rpartition(".")
    return f"{parent}.did you mean {key!r}?"


def _problem(details: ErrorDetails, data: Any, fallback: Place, show_input: bool) -> Problem:
    place, path, container = locate(data, details["loc"], fallback)
    kind, loc = details["type"], details["loc"]
    if kind == "missing" and loc:
        where = f"{dotted(path)}.{loc[-1]}" if path else str(loc[-1])
        return Problem.at(place, where, f"required key {str(loc[-1])!r} is missing")
    if kind == "extra_forbidden":
        return Problem.at(place, dotted(path), _unknown_key(str(loc[-1]), container))
    return Problem.at(place, dotted(path), _message(details, show_input))


def _unknown_key(key: str, container: object) -> str:
    holder = container if isinstance(container, LocatedDict) and key in container else None
    known = holder.known if holder else ()
    if holder and (twin := next((n for k, n in holder.names.items() if k.lower() == key.lower()), None)):
        return f"key {key!r} repeats {twin!r}; keep one of them"
    return f"unknown key {key!r}" + (did_you_mean(key, known) or _listing(known))


def _listing(known: Iterable[str]) -> str:
    names = sorted(known)
    return f"; known keys are {', '.join(names)}" if 0 < len(names) <= 12 else ""


_EXPECTED = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "list_type": "must be a list",
    "model_attributes_type": "must be a mapping",
    "model_type": "must be a mapping",
    "string_type": "must be text",
    "tuple_type": "must be a list",
}


def _message(details: ErrorDetails, show_input: bool) -> str:
    kind, given, context = details["type"], details["input"], details.get("ctx", {})
    tells = show_input and not any(_may_be_secret(str(key)) for key in details["loc"])
    shown = _shown(given) if tells else ""
    if kind in _EXPECTED:
        return _EXPECTED[kind] + shown
    if kind in {"literal_error", "enum"}:
        words = str(context.get("expected", "")).replace("'", "").replace(" or ", ", ").split(", ")
        hint = did_you_mean(given, words) if isinstance(given, str) else ""
        return f"must be one of {', '.join(words)}{shown}{hint}"
    if kind in {"value_error", "assertion_error"}:
        return str(context.get("error", details["msg"]))
    if kind == "union_tag_invalid":
        words = str(context.get("expected_tags", "")).replace("'", "").split(", ")
        what, word = str(context.get("discriminator", "")).removesuffix("_name()"), str(context.get("tag", ""))
        return f"unknown {what} {word!r}" + (did_you_mean(word, words) or f"; known are {', '.join(words)}")
    if kind == "union_tag_not_found":
        return f"required key {str(context.get('discriminator', '')).removesuffix('_name()').title()!r} is missing"
    if kind in {"too_short", "string_too_short"}:
        return "must not be empty"
    text = details["msg"].removeprefix("Input ").removeprefix("Value error, ")
    return text.replace("should be", "must be").removeprefix("String ")


def _may_be_secret(key: str) -> bool:
    return names_a_secret(key) or key.lower() == "headers"


def _shown(given: object) -> str:
    if isinstance(given, Enum):
        return f", not {given.value!r}"
    if isinstance(given, (str, int, float, bool)):
        text = str(given)
        return f", not {text[:60]!r}"
    if isinstance(given, (LocatedDict, dict)):
        return ", not a mapping"
    if isinstance(given, (LocatedList, list, tuple)):
        return ", not a list"
    return ""
