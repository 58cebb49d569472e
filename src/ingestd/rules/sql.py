"""Variables in SQL, written according to where they stand.

The author's SQL is scanned once, before any value is put in, so a value can never decide how the text around it is
read: inside a string it is escaped, inside back-ticks it is an identifier's part, in a comment it is tamed, and
elsewhere it becomes a literal, a named parameter or a quoted identifier. An object name therefore never turns into SQL.
"""

import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ingestd.model.tables import InvalidTableName, TableName, parse_table
from ingestd.rules.expansion import Scope, render
from ingestd.rules.references import Reference, find_references

IDENTIFIER_VARIABLES = frozenset(
    {"DestTable", "TempTable", "SourceTable", "ProjectID", "DatasetID", "TableID", "PartitionID", "DollarSign"}
)
"""Variables the daemon itself fills with names it has validated; they stand as identifiers, not as text."""

_STRING_START = re.compile(r"([rR][bB]|[bB][rR]|[rRbB])?('''|\"\"\"|'|\")")
_TABLE_KEYWORD = re.compile(r"(?:^|\W)(?:FROM|JOIN|INTO|UPDATE|TABLE|MERGE|USING|VIEW)$", re.IGNORECASE)
_FROM_OF_A_FUNCTION = re.compile(r"\b(?:EXTRACT|TRIM)\s*\([^()]{0,80}$", re.IGNORECASE)
_WORD_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
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

    @property
    def text(self) -> str:
        """The value as part of a name: a table as GoogleSQL spells it."""
        table = self.table
        return table.dotted if table else render(self.value)

    @property
    def table(self) -> TableName | None:
        if isinstance(self.value, TableName):
            return self.value
        if not self.owned or not isinstance(self.value, str):
            return None
        try:
            return parse_table(self.value)
        except InvalidTableName:
            return None


class _Writer:
    def __init__(
        self, sql: str, scope: Scope, identifiers: frozenset[str], legacy: bool, parameters: dict[str, Any] | None
    ) -> None:
        self._sql = sql
        self._legacy = legacy
        self._parameters = parameters
        self._at = 0
        self._out: list[str] = []
        self._filled: dict[int, _Filled] = {}
        last = 0
        for reference in find_references(sql):
            if reference.start >= last and (resolved := scope.resolve(sql, reference)):
                owned = reference.name in identifiers or isinstance(resolved.value, TableName)
                self._filled[reference.start] = _Filled(reference, resolved.value, resolved.end, owned)
                last = resolved.end

    def run(self) -> str:
        if not self._filled:
            return self._sql
        while self._at < len(self._sql):
            self._next()
        return "".join(self._out)

    def _next(self) -> None:
        sql, at = self._sql, self._at
        char = sql[at]
        if sql.startswith(("--", "/*"), at) or char == "#":
            self._comment("*/" if char == "/" else "\n")
        elif char == "`":
            self._quoted_identifier("`", "`")
        elif char == "[" and self._legacy:
            self._quoted_identifier("[", "]")
        elif (match := _STRING_START.match(sql, at)) and not self._inside_word(at):
            self._string(match)
        elif at in self._filled or char in _WORD_CHARS:
            self._word()
        else:
            self._out.append(char)
            self._at += 1

    def _inside_word(self, at: int) -> bool:
        """Whether a `r'` here is the end of a longer word, not a string prefix."""
        return self._sql[at] in _WORD_CHARS and at > 0 and self._sql[at - 1] in _WORD_CHARS

    def _comment(self, end: str) -> None:
        sql = self._sql
        closing = sql.find(end, self._at + 2 if end == "*/" else self._at)
        stop = len(sql) if closing < 0 else closing + len(end)
        while self._at < stop:
            if filled := self._filled.get(self._at):
                text = _COMMENT_SAFE.sub("_", " ".join(render(filled.value).split())) or "_"
                # `*` before and `/` at the front would close the comment between them.
                self._out.append(f" {text}" if text.startswith("/") else text)
                self._at = filled.end
            else:
                self._out.append(sql[self._at])
                self._at += 1

    def _quoted_identifier(self, opening: str, closing: str) -> None:
        """Back-ticks (or legacy brackets): a value is the identifier, or part of one of its names."""
        start = self._at + len(opening)
        end = _closing(self._sql, start, closing)
        whole = end is not None and start in self._filled and self._filled[start].end == end
        self._out.append(opening)
        self._at = start
        while self._at < (len(self._sql) if end is None else end):
            if filled := self._filled.get(self._at):
                self._out.append(self._identifier_part(filled, whole=whole))
                self._at = filled.end
            else:
                self._out.append(self._sql[self._at])
                self._at += 1
        if end is not None:
            self._out.append(closing)
            self._at = end + 1

    def _identifier_part(self, filled: _Filled, *, whole: bool) -> str:
        text = filled.text.strip("`") if whole else filled.text
        if self._legacy and (table := filled.table):
            return table.legacy
        if not filled.owned and not whole and not _SEPARATORS.isdisjoint(text):
            raise UnsafeValue(f"{filled.reference.label} is {text!r}, which would name another table")
        if self._legacy and not _SEPARATORS.isdisjoint(text):
            raise UnsafeValue(f"{filled.reference.label} is {text!r}, which is no name in legacy SQL")
        return escape(text)

    def _string(self, start: re.Match[str]) -> None:
        prefix, quote = (start[1] or "").lower(), start[2]
        end = _closing(self._sql, start.end(), quote)
        stop = len(self._sql) if end is None else end
        if not any(start.end() <= at < stop for at in self._filled):
            finish = len(self._sql) if end is None else end + len(quote)
            self._out.append(self._sql[self._at : finish])
            self._at = finish
            return
        # A raw string cannot hold every value, so it is written as an ordinary one with the same content.
        raw, binary = "r" in prefix, "b" in prefix
        self._out += ["b" if binary else "", quote]
        self._at = start.end()
        while self._at < stop:
            if filled := self._filled.get(self._at):
                self._out.append(escape(render(filled.value), binary=binary))
                self._at = filled.end
            else:
                self._out.append(escape(self._sql[self._at]) if raw else self._sql[self._at])
                self._at += 1
        if end is not None:
            self._out.append(quote)
            self._at = end + len(quote)

    def _word(self) -> None:
        """A run of word characters and variables: a literal when it is one variable alone, else one name."""
        start = self._at
        parts: list[str | _Filled] = []
        while self._at < len(self._sql):
            if filled := self._filled.get(self._at):
                parts.append(filled)
                self._at = filled.end
            elif self._sql[self._at] in _WORD_CHARS and not (
                parts and isinstance(parts[-1], _Filled) and self._string_follows()
            ):
                parts.append(self._sql[self._at])
                self._at += 1
            else:
                break
        variables = [part for part in parts if isinstance(part, _Filled)]
        if not variables:
            self._out.append(self._sql[start : self._at])
            return
        before = self._sql[:start]
        recent = before.rstrip()[-120:]
        table_position = bool(_TABLE_KEYWORD.search(recent[-8:]) and not _FROM_OF_A_FUNCTION.search(recent))
        in_path = before.endswith(".") or (self._sql[self._at : self._at + 1] == "." and not before.endswith("$"))
        if len(parts) > 1 or table_position or in_path:
            self._out.append(self._name(parts, whole=len(parts) == 1 and not in_path))
        else:
            self._out.append(self._value(variables[0], start))

    def _string_follows(self) -> bool:
        return _STRING_START.match(self._sql, self._at) is not None

    def _name(self, parts: list[str | _Filled], *, whole: bool) -> str:
        texts = []
        for part in parts:
            if isinstance(part, str):
                texts.append(part)
                continue
            text = part.text.strip("`") if whole else part.text
            if not part.owned and not whole and not _SEPARATORS.isdisjoint(text):
                raise UnsafeValue(f"{part.reference.label} is {text!r}, which would name another table")
            texts.append(text if self._legacy else escape(text))
        name = "".join(texts)
        if not self._legacy:
            return f"`{name}`"
        if not re.fullmatch(r"[\w.:$-]+", name):
            raise UnsafeValue(f"{name!r} is no name in legacy SQL")
        return f"[{name}]"

    def _value(self, filled: _Filled, start: int) -> str:
        if filled.owned and isinstance(filled.value, (str, TableName)) and not _is_number(str(filled.value)):
            return self._name([filled], whole=True)
        text = literal(filled.value) if self._parameters is None else self._parameter(filled)
        # Two literals that touch would be read as one token.
        before = " " if self._sql[max(0, start - 1) : start] in {"'", '"', "`", "@"} else ""
        after = " " if self._sql[filled.end : filled.end + 1] in {"'", '"', "`"} or self._word_follows() else ""
        return f"{before}{text}{after}"

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

    def _word_follows(self) -> bool:
        return self._at < len(self._sql) and self._sql[self._at] in _WORD_CHARS


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
    return text if _is_number(text) else f"'{escape(text)}'"


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
    return int(text) if _is_number(text) else text


def _is_number(text: str) -> bool:
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


def _closing(sql: str, at: int, quote: str) -> int | None:
    """Where a literal ends; a backslash protects the next character, in raw strings too."""
    while at < len(sql):
        if sql[at] == "\\":
            at += 2
        elif sql.startswith(quote, at):
            return at
        else:
            at += 1
    return None
