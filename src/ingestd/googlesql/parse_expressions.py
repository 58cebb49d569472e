"""Expressions and types, by precedence climbing over the token list."""

from ingestd.googlesql import ast
from ingestd.googlesql.errors import UnsupportedSql
from ingestd.googlesql.lexer import RESERVED, Token
from ingestd.googlesql.parse_types import TypeParser

_TYPED_LITERALS = {
    "DATE": "DATE", "TIMESTAMP": "TIMESTAMP", "DATETIME": "DATETIME", "TIME": "TIME", "NUMERIC": "NUMERIC",
    "DECIMAL": "NUMERIC", "BIGNUMERIC": "BIGNUMERIC", "BIGDECIMAL": "BIGNUMERIC", "JSON": "JSON",
}  # fmt: skip
_NO_PAREN = frozenset({"CURRENT_DATE", "CURRENT_TIME", "CURRENT_DATETIME", "CURRENT_TIMESTAMP"})
# Reserved words that still start a function call.
_CALLABLE = frozenset({"IF", "LEFT", "RIGHT", "GROUPING", "CONTAINS", "RANGE", "COLLATE"})
_BINARY = {
    "*": 9, "/": 9, "||": 9, "+": 8, "-": 8, "<<": 7, ">": 3, "<": 3, "&": 6, "^": 5, "|": 4,
    "=": 3, "!=": 3, "<>": 3, "<=": 3, ">=": 3,
}  # fmt: skip
_COMPARISON = 3
# Reserved words that nothing can begin with: as a name they are mistaken for nothing else.
_LOOSE = frozenset([
    "AT", "BY", "CONTAINS", "CREATE", "CUBE", "CURRENT", "DEFINE", "ENUM", "ESCAPE", "EXCLUDE", "FETCH", "FOLLOWING",
    "GROUPS", "HASH", "IGNORE", "INTO", "LOOKUP", "MERGE", "NEW", "NO", "OF", "PARTITION", "PRECEDING", "PROTO",
    "RANGE", "RESPECT", "ROWS", "SET", "TO", "TREAT", "UNBOUNDED", "WINDOW", "WITHIN",
])  # fmt: skip
_INDEXING = frozenset({"OFFSET", "ORDINAL", "SAFE_OFFSET", "SAFE_ORDINAL"})


class ExpressionParser(TypeParser):
    def query(self) -> ast.Query:
        raise NotImplementedError

    def window(self) -> ast.Window:
        raise NotImplementedError

    def order_items(self) -> tuple[ast.OrderItem, ...]:
        raise NotImplementedError

    def expression(self) -> ast.Expression:
        return self._or()

    def _or(self) -> ast.Expression:
        left = self._and()
        while self.is_keyword("OR"):
            pos = self.next().pos
            left = ast.Binary(pos, "OR", left, self._and())
        return left

    def _and(self) -> ast.Expression:
        left = self._not()
        while self.is_keyword("AND"):
            pos = self.next().pos
            left = ast.Binary(pos, "AND", left, self._not())
        return left

    def _not(self) -> ast.Expression:
        if self.is_keyword("NOT"):
            pos = self.next().pos
            return ast.Unary(pos, "NOT", self._not())
        return self._comparison()

    def _comparison(self) -> ast.Expression:
        left = self._binary(_COMPARISON + 1)
        while True:
            token = self.token
            if token.kind == "op" and _BINARY.get(token.upper) == _COMPARISON:
                if token.upper == ">" and self._shift_right():
                    break
                self.next()
                op = "!=" if token.upper == "<>" else token.upper
                left = ast.Binary(token.pos, op, left, self._binary(_COMPARISON + 1))
                continue
            following = self._predicate(left)
            if following is None:
                break
            left = following
        return left

    def _predicate(self, left: ast.Expression) -> ast.Expression | None:
        token = self.token
        if token.kind != "name":
            return None
        negated = token.upper == "NOT" and self.peek().upper in ("LIKE", "IN", "BETWEEN")
        word = self.peek().upper if negated else token.upper
        if word not in ("LIKE", "IN", "BETWEEN", "IS"):
            return None
        if negated:
            self.next()
        self.next()
        if word == "BETWEEN":
            low = self._binary(_COMPARISON + 1)
            self.expect("AND")
            return ast.Between(token.pos, left, low, self._binary(_COMPARISON + 1), negated)
        if word == "LIKE":
            return self._like(token.pos, left, negated)
        if word == "IN":
            return self._in(token.pos, left, negated)
        negated = self.accept("NOT")
        if self.accept("DISTINCT", "FROM"):
            return ast.IsDistinct(token.pos, left, self._binary(_COMPARISON + 1), negated)
        for what in ("NULL", "TRUE", "FALSE", "UNKNOWN"):
            if self.accept(what):
                return ast.Is(token.pos, left, what, negated)
        raise self.unexpected()

    def _like(self, pos: int, left: ast.Expression, negated: bool) -> ast.Expression:
        for word in ("ANY", "SOME", "ALL"):
            if self.accept(word):
                quantifier = "ALL" if word == "ALL" else "ANY"
                if self.accept("UNNEST"):
                    self.expect_op("(")
                    array = self.expression()
                    self.expect_op(")")
                    return ast.Like(pos, left, (), quantifier, negated, array)
                self.expect_op("(")
                if self.is_keyword("SELECT") or self.is_keyword("WITH"):
                    raise UnsupportedSql("LIKE ANY/ALL with a subquery")
                patterns = [self.expression()]
                while self.comma_list():
                    patterns.append(self.expression())
                self.expect_op(")")
                return ast.Like(pos, left, tuple(patterns), quantifier, negated)
        return ast.Like(pos, left, (self._binary(_COMPARISON + 1),), "", negated)

    def _in(self, pos: int, left: ast.Expression, negated: bool) -> ast.Expression:
        if self.accept("UNNEST"):
            self.expect_op("(")
            array = self.expression()
            self.expect_op(")")
            return ast.In(pos, left, array=array, negated=negated)
        if self.token.kind in ("param",):
            raise self.unexpected('"(" or keyword UNNEST')
        self.expect_op("(")
        if self._at_query():
            query = self.query()
            self.expect_op(")")
            return ast.In(pos, left, query=query, negated=negated)
        items = [self.expression()]
        while self.comma_list():
            items.append(self.expression())
        self.expect_op(")")
        return ast.In(pos, left, items=tuple(items), negated=negated)

    def _shift_right(self) -> bool:
        token, following = self.token, self.peek()
        return token.upper == ">" and following.kind == "op" and following.upper == ">" and following.pos == token.end

    def _binary(self, least: int) -> ast.Expression:
        left = self._unary()
        while True:
            token = self.token
            if token.kind != "op":
                return left
            op = token.upper
            strength = _BINARY.get(op, 0)
            if op == ">" and self._shift_right():
                op, strength = ">>", 7
            if strength < least or strength == _COMPARISON:
                return left
            self.next()
            if op == ">>":
                self.next()
            left = ast.Binary(token.pos, op, left, self._binary(strength + 1))

    def _unary(self) -> ast.Expression:
        token = self.token
        if token.kind == "op" and token.upper in "-+~":
            self.next()
            value = self._unary()
            if token.upper == "-" and isinstance(value, ast.Literal) and value.kind in ("INT64", "FLOAT64"):
                return ast.Literal(token.pos, value.kind, -value.value)  # type: ignore[operator]
            return value if token.upper == "+" else ast.Unary(token.pos, token.upper, value)
        return self._postfix(self._primary())

    def _postfix(self, base: ast.Expression) -> ast.Expression:
        while True:
            token = self.token
            if token.kind != "op":
                return base
            if token.upper == "." and self.peek().upper != "*":
                self.next()
                name_pos = self.token.pos
                name = self.identifier(after_dot=True)
                if isinstance(base, ast.Path):
                    base = ast.Path(base.pos, (*base.parts, name), base.quoted)
                else:
                    base = ast.Dot(name_pos, base, name)
            elif token.upper == "[":
                self.next()
                mode = ""
                if self.token.upper in _INDEXING and self.peek().upper == "(" and self.token.kind == "name":
                    mode = self.next().upper
                    self.expect_op("(")
                    index = self.expression()
                    self.expect_op(")")
                else:
                    index = self.expression()
                self.expect_op("]")
                base = ast.Index(token.pos, base, index, mode)
            else:
                return base

    def _at_query(self) -> bool:
        """Whether a query starts here: SELECT, WITH, or parentheses that lead to one."""
        ahead = 0
        while self.peek(ahead).kind == "op" and self.peek(ahead).upper == "(":
            ahead += 1
        token = self.peek(ahead)
        return token.kind == "name" and token.upper in ("SELECT", "WITH", "FROM")

    def _joined(self, kind: str) -> str:
        """Literals that follow each other are one, with something between them: 'it''s' is a mistake."""
        token = self.next()
        text = token.text
        while self.token.kind == kind and self.token.pos > token.end:
            token = self.next()
            text += token.text
        return text

    def _primary(self) -> ast.Expression:
        token = self.token
        kind = token.kind
        if kind == "int":
            self.next()
            return ast.Literal(
                token.pos, "INT64", int(token.text, 0) if token.text[:2] in ("0x", "0X") else int(token.text)
            )
        if kind == "float":
            self.next()
            return ast.Literal(token.pos, "FLOAT64", float(token.text))
        if kind == "string":
            return ast.Literal(token.pos, "STRING", self._joined("string"))
        if kind == "bytes":
            return ast.Literal(token.pos, "BYTES", self._joined("bytes").encode("latin-1"))
        if kind == "param":
            self.next()
            return ast.Param(token.pos, token.text)
        if kind == "sysvar":
            self.next()
            return ast.SystemVariable(token.pos, token.text)
        if kind == "op":
            return self._symbol(token)
        if kind == "quoted":
            return self._name(token)
        if kind == "name":
            return self._word(token)
        raise self.unexpected()

    def _symbol(self, token: Token) -> ast.Expression:
        if token.upper == "?":
            self.next()
            self.positional += 1
            return ast.Param(token.pos, "", self.positional)
        if token.upper == "[":
            self.next()
            return self._array(token.pos, None)
        if token.upper == "(":
            if self._at_query() and not self._parenthesised_expression():
                self.next()
                query = self.query()
                self.expect_op(")")
                return ast.ScalarQuery(token.pos, query)
            self.next()
            first = self.expression()
            if self.is_op(","):
                items = [(first, "")]
                while self.comma_list():
                    items.append((self.expression(), ""))
                self.expect_op(")")
                return ast.StructValue(token.pos, tuple(items), tuple_syntax=True)
            self.expect_op(")")
            return first
        raise self.unexpected()

    def _parenthesised_expression(self) -> bool:
        """`((SELECT 1) + 1)`: the inner parentheses hold a query, the outer ones an expression."""
        if self.peek().upper != "(":
            return False
        start, depth = self.at + 1, 0
        for index in range(start, len(self.tokens)):
            token = self.tokens[index]
            if token.kind == "op" and token.upper == "(":
                depth += 1
            elif token.kind == "op" and token.upper == ")":
                depth -= 1
                if depth == 0:
                    following = self.tokens[index + 1]
                    joined = following.upper in (
                        ")", "UNION", "EXCEPT", "INTERSECT", "ORDER", "LIMIT", "FULL", "LEFT", "INNER"
                    )  # fmt: skip
                    return not joined
        return False

    def _word(self, token: Token) -> ast.Expression:
        word = token.upper
        following = self.peek()
        if self.loose and word in _LOOSE and following.upper != "(":
            return self._name(token)
        handler = getattr(self, f"_kw_{word.lower()}", None)
        if handler is not None:
            parsed: ast.Expression | None = handler(token)
            if parsed is not None:
                return parsed
        if word in _TYPED_LITERALS and following.kind == "string":
            self.next()
            return ast.TypedLiteral(token.pos, _TYPED_LITERALS[word], self.string())
        if word in _NO_PAREN and following.upper != "(":
            self.next()
            return ast.Call(token.pos, word, written=token.text)
        if word in RESERVED and not (word in _CALLABLE and following.upper == "("):
            raise self.unexpected()
        return self._name(token)

    def _kw_null(self, token: Token) -> ast.Expression:
        self.next()
        return ast.Literal(token.pos, "NULL", None)

    def _kw_true(self, token: Token) -> ast.Expression:
        self.next()
        return ast.Literal(token.pos, "BOOL", True)

    def _kw_false(self, token: Token) -> ast.Expression:
        self.next()
        return ast.Literal(token.pos, "BOOL", False)

    def _kw_default(self, token: Token) -> ast.Expression:
        self.next()
        return ast.Default(token.pos)

    def _kw_case(self, token: Token) -> ast.Expression:
        self.next()
        operand = None if self.is_keyword("WHEN") else self.expression()
        whens = []
        while self.accept("WHEN"):
            condition = self.expression()
            self.expect("THEN")
            whens.append((condition, self.expression()))
        if not whens:
            raise self.unexpected("keyword WHEN")
        otherwise = self.expression() if self.accept("ELSE") else None
        self.expect("END")
        return ast.Case(token.pos, operand, tuple(whens), otherwise)

    def _kw_cast(self, token: Token) -> ast.Expression:
        return self._cast(token, safe=False)

    def _kw_safe_cast(self, token: Token) -> ast.Expression | None:
        return self._cast(token, safe=True) if self.peek().upper == "(" else None

    def _cast(self, token: Token, *, safe: bool) -> ast.Expression:
        self.next()
        self.expect_op("(")
        value = self.expression()
        self.expect("AS")
        target = self.type()
        form = zone = None
        if self.accept("FORMAT"):
            form = self.expression()
            if self.accept("AT", "TIME", "ZONE"):
                zone = self.expression()
        self.expect_op(")")
        return ast.Cast(token.pos, value, target, safe, form, zone)

    def _kw_extract(self, token: Token) -> ast.Expression:
        self.next()
        self.expect_op("(")
        part = self._name(self.token)
        self.expect("FROM")
        value = self.expression()
        zone = self.expression() if self.accept("AT", "TIME", "ZONE") else None
        self.expect_op(")")
        return ast.Extract(token.pos, part, value, zone)

    def _kw_exists(self, token: Token) -> ast.Expression:
        self.next()
        self.expect_op("(")
        query = self.query()
        self.expect_op(")")
        return ast.Exists(token.pos, query)

    def _kw_interval(self, token: Token) -> ast.Expression:
        self.next()
        value = self._binary(_COMPARISON + 1)
        part = self.identifier().upper()
        to_part = self.identifier().upper() if self.accept("TO") else ""
        return ast.IntervalValue(token.pos, value, part, to_part)

    def _kw_array(self, token: Token) -> ast.Expression:
        self.next()
        if self.accept_op("("):
            query = self.query()
            self.expect_op(")")
            return ast.ArrayQuery(token.pos, query)
        element = None
        if self.accept_op("<"):
            element = self.type()
            self.expect_op(">")
        self.expect_op("[")
        return self._array(token.pos, element)

    def _array(self, pos: int, element: ast.TypeNode | None) -> ast.Expression:
        items: list[ast.Expression] = []
        while not self.is_op("]"):
            items.append(self.expression())
            if not self.comma_list():
                break
        self.expect_op("]")
        return ast.ArrayValue(pos, tuple(items), element)

    def _kw_struct(self, token: Token) -> ast.Expression:
        target = None
        if self.peek().upper == "<":
            target = self.type()
        else:
            self.next()
        self.expect_op("(")
        items: list[tuple[ast.Expression, str]] = []
        while not self.is_op(")"):
            value = self.expression()
            items.append((value, self.identifier(after_dot=True) if self.accept("AS") else ""))
            if not self.comma_list():
                break
        self.expect_op(")")
        return ast.StructValue(token.pos, tuple(items), target)

    def _kw_range(self, token: Token) -> ast.Expression | None:
        if self.peek().upper != "<":
            return None
        self.next()
        self.expect_op("<")
        element = self.identifier().upper()
        self.expect_op(">")
        return ast.RangeLiteral(token.pos, element, self.string())

    def _kw_new(self, token: Token) -> ast.Expression:
        raise UnsupportedSql("protocol buffers (NEW)")

    def _name(self, token: Token) -> ast.Expression:
        """A path or a call."""
        self.next()
        parts = [token.text]
        while self.is_op(".") and self.peek().kind in ("name", "quoted"):
            self.next()
            parts.append(self.identifier(after_dot=True))
        if self.is_op("("):
            return self._call(token.pos, parts)
        return ast.Path(token.pos, tuple(parts), token.kind == "quoted")

    def _call(self, pos: int, parts: list[str]) -> ast.Expression:
        written = ".".join(parts)
        safe = len(parts) > 1 and parts[0].upper() == "SAFE"
        name = ".".join(parts[1:] if safe else parts).upper()
        self.expect_op("(")
        star, distinct = False, False
        args: list[ast.Expression] = []
        named: list[tuple[str, ast.Expression]] = []
        if self.is_op("*"):
            self.next()
            star = True
        elif not self.is_op(")"):
            distinct = self.accept("DISTINCT")
            while True:
                self._argument(args, named)
                if not self.comma_list():
                    break
        nulls, having, order_by, limit = "", None, (), None
        if self.is_keyword("IGNORE", "NULLS") or self.is_keyword("RESPECT", "NULLS"):
            nulls = self.next().upper
            self.next()
        if self.accept("HAVING"):
            which = self.next().upper
            having = (which, self.expression())
        if self.accept("ORDER", "BY"):
            order_by = self.order_items()  # type: ignore[assignment]
        if self.accept("LIMIT"):
            limit = self.expression()
        self.expect_op(")")
        if not nulls and (self.is_keyword("IGNORE", "NULLS") or self.is_keyword("RESPECT", "NULLS")):
            nulls = self.next().upper
            self.next()
        over = None
        if self.accept("OVER"):
            over = self.window()
        return ast.Call(
            pos, name, tuple(args), tuple(named), safe, distinct, star, nulls, having, order_by, limit, over, written
        )

    def _argument(self, args: list[ast.Expression], named: list[tuple[str, ast.Expression]]) -> None:
        token, following = self.token, self.peek()
        if token.kind == "name" and following.upper == "=>":
            self.next()
            self.next()
            named.append((token.text.lower(), self.expression()))
            return
        if token.kind == "name" and following.upper == "->":
            self.next()
            self.next()
            args.append(ast.Lambda(token.pos, (token.text,), self.expression()))
            return
        if token.upper == "(" and (names := self._lambda_names()):
            args.append(ast.Lambda(token.pos, names, self.expression()))
            return
        if self._at_query() and token.kind != "op":
            args.append(ast.ScalarQuery(token.pos, self.query()))
            return
        if token.kind == "name" and token.upper in ("TABLE", "MODEL") and following.kind in ("name", "quoted"):
            raise UnsupportedSql(f"{token.upper} arguments")
        value = self.expression()
        if self.accept("AS"):  # STRUCT-like naming is only legal in STRUCT()
            raise self.unexpected()
        args.append(value)

    def _lambda_names(self) -> tuple[str, ...]:
        start = self.at
        names: list[str] = []
        self.next()
        while self.is_identifier():
            names.append(self.identifier())
            if not self.comma_list():
                break
        if names and self.accept_op(")") and self.accept_op("->"):
            return tuple(names)
        self.at = start
        return ()
