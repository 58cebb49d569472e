"""Parsed documents that remember where every key and value stands.

`LocatedDict` and `LocatedList` are ordinary dicts and lists to pydantic; the places ride along for error messages. A
scalar that was not quoted stays text (`PlainText`): the model's field decides what it means, so `On:` stays `On`, and
`Alias: no` is the text `no` while `Async: no` is false.
"""

import math
import re
from typing import Any

from ingestd.documents.problems import Place

_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_CONSTANTS: dict[str, bool | None] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


_INT64 = 1 << 63
_MOST_DIGITS = 400  # of a number that is looked at at all


def too_large(text: str) -> bool:
    """Whether it stands for a number that neither JSON's readers nor BigQuery take: text has to be in quotes then."""
    if _INT.fullmatch(text):
        return len(text) > _MOST_DIGITS or not -_INT64 <= int(text) < _INT64
    return bool(_FLOAT.fullmatch(text)) and (len(text) > _MOST_DIGITS or math.isinf(float(text)))


class PlainText(str):
    """A scalar written without quotes: text that may stand for a number, a boolean or null."""

    __slots__ = ()

    @property
    def is_null(self) -> bool:
        return self in _CONSTANTS and _CONSTANTS[self] is None

    def native(self) -> str | int | float | bool | None:
        """The value by YAML 1.2's core rules (no sexagesimal numbers, no dates, no `yes`)."""
        if self in _CONSTANTS:
            return _CONSTANTS[self]
        try:
            if _INT.fullmatch(self):
                return int(self)
            if _FLOAT.fullmatch(self):
                return float(self)
        except ValueError:  # more digits than Python converts
            return str(self)
        return str(self)


class LocatedDict(dict[str, Any]):
    """A mapping, the place of each key and value, and (once validated) which model read it under which names."""

    __slots__ = ("key_places", "known", "names", "place", "value_places")

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        self.key_places: dict[str, Place] = {}
        self.value_places: dict[str, Place] = {}
        self.names: dict[str, str] = {}
        """The model's spelling of a key → the document's."""
        self.known: tuple[str, ...] = ()
        """Keys the model knows, for suggestions."""

    def put(self, key: str, value: Any, key_place: Place, value_place: Place) -> None:
        self[key] = value
        self.key_places[key] = key_place
        self.value_places[key] = value_place

    def spelled(self, name: str) -> str | None:
        """The document's own spelling of a key, given the model's."""
        if name in self.names:
            return self.names[name]
        if name in self:
            return name
        return next((key for key in self if key.lower() == name.lower()), None)


class LocatedList(list[Any]):
    __slots__ = ("item_places", "place")

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        self.item_places: list[Place] = []

    def put(self, value: Any, place: Place) -> None:
        self.append(value)
        self.item_places.append(place)


Located = LocatedDict | LocatedList | str


def native(value: Any) -> Any:
    """Plain Python data, for fields that take any value."""
    if isinstance(value, PlainText):
        return value.native()
    if isinstance(value, dict):
        return {key: native(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [native(item) for item in value]
    return value


def locate(root: object, loc: tuple[int | str, ...], fallback: Place) -> tuple[Place, list[str], object]:
    """Follow a pydantic error location: its place, the path as the document spells it, and what holds the last key.

    Elements that name no key or index (union tags, the `0` of a scalar taken as a one-element list) are passed over.
    """
    place, path, node, container = getattr(root, "place", fallback), [], root, root
    for element in loc:
        if isinstance(node, LocatedDict) and isinstance(element, str) and (key := node.spelled(element)) is not None:
            place, container, node = node.key_places[key], node, node[key]
            path.append(key)
        elif isinstance(node, LocatedList) and isinstance(element, int) and 0 <= element < len(node):
            place, container, node = node.item_places[element], node, node[element]
            path.append(f"[{element}]")
    return place, path, container


def dotted(path: list[str]) -> str:
    """`OnSuccess[0].Request.URLs` from its parts."""
    return "".join(part if part.startswith("[") or not index else f".{part}" for index, part in enumerate(path))
