"""JSON with places. Strict, like the standard: a syntax error names line, column and cause."""

import re
from bisect import bisect_right
from typing import Any, NoReturn

from ingestd.documents.located import LocatedDict, LocatedList, PlainText, too_large
from ingestd.documents.problems import DocumentError, Place, Problem

MAX_DEPTH = 100
TOO_LARGE = "the number {} does not fit into 64 bits; write it in quotes if it is meant as text"

_SPACE = re.compile(r"[ \t\r\n]*")
_LITERAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")
_PLAIN_RUN = re.compile(r'[^"\\\x00-\x1f]*')
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def read_json(text: str, file: str) -> Any:
    """The one value of a JSON document; raises DocumentError."""
    return _Reader(text, file).document()


class _Reader:
    def __init__(self, text: str, file: str) -> None:
        self._text = text
        self._file = file
        self._at = 0
        self._lines = [0, *(match.end() for match in re.finditer(r"\n", text))]
        self._problems: list[Problem] = []

    def document(self) -> Any:
        self._skip()
        value = self._value(0)
        self._skip()
        if self._at < len(self._text):
            self._fail("text after the end of the document; put several values into one array")
        if self._problems:
            raise DocumentError(self._problems)
        return value

    def _place(self, at: int) -> Place:
        line = bisect_right(self._lines, at)
        return Place(self._file, line, at - self._lines[line - 1] + 1)

    def _fail(self, message: str, at: int | None = None) -> NoReturn:
        place = self._place(self._at if at is None else at)
        raise DocumentError([*self._problems, Problem.at(place, "", f"not valid JSON: {message}")])

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        assert match is not None
        self._at = match.end()

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            self._fail(f"nested deeper than {MAX_DEPTH} levels")
        char = self._peek()
        if char == "{":
            return self._object(depth)
        if char == "[":
            return self._array(depth)
        if char == '"':
            return self._string()
        if match := _LITERAL.match(self._text, self._at):
            if too_large(match[0]):
                self._problems.append(Problem.at(self._place(self._at), "", TOO_LARGE.format(match[0][:40])))
            self._at = match.end()
            return PlainText(match[0])
        found = "text needs double quotes" if char == "'" else f"a value is expected, found {char!r}"
        return self._fail(found if char else "the document ends where a value is expected")

    def _object(self, depth: int) -> LocatedDict:
        result = LocatedDict(self._place(self._at))
        self._at += 1
        self._skip()
        if self._peek() == "}":
            self._at += 1
            return result
        while True:
            key_at = self._at
            if self._peek() != '"':
                self._fail("a key in double quotes is expected" + self._after_comma("}"))
            key = self._string()
            self._skip()
            if self._peek() != ":":
                self._fail(f"':' is expected after key {key!r}")
            self._at += 1
            self._skip()
            value_at = self._at
            value = self._value(depth + 1)
            if key in result:
                first = result.key_places[key].line
                message = f"key {key!r} is given twice (first on line {first})"
                self._problems.append(Problem.at(self._place(key_at), key, message))
            result.put(key, value, self._place(key_at), self._place(value_at))
            if self._closes("}", f"',' or '}}' is expected after the value of {key!r}"):
                return result

    def _array(self, depth: int) -> LocatedList:
        result = LocatedList(self._place(self._at))
        self._at += 1
        self._skip()
        if self._peek() == "]":
            self._at += 1
            return result
        while True:
            if self._peek() == "]":
                self._fail("a value is expected" + self._after_comma("]"))
            place = self._place(self._at)
            result.put(self._value(depth + 1), place)
            if self._closes("]", "',' or ']' is expected after an array element"):
                return result

    def _closes(self, bracket: str, otherwise: str) -> bool:
        """Step over a comma (False) or the closing bracket (True)."""
        self._skip()
        char = self._peek()
        if char not in {",", bracket}:
            self._fail(otherwise if char else f"the document ends inside an open '{'{' if bracket == '}' else '['}'")
        self._at += 1
        self._skip()
        return char == bracket

    def _after_comma(self, bracket: str) -> str:
        trailing = self._text[: self._at].rstrip().endswith(",") and self._peek() == bracket
        return f"; remove the comma before {bracket!r}" if trailing else ""

    def _string(self) -> str:
        start = self._at
        self._at += 1
        parts: list[str] = []
        while True:
            match = _PLAIN_RUN.match(self._text, self._at)
            assert match is not None
            parts.append(match[0])
            self._at = match.end()
            char = self._peek()
            if char == '"':
                self._at += 1
                break
            if char != "\\":
                self._fail("text is not closed on its line" if char else "text is never closed", start)
            parts.append(self._escape())
        text = "".join(parts)
        if any("\ud800" <= char <= "\udfff" for char in text):
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return text

    def _escape(self) -> str:
        char = self._text[self._at + 1 : self._at + 2]
        if char == "u" and (digits := _HEX4.match(self._text, self._at + 2)):
            self._at += 6
            return chr(int(digits[0], 16))
        if char not in _ESCAPES:
            self._fail(f"'\\{char}' is no JSON escape; write '\\\\{char}' for a backslash")
        self._at += 2
        return _ESCAPES[char]
