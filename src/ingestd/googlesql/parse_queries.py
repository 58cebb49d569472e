"""Queries: WITH, SELECT and its clauses, set operations, and everything that can stand after FROM."""

from ingestd.googlesql import ast
from ingestd.googlesql.errors import UnsupportedSql
from ingestd.googlesql.lexer import RESERVED
from ingestd.googlesql.parse_expressions import ExpressionParser

_NOT_ALIASES = frozenset({"PIVOT", "UNPIVOT", "WINDOW", "FOR", "MATCH_RECOGNIZE"})


class QueryParser(ExpressionParser):
    def query(self) -> ast.Query:
        pos = self.token.pos
        ctes: list[ast.Cte] = []
        recursive = False
        if self.accept("WITH"):
            recursive = self.accept("RECURSIVE")
            while True:
                cte_pos = self.token.pos
                name = self.identifier()
                self.expect("AS")
                self.expect_op("(")
                ctes.append(ast.Cte(cte_pos, name, self.query()))
                self.expect_op(")")
                if not self.comma_list():
                    break
        if self.is_keyword("FROM"):
            raise UnsupportedSql("pipe query syntax")
        body = self._set_operations()
        order_by: tuple[ast.OrderItem, ...] = ()
        limit = offset = None
        if self.accept("ORDER", "BY"):
            order_by = self.order_items()
        if self.accept("LIMIT"):
            limit = self.expression()
            if self.accept("OFFSET"):
                offset = self.expression()
        if self.is_op("|>"):
            raise UnsupportedSql("pipe query syntax")
        if isinstance(body, ast.Query) and not ctes and not order_by and limit is None:
            return body
        return ast.Query(pos, body, tuple(ctes), recursive, order_by, limit, offset)

    def _set_operations(self) -> ast.Select | ast.SetOperation | ast.Query:
        left: ast.Select | ast.SetOperation | ast.Query = self._query_primary()
        first: tuple[str, bool] | None = None
        while self.token.upper in ("UNION", "EXCEPT", "INTERSECT") and self.token.kind == "name":
            token = self.next()
            if self.accept("ALL"):
                every = True
            elif self.accept("DISTINCT"):
                every = False
            else:
                raise self.unexpected("keyword ALL or keyword DISTINCT")
            if every and token.upper != "UNION":
                self.source.fail(f"{token.upper} ALL is not supported", token.pos)
            if self.is_keyword("BY", "NAME") or self.is_keyword("CORRESPONDING"):
                raise UnsupportedSql("set operations BY NAME")
            if first is not None and first != (token.upper, every):
                self.source.fail(
                    "Syntax error: Different set operations cannot be used in the same query without using parentheses "
                    "for grouping",
                    token.pos,
                )
            first = (token.upper, every)
            left = ast.SetOperation(token.pos, token.upper, every, left, self._query_primary())
        return left

    def _query_primary(self) -> ast.Select | ast.Query:
        if self.is_op("("):
            self.next()
            query = self.query()
            self.expect_op(")")
            return query
        return self._select()

    def _select(self) -> ast.Select:
        pos = self.expect("SELECT").pos
        if self.is_keyword("WITH") and self.peek().upper in ("DIFFERENTIAL_PRIVACY", "AGGREGATION_THRESHOLD"):
            raise UnsupportedSql(f"SELECT WITH {self.peek().upper}")
        distinct = self.accept("DISTINCT")
        if not distinct:
            self.accept("ALL")
        as_kind = ""
        if self.accept("AS"):
            if self.accept("STRUCT"):
                as_kind = "STRUCT"
            elif self.token.upper == "VALUE":
                self.next()
                as_kind = "VALUE"
            else:
                raise UnsupportedSql("SELECT AS a protocol buffer")
        items = [self._select_item()]
        while self.comma_list():
            if self.token.kind == "end" or self.token.upper in ("FROM", ")", ";"):
                break
            items.append(self._select_item())
        source = self._from() if self.accept("FROM") else None
        where = self.expression() if self.accept("WHERE") else None
        group_by = self._group_by() if self.is_keyword("GROUP") else None
        having = self.expression() if self.accept("HAVING") else None
        qualify = self.expression() if self.accept("QUALIFY") else None
        windows: list[tuple[str, ast.Window]] = []
        if self.accept("WINDOW"):
            while True:
                name = self.identifier()
                self.expect("AS")
                windows.append((name.lower(), self.window()))
                if not self.comma_list():
                    break
        return ast.Select(
            pos, tuple(items), distinct, as_kind, source, where, group_by, having, qualify, tuple(windows)
        )

    def _select_item(self) -> ast.SelectItem | ast.Star:
        pos = self.token.pos
        if self.is_op("*"):
            self.next()
            return self._star(pos, None)
        value = self.expression()
        if self.is_op(".") and self.peek().upper == "*":
            self.next()
            self.next()
            return self._star(pos, value)
        return ast.SelectItem(pos, value, self._alias())

    def _alias(self) -> str:
        if self.accept("AS"):
            return self.identifier()
        token = self.token
        if token.kind == "quoted" or (token.kind == "name" and token.upper not in RESERVED):
            return self.identifier()
        return ""

    def _star(self, pos: int, base: ast.Expression | None) -> ast.Star:
        excluded: list[str] = []
        replaced: list[ast.SelectItem] = []
        if self.is_keyword("EXCEPT") and self.peek().upper == "(":
            self.next()
            self.expect_op("(")
            while True:
                excluded.append(self.identifier())
                if not self.comma_list():
                    break
            self.expect_op(")")
        if self.is_keyword("REPLACE") and self.peek().upper == "(":
            self.next()
            self.expect_op("(")
            while True:
                item_pos = self.token.pos
                value = self.expression()
                self.accept("AS")
                replaced.append(ast.SelectItem(item_pos, value, self.identifier()))
                if not self.comma_list():
                    break
            self.expect_op(")")
        return ast.Star(pos, base, tuple(excluded), tuple(replaced))

    def _group_by(self) -> ast.GroupBy:
        pos = self.expect("GROUP", "BY").pos
        if self.accept("ALL"):
            return ast.GroupBy(pos, everything=True)
        items: list[tuple[str, tuple[tuple[ast.Expression, ...], ...]]] = []
        while True:
            if self.is_keyword("ROLLUP") or self.is_keyword("CUBE"):
                kind = self.next().upper
                items.append((kind, self._grouping_list()))
            elif self.accept("GROUPING", "SETS"):
                self.expect_op("(")
                groups: list[tuple[ast.Expression, ...]] = []
                while True:
                    if self.is_keyword("ROLLUP") or self.is_keyword("CUBE"):
                        raise UnsupportedSql("ROLLUP or CUBE inside GROUPING SETS")
                    groups.append(self._grouping_group())
                    if not self.comma_list():
                        break
                self.expect_op(")")
                items.append(("SETS", tuple(groups)))
            elif self.is_op("(") and self.peek().upper == ")":
                self.next()
                self.next()
                items.append(("SETS", ((),)))
            else:
                items.append(("ITEM", ((self.expression(),),)))
            if not self.comma_list():
                break
        return ast.GroupBy(pos, tuple(items))

    def _grouping_list(self) -> tuple[tuple[ast.Expression, ...], ...]:
        self.expect_op("(")
        groups = [self._grouping_group()]
        while self.comma_list():
            groups.append(self._grouping_group())
        self.expect_op(")")
        return tuple(groups)

    def _grouping_group(self) -> tuple[ast.Expression, ...]:
        if self.is_op("(") and self.peek().upper == ")":
            self.next()
            self.next()
            return ()
        value = self.expression()
        if isinstance(value, ast.StructValue) and value.tuple_syntax:
            return tuple(item for item, _ in value.items)
        return (value,)

    def order_items(self) -> tuple[ast.OrderItem, ...]:
        items = []
        while True:
            pos = self.token.pos
            value = self.expression()
            end = self.tokens[self.at - 1].end
            if self.accept("COLLATE"):
                raise UnsupportedSql("collation")
            desc = False
            if self.accept("DESC"):
                desc = True
            else:
                self.accept("ASC")
            nulls = ""
            if self.accept("NULLS"):
                nulls = "FIRST" if self.token.upper == "FIRST" else "LAST"
                if self.token.upper not in ("FIRST", "LAST"):
                    raise self.unexpected("keyword FIRST or keyword LAST")
                self.next()
            items.append(ast.OrderItem(pos, value, desc, nulls, end))
            if not self.comma_list():
                break
        return tuple(items)

    def window(self) -> ast.Window:
        pos = self.token.pos
        if not self.is_op("("):
            return ast.Window(pos, base=self.identifier().lower())
        self.expect_op("(")
        base = ""
        if self.is_identifier():
            base = self.identifier().lower()
        partition: list[ast.Expression] = []
        if self.accept("PARTITION", "BY"):
            partition.append(self.expression())
            while self.comma_list():
                partition.append(self.expression())
        order_by = self.order_items() if self.accept("ORDER", "BY") else ()
        unit, start, end = "", None, None
        if self.is_keyword("ROWS") or self.is_keyword("RANGE"):
            unit = self.next().upper
            if self.accept("BETWEEN"):
                start = self._frame_bound()
                self.expect("AND")
                end = self._frame_bound()
            else:
                start = self._frame_bound()
        self.expect_op(")")
        return ast.Window(pos, base, tuple(partition), order_by, unit, start, end)

    def _frame_bound(self) -> ast.FrameBound:
        pos = self.token.pos
        if self.accept("UNBOUNDED"):
            return ast.FrameBound(pos, f"UNBOUNDED {self.next().upper}")
        if self.accept("CURRENT"):
            self.next()
            return ast.FrameBound(pos, "CURRENT ROW")
        value = self.expression()
        return ast.FrameBound(pos, self.next().upper, value)

    def _from(self) -> ast.TableExpression:
        left = self._table_primary()
        while True:
            joined = self._join(left)
            if joined is None:
                return left
            left = joined

    def _join(self, left: ast.TableExpression) -> ast.TableExpression | None:
        token = self.token
        if self.is_op(","):
            self.next()
            return ast.Join(token.pos, left, "CROSS", self._table_primary())
        kind = ""
        if self.accept("CROSS", "JOIN"):
            return ast.Join(token.pos, left, "CROSS", self._table_primary())
        if self.accept("JOIN") or self.accept("INNER", "JOIN"):
            kind = "INNER"
        else:
            for side in ("LEFT", "RIGHT", "FULL"):
                if self.is_keyword(side):
                    self.next()
                    self.accept("OUTER")
                    self.expect("JOIN")
                    kind = side
        if not kind:
            return None
        right = self._table_primary()
        # a JOIN b JOIN c ON … ON …: the inner join binds to the nearest ON.
        while self.token.upper in ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS") and self.token.kind == "name":
            nested = self._join(right)
            if nested is None:
                break
            right = nested
        if self.accept("ON"):
            return ast.Join(token.pos, left, kind, right, on=self.expression())
        if self.accept("USING"):
            self.expect_op("(")
            names = [self.identifier()]
            while self.comma_list():
                names.append(self.identifier())
            self.expect_op(")")
            return ast.Join(token.pos, left, kind, right, using=tuple(names))
        if isinstance(right, ast.Unnest | ast.TableName):
            return ast.Join(token.pos, left, kind, right)
        raise self.unexpected("keyword ON or keyword USING")

    def _table_primary(self) -> ast.TableExpression:
        pos = self.token.pos
        source: ast.TableExpression
        if self.accept("UNNEST"):
            self.expect_op("(")
            array = self.expression()
            if self.is_op(","):
                raise UnsupportedSql("UNNEST of several arrays")
            self.expect_op(")")
            alias = self._table_alias()
            source = ast.Unnest(pos, array, alias, self._with_offset())
        elif self.accept("LATERAL"):
            raise UnsupportedSql("LATERAL joins")
        elif self.is_op("("):
            if self._at_query() and not self._parenthesised_join():
                self.next()
                query = self.query()
                self.expect_op(")")
                early, sample = self._table_operators(ast.DerivedTable(pos, query))
                if early is not None:
                    return early
                source = ast.DerivedTable(pos, query, self._table_alias(), sample or self._sample())
            else:
                self.next()
                source = self._from()
                self.expect_op(")")
        else:
            parts = self.table_path()
            if self.is_op("("):
                raise UnsupportedSql(f"the table function {'.'.join(parts)}")
            early, _ = self._table_operators(ast.TableName(pos, parts))
            if early is not None:
                return early
            system_time = self._system_time()
            alias = self._table_alias()
            offset = self._with_offset()
            system_time = system_time or self._system_time()
            source = ast.TableName(pos, parts, alias, offset, system_time, self._sample())
        return self._pivots(source)

    def _parenthesised_join(self) -> bool:
        """`((SELECT 1) AS a JOIN b ON …)` as opposed to `((SELECT 1) UNION ALL …)`."""
        if self.peek().upper != "(":
            return False
        depth = 0
        for index in range(self.at + 1, len(self.tokens)):
            token = self.tokens[index]
            if token.kind == "op" and token.upper == "(":
                depth += 1
            elif token.kind == "op" and token.upper == ")":
                depth -= 1
                if depth == 0:
                    return self.tokens[index + 1].upper not in (")", "UNION", "EXCEPT", "INTERSECT", "ORDER", "LIMIT")
        return False

    def _table_operators(self, source: ast.TableExpression) -> tuple[ast.TableExpression | None, ast.Expression | None]:
        if self._at_pivot():
            return self._pivots(source), None
        return None, None

    def _at_pivot(self) -> bool:
        return self.token.upper in ("PIVOT", "UNPIVOT") and (
            self.peek().upper == "(" or self.peek().upper in ("INCLUDE", "EXCLUDE")
        )

    def _pivots(self, source: ast.TableExpression) -> ast.TableExpression:
        while self._at_pivot():
            source = self._pivot(source) if self.token.upper == "PIVOT" else self._unpivot(source)
        return source

    def _pivot(self, source: ast.TableExpression) -> ast.TableExpression:
        pos = self.next().pos
        self.expect_op("(")
        aggregates = []
        while True:
            item = self.token.pos
            value = self.expression()
            alias = "" if self.is_keyword("FOR") else self._alias()
            aggregates.append(ast.SelectItem(item, value, alias))
            if not self.comma_list():
                break
        self.expect("FOR")
        column = self._binary(4)
        self.expect("IN")
        self.expect_op("(")
        values = []
        while True:
            item = self.token.pos
            value = self.expression()
            values.append(ast.SelectItem(item, value, self._alias()))
            if not self.comma_list():
                break
        self.expect_op(")")
        self.expect_op(")")
        return ast.Pivot(pos, source, tuple(aggregates), column, tuple(values), self._table_alias())

    def _unpivot(self, source: ast.TableExpression) -> ast.TableExpression:
        pos = self.next().pos
        include = self.accept("INCLUDE", "NULLS")
        if not include:
            self.accept("EXCLUDE", "NULLS")
        self.expect_op("(")
        values = self._name_group()
        self.expect("FOR")
        name = self.identifier()
        self.expect("IN")
        self.expect_op("(")
        columns: list[tuple[tuple[str, ...], ast.Expression | None]] = []
        while True:
            group = self._name_group()
            label = None
            if self.accept("AS") or self.token.kind in ("string", "int"):
                label = self.expression()
            columns.append((group, label))
            if not self.comma_list():
                break
        self.expect_op(")")
        self.expect_op(")")
        return ast.Unpivot(pos, source, values, name, tuple(columns), include, self._table_alias())

    def _name_group(self) -> tuple[str, ...]:
        if self.accept_op("("):
            names = [self.identifier()]
            while self.comma_list():
                names.append(self.identifier())
            self.expect_op(")")
            return tuple(names)
        return (self.identifier(),)

    def _table_alias(self) -> str:
        if self.accept("AS"):
            return self.identifier()
        token = self.token
        if token.kind == "quoted" or (
            token.kind == "name" and token.upper not in RESERVED and token.upper not in _NOT_ALIASES
        ):
            if token.upper in ("PIVOT", "UNPIVOT") and self.peek().upper in ("(", "INCLUDE", "EXCLUDE"):
                return ""
            return self.identifier()
        return ""

    def _with_offset(self) -> str:
        if not self.is_keyword("WITH", "OFFSET"):
            return ""
        self.next()
        self.next()
        return self._table_alias() or "offset"

    def _system_time(self) -> ast.Expression | None:
        if self.is_keyword("FOR") and self.peek().upper in ("SYSTEM_TIME", "SYSTEM"):
            self.next()
            if self.next().upper == "SYSTEM":
                self.expect("TIME")
            self.expect("AS", "OF")
            return self.expression()
        return None

    def _sample(self) -> ast.Expression | None:
        if not self.accept("TABLESAMPLE"):
            return None
        method = self.identifier().upper()
        if method not in ("SYSTEM", "BERNOULLI"):
            raise UnsupportedSql(f"TABLESAMPLE {method}")
        self.expect_op("(")
        percent = self.expression()
        self.expect("PERCENT")
        self.expect_op(")")
        return percent

    def table_path(self) -> tuple[str, ...]:
        """`p.d.t`: dashes may stand in an unquoted project; parts may be quoted one by one or all together."""
        token = self.token
        if token.kind == "quoted":
            self.next()
            text = token.text
        else:
            text = self._dashed_name()
        while self.is_op("."):
            self.next()
            following = self.token
            if following.kind == "quoted":
                self.next()
                text += "\0" + following.text
            elif following.kind in ("int", "float"):
                text += "\0" + self._dashed_name()
            elif following.kind == "op" and following.upper == "*":
                raise self.unexpected()
            else:
                text += "\0" + self.identifier(after_dot=True)
        # `proj.ds`.INFORMATION_SCHEMA.TABLES and `proj.ds.t` both mean a dotted path.
        return tuple(part for piece in text.split("\0") for part in _split_path(piece))

    def _dashed_name(self) -> str:
        if self.token.kind in ("int", "float"):
            text, end = self.token.text, self.token.end
            self.next()
        else:
            end = self.token.end
            text = self.identifier()
        while (
            self.token.pos == end
            and self.token.kind in ("op", "name", "int", "float")
            and (self.token.kind != "op" or (self.token.upper == "-" and self.peek().pos == self.token.end))
        ):
            text += self.token.text
            end = self.token.end
            self.next()
        return text


def _split_path(piece: str) -> list[str]:
    """Split at dots, except those of a domain-scoped project (`example.com:project.ds.t`)."""
    colon = piece.find(":")
    if colon > 0 and "." in piece[:colon]:
        rest = piece[colon + 1 :].split(".")
        return [piece[: colon + 1] + rest[0], *rest[1:]]
    return piece.replace(":", ".", 1).split(".") if colon > 0 else piece.split(".")
