"""Written types, and the columns and options that come with them."""

from ingestd.googlesql import ast
from ingestd.googlesql.cursor import TokenCursor
from ingestd.googlesql.errors import UnsupportedSql


class TypeParser(TokenCursor):
    def expression(self) -> ast.Expression:
        raise NotImplementedError

    def type(self, *, column: bool = False) -> ast.TypeNode:
        token = self.token
        if token.kind not in ("name", "quoted"):
            raise self.unexpected("type name" if token.kind != "end" else "")
        self.next()
        name = token.text.upper()
        if name == "ARRAY":
            self.expect_op("<")
            element = self.type(column=column)
            self.expect_op(">")
            return ast.TypeNode(token.pos, "ARRAY", element=element)
        if name == "RANGE":
            self.expect_op("<")
            element = self.type()
            self.expect_op(">")
            return ast.TypeNode(token.pos, "RANGE", element=element)
        if name == "STRUCT":
            self.expect_op("<")
            fields = []
            while not self.is_op(">"):
                fields.append(self._field(column=column))
                if not self.comma_list():
                    break
            self.expect_op(">")
            return ast.TypeNode(token.pos, "STRUCT", fields=tuple(fields))
        if name == "ANY" and self.accept("TYPE"):
            return ast.TypeNode(token.pos, "ANY TYPE")
        parameters: list[int] = []
        if self.is_op("("):
            self.next()
            while True:
                part = self.next()
                if part.upper == "MAX":
                    parameters.append(-1)
                elif part.kind == "int":
                    parameters.append(int(part.text))
                else:
                    self.at -= 1
                    raise self.unexpected()
                if not self.comma_list():
                    break
            self.expect_op(")")
        if self.accept("COLLATE"):
            raise UnsupportedSql("collation")
        return ast.TypeNode(token.pos, name, tuple(parameters))

    def _field(self, *, column: bool) -> ast.FieldNode:
        pos = self.token.pos
        following = self.peek()
        named = self.token.kind == "quoted" or (
            self.token.kind == "name"
            and (following.kind in ("name", "quoted"))
            and following.upper not in ("NOT", "OPTIONS")
        )
        name = self.identifier(after_dot=True) if named else ""
        kind = self.type(column=column)
        not_null, options = False, ()
        if column:
            not_null = self.accept("NOT", "NULL")
            if self.is_keyword("OPTIONS"):
                options = self.options()  # type: ignore[assignment]
        return ast.FieldNode(pos, name, kind, not_null, options=options)

    def options(self) -> ast.Options:
        """OPTIONS (name = value, …)"""
        self.expect("OPTIONS")
        return self.option_list()

    def option_list(self) -> ast.Options:
        self.expect_op("(")
        found: list[tuple[str, ast.Expression]] = []
        while not self.is_op(")"):
            name = self.identifier(after_dot=True).lower()
            self.expect_op("=")
            found.append((name, self.expression()))
            if not self.comma_list():
                break
        self.expect_op(")")
        return tuple(found)
