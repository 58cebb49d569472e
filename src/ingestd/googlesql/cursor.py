"""Where a parser is in the token list."""

from ingestd.googlesql.errors import UnexpectedToken
from ingestd.googlesql.lexer import RESERVED, Source, Token, tokenize


class TokenCursor:
    """Where the parser is. Keywords are matched on unquoted names only.

    `loose`: reserved words that nothing else can be are names, which BigQuery wants in back-ticks.
    """

    loose = False

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens = tokenize(source)
        self.at = 0
        self.positional = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def peek(self, ahead: int = 1) -> Token:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)]

    def next(self) -> Token:
        token = self.tokens[self.at]
        if token.kind != "end":
            self.at += 1
        return token

    def is_keyword(self, *words: str) -> bool:
        """Whether the coming tokens are these keywords, in this order."""
        for offset, word in enumerate(words):
            token = self.peek(offset)
            if token.kind != "name" or token.upper != word:
                return False
        return True

    def accept(self, *words: str) -> bool:
        if self.is_keyword(*words):
            self.at += len(words)
            return True
        return False

    def expect(self, *words: str) -> Token:
        first = self.token
        for word in words:
            if not self.accept(word):
                raise self.unexpected(f"keyword {word}")
        return first

    def is_op(self, op: str) -> bool:
        token = self.tokens[self.at]
        return token.kind == "op" and token.upper == op

    def accept_op(self, op: str) -> bool:
        if self.is_op(op):
            self.at += 1
            return True
        return False

    def expect_op(self, op: str) -> Token:
        token = self.token
        if not self.accept_op(op):
            raise self.unexpected(f'"{op}"')
        return token

    def unexpected(self, wanted: str = "") -> UnexpectedToken:
        token = self.token
        if wanted:
            message = f"Syntax error: Expected {wanted} but got {token.describe()}"
        else:
            message = f"Syntax error: Unexpected {token.describe()}"
        written = self.source.text[token.pos : token.end]
        return UnexpectedToken(f"{message} at {self.source.where(token.pos)}", token.pos, written, wanted.strip('"'))

    def identifier(self, *, after_dot: bool = False) -> str:
        """A name. After a dot even reserved words are names."""
        token = self.token
        if token.kind == "quoted" or (token.kind == "name" and (after_dot or token.upper not in RESERVED)):
            self.at += 1
            return token.text
        raise self.unexpected("identifier" if token.kind != "end" else "")

    def is_identifier(self) -> bool:
        token = self.token
        return token.kind == "quoted" or (token.kind == "name" and token.upper not in RESERVED)

    def path(self) -> tuple[str, ...]:
        parts = [self.identifier()]
        while self.is_op("."):
            self.next()
            parts.append(self.identifier(after_dot=True))
        return tuple(parts)

    def string(self) -> str:
        token = self.token
        if token.kind != "string":
            raise self.unexpected("string literal")
        self.at += 1
        return token.text

    def comma_list(self) -> bool:
        return self.accept_op(",")
