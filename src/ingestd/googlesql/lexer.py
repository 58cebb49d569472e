"""GoogleSQL text to tokens, as the language's lexical rules say: quoted names, raw and byte strings, comments.

A text with variables in it (`$Name`) is no GoogleSQL yet: `pieces` takes it apart by the same rules, around its holes.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from ingestd.googlesql.errors import SqlError

RESERVED = frozenset([
    "ALL", "AND", "ANY", "ARRAY", "AS", "ASC", "ASSERT_ROWS_MODIFIED", "AT", "BETWEEN", "BY", "CASE", "CAST",
    "COLLATE", "CONTAINS", "CREATE", "CROSS", "CUBE", "CURRENT", "DEFAULT", "DEFINE", "DESC", "DISTINCT", "ELSE",
    "END", "ENUM", "ESCAPE", "EXCEPT", "EXCLUDE", "EXISTS", "EXTRACT", "FALSE", "FETCH", "FOLLOWING", "FOR", "FROM",
    "FULL", "GROUP", "GROUPING", "GROUPS", "HASH", "HAVING", "IF", "IGNORE", "IN", "INNER", "INTERSECT", "INTERVAL",
    "INTO", "IS", "JOIN", "LATERAL", "LEFT", "LIKE", "LIMIT", "LOOKUP", "MERGE", "NATURAL", "NEW", "NO", "NOT",
    "NULL", "NULLS", "OF", "ON", "OR", "ORDER", "OUTER", "OVER", "PARTITION", "PRECEDING", "PROTO", "QUALIFY",
    "RANGE", "RECURSIVE", "RESPECT", "RIGHT", "ROLLUP", "ROWS", "SELECT", "SET", "SOME", "STRUCT", "TABLESAMPLE",
    "THEN", "TO", "TREAT", "TRUE", "UNBOUNDED", "UNION", "UNNEST", "USING", "WHEN", "WHERE", "WINDOW", "WITH",
    "WITHIN",
])  # fmt: skip

_OPENING = r"(?:[rR][bB]?|[bB][rR]?)?(?:'''|\"\"\"|'|\")"
_TOKEN = re.compile(
    rf"""
    (?P<space>\s+|--[^\n]*|\#[^\n]*|/\*.*?\*/)
  | (?P<string>{_OPENING})
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<float>(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
  | (?P<int>0[xX][0-9a-fA-F]+|[0-9]+)
  | (?P<quoted>`)
  | (?P<sysvar>@@[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)
  | (?P<param>@(?:[A-Za-z_][A-Za-z0-9_]*|`[^`]+`))
  | (?P<op>\|\||\|>|<<|<=|>=|!=|<>|=>|->|[-+*/%~&|^=<>()\[\]{{}},.;:?@!$])
    """,
    re.VERBOSE | re.DOTALL,
)

_BODIES = {
    "'": re.compile(r"(?:[^'\\\n]|\\.)*", re.DOTALL),
    '"': re.compile(r'(?:[^"\\\n]|\\.)*', re.DOTALL),
    "'''": re.compile(r"(?:[^'\\]|\\.|'(?!''))*", re.DOTALL),
    '"""': re.compile(r'(?:[^"\\]|\\.|"(?!""))*', re.DOTALL),
}

_SIMPLE_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "?": "?", '"': '"', "'": "'", "`": "`", "\n": "\n",
}  # fmt: skip


@dataclass(slots=True)
class Token:
    """`kind` is one of name, quoted, string, bytes, int, float, param, sysvar, op, end."""

    kind: str
    text: str
    pos: int
    end: int
    upper: str = ""  # the keyword, for an unquoted name; the operator, for an op

    def describe(self) -> str:
        if self.kind == "end":
            return "end of statement"
        if self.kind == "name" and self.upper in RESERVED:
            return f"keyword {self.upper}"
        if self.kind in ("name", "quoted"):
            return f'identifier "{self.text}"'
        if self.kind == "string":
            return f'string literal "{self.text}"'
        if self.kind in ("int", "float"):
            name = "integer" if self.kind == "int" else "floating point"
            return f'{name} literal "{self.text}"'
        return f'"{self.text}"'


class Source:
    """The text being read, able to name a position the way BigQuery does."""

    __slots__ = ("_starts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts: list[int] | None = None

    def where(self, pos: int) -> str:
        if self._starts is None:
            self._starts = [0, *(match.end() for match in re.finditer("\n", self.text))]
        line = bisect_right(self._starts, pos)
        return f"[{line}:{pos - self._starts[line - 1] + 1}]"

    def line(self, pos: int) -> int:
        return self.text.count("\n", 0, pos) + 1

    def error(self, message: str, pos: int) -> SqlError:
        return SqlError(f"{message} at {self.where(pos)}")

    def fail(self, message: str, pos: int) -> NoReturn:
        raise self.error(message, pos)


def tokenize(source: Source) -> list[Token]:
    return list(scan(source))


def scan(source: Source) -> Iterator[Token]:
    """One token after the other; what is wrong further on is not looked at before it is asked for."""
    text = source.text
    pos, size = 0, len(text)
    while pos < size:
        match = _TOKEN.match(text, pos)
        if match is None:
            if text.startswith("/*", pos):
                source.fail("Syntax error: Unclosed comment", pos)
            source.fail(f'Syntax error: Illegal input character "{text[pos]}"', pos)
        kind, raw, end = match.lastgroup or "", match.group(), match.end()
        if kind == "space":
            pos = end
            continue
        if kind == "string":
            token = _string(source, pos, raw)
        elif kind == "quoted":
            token = _quoted(source, pos)
        elif kind == "param":
            token = Token("param", raw[1:].strip("`"), pos, end)
        elif kind == "sysvar":
            token = Token("sysvar", raw[2:].lower(), pos, end)
        else:
            token = Token(kind, raw, pos, end, raw.upper() if kind == "name" else raw if kind == "op" else "")
        yield token
        pos = token.end
    yield Token("end", "", size, size)


@dataclass(slots=True)
class Piece:
    """A part of a text. `kind` is space, comment, string, quoted, word or other; `body` is what its quotes enclose."""

    kind: str
    start: int
    end: int  # that of the text, where a quote or comment is not closed
    body: tuple[int, int]


_WORD = re.compile(rf"(?!{_OPENING})[A-Za-z0-9_]+")
# A quote need not be closed, so none of these ever takes back what it has read: time is linear. (Possessive quantifiers
# over alternatives would say so, but Python up to 3.11.4, Debian's among them, matches them wrongly: gh-106052.)
_PIECE = rf"""
    (?P<space>\s+)
  | (?P<comment>(?:--|\#)[^\n]*\n?|/\*.*?(?:\*/|\Z))
  | (?={_OPENING})[rRbB]*(?P<quote>'''|\"\"\"|'|\")(?P<string>(?:[^\\'\"]+|\\.?|(?!(?P=quote)).)*)(?:(?P=quote))?
  | `(?P<quoted>(?:[^`\\]+|\\.?)*)`?
"""
_STANDARD = re.compile(_PIECE + "| (?P<other>.)", re.VERBOSE | re.DOTALL)
_LEGACY = re.compile(_PIECE + r"| \[(?P<table>(?:[^]\\]+|\\.?)*)\]? | (?P<other>.)", re.VERBOSE | re.DOTALL)


def pieces(text: str, holes: Mapping[int, int], *, brackets: bool = False) -> Iterator[Piece]:
    """Any text in pieces, of which none is left out and none is wrong; `holes` is where each begins and ends.

    A hole belongs to the piece that it is in. Outside of quotes and comments it is part of a word, whatever will fill
    it: `t_$Name` is one. `brackets` quote names in legacy SQL.
    """
    at, grammar = 0, _LEGACY if brackets else _STANDARD
    while at < len(text):
        start = at
        while end := holes.get(at) or ((word := _WORD.match(text, at)) and word.end()):
            at = end
        if at > start:
            yield Piece("word", start, at, (start, at))
            continue
        match = grammar.match(text, at)
        assert match is not None
        kind, at = match.lastgroup or "", match.end()
        yield Piece("quoted" if kind == "table" else kind, start, at, match.span(kind))


def _string(source: Source, pos: int, opening: str) -> Token:
    text = source.text
    quote = opening.lstrip("rRbB")
    prefix = opening[: len(opening) - len(quote)].lower()
    raw, is_bytes = "r" in prefix, "b" in prefix
    start = pos + len(opening)
    match = _BODIES[quote].match(text, start)
    if match is None or not text.startswith(quote, match.end()):
        kind = "triple-quoted " if len(quote) == 3 else ""
        source.fail(f"Syntax error: Unclosed {kind}{'bytes' if is_bytes else 'string'} literal", pos)
    scan = match.end()
    body = text[start:scan]
    end = scan + len(quote)
    if is_bytes:
        value = body.encode() if raw else unescape_bytes(body, source, start)
        return Token("bytes", value.decode("latin-1"), pos, end)
    return Token("string", body if raw else unescape(body, source, start), pos, end)


def _quoted(source: Source, pos: int) -> Token:
    text = source.text
    scan = pos + 1
    while scan < len(text) and text[scan] != "`":
        scan += 2 if text[scan] == "\\" else 1
    if scan >= len(text):
        source.fail("Syntax error: Unclosed identifier literal", pos)
    if scan == pos + 1:
        source.fail("Syntax error: Invalid empty identifier", pos)
    return Token("quoted", unescape(text[pos + 1 : scan], source, pos + 1), pos, scan + 1)


def unescape(body: str, source: Source, start: int) -> str:
    if "\\" not in body:
        return body
    out: list[str] = []
    for code, literal in _escapes(body, source, start):
        if code is None:
            out.append(literal)
        else:
            if 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
                source.fail("Syntax error: Illegal escape sequence: value is not a Unicode code point", start)
            out.append(chr(code))
    return "".join(out)


def unescape_bytes(body: str, source: Source, start: int) -> bytes:
    out = bytearray()
    for code, literal in _escapes(body, source, start, unicode=False):
        if code is None:
            out += literal.encode()
        else:
            out.append(code)
    return bytes(out)


_NUMERIC = re.compile(r"[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})")


def _escapes(body: str, source: Source, start: int, *, unicode: bool = True) -> list[tuple[int | None, str]]:
    out: list[tuple[int | None, str]] = []
    scan = 0
    while scan < len(body):
        slash = body.find("\\", scan)
        if slash < 0:
            out.append((None, body[scan:]))
            break
        if slash > scan:
            out.append((None, body[scan:slash]))
        following = body[slash + 1 : slash + 2]
        if following in _SIMPLE_ESCAPES and following:
            out.append((None, _SIMPLE_ESCAPES[following]))
            scan = slash + 2
            continue
        match = _NUMERIC.match(body, slash + 1)
        if match is None or (not unicode and following in "uU"):
            source.fail(f"Syntax error: Illegal escape sequence: \\{following}", start + slash)
        hexa = match.group(1) or match.group(2) or match.group(3)
        out.append((int(hexa, 16) if hexa else int(match.group(4), 8), ""))
        scan = match.end()
    return out
