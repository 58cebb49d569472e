"""DML and DDL statements."""

from ingestd.googlesql import ast
from ingestd.googlesql.errors import UnsupportedSql
from ingestd.googlesql.parse_queries import QueryParser

_UNSUPPORTED_OBJECTS = frozenset(
    [
        "MODEL",
        "PROCEDURE",
        "ROW",
        "SEARCH",
        "VECTOR",
        "CAPACITY",
        "RESERVATION",
        "ASSIGNMENT",
        "AGGREGATE",
        "CONNECTION",
        "POLICY",
        "PROPERTY",
    ]
)


class StatementParser(QueryParser):
    def plain_statement(self) -> ast.Statement:
        """One statement that is not control flow."""
        token = self.token
        word = token.upper if token.kind == "name" else ""
        if word in ("SELECT", "WITH", "FROM") or (token.kind == "op" and token.upper == "("):
            return ast.QueryStatement(token.pos, self.query())
        parse = getattr(self, f"_st_{word.lower()}", None) if word else None
        if parse is None:
            raise self.unexpected()
        statement: ast.Statement = parse()
        return statement

    def _st_insert(self) -> ast.Statement:
        pos = self.next().pos
        self.accept("INTO")
        target = self.table_path()
        columns: list[str] = []
        if self.is_op("(") and not self._at_query():
            self.next()
            while not self.is_op(")"):
                columns.append(self.identifier())
                if not self.comma_list():
                    break
            self.expect_op(")")
        if self.accept("VALUES"):
            rows = [self._row()]
            while self.comma_list():
                rows.append(self._row())
            return ast.Insert(pos, target, tuple(columns), tuple(rows))
        if self.accept("ROW"):
            raise self.unexpected()
        return ast.Insert(pos, target, tuple(columns), query=self.query())

    def _row(self) -> tuple[ast.Expression, ...]:
        self.expect_op("(")
        values = []
        while not self.is_op(")"):
            values.append(self.expression())
            if not self.comma_list():
                break
        self.expect_op(")")
        return tuple(values)

    def _st_update(self) -> ast.Statement:
        pos = self.next().pos
        target = self.table_path()
        alias = self._dml_alias()
        self.expect("SET")
        assignments = self._assignments()
        source = self._from() if self.accept("FROM") else None
        where = self.expression() if self.accept("WHERE") else None
        if where is None:
            self.source.fail("UPDATE must have a WHERE clause", pos)
        return ast.Update(pos, target, alias, assignments, source, where)

    def _dml_alias(self) -> str:
        if self.accept("AS"):
            return self.identifier()
        return self.identifier() if self.is_identifier() and not self.is_keyword("WHERE") else ""

    def _assignments(self) -> tuple[ast.Assignment, ...]:
        assignments = []
        while True:
            pos = self.token.pos
            path = self.path()
            self.expect_op("=")
            assignments.append(ast.Assignment(pos, path, self.expression()))
            if not self.comma_list():
                return tuple(assignments)

    def _st_delete(self) -> ast.Statement:
        pos = self.next().pos
        self.accept("FROM")
        target = self.table_path()
        alias = self._dml_alias()
        where = self.expression() if self.accept("WHERE") else None
        if where is None:
            self.source.fail("DELETE must have a WHERE clause", pos)
        return ast.Delete(pos, target, alias, where)

    def _st_merge(self) -> ast.Statement:
        pos = self.next().pos
        self.accept("INTO")
        target = self.table_path()
        alias = self._dml_alias()
        self.expect("USING")
        source = self._table_primary()
        self.expect("ON")
        condition = self.expression()
        clauses = []
        while self.is_keyword("WHEN"):
            clauses.append(self._merge_clause())
        if not clauses:
            raise self.unexpected("keyword WHEN")
        return ast.Merge(pos, target, alias, source, condition, tuple(clauses))

    def _merge_clause(self) -> ast.MergeClause:
        pos = self.expect("WHEN").pos
        when = "MATCHED"
        if self.accept("NOT"):
            when = "NOT MATCHED"
        self.expect("MATCHED")
        if self.accept("BY"):
            if when == "MATCHED":
                raise self.unexpected()
            if self.accept("SOURCE"):
                when = "NOT MATCHED BY SOURCE"
            else:
                self.expect("TARGET")
        condition = self.expression() if self.accept("AND") else None
        self.expect("THEN")
        if self.accept("DELETE"):
            return ast.MergeClause(pos, when, condition, "DELETE")
        if self.accept("UPDATE"):
            self.expect("SET")
            return ast.MergeClause(pos, when, condition, "UPDATE", assignments=self._assignments())
        self.expect("INSERT")
        columns: list[str] = []
        if self.is_op("("):
            self.next()
            while not self.is_op(")"):
                columns.append(self.identifier())
                if not self.comma_list():
                    break
            self.expect_op(")")
        if self.accept("ROW"):
            return ast.MergeClause(pos, when, condition, "INSERT", columns=tuple(columns), row=True)
        self.expect("VALUES")
        return ast.MergeClause(pos, when, condition, "INSERT", columns=tuple(columns), values=self._row())

    def _st_truncate(self) -> ast.Statement:
        pos = self.next().pos
        self.expect("TABLE")
        return ast.Truncate(pos, self.table_path())

    def _st_create(self) -> ast.Statement:
        pos = self.next().pos
        replace = self.accept("OR", "REPLACE")
        temp = self.accept("TEMP") or self.accept("TEMPORARY")
        for word in ("EXTERNAL", "SNAPSHOT"):
            if self.is_keyword(word, "TABLE"):
                self.next()
                self.next()
                return self._create_table(pos, replace, temp, kind=word)
        if self.accept("TABLE"):
            if self.is_keyword("FUNCTION"):
                return ast.Unsupported(pos, "CREATE TABLE FUNCTION")
            return self._create_table(pos, replace, temp)
        materialized = self.accept("MATERIALIZED")
        if self.accept("VIEW"):
            return self._create_view(pos, replace, materialized)
        if self.accept("SCHEMA"):
            exists = self.accept("IF", "NOT", "EXISTS")
            target = self.table_path()
            if self.is_keyword("DEFAULT"):
                raise UnsupportedSql("collation")
            options = self.options() if self.is_keyword("OPTIONS") else ()
            return ast.CreateSchema(pos, target, exists, options)
        if self.accept("FUNCTION"):
            return self._create_function(pos, replace, temp)
        if self.token.upper in _UNSUPPORTED_OBJECTS:
            raise UnsupportedSql(f"CREATE {self.token.upper}")
        raise self.unexpected()

    def _create_table(self, pos: int, replace: bool, temp: bool, kind: str = "") -> ast.Statement:
        exists = self.accept("IF", "NOT", "EXISTS")
        target = self.table_path()
        like: tuple[str, ...] = ()
        copy_of: tuple[str, ...] = ()
        if self.accept("LIKE"):
            like = self.table_path()
        elif self.accept("COPY") or self.accept("CLONE"):
            copy_of = self.table_path()
            if self._system_time() is not None:
                raise UnsupportedSql("time travel (FOR SYSTEM_TIME AS OF)")
        columns = self._columns() if self.is_op("(") else None
        if self.is_keyword("DEFAULT", "COLLATE"):
            raise UnsupportedSql("collation")
        partition_by, partition_columns, cluster_by = self._table_layout()
        if self.accept("WITH", "CONNECTION"):
            self.table_path()
        options = self.options() if self.is_keyword("OPTIONS") else ()
        query = self.query() if self.accept("AS") else None
        return ast.CreateTable(
            pos,
            target,
            replace,
            temp,
            exists,
            kind == "EXTERNAL",
            columns,
            partition_by,
            partition_columns,
            cluster_by,
            options,
            query,
            like,
            copy_of,
            kind == "SNAPSHOT",
        )

    def _table_layout(
        self,
    ) -> tuple[ast.Expression | None, tuple[ast.FieldNode, ...] | None, tuple[str, ...]]:
        """PARTITION BY, WITH PARTITION COLUMNS and CLUSTER BY."""
        partition_by, partition_columns = None, None
        if self.accept("PARTITION", "BY"):
            partition_by = self.expression()
        if self.accept("WITH", "PARTITION", "COLUMNS"):
            partition_columns = self._columns() if self.is_op("(") else ()
        cluster: list[str] = []
        if self.accept("CLUSTER", "BY"):
            cluster.append(self.identifier())
            while self.comma_list():
                cluster.append(self.identifier())
        return partition_by, partition_columns, tuple(cluster)

    def _columns(self) -> tuple[ast.FieldNode, ...]:
        self.expect_op("(")
        columns = []
        while not self.is_op(")"):
            if self._table_constraint():
                pass
            else:
                columns.append(self._column())
            if not self.comma_list():
                break
        self.expect_op(")")
        return tuple(columns)

    def _table_constraint(self) -> bool:
        """Unenforced keys are accepted and have no effect on rows, as in BigQuery."""
        if not (
            self.is_keyword("PRIMARY", "KEY") or self.is_keyword("FOREIGN", "KEY") or self.is_keyword("CONSTRAINT")
        ):
            return False
        depth = 0
        while self.token.kind != "end":
            if self.is_op("("):
                depth += 1
            elif self.is_op(")"):
                if depth == 0:
                    break
                depth -= 1
            elif self.is_op(",") and depth == 0:
                break
            self.next()
        return True

    def _column(self) -> ast.FieldNode:
        pos = self.token.pos
        exists = self.accept("IF", "NOT", "EXISTS")
        name = self.identifier()
        kind = self.type(column=True)
        not_null, default, text, options = False, None, "", ()
        while True:
            if self.accept("NOT", "NULL"):
                not_null = True
            elif self.accept("DEFAULT"):
                start = self.token.pos
                default = self.expression()
                text = self.source.text[start : self.tokens[self.at - 1].end]
            elif self.accept("PRIMARY", "KEY") or self.accept("NOT", "ENFORCED"):
                pass
            elif self.is_keyword("OPTIONS"):
                options = self.options()  # type: ignore[assignment]
            else:
                break
        return ast.FieldNode(pos, name, kind, not_null, default, options, text, exists)

    def _create_view(self, pos: int, replace: bool, materialized: bool) -> ast.Statement:
        exists = self.accept("IF", "NOT", "EXISTS")
        target = self.table_path()
        names: list[str] = []
        if self.is_op("("):
            self.next()
            while not self.is_op(")"):
                names.append(self.identifier())
                if self.is_keyword("OPTIONS"):
                    self.options()
                if not self.comma_list():
                    break
            self.expect_op(")")
        options = self.options() if self.is_keyword("OPTIONS") else ()
        self.expect("AS")
        start = self.token.pos
        query = self.query()
        text = self.source.text[start : self.tokens[self.at - 1].end]
        return ast.CreateView(pos, target, query, text, replace, exists, tuple(names), options, materialized)

    def _create_function(self, pos: int, replace: bool, temp: bool) -> ast.Statement:
        exists = self.accept("IF", "NOT", "EXISTS")
        target = self.table_path()
        self.expect_op("(")
        parameters: list[tuple[str, ast.TypeNode | None]] = []
        while not self.is_op(")"):
            name = self.identifier()
            kind = self.type()
            parameters.append((name, None if kind.name == "ANY TYPE" else kind))
            if not self.comma_list():
                break
        self.expect_op(")")
        returns = self.type() if self.accept("RETURNS") else None
        if self.token.upper in ("DETERMINISTIC", "NOT", "REMOTE", "LANGUAGE"):
            language = self.peek().upper if self.token.upper == "LANGUAGE" else self.token.upper
            raise UnsupportedSql(f"functions written in {language}")
        self.expect("AS")
        self.expect_op("(")
        if self._at_query():
            body: ast.Expression = ast.ScalarQuery(self.token.pos, self.query())
        else:
            body = self.expression()
        self.expect_op(")")
        if self.is_keyword("OPTIONS"):
            self.options()
        return ast.CreateFunction(pos, target, tuple(parameters), returns, body, temp, replace, exists)

    def _st_drop(self) -> ast.Statement:
        pos = self.next().pos
        kind = ""
        for word in ("MATERIALIZED", "EXTERNAL", "SNAPSHOT"):
            if self.accept(word):
                kind = word + " "
        name = self.next().upper
        if name in _UNSUPPORTED_OBJECTS:
            raise UnsupportedSql(f"DROP {name}")
        if name not in ("TABLE", "VIEW", "SCHEMA", "FUNCTION"):
            self.at -= 1
            raise self.unexpected()
        exists = self.accept("IF", "EXISTS")
        target = self.table_path()
        cascade = self.accept("CASCADE")
        if not cascade:
            self.accept("RESTRICT")
        return ast.Drop(pos, kind + name, target, exists, cascade)

    def _st_alter(self) -> ast.Statement:
        pos = self.next().pos
        if self.accept("MATERIALIZED"):
            raise UnsupportedSql("materialized views")
        kind = self.next().upper
        if kind not in ("TABLE", "VIEW", "SCHEMA"):
            raise UnsupportedSql(f"ALTER {kind}")
        exists = self.accept("IF", "EXISTS")
        target = self.table_path()
        actions = [self._alter_action()]
        while self.comma_list():
            actions.append(self._alter_action())
        return ast.Alter(pos, kind, target, tuple(actions), exists)

    def _alter_action(self) -> ast.AlterAction:
        pos = self.token.pos
        if self.accept("ADD", "COLUMN"):
            return ast.AlterAction(pos, "ADD", field=self._column())
        if self.accept("DROP", "COLUMN"):
            exists = self.accept("IF", "EXISTS")
            return ast.AlterAction(pos, "DROP", name=self.identifier(), if_exists=exists)
        if self.accept("RENAME", "COLUMN"):
            exists = self.accept("IF", "EXISTS")
            old = self.identifier()
            self.expect("TO")
            return ast.AlterAction(pos, "RENAME_COLUMN", name=old, new_name=self.identifier(), if_exists=exists)
        if self.accept("RENAME", "TO"):
            return ast.AlterAction(pos, "RENAME", new_name=".".join(self.table_path()))
        if self.accept("SET"):
            if self.is_keyword("DEFAULT"):
                raise UnsupportedSql("collation")
            return ast.AlterAction(pos, "SET_OPTIONS", options=self.options())
        if self.accept("ALTER", "COLUMN"):
            return self._alter_column(pos)
        if self.token.upper in ("ADD", "DROP"):
            raise UnsupportedSql(f"ALTER TABLE {self.token.upper} {self.peek().upper}")
        raise self.unexpected()

    def _alter_column(self, pos: int) -> ast.AlterAction:
        exists = self.accept("IF", "EXISTS")
        name = self.identifier()
        if self.accept("DROP", "NOT", "NULL"):
            return ast.AlterAction(pos, "DROP_NOT_NULL", name=name, if_exists=exists)
        if self.accept("DROP", "DEFAULT"):
            return ast.AlterAction(pos, "DROP_DEFAULT", name=name, if_exists=exists)
        self.expect("SET")
        if self.accept("DATA", "TYPE"):
            return ast.AlterAction(pos, "SET_TYPE", name=name, type=self.type(column=True), if_exists=exists)
        if self.accept("DEFAULT"):
            start = self.token.pos
            value = self.expression()
            text = self.source.text[start : self.tokens[self.at - 1].end]
            return ast.AlterAction(pos, "SET_DEFAULT", name=name, value=value, text=text, if_exists=exists)
        return ast.AlterAction(pos, "COLUMN_OPTIONS", name=name, options=self.options(), if_exists=exists)

    def _st_export(self) -> ast.Statement:
        pos = self.next().pos
        self.expect("DATA")
        if self.accept("WITH", "CONNECTION"):
            self.table_path()
        options = self.options()
        self.expect("AS")
        return ast.ExportData(pos, options, self.query())

    def _st_load(self) -> ast.Statement:
        pos = self.next().pos
        self.expect("DATA")
        overwrite = self.accept("OVERWRITE")
        if not overwrite:
            self.expect("INTO")
        if self.is_keyword("TEMP", "TABLE") or self.is_keyword("TEMPORARY", "TABLE"):
            raise UnsupportedSql("LOAD DATA into a temporary table")
        target = self.table_path()
        if self.accept("PARTITIONS"):
            raise UnsupportedSql("LOAD DATA into PARTITIONS")
        columns = self._columns() if self.is_op("(") else None
        partition_by, partition_columns, cluster_by = self._table_layout()
        options = self.options() if self.is_keyword("OPTIONS") else ()
        self.expect("FROM", "FILES")
        files = self.option_list()
        if self.accept("WITH", "PARTITION", "COLUMNS"):
            partition_columns = self._columns() if self.is_op("(") else ()
        if self.accept("WITH", "CONNECTION"):
            self.table_path()
        return ast.LoadData(
            pos, target, overwrite, files, columns, partition_by, cluster_by, options, partition_columns
        )

    def _st_assert(self) -> ast.Statement:
        pos = self.next().pos
        condition = self.expression()
        return ast.Assert(pos, condition, self.string() if self.accept("AS") else "")

    def _st_grant(self) -> ast.Statement:
        raise UnsupportedSql("GRANT")

    def _st_revoke(self) -> ast.Statement:
        raise UnsupportedSql("REVOKE")

    def _st_undrop(self) -> ast.Statement:
        raise UnsupportedSql("UNDROP")
