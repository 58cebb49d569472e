"""The subscription filter language: which messages of the topic a subscription gets.

    attributes:region AND NOT attributes.kind = "test"
    hasPrefix(attributes."objectId", "data/") OR attributes.eventType != "OBJECT_DELETE"

Operators are upper case. AND and OR may not be mixed without parentheses, as in Google's language. A comparison with a
missing attribute is false for `=` and `hasPrefix` and true for `!=`.
"""

import re
from collections.abc import Callable, Mapping

from ingestd.localcloud.pubsub.errors import PubSubError, invalid

Predicate = Callable[[Mapping[str, str]], bool]

MAX_FILTER_BYTES = 256

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<symbol>!=|[=():,.\-])
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    )""",
    re.VERBOSE,
)
_KEYWORDS = frozenset({"AND", "OR", "NOT"})
# An unquoted key may hold dashes, which the tokeniser would otherwise take for negation.
_BARE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_\-]*")
_ESCAPE = re.compile(r"\\(.)")


def compile_filter(text: str) -> Predicate | None:
    """A predicate over the attributes; None when there is no filter (everything passes)."""
    if not text.strip():
        return None
    if len(text.encode()) > MAX_FILTER_BYTES:
        raise invalid(f"The filter is longer than {MAX_FILTER_BYTES} bytes.")
    parser = _Parser(text)
    predicate = parser.expression()
    parser.end()
    return predicate


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def expression(self) -> Predicate:
        first = self._term()
        terms = [first]
        joiner = ""
        while (word := self._peek_word()) in ("AND", "OR"):
            if joiner and word != joiner:
                raise self._error("AND and OR must be grouped with parentheses")
            joiner = word
            self._accept(word)
            terms.append(self._term())
        if not joiner:
            return first
        if joiner == "AND":
            return lambda attributes: all(term(attributes) for term in terms)
        return lambda attributes: any(term(attributes) for term in terms)

    def end(self) -> None:
        if self._text[self._at :].strip():
            raise self._error("unexpected text")

    def _term(self) -> Predicate:
        if self._accept("NOT") or self._accept("-"):
            inner = self._term()
            return lambda attributes: not inner(attributes)
        if self._accept("("):
            inner = self.expression()
            self._expect(")")
            return inner
        if self._accept("hasPrefix"):
            return self._has_prefix()
        self._expect("attributes")
        if self._accept(":"):
            key = self._key()
            return lambda attributes: key in attributes
        self._expect(".")
        key = self._key()
        if self._accept("!="):
            value = self._string()
            return lambda attributes: attributes.get(key) != value
        self._expect("=")
        value = self._string()
        return lambda attributes: attributes.get(key) == value

    def _has_prefix(self) -> Predicate:
        self._expect("(")
        self._expect("attributes")
        self._expect(".")
        key = self._key()
        self._expect(",")
        prefix = self._string()
        self._expect(")")
        return lambda attributes: key in attributes and attributes[key].startswith(prefix)

    def _key(self) -> str:
        self._skip_space()
        if self._text[self._at : self._at + 1] == '"':
            return self._string()
        match = _BARE_KEY.match(self._text, self._at)
        if match is None or match.group() in _KEYWORDS:
            raise self._error("expected an attribute key")
        self._at = match.end()
        return match.group()

    def _string(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match.group("string") is None:
            raise self._error("expected a quoted string")
        self._at = match.end()
        return _ESCAPE.sub(r"\1", match.group("string")[1:-1])

    def _skip_space(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def _peek_word(self) -> str | None:
        match = _TOKEN.match(self._text, self._at)
        return match.group("word") if match else None

    def _accept(self, token: str) -> bool:
        match = _TOKEN.match(self._text, self._at)
        if match is None or token not in (match.group("word"), match.group("symbol")):
            return False
        self._at = match.end()
        return True

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise self._error(f"expected {token!r}")

    def _error(self, problem: str) -> PubSubError:
        return invalid(f"Invalid filter at character {self._at + 1}: {problem} (filter={self._text})")
