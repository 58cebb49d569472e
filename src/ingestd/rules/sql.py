"""Variables in SQL, written according to where they stand.

The author's SQL is scanned once, before any value is put in, so a value can never decide how the text around it is
read: inside a string it is escaped, inside back-ticks it is an identifier's part, in a comment it is tamed, and
elsewhere it becomes a literal, a named parameter or a quoted identifier. An object name therefore never turns into SQL.
"""

import json
import math
import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingestd.googlesql.lexer import Piece, pieces
from ingestd.model.tables import InvalidTableName, TableName, parse_table
from ingestd.rules.expansion import Scope, render
from ingestd.rules.references import Reference, find_references

IDENTIFIER_VARIABLES = frozenset(
    {"DestTable", "TempTable", "SourceTable", "ProjectID", "DatasetID", "TableID", "PartitionID", "DollarSign"}
)
"""Variables the daemon itself fills with names it has validated; they stand as identifiers, not as text."""

_BEFORE_TABLES = frozenset({"FROM", "JOIN", "INTO", "UPDATE", "TABLE", "MERGE", "USING", "VIEW"})
_WITH_FROM = frozenset({"EXTRACT", "TRIM"})  # functions that have a FROM of their own
# What a literal must not touch: they would be read as one token.
_BEFORE, _AFTER = frozenset("'\"`@"), frozenset("'\"`rRbB")
_DIGITS = re.compile(r"[0-9]{1,19}")
_MOST_INT64 = (1 << 63) - 1
_COMMENT_SAFE = re.compile(r"[^\w .:,=@/#+-]")
_SEPARATORS = frozenset(".:`[]$")


class UnsafeValue(ValueError):  # noqa: N818 - reads as what was found
    """A value that would name another table than the statement's author wrote."""


def expand_sql(
    sql: str,
    values: Mapping[str, Any] | Scope,
    *,
    identifiers: Collection[str] = IDENTIFIER_VARIABLES,
    legacy: bool = False,
    parameters: dict[str, Any] | None = None,
) -> str:
    """`sql` with its known variables replaced by position; unknown ones stay. Raises UnsafeValue.

    Given `parameters`, what would become a literal becomes `@name` instead, and its value is added there.
    """
    scope = values if isinstance(values, Scope) else Scope(values)
    return _Writer(sql, scope, frozenset(identifiers), legacy, parameters).run()


@dataclass(frozen=True, slots=True)
class _Filled:
    """A resolved variable of the statement."""

    reference: Reference
    value: Any
    end: int
    owned: bool
    home: str

    def text(self, *, first: bool) -> str:
        """The value as part of a name: a table as GoogleSQL spells it, with its project where the name begins."""
        table = self.table(first=first)
        return table.dotted if table else render(self.value)

    def table(self, *, first: bool) -> TableName | None:
        if isinstance(self.value, TableName):
            found = self.value
        elif not self.owned or not isinstance(self.value, str):
            return None
        else:
            try:
                found = parse_table(self.value)
            except InvalidTableName:
                return None
        return found.in_project(self.home) if first and self.home else found


class _Writer:
    def __init__(
        self, sql: str, scope: Scope, identifiers: frozenset[str], legacy: bool, parameters: dict[str, Any] | None
    ) -> None:
        self._sql = sql
        self._legacy = legacy
        self._parameters = parameters
        self._filled: dict[int, _Filled] = {}
        last = 0
        for reference in find_references(sql):
            if reference.start >= last and (resolved := scope.resolve(sql, reference)):
                owned = reference.name in identifiers or isinstance(resolved.value, TableName)
                self._filled[reference.start] = _Filled(reference, resolved.value, resolved.end, owned, scope.home)
                last = resolved.end
        self._starts = list(self._filled)

    def run(self) -> str:
        if not self._filled:
            return self._sql
        return "".join(self._written())

    def _written(self) -> Iterator[str]:
        before = ""  # the last word, or what is there instead
        calls: list[str] = []  # the word before each parenthesis that is open
        holes = {at: filled.end for at, filled in self._filled.items()}
        for piece in pieces(self._sql, holes, brackets=self._legacy):
            text = self._sql[piece.start : piece.end]
            parts = self._parts(*piece.body) if "$" in text else []
            if not any(isinstance(part, _Filled) for part in parts):
                yield text
            elif piece.kind == "comment":
                yield _tamed(parts)
            elif piece.kind == "quoted":
                yield self._quoted_identifier(piece, parts)
            elif piece.kind == "string":
                yield self._string(piece, parts)
            else:
                table = before in _BEFORE_TABLES and not (calls and calls[-1] in _WITH_FROM)
                yield self._word(piece, parts, table_position=table)
            if text == "(":
                calls.append(before)
            elif text == ")" and calls:
                calls.pop()
            if piece.kind not in ("space", "comment"):
                before = text.upper() if piece.kind == "word" else ""

    def _parts(self, start: int, end: int) -> list[str | _Filled]:
        """What is between these places: text, and the variables in it."""
        parts: list[str | _Filled] = []
        for hole in self._starts[bisect_left(self._starts, start) : bisect_left(self._starts, end)]:
            parts += [self._sql[start:hole], self._filled[hole]]
            start = self._filled[hole].end
        return [part for part in (*parts, self._sql[start:end]) if part != ""]

    def _quoted_identifier(self, piece: Piece, parts: list[str | _Filled]) -> str:
        """Back-ticks (or legacy brackets): a value is the identifier, or part of one of its names."""
        start, end = piece.body
        whole = end < piece.end and start in self._filled and self._filled[start].end == end
        names = (
            part if isinstance(part, str) else self._identifier_part(part, whole=whole, first=part is parts[0])
            for part in parts
        )
        return self._sql[piece.start : start] + "".join(names) + self._sql[end : piece.end]

    def _identifier_part(self, filled: _Filled, *, whole: bool, first: bool) -> str:
        text = filled.text(first=first)
        text = text.strip("`") if whole else text
        if self._legacy and (table := filled.table(first=first)):
            return table.legacy
        if not filled.owned and not whole and not _SEPARATORS.isdisjoint(text):
            raise UnsafeValue(f"{filled.reference.label} is {text!r}, which would name another table")
        if self._legacy and not _SEPARATORS.isdisjoint(text):
            raise UnsafeValue(f"{filled.reference.label} is {text!r}, which is no name in legacy SQL")
        return escape(text)

    def _string(self, piece: Piece, parts: list[str | _Filled]) -> str:
        """A raw string cannot hold every value, so it is written as an ordinary one with the same content."""
        start, end = piece.body
        opening = self._sql[piece.start : start].lower()
        raw, binary = "r" in opening, "b" in opening
        inside = (
            escape(render(part.value), binary=binary) if isinstance(part, _Filled) else escape(part) if raw else part
            for part in parts
        )
        return opening.replace("r", "") + "".join(inside) + self._sql[end : piece.end]

    def _word(self, piece: Piece, parts: list[str | _Filled], *, table_position: bool) -> str:
        """A run of word characters and variables: a literal when it is one variable alone, else one name."""
        before, after = self._sql[max(0, piece.start - 1) : piece.start], self._sql[piece.end : piece.end + 1]
        in_path = before == "." or (after == "." and before != "$")
        first = parts[0]
        if len(parts) > 1 or table_position or in_path or isinstance(first, str):
            return self._name(parts, whole=len(parts) == 1 and not in_path, begins=before != ".")
        if first.owned and isinstance(first.value, (str, TableName)) and not is_number(str(first.value)):
            return self._name(parts, whole=True, begins=True)
        text = literal(first.value) if self._parameters is None else self._parameter(first)
        return f"{' ' if before in _BEFORE else ''}{text}{' ' if after in _AFTER else ''}"

    def _name(self, parts: list[str | _Filled], *, whole: bool, begins: bool) -> str:
        texts = []
        for part in parts:
            if isinstance(part, str):
                texts.append(part)
                continue
            text = part.text(first=begins and part is parts[0])
            text = text.strip("`") if whole else text
            if not part.owned and not whole and not _SEPARATORS.isdisjoint(text):
                raise UnsafeValue(f"{part.reference.label} is {text!r}, which would name another table")
            texts.append(text if self._legacy else escape(text))
        name = "".join(texts)
        if not self._legacy:
            return f"`{name}`"
        if not re.fullmatch(r"[\w.:$-]+", name):
            raise UnsafeValue(f"{name!r} is no name in legacy SQL")
        return f"[{name}]"

    def _parameter(self, filled: _Filled) -> str:
        """`@name`, with the value noted; the same value under the same name is one parameter."""
        assert self._parameters is not None
        value = parameter_value(filled.value)
        if value is None or value == []:
            return literal(filled.value)  # nothing tells what type a parameter would have
        name = "_".join([filled.reference.name or f"group{filled.reference.group}", *self._steps(filled)])
        taken = {key.lower(): key for key in self._parameters}
        number = 1
        while True:
            candidate = name if number == 1 else f"{name}_{number}"
            known = taken.get(candidate.lower())
            if known is None:
                self._parameters[candidate] = value
                return f"@{candidate}"
            if type(self._parameters[known]) is type(value) and self._parameters[known] == value:
                return f"@{known}"
            number += 1

    @staticmethod
    def _steps(filled: _Filled) -> list[str]:
        return [step.key for step in filled.reference.steps if step.end <= filled.end]


def _tamed(parts: Sequence[str | _Filled]) -> str:
    """A comment; `*` before and `/` at the front of a value would close it between them."""
    out = ""
    for part in parts:
        if isinstance(part, _Filled):
            text = _COMMENT_SAFE.sub("_", " ".join(render(part.value).split())) or "_"
            part = f" {text}" if text.startswith("/") else text
        out += part
    return out


def literal(value: Any) -> str:
    """A GoogleSQL literal. Text made of digits alone is a number, as the same text pasted by hand would be."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value) if value >= 0 else f"({value})"
    if isinstance(value, float):
        if not math.isfinite(value):
            return f"CAST('{value}' AS FLOAT64)"
        return repr(value) if value >= 0 else f"({value!r})"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return f"'{escape(json.dumps(value, default=render, ensure_ascii=False))}'"
    text = render(value)
    return text if is_number(text) else f"'{escape(text)}'"


def parameter_value(value: Any) -> Any:
    """What a parameter holds instead of the literal of that value: INT64, FLOAT64, BOOL, STRING, or a list of one."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        items = [parameter_value(item) for item in value]
        kinds = {type(item) for item in items}
        return items if len(kinds) == 1 else [render(item) for item in value]
    if isinstance(value, Mapping):
        return json.dumps(value, default=render, ensure_ascii=False)
    text = render(value)
    return int(text) if is_number(text) else text


def is_number(text: str) -> bool:
    """Whether a text is a number that INT64 holds, as an event id is; `00012`, which would lose its zeros, is text."""
    return _DIGITS.fullmatch(text) is not None and int(text) <= _MOST_INT64 and (text == "0" or text[0] != "0")


_ESCAPES = {
    "\\": "\\\\",
    "'": "\\'",
    '"': '\\"',
    "`": "\\`",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}


def escape(text: str, *, binary: bool = False) -> str:
    """Text for the inside of any non-raw literal or back-ticked identifier."""
    if binary:
        return "".join(
            _ESCAPES.get(chr(byte), chr(byte)) if 32 <= byte < 127 else f"\\x{byte:02x}"
            for byte in text.encode("utf-8", "replace")
        )
    return "".join(_ESCAPES.get(char) or (char if _printable(char) else _code(char)) for char in text)


def _printable(char: str) -> bool:
    return char.isprintable()


def _code(char: str) -> str:
    number = ord(char)
    if 0xD800 <= number <= 0xDFFF:
        return "?"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
