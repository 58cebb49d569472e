"""Scripts: statements with their text, and the procedural language around them.

Trees are immutable and depend on the text alone, so they may be remembered.
"""

from dataclasses import dataclass
from functools import lru_cache

from ingestd.googlesql import ast
from ingestd.googlesql.errors import UnsupportedSql
from ingestd.googlesql.lexer import Source
from ingestd.googlesql.parse_statements import StatementParser

_LONG = 20_000


@dataclass(frozen=True, slots=True)
class Script:
    source: Source
    block: ast.Block

    def text(self, located: ast.Located) -> str:
        return self.source.text[located.start : located.end]

    @property
    def procedural(self) -> bool:
        """Whether BigQuery would run this as a script, with child jobs."""
        return len(self.block) > 1 or any(not _is_plain(item.statement) for item in self.block)


def _is_plain(statement: ast.Statement) -> bool:
    return not isinstance(
        statement,
        ast.Declare
        | ast.SetVariable
        | ast.If
        | ast.CaseStatement
        | ast.Loop
        | ast.ForIn
        | ast.Jump
        | ast.BeginBlock
        | ast.Transaction
        | ast.Raise
        | ast.ExecuteImmediate,
    )


def parse_script(text: str) -> Script:
    """Read a script; short ones are remembered, since clients repeat them."""
    return _remembered(text) if len(text) < _LONG else _parse_script(text)


@lru_cache(maxsize=512)
def _remembered(text: str) -> Script:
    return _parse_script(text)


def _parse_script(text: str) -> Script:
    source = Source(text)
    parser = ScriptParser(source)
    block = parser.block(())
    if parser.token.kind != "end":
        raise parser.unexpected("end of input")
    if not block:
        source.fail("Syntax error: Unexpected end of statement", len(text))
    return Script(source, block)


@lru_cache(maxsize=512)
def parse_query(text: str) -> tuple[Source, ast.Query]:
    """A query alone: the text of a view."""
    source = Source(text)
    parser = ScriptParser(source)
    query = parser.query()
    parser.accept_op(";")
    if parser.token.kind != "end":
        raise parser.unexpected("end of input")
    return source, query


@lru_cache(maxsize=512)
def parse_expression(text: str, *, loose: bool = False) -> tuple[Source, ast.Expression]:
    """An expression alone: a column's default, or a rule's."""
    source = Source(text)
    parser = ScriptParser(source)
    parser.loose = loose
    value = parser.expression()
    if parser.token.kind != "end":
        raise parser.unexpected("end of input")
    return source, value


_VALUES = frozenset(["NULL", "TRUE", "FALSE", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_DATETIME", "CURRENT_TIMESTAMP"])


def parse_column(text: str) -> ast.Path | None:
    """A column by its dotted name alone, which may then be a reserved word; None when it is something else."""
    names = text.split(".")
    plain = all(name.isidentifier() and name.isascii() for name in names) and names[0].upper() not in _VALUES
    return ast.Path(0, tuple(names)) if plain else None


def parse_order(text: str) -> tuple[ast.OrderItem, ...]:
    """What follows ORDER BY in a rule."""
    parser = ScriptParser(Source(text))
    parser.loose = True
    items = parser.order_items()
    if parser.token.kind != "end":
        raise parser.unexpected("end of input")
    return items


class ScriptParser(StatementParser):
    def block(self, ends: tuple[str, ...]) -> ast.Block:
        """Statements up to one of the keywords `ends` (not consumed) or the end of the text."""
        found: list[ast.Located] = []
        while True:
            while self.accept_op(";"):
                pass
            token = self.token
            if token.kind == "end" or (token.kind == "name" and token.upper in ends):
                return tuple(found)
            statement = self.statement()
            found.append(ast.Located(statement, token.pos, self.tokens[self.at - 1].end))
            if self.is_op(";"):
                continue
            if self.token.kind == "end" and not ends:
                return tuple(found)
            raise self.unexpected("end of input" if not ends else '";"')

    def statement(self) -> ast.Statement:
        token = self.token
        word = token.upper if token.kind == "name" else ""
        if token.kind in ("name", "quoted") and self.peek().upper == ":" and word not in ("SELECT",):
            label = self.identifier()
            self.next()
            return self._labelled(label)
        parse = getattr(self, f"_sc_{word.lower()}", None) if word else None
        if parse is not None:
            statement: ast.Statement = parse()
            return statement
        return self.plain_statement()

    def _labelled(self, label: str) -> ast.Statement:
        word = self.token.upper
        if word in ("LOOP", "WHILE", "REPEAT"):
            return self._loop(label)
        if word == "FOR":
            return self._sc_for(label)
        if word == "BEGIN":
            return self._begin_block(label)
        raise self.unexpected()

    def _end_label(self, label: str) -> None:
        if label and self.is_identifier():
            self.identifier()

    def _sc_declare(self) -> ast.Statement:
        pos = self.next().pos
        names = [self.identifier()]
        while self.comma_list():
            names.append(self.identifier())
        kind = None if self.is_keyword("DEFAULT") else self.type()
        default = self.expression() if self.accept("DEFAULT") else None
        return ast.Declare(pos, tuple(names), kind, default)

    def _sc_set(self) -> ast.Statement:
        pos = self.next().pos
        if self.token.kind == "sysvar":
            name = self.next().text
            self.expect_op("=")
            return ast.SetVariable(pos, (name,), (self.expression(),), system=True)
        if self.accept_op("("):
            names = [self.identifier()]
            while self.comma_list():
                names.append(self.identifier())
            self.expect_op(")")
            self.expect_op("=")
            value = self.expression()
            if isinstance(value, ast.StructValue) and value.tuple_syntax:
                return ast.SetVariable(pos, tuple(names), tuple(item for item, _ in value.items))
            return ast.SetVariable(pos, tuple(names), (value,))
        name = self.identifier()
        self.expect_op("=")
        return ast.SetVariable(pos, (name,), (self.expression(),))

    def _sc_if(self) -> ast.Statement:
        pos = self.next().pos
        branches = []
        condition = self.expression()
        self.expect("THEN")
        branches.append((condition, self.block(("ELSEIF", "ELSE", "END"))))
        while self.accept("ELSEIF"):
            condition = self.expression()
            self.expect("THEN")
            branches.append((condition, self.block(("ELSEIF", "ELSE", "END"))))
        otherwise = self.block(("END",)) if self.accept("ELSE") else ()
        self.expect("END", "IF")
        return ast.If(pos, tuple(branches), otherwise)

    def _sc_case(self) -> ast.Statement:
        pos = self.next().pos
        operand = None if self.is_keyword("WHEN") else self.expression()
        branches = []
        while self.accept("WHEN"):
            condition = self.expression()
            self.expect("THEN")
            branches.append((condition, self.block(("WHEN", "ELSE", "END"))))
        otherwise = self.block(("END",)) if self.accept("ELSE") else ()
        self.expect("END", "CASE")
        return ast.CaseStatement(pos, operand, tuple(branches), otherwise)

    def _sc_loop(self) -> ast.Statement:
        return self._loop("")

    def _sc_while(self) -> ast.Statement:
        return self._loop("")

    def _sc_repeat(self) -> ast.Statement:
        return self._loop("")

    def _loop(self, label: str) -> ast.Statement:
        token = self.next()
        condition = None
        if token.upper == "WHILE":
            condition = self.expression()
            self.expect("DO")
            body = self.block(("END",))
        elif token.upper == "REPEAT":
            body = self.block(("UNTIL",))
            self.expect("UNTIL")
            condition = self.expression()
        else:
            body = self.block(("END",))
        self.expect("END", token.upper)
        self._end_label(label)
        return ast.Loop(token.pos, token.upper, body, condition, label)

    def _sc_for(self, label: str = "") -> ast.Statement:
        pos = self.next().pos
        name = self.identifier()
        self.expect("IN")
        self.expect_op("(")
        query = self.query()
        self.expect_op(")")
        self.expect("DO")
        body = self.block(("END",))
        self.expect("END", "FOR")
        self._end_label(label)
        return ast.ForIn(pos, name, query, body, label)

    def _jump(self, kind: str) -> ast.Statement:
        pos = self.next().pos
        return ast.Jump(pos, kind, self.identifier() if self.is_identifier() else "")

    def _sc_break(self) -> ast.Statement:
        return self._jump("BREAK")

    def _sc_leave(self) -> ast.Statement:
        return self._jump("BREAK")

    def _sc_continue(self) -> ast.Statement:
        return self._jump("CONTINUE")

    def _sc_iterate(self) -> ast.Statement:
        return self._jump("CONTINUE")

    def _sc_return(self) -> ast.Statement:
        return ast.Jump(self.next().pos, "RETURN")

    def _sc_begin(self) -> ast.Statement:
        following = self.peek()
        if following.kind == "end" or following.upper in ("TRANSACTION", ";"):
            pos = self.next().pos
            self.accept("TRANSACTION")
            return ast.Transaction(pos, "BEGIN")
        return self._begin_block("")

    def _begin_block(self, label: str) -> ast.Statement:
        pos = self.next().pos
        body = self.block(("EXCEPTION", "END"))
        handler = None
        if self.accept("EXCEPTION"):
            self.expect("WHEN", "ERROR", "THEN")
            handler = self.block(("END",))
        self.expect("END")
        self._end_label(label)
        return ast.BeginBlock(pos, body, handler, label)

    def _sc_commit(self) -> ast.Statement:
        pos = self.next().pos
        self.accept("TRANSACTION")
        return ast.Transaction(pos, "COMMIT")

    def _sc_rollback(self) -> ast.Statement:
        pos = self.next().pos
        self.accept("TRANSACTION")
        return ast.Transaction(pos, "ROLLBACK")

    def _sc_raise(self) -> ast.Statement:
        pos = self.next().pos
        message = None
        if self.accept("USING"):
            self.expect("MESSAGE")
            self.expect_op("=")
            message = self.expression()
        return ast.Raise(pos, message)

    def _sc_execute(self) -> ast.Statement:
        pos = self.next().pos
        self.expect("IMMEDIATE")
        sql = self.expression()
        into: list[str] = []
        using: list[tuple[ast.Expression, str]] = []
        if self.accept("INTO"):
            into.append(self.identifier())
            while self.comma_list():
                into.append(self.identifier())
        if self.accept("USING"):
            while True:
                value = self.expression()
                using.append((value, self.identifier() if self.accept("AS") else ""))
                if not self.comma_list():
                    break
        return ast.ExecuteImmediate(pos, sql, tuple(into), tuple(using))

    def _sc_call(self) -> ast.Statement:
        raise UnsupportedSql("CALL")
