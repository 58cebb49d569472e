"""INSERT, UPDATE, DELETE, MERGE and TRUNCATE, with the number of rows each changed.

A target row changed by more than one source row is an error, never a coin toss.
"""
# ruff: noqa: S608 - identifiers go through `quote`, values are bound or written by `literal`

from collections import Counter
from dataclasses import dataclass

from ingestd.formats.errors import BigQueryError
from ingestd.googlesql import ast
from ingestd.googlesql.columns import from_field
from ingestd.googlesql.lexer import Source
from ingestd.googlesql.names import Column, Range, Scope
from ingestd.googlesql.types import DATE, TIMESTAMP, SqlType
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.catalog import PARTITION_TIME, Table, TableKind
from ingestd.localcloud.bigquery.duckdb_types import column_type, duckdb_type, quote
from ingestd.localcloud.bigquery.sql.coercion import coerce, literal, string_sql
from ingestd.localcloud.bigquery.sql.idioms import pack
from ingestd.localcloud.bigquery.sql.queries import Compiler
from ingestd.localcloud.bigquery.sql.reading import parse_expression
from ingestd.localcloud.bigquery.sql.results import DmlStats, StatementResult, TableName
from ingestd.localcloud.bigquery.sql.runner import Runner, whole_array
from ingestd.model.schema import Field, Mode, Schema, Type

_TWICE = "UPDATE/MERGE must match at most one source row for each target row"


@dataclass(frozen=True, slots=True)
class Target:
    """The table a statement changes: its physical name, its columns, and where its partition time comes from."""

    name: TableName | None  # None for a script's temp table
    relation: str
    schema: Schema
    table: Table | None = None

    def field(self, name: str) -> Field | None:
        lowered = name.lower()
        return next((item for item in self.schema if item.name.lower() == lowered), None)

    @property
    def by_ingestion_time(self) -> bool:
        return self.table is not None and self.table.by_ingestion_time


def find_target(c: Compiler, parts: tuple[str, ...], node: ast.Node) -> Target:
    if len(parts) == 1 and parts[0].lower() in c.session.temp_tables:
        temp = c.session.temp_tables[parts[0].lower()]
        return Target(None, temp.relation, temp.schema)
    ref = c.table_ref(parts, node)
    table = c.find_table(ref, node)
    if table.kind is not TableKind.TABLE:
        raise BigQueryError(
            "invalidQuery",
            f"{ref.sql_id} is not allowed for this operation because it is currently a {table.kind}.",
            "query",
        )
    return Target(TableName(ref.project, ref.dataset, ref.table), ref.physical, table.schema, table)


class DmlRunner:
    def __init__(self, runner: Runner) -> None:
        self.runner = runner

    def run(self, statement: ast.Statement, source: Source, text: str, *, dry: bool = False) -> StatementResult:
        c = self.runner.compiler(source)
        parts: tuple[str, ...] = getattr(statement, "target", ())
        target = find_target(c, parts, statement)
        work = _Work(self.runner, c, target, dry)
        if isinstance(statement, ast.Insert):
            kind, stats = "INSERT", work.insert(statement)
        elif isinstance(statement, ast.Update):
            kind, stats = "UPDATE", work.update(statement)
        elif isinstance(statement, ast.Delete):
            kind, stats = "DELETE", work.delete(statement)
        elif isinstance(statement, ast.Merge):
            kind, stats = "MERGE", work.merge(statement)
        else:
            assert isinstance(statement, ast.Truncate)
            kind, stats = "TRUNCATE_TABLE", work.truncate()
        if not dry and target.table is not None and (stats.affected or kind == "TRUNCATE_TABLE"):
            self.runner.session.catalog.update_table(target.table)
        read = dict(c.collected.referenced)
        unread = target.name if kind == "INSERT" and target.name not in read else None
        if target.name is not None:
            read[target.name] = None
        return StatementResult(
            kind, text, dml=stats, ddl_target=target.name, referenced_tables=tuple(read), unread=unread
        )


@dataclass(slots=True)
class _Work:
    runner: Runner
    c: Compiler
    target: Target
    dry: bool

    def _count(self, sql: str) -> int:
        return 0 if self.dry else self.runner.count(sql, self.c.collected.bound)

    def _execute(self, sql: str) -> None:
        if not self.dry:
            self.runner.execute(sql, self.c.collected.bound)

    def insert(self, node: ast.Insert) -> DmlStats:
        fields = self._insert_fields(node.columns, node)
        missing = self._missing(fields)
        names = [item.name for item in fields] + [name for name, _ in missing]
        listed = ", ".join(map(quote, names))
        defaults = [sql for _, sql in missing]
        if node.query is not None:
            query = self.c.compile_query(node.query, None)
            if len(query.columns) != len(fields):
                self.c.fail(
                    f"Inserted row has wrong column count; Has {len(query.columns)}, expected {len(fields)}", node
                )
            values = []
            for column, item in zip(query.columns, fields, strict=True):
                if self._convert(column.expr, item) is None:
                    self._type_error(column.expr, item, node)
                inner = Value(f"_i.{quote(column.physical)}", column.type)
                converted = self._convert(column.expr if column.expr.null else inner, item)
                if converted is None:
                    from ingestd.localcloud.bigquery.sql.coercion import cast

                    converted = cast(inner, from_field(item))
                values.append(stored(converted, item))
            body = f"SELECT {', '.join([*values, *defaults])} FROM ({query.sql}) AS _i"
        else:
            rows = []
            for row in node.rows:
                if len(row) != len(fields):
                    self.c.fail(f"Inserted row has wrong column count; Has {len(row)}, expected {len(fields)}", node)
                cells = [self._cell(value, item) for value, item in zip(row, fields, strict=True)]
                rows.append(f"({', '.join([*cells, *defaults])})")
            body = f"VALUES {', '.join(rows)}"
        inserted = self._count(f"INSERT INTO {self.target.relation} ({listed}) {body}")
        return DmlStats(inserted=inserted)

    def _insert_fields(self, columns: tuple[str, ...], node: ast.Node) -> list[Field]:
        if not columns:
            return list(self.target.schema)
        fields, seen = [], set()
        for name in columns:
            item = self.target.field(name)
            if item is None and self.target.by_ingestion_time and name.upper() == PARTITION_TIME:
                item = Field(PARTITION_TIME, Type.TIMESTAMP)
            if item is None:
                self.c.fail(f"Column {name} is not present in table {self._label()}", node)
            if item.name.lower() in seen:
                self.c.fail(f"INSERT has columns with duplicate name: {name}", node)
            seen.add(item.name.lower())
            fields.append(item)
        return fields

    def _label(self) -> str:
        name = self.target.name
        return f"{name.project}.{name.dataset}.{name.table}" if name else self.target.relation

    def _missing(self, given: list[Field]) -> list[tuple[str, str]]:
        """What columns that are not named get."""
        named = {item.name.lower() for item in given}
        found = [(item.name, self._default(item)) for item in self.target.schema if item.name.lower() not in named]
        if self.target.by_ingestion_time and PARTITION_TIME.lower() not in named:
            found.append((PARTITION_TIME, self._partition_time()))
        return found

    def _partition_time(self) -> str:
        table = self.target.table
        assert table is not None
        assert table.time_partitioning is not None
        return literal(table.time_partitioning.type.start(self.runner.session.now), TIMESTAMP).sql

    def _default(self, item: Field) -> str:
        if item.default:
            source, node = parse_expression(item.default)
            inner = type(self.c)(self.c.session, source, self.c.collected)
            return stored(inner.typed(node, Scope(), from_field(item)), item)
        return "[]" if item.mode is Mode.REPEATED else f"CAST(NULL AS {column_type(item)})"

    def _cell(self, node: ast.Expression, item: Field, scope: Scope | None = None) -> str:
        if isinstance(node, ast.Default):
            return self._default(item)
        value = self.c.expr(node, scope or Scope())
        converted = self._convert(value, item)
        if converted is None:
            self._type_error(value, item, node)
            raise AssertionError
        return stored(converted, item)

    def _convert(self, value: Value, item: Field) -> Value | None:
        """Assignment converts a little more than expressions do: a table's GEOGRAPHY takes its text."""
        kind = from_field(item)
        if item.type is Type.GEOGRAPHY and value.type.kind == "STRING":
            return Value(value.sql, kind)
        if item.type is Type.BYTES and value.literal and isinstance(value.constant, str) and not value.parameter:
            return literal(value.constant.encode(), kind)
        return coerce(value, kind)

    def _type_error(self, value: Value, item: Field, node: ast.Node) -> None:
        self.c.fail(
            f"Value has type {value.type} which cannot be inserted into column {item.name}, which has type "
            f"{from_field(item)}",
            node,
        )

    def _target_range(self, alias: str, own: str) -> Range:
        columns = [Column(item.name, from_field(item), f"{own}.{quote(item.name)}") for item in self.target.schema]
        if self.target.by_ingestion_time:
            columns.append(Column(PARTITION_TIME, TIMESTAMP, f"{own}.{quote(PARTITION_TIME)}", pseudo=True))
            columns.append(Column("_PARTITIONDATE", DATE, f"CAST({own}.{quote(PARTITION_TIME)} AS DATE)", pseudo=True))
        return Range(alias, columns)

    def _alias(self, alias: str, parts: tuple[str, ...]) -> str:
        return alias or parts[-1]

    def update(self, node: ast.Update) -> DmlStats:
        own = self.c.collected.alias()
        scope = Scope([self._target_range(self._alias(node.alias, node.target), own)])
        assert node.where is not None
        if node.source is None:
            changes = self._assignments(node.assignments, scope, scope.ranges[0])
            where = self.c.condition(node.where, scope, "WHERE clause")
            listed = ", ".join(f"{quote(name)} = {sql}" for name, sql in changes)
            return DmlStats(updated=self._count(f"UPDATE {self.target.relation} AS {own} SET {listed} WHERE {where}"))
        joined = self.c.source_sql(node.source, scope)
        changes = self._assignments(node.assignments, scope, scope.ranges[0])
        where = self.c.condition(node.where, scope, "WHERE clause")
        values = ", ".join(f"{sql} AS _u{index}" for index, (_, sql) in enumerate(changes))
        self._execute(
            f"CREATE OR REPLACE TEMP TABLE _updates AS SELECT {own}.rowid AS _row, {values} "
            f"FROM {self.target.relation} AS {own} CROSS JOIN {joined} WHERE {where}"
        )
        self._refuse_twice("SELECT _row FROM _updates GROUP BY _row HAVING count(*) > 1 LIMIT 1")
        listed = ", ".join(f"{quote(name)} = _updates._u{index}" for index, (name, _) in enumerate(changes))
        updated = 0
        if not self.dry:
            updated = self.runner.count(
                f"UPDATE {self.target.relation} AS {own} SET {listed} FROM _updates WHERE {own}.rowid = _updates._row"
            )
            self.runner.execute("DROP TABLE temp._updates")
        return DmlStats(updated=updated)

    def _refuse_twice(self, sql: str) -> None:
        if not self.dry and self.runner.rows(sql):
            raise BigQueryError("invalidQuery", _TWICE, "query")

    def _assignments(self, assignments: tuple[ast.Assignment, ...], scope: Scope, own: Range) -> list[tuple[str, str]]:
        """New values by column; assignments to members of one STRUCT are merged."""
        found: dict[str, tuple[Field, Value]] = {}
        whole: set[str] = set()
        for item in assignments:
            path = item.path
            if len(path) > 1 and path[0].lower() == own.alias.lower() and self.target.field(path[0]) is None:
                path = path[1:]
            column = self.target.field(path[0])
            if column is None and self.target.by_ingestion_time and path[0].upper() == PARTITION_TIME:
                column = Field(PARTITION_TIME, Type.TIMESTAMP)
            if column is None:
                self.c.fail(f"Unrecognized name: {path[0]}", item)
            key = column.name.lower()
            if key in whole or (len(path) == 1 and key in found):
                self.c.fail(f"Update item {'.'.join(item.path)} assigned more than once", item)
            if len(path) == 1:
                whole.add(key)
                found[key] = (column, Value(self._cell(item.value, column, scope), from_field(column)))
                continue
            current = found[key][1] if key in found else own.find(column.name)[0].expr
            found[key] = (column, self._nested(current, path[1:], item, scope))
        return [(column.name, stored(value, column)) for column, value in found.values()]

    def _nested(self, current: Value, path: tuple[str, ...], item: ast.Assignment, scope: Scope) -> Value:
        kind = current.type
        wanted = kind.member(path[0]) if kind.kind == "STRUCT" else None
        if wanted is None:
            self.c.fail(f"Field name {path[0]} does not exist in {kind}", item)
        members = []
        for physical, (_, inner) in zip(kind.physical_names, kind.fields, strict=True):
            value = Value(f"struct_extract({current.sql}, {string_sql(physical)})", inner)
            if physical == wanted[0]:
                value = self._member_value(value, path, item, scope)
            members.append(value)
        return Value(pack(kind, tuple(members)), kind)

    def _member_value(self, value: Value, path: tuple[str, ...], item: ast.Assignment, scope: Scope) -> Value:
        if len(path) > 1:
            return self._nested(value, path[1:], item, scope)
        new = self.c.expr(item.value, scope)
        converted = coerce(new, value.type)
        if converted is None:
            self.c.fail(
                f"Value of type {new.type} cannot be assigned to {'.'.join(item.path)}, which has type {value.type}",
                item,
            )
        return converted

    def delete(self, node: ast.Delete) -> DmlStats:
        own = self.c.collected.alias()
        scope = Scope([self._target_range(self._alias(node.alias, node.target), own)])
        assert node.where is not None
        where = self.c.condition(node.where, scope, "WHERE clause")
        return DmlStats(deleted=self._count(f"DELETE FROM {self.target.relation} AS {own} WHERE {where}"))

    def truncate(self) -> DmlStats:
        return DmlStats(deleted=self._count(f"DELETE FROM {self.target.relation}"))

    def merge(self, node: ast.Merge) -> DmlStats:
        own = self.c.collected.alias()
        target = self._target_range(self._alias(node.alias, node.target), own)
        source_scope = Scope()
        source = self.c.source_sql(node.source, source_scope)
        columns = list(source_scope.columns())
        listed = ", ".join(f"{column.sql} AS _s{index}" for index, column in enumerate(columns))
        # The source is read once: what it answers must not differ between the check and the merge.
        self._execute(f"CREATE OR REPLACE TEMP TABLE _merge_source AS SELECT {listed} FROM {source}")
        mapped = [Column(column.name, column.type, f"_m._s{index}") for index, column in enumerate(columns)]
        by_sql = {column.sql: new for column, new in zip(columns, mapped, strict=True)}
        ranges = [self._mapped(item, by_sql) for item in source_scope.ranges]
        both, source_only, target_only = Scope([target, *ranges]), Scope(list(ranges)), Scope([target])
        condition = self.c.condition(node.on, both, "MERGE ON clause")
        clauses, guards = [], []
        for clause in node.clauses:
            scope = {"MATCHED": both, "NOT MATCHED": source_only}.get(clause.when, target_only)
            test = self.c.condition(clause.condition, scope, "MERGE condition") if clause.condition else ""
            if clause.when == "MATCHED":
                guards.append(test or "TRUE")
            when = "NOT MATCHED BY TARGET" if clause.when == "NOT MATCHED" else clause.when
            action = self._merge_action(clause, scope, target, mapped)
            clauses.append(f"WHEN {when}{f' AND {test}' if test else ''} THEN {action}")
        if guards and not self.dry:
            twice = self.runner.rows(
                f"SELECT 1 FROM {self.target.relation} AS {own} JOIN _merge_source AS _m ON {condition} "
                f"WHERE {' OR '.join(f'({guard})' for guard in guards)} "
                f"GROUP BY {own}.rowid HAVING count(*) > 1 LIMIT 1",
                self.c.collected.bound,
            )
            if twice:
                raise BigQueryError("invalidQuery", _TWICE, "query")
        sql = (
            f"MERGE INTO {self.target.relation} AS {own} USING _merge_source AS _m ON {condition} "
            f"{' '.join(clauses)} RETURNING merge_action"
        )
        if self.dry:
            return DmlStats()
        counted = Counter(row[0] for row in self.runner.rows(sql, self.c.collected.bound))
        self.runner.execute("DROP TABLE temp._merge_source")
        return DmlStats(counted["INSERT"], counted["UPDATE"], counted["DELETE"])

    def _mapped(self, item: Range, by_sql: dict[str, Column]) -> Range:
        columns = [by_sql[column.sql] for column in item.columns if column.sql in by_sql]
        value = item.value
        if value is not None and len(item.columns) == 1 and value.type.kind != "STRUCT":
            value = columns[0].expr
        elif value is not None:
            members = tuple(column.expr for column in columns)
            value = Value(pack(value.type, members), value.type, members=members)
        return Range(item.alias, columns, value)

    def _merge_action(self, clause: ast.MergeClause, scope: Scope, target: Range, columns: list[Column]) -> str:
        if clause.action == "DELETE":
            return "DELETE"
        if clause.action == "UPDATE":
            changes = self._assignments(clause.assignments, scope, target)
            return "UPDATE SET " + ", ".join(f"{quote(name)} = {sql}" for name, sql in changes)
        fields = self._insert_fields(clause.columns, clause)
        if clause.row:
            if len(columns) != len(fields):
                self.c.fail(f"Inserted row has wrong column count; Has {len(columns)}, expected {len(fields)}", clause)
            cells = []
            for column, item in zip(columns, fields, strict=True):
                converted = self._convert(column.expr, item)
                if converted is None:
                    self._type_error(column.expr, item, clause)
                    raise AssertionError
                cells.append(stored(converted, item))
        else:
            if len(clause.values) != len(fields):
                self.c.fail(
                    f"Inserted row has wrong column count; Has {len(clause.values)}, expected {len(fields)}", clause
                )
            cells = [self._cell(value, item, scope) for value, item in zip(clause.values, fields, strict=True)]
        missing = self._missing(fields)
        names = ", ".join(quote(name) for name in [*(item.name for item in fields), *(name for name, _ in missing)])
        return f"INSERT ({names}) VALUES ({', '.join([*cells, *(sql for _, sql in missing)])})"


def stored(value: Value, item: Field) -> str:
    """A value as the column keeps it: NULL arrays are empty, and lengths and precisions hold."""
    sql = value.sql
    if item.mode is Mode.REPEATED:
        return f"({whole_array(sql, from_field(item), item.name)})"
    if item.max_length is not None:
        size = f"length({sql})" if item.type is Type.STRING else f"octet_length({sql})"
        limit = item.max_length
        words = f"Field {item.name}: {item.type}({limit}) has maximum length {limit} but got a value with length "
        message = f"{string_sql(words)} || {size}"
        return f"(CASE WHEN {size} > {limit} THEN CAST(bq_error({message}) AS {column_type(item)}) ELSE {sql} END)"
    if item.precision is not None and item.type in (Type.NUMERIC, Type.BIGNUMERIC):
        scale = item.scale or 0
        kind: SqlType = from_field(item)
        rounded = f"CAST(round({sql}, {scale}) AS {duckdb_type(kind)})"
        words = (
            f"Field {item.name}: {item.type}({item.precision}, {scale}) has precision {item.precision} and scale "
            f"{scale} but got a value that is not in range of [-(10^precision-1), 10^precision-1] / 10^scale"
        )
        return (
            f"(CASE WHEN abs({rounded}) >= CAST('1{'0' * (item.precision - scale)}' AS HUGEINT) "
            f"THEN CAST(bq_error({string_sql(words)}) AS {column_type(item)}) ELSE {rounded} END)"
        )
    return sql
