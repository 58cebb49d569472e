"""YAML with places, built from parser events so that neither depth nor aliases can exhaust the process.

Only plain data is read: tags other than `!!str` are refused, aliases and merge keys (`<<`) work, scalars stay text.
"""

from typing import Any

import yaml

from ingestd.documents.json_reader import MAX_DEPTH, TOO_LARGE
from ingestd.documents.located import LocatedDict, LocatedList, PlainText, too_large
from ingestd.documents.problems import DocumentError, Place, Problem

# Aliases share what they point at, but validation walks every copy: a few lines could otherwise stand for billions.
_MAX_EXPANDED = 200_000
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STRING_TAGS = frozenset({"!", "tag:yaml.org,2002:str"})


def read_yaml(text: str, file: str) -> list[Any]:
    """The documents of a YAML stream, empty ones left out; raises DocumentError."""
    reader = _Reader(file)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            reader.take(event)
    except yaml.MarkedYAMLError as error:
        raise DocumentError([*reader.problems, _syntax_problem(error, file, text)]) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        if isinstance(error, DocumentError):
            raise
        reason = getattr(error, "reason", None) or str(error).splitlines()[0]
        raise DocumentError([*reader.problems, Problem(file, 1, 1, "", f"not valid YAML: {reason}")]) from None
    if reader.problems:
        raise DocumentError(reader.problems)
    return reader.documents


def _syntax_problem(error: yaml.MarkedYAMLError, file: str, text: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file, 1, 1)
    cause = ", ".join(part for part in (error.context, error.problem) if part) or "cannot be read"
    line = text.split("\n")[mark.line] if mark and mark.line <= text.count("\n") else ""
    tabbed = "\\t" in cause or "\t" in line[: len(line) - len(line.lstrip())]
    hint = "; indent with spaces, not tabs" if tabbed else ""
    return Problem.at(place, "", f"not valid YAML: {cause}{hint}")


class _Open:
    """A collection being read."""

    __slots__ = ("anchor", "key", "key_place", "merges", "node", "place", "size")

    def __init__(self, node: LocatedDict | LocatedList, anchor: str | None, place: Place) -> None:
        self.node = node
        self.anchor = anchor
        self.place = place
        self.size = 1
        self.key: str | None = None
        self.key_place = place
        self.merges: list[tuple[Any, Place]] = []


class _Reader:
    def __init__(self, file: str) -> None:
        self.documents: list[Any] = []
        self.problems: list[Problem] = []
        self._file = file
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int] | None] = {}

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self._anchors.clear()
        elif isinstance(event, yaml.ScalarEvent):
            self._add(self._scalar(event), 1, self._place(event), event.anchor)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._open(event)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._close()

    def _place(self, event: Any) -> Place:
        return Place(self._file, event.start_mark.line + 1, event.start_mark.column + 1)

    def _problem(self, place: Place, message: str, path: str = "") -> None:
        self.problems.append(Problem.at(place, path, message))

    def _scalar(self, event: Any) -> str:
        if event.tag is not None and event.tag not in _STRING_TAGS:
            self._problem(self._place(event), f"tag {event.tag!r} is not allowed here; write plain YAML")
        text: str = event.value
        if any("\ud800" <= char <= "\udfff" for char in text):
            text = text.encode("utf-8", "replace").decode()
        if event.tag is not None or not event.implicit[0]:
            return text
        if too_large(text):
            self._problem(self._place(event), TOO_LARGE.format(text[:40]))
        return PlainText(text)

    def _alias(self, event: Any) -> None:
        known = self._anchors.get(event.anchor)
        if known is None:
            cause = "refers to itself" if event.anchor in self._anchors else "names no anchor"
            self._problem(self._place(event), f"alias *{event.anchor} {cause}")
            self._add(PlainText(""), 1, self._place(event), None)
        else:
            self._add(known[0], known[1], self._place(event), None)

    def _open(self, event: Any) -> None:
        place = self._place(event)
        if len(self._stack) >= MAX_DEPTH:
            raise DocumentError([*self.problems, Problem.at(place, "", f"nested deeper than {MAX_DEPTH} levels")])
        if event.tag is not None and event.tag != "!":
            self._problem(place, f"tag {event.tag!r} is not allowed here; write plain YAML")
        if event.anchor:
            self._anchors[event.anchor] = None
        node = LocatedDict(place) if isinstance(event, yaml.MappingStartEvent) else LocatedList(place)
        self._stack.append(_Open(node, event.anchor, place))

    def _close(self) -> None:
        done = self._stack.pop()
        for merged, place in done.merges:
            self._merge(done.node, merged, place)
        self._add(done.node, done.size, done.place, done.anchor)

    def _merge(self, into: Any, merged: Any, place: Place) -> None:
        sources = merged if isinstance(merged, LocatedList) else [merged]
        for source in sources:
            if not isinstance(source, LocatedDict):
                self._problem(place, "'<<' merges mappings only")
                continue
            for key, value in source.items():
                if key not in into:
                    into.put(key, value, source.key_places[key], source.value_places[key])

    def _add(self, value: Any, size: int, place: Place, anchor: str | None) -> None:
        if anchor:
            self._anchors[anchor] = (value, size)
        if not self._stack:
            if not (isinstance(value, PlainText) and value.is_null):
                self.documents.append(value)
            return
        parent = self._stack[-1]
        parent.size += size
        if parent.size > _MAX_EXPANDED:
            raise DocumentError([*self.problems, Problem.at(place, "", "aliases stand for too much text")])
        if isinstance(parent.node, LocatedList):
            parent.node.put(value, place)
        elif parent.key is None:
            if not isinstance(value, str):
                self._problem(place, "a key must be plain text")
                value = repr(place)
            parent.key, parent.key_place = str(value), place
        else:
            self._pair(parent, parent.node, value, place)

    def _pair(self, parent: _Open, node: LocatedDict, value: Any, place: Place) -> None:
        key, parent.key = parent.key, None
        assert key is not None
        if key == "<<":
            parent.merges.append((value, place))
            return
        if key in node:
            message = f"key {key!r} is given twice (first on line {node.key_places[key].line})"
            self._problem(parent.key_place, message, key)
        node.put(key, value, parent.key_place, place)
