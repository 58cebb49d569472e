"""What stands after FROM: tables and views, wildcard tables, WITH queries, UNNEST, subqueries, joins, pivots.

Every source gets a DuckDB alias of its own, so that no name of the user's can shadow another.
"""
# ruff: noqa: S608 - identifiers go through `quote`, values are bound or written by `literal`

from dataclasses import replace
from typing import TYPE_CHECKING

from ingestd.formats.errors import BigQueryError, not_implemented
from ingestd.googlesql import ast
from ingestd.googlesql.columns import from_field
from ingestd.googlesql.names import AmbiguousName, Column, Range, Scope
from ingestd.googlesql.references import walk
from ingestd.googlesql.types import DATE, INT64, STRING, TIMESTAMP, SqlType
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.catalog import PARTITION_TIME, Table, TableKind, TableRef
from ingestd.localcloud.bigquery.duckdb_types import column_type, duckdb_type, quote
from ingestd.localcloud.bigquery.sql.coercion import string_sql
from ingestd.localcloud.bigquery.sql.expressions import ExpressionCompiler
from ingestd.localcloud.bigquery.sql.reading import parse_query
from ingestd.localcloud.bigquery.sql.results import ExternalTable, TableName
from ingestd.model.schema import Schema

if TYPE_CHECKING:
    from ingestd.localcloud.bigquery.sql.queries import OutColumn


class SourceCompiler(ExpressionCompiler):
    def source_sql(self, node: ast.TableExpression, scope: Scope) -> str:
        """DuckDB SQL of a source; what it names is added to the scope."""
        if isinstance(node, ast.Join):
            return self._join(node, scope)
        if isinstance(node, ast.Unnest):
            return self._unnest(node.array, node.alias, node.offset, scope, first=True)
        if isinstance(node, ast.DerivedTable):
            query = self.compile_query(node.query, scope.parent)
            return self._relation(
                f"({query.sql})", query.columns, query.value_table, node.alias, scope, node.sample, node
            )
        if isinstance(node, ast.TableName):
            return self._table(node, scope, first=True)
        from ingestd.localcloud.bigquery.sql import pivots

        if isinstance(node, ast.Pivot):
            return pivots.pivot(self, node, scope)
        if isinstance(node, ast.Unpivot):
            return pivots.unpivot(self, node, scope)
        raise not_implemented(type(node).__name__)

    def add_range(self, scope: Scope, item: Range, node: ast.Node) -> None:
        if item.alias and scope.find_range(item.alias) is not None:
            self.fail(f"Duplicate table alias {item.alias} in the same FROM clause", node)
        scope.ranges.append(item)

    def _relation(
        self,
        relation: str,
        columns: "list[OutColumn]",
        value_table: bool,
        alias: str,
        scope: Scope,
        sample: ast.Expression | None,
        node: ast.Node,
    ) -> str:
        own = self.collected.alias()
        if value_table:
            value = Value(f"{own}.{quote(columns[0].physical)}", columns[0].type)
            self.add_range(scope, self.value_range(alias, value), node)
        else:
            visible = [Column(item.name, item.type, f"{own}.{quote(item.physical)}") for item in columns]
            self.add_range(scope, Range(alias, visible), node)
        return f"{self._sampled(relation, sample)} AS {own}"

    def _sampled(self, relation: str, sample: ast.Expression | None) -> str:
        if sample is None:
            return relation
        percent = self.expr(sample, Scope()).constant
        if not isinstance(percent, int | float) or not 0 <= percent <= 100:
            self.fail("TABLESAMPLE needs a literal percentage from 0 to 100", sample)
        return f"(SELECT * FROM {relation} USING SAMPLE {percent}% (bernoulli))"

    def _join(self, node: ast.Join, scope: Scope) -> str:
        left = self.source_sql(node.left, scope)
        before = len(scope.ranges)
        right = self._right(node.right, scope)
        if isinstance(node.right, ast.Join):
            right = f"({right})"
        if node.kind == "CROSS":
            return f"{left} CROSS JOIN {right}"
        if node.using:
            condition = self._using(node, scope, before)
        elif node.on is not None:
            condition = self.condition(node.on, scope, "JOIN ON clause")
        else:
            condition = "TRUE"
        return f"{left} {node.kind} JOIN {right} ON {condition}"

    def _right(self, node: ast.TableExpression, scope: Scope) -> str:
        """The right side of a join may be an array of a row on the left."""
        if isinstance(node, ast.Unnest):
            return self._unnest(node.array, node.alias, node.offset, scope, first=False)
        if isinstance(node, ast.TableName):
            return self._table(node, scope, first=False)
        return self.source_sql(node, scope)

    def _using(self, node: ast.Join, scope: Scope, before: int) -> str:
        conditions = []
        for name in node.using:
            lowered = name.lower()
            left = scope.merged.get(lowered) or self._one(name, scope.ranges[:before], scope, node)
            right = self._one(name, scope.ranges[before:], scope, node)
            compared = self.compare("=", left.expr, right.expr, node)
            conditions.append(compared.sql)
            kind, (a, b) = self.common([left.expr, right.expr], "JOIN USING", node)
            merged = {"FULL": f"coalesce({a.sql}, {b.sql})", "RIGHT": b.sql}.get(node.kind, a.sql)
            for item in scope.ranges:
                if item.find(name):
                    scope.hidden.add((id(item), lowered))
            scope.merged[lowered] = Column(name, kind, merged)
        return " AND ".join(conditions)

    def _one(self, name: str, ranges: list[Range], scope: Scope, node: ast.Node) -> Column:
        found = [
            column for item in ranges for column in item.find(name) if (id(item), name.lower()) not in scope.hidden
        ]
        if len(found) != 1:
            side = "not found on" if not found else "is ambiguous on"
            self.fail(f"Column {name} in USING clause {side} one side of the join", node)
        return found[0]

    def _unnest(self, array: ast.Expression, alias: str, offset: str, scope: Scope, *, first: bool) -> str:
        visible = replace(scope, ranges=scope.ranges) if not first else (scope.parent or Scope())
        value = self.expr(array, visible)
        if value.type.kind != "ARRAY" or value.type.element is None:
            self.fail(
                f"Values referenced in UNNEST must be arrays. UNNEST contains expression of type {value.type}", array
            )
        own = self.collected.alias()
        # Named after the alias, for DuckDB's messages about it.
        column = quote(alias) if alias and alias.lower() != "o" else "v"
        item = Value(f"{own}.{column}", value.type.element)
        self.add_range(scope, self.value_range(alias, item), array)
        scope.orders.append(f"{own}.o")
        if offset:
            position = Value(f"{own}.o", INT64)
            self.add_range(scope, self.value_range(offset, position), array)
        rows = (
            f"SELECT unnest(_x) AS {column}, CAST(generate_subscripts(_x, 1) - 1 AS BIGINT) AS o "
            f"FROM (SELECT {value.sql} AS _x)"
        )
        return f"{'' if first else 'LATERAL '}({rows}) AS {own}"

    def _table(self, node: ast.TableName, scope: Scope, *, first: bool) -> str:
        parts = node.parts
        if len(parts) > 1 and self._is_path(parts[0], scope):
            path = ast.Path(node.pos, parts)
            return self._unnest(path, node.alias or parts[-1], node.offset, scope, first=first and not scope.ranges)
        alias = node.alias or parts[-1]
        if node.offset:
            self.fail("WITH OFFSET is only allowed after an array", node)
        if node.system_time is not None and not _is_now(node.system_time):
            raise not_implemented("time travel (FOR SYSTEM_TIME AS OF)")
        if len(parts) == 1:
            from ingestd.localcloud.bigquery.sql.queries import CteRef

            found = scope.cte(parts[0])
            if isinstance(found, CteRef):
                if found.recursive:
                    scope.counters.append(f"_t{self.collected.aliases + 1}._iteration")
                return self._relation(found.relation, found.columns, found.value_table, alias, scope, node.sample, node)
            if parts[0].lower() in self.session.temp_tables:
                temp = self.session.temp_tables[parts[0].lower()]
                return self._physical(temp.relation, temp.schema, alias, scope, node)
        external = self._temporary_external(parts)
        if external is not None:
            return self._external(external, alias, scope, node)
        if any(part.upper() == "INFORMATION_SCHEMA" for part in parts):
            from ingestd.localcloud.bigquery.sql.information_schema import view

            relation, schema = view(self, node)
            return self._physical(relation, schema, node.alias or parts[-1], scope, node)
        ref = self.table_ref(parts, node)
        if ref.table.endswith("*"):
            return self._wildcard(ref, alias, scope, node)
        return self._stored(self.find_table(ref, node), alias, scope, node)

    def _is_path(self, name: str, scope: Scope) -> bool:
        try:
            found = scope.lookup(name)
        except AmbiguousName:
            return True
        return found is not None

    def _temporary_external(self, parts: tuple[str, ...]) -> ExternalTable | None:
        name = ".".join(parts).lower()
        return next((item for key, item in self.session.external.items() if key.lower() == name), None)

    def table_ref(self, parts: tuple[str, ...], node: ast.Node) -> TableRef:
        if "$" in parts[-1]:
            raise BigQueryError(
                "invalidQuery", f'Table "{".".join(parts)}": partition decorators are not allowed in GoogleSQL', "query"
            )
        if len(parts) == 1:
            if not self.session.default_dataset:
                raise BigQueryError(
                    "invalid", f'Table "{parts[0]}" must be qualified with a dataset (e.g. dataset.table).', "query"
                )
            return TableRef(self.session.default_project, self.session.default_dataset, parts[0])
        if len(parts) == 2:
            return TableRef(self.session.project, parts[0], parts[1])
        if len(parts) > 3:
            self.fail(f'Table name "{".".join(parts)}" has too many parts', node)
        return TableRef(*parts)

    def find_table(self, ref: TableRef, node: ast.Node) -> Table:
        cached = self.collected.tables.get(ref)
        if cached is not None:
            return cached
        table = self.session.catalog.find_table(ref)
        if table is None:
            raise missing_table(self.session.catalog, ref, self.session.surroundings.location)
        self.collected.tables[ref] = table
        return table

    def _stored(self, table: Table, alias: str, scope: Scope, node: ast.TableName) -> str:
        ref = table.ref
        self.collected.referenced[TableName(ref.project, ref.dataset, ref.table)] = None
        if table.kind is TableKind.VIEW:
            return self._view(table, alias, scope, node)
        if table.kind is TableKind.EXTERNAL:
            reader = self.session.surroundings.external_table
            if reader is None:
                raise not_implemented("external tables")
            return self._external(reader(table), alias, scope, node)
        sql = self._physical(ref.physical, table.schema, alias, scope, node)
        own = scope.ranges[-1]
        if table.by_ingestion_time:
            name = sql.rsplit(" ", 1)[-1]
            own.columns.append(Column("_PARTITIONTIME", TIMESTAMP, f"{name}.{quote(PARTITION_TIME)}", pseudo=True))
            day = f"CAST({name}.{quote(PARTITION_TIME)} AS DATE)"
            own.columns.append(Column("_PARTITIONDATE", DATE, day, pseudo=True))
        if table.needs_partition_filter and table.partition_column:
            scope.guarded.append((own, table.ref.sql_id, table.partition_column))
        return sql

    def _physical(self, relation: str, schema: Schema, alias: str, scope: Scope, node: ast.TableName) -> str:
        own = self.collected.alias()
        columns = [Column(item.name, from_field(item), f"{own}.{quote(item.name)}") for item in schema]
        self.add_range(scope, Range(alias, columns), node)
        return f"{self._sampled(relation, node.sample)} AS {own}"

    def _external(self, table: ExternalTable, alias: str, scope: Scope, node: ast.TableName) -> str:
        sql = self._physical(table.relation, table.schema, alias, scope, node)
        if table.has_file_name:
            name = sql.rsplit(" ", 1)[-1]
            scope.ranges[-1].columns.append(Column("_FILE_NAME", STRING, f'{name}."_FILE_NAME"', pseudo=True))
        return sql

    def _view(self, table: Table, alias: str, scope: Scope, node: ast.TableName) -> str:
        source, query = parse_query(table.view_query)
        session = replace(
            self.session,
            default_project=table.ref.project,
            default_dataset="",
            project=table.ref.project,
            parameters=(),
            external={},
            variables=[],
            functions={},
            temp_tables={},
        )
        inner = type(self)(session, source, self.collected)
        try:
            compiled = inner.compile_query(query, None)
        except BigQueryError as error:
            if error.reason == "invalidQuery":
                raise BigQueryError("invalidQuery", f"Invalid view {table.ref}: {error.message}", "query") from None
            raise
        columns = compiled.columns
        if len(table.schema) == len(columns):
            for column, item in zip(columns, table.schema, strict=True):
                column.name = item.name
        return self._relation(f"({compiled.sql})", columns, compiled.value_table, alias, scope, node.sample, node)

    def _wildcard(self, ref: TableRef, alias: str, scope: Scope, node: ast.TableName) -> str:
        """All tables of a dataset whose names start with the prefix; the newest gives the schema."""
        prefix = ref.table[:-1]
        found = [
            table
            for table in self.session.catalog.tables(ref.project, ref.dataset)
            if table.ref.table.startswith(prefix) and table.kind is TableKind.TABLE
        ]
        if not found:
            raise BigQueryError("notFound", f"{ref.sql_id} does not match any table.", "query")
        newest = max(found, key=lambda table: (table.created, table.ref.table))
        selects = []
        for table in found:
            ref = table.ref
            self.collected.referenced[TableName(ref.project, ref.dataset, ref.table)] = None
            items = []
            for item in newest.schema:
                own = table.field(item.name)
                kind: SqlType = from_field(item)
                if own is None:
                    items.append(f"CAST(NULL AS {duckdb_type(kind)}) AS {quote(item.name)}")
                elif column_type(own) != column_type(item):
                    items.append(f"CAST({quote(own.name)} AS {duckdb_type(kind)}) AS {quote(item.name)}")
                else:
                    items.append(f"{quote(own.name)} AS {quote(item.name)}")
            suffix = string_sql(table.ref.table[len(prefix) :])
            selects.append(f"SELECT {', '.join([*items, f'{suffix} AS _TABLE_SUFFIX'])} FROM {table.ref.physical}")
        sql = self._physical(f"({' UNION ALL '.join(selects)})", newest.schema, alias, scope, node)
        name = sql.rsplit(" ", 1)[-1]
        scope.ranges[-1].columns.append(Column("_TABLE_SUFFIX", STRING, f"{name}._TABLE_SUFFIX", pseudo=True))
        return sql

    def check_partition_filters(self, select: ast.Select, scope: Scope) -> None:
        """Tables that require it must be filtered on their partition column."""
        if not scope.guarded:
            return
        names = {
            part.lower()
            for item in walk(((select.where,), (select.source,)))
            if isinstance(item, ast.Path)
            for part in item.parts
        }
        for _, table, column in scope.guarded:
            wanted = {column.lower()} | ({"_partitiondate"} if column == PARTITION_TIME else set())
            if not names & wanted:
                raise BigQueryError(
                    "invalidQuery",
                    f"Cannot query over table '{table}' without a filter over column(s) '{column}' that can be used "
                    "for partition elimination",
                    "query",
                )


def missing_table(catalog: object, ref: TableRef, location: str) -> BigQueryError:
    from ingestd.localcloud.bigquery.catalog import Catalog

    assert isinstance(catalog, Catalog)
    if catalog.find_dataset(ref.dataset_ref) is None:
        return BigQueryError(
            "notFound", f"Not found: Dataset {ref.project}:{ref.dataset} was not found in location {location}", "query"
        )
    return BigQueryError("notFound", f"Not found: Table {ref} was not found in location {location}", "query")


def _is_now(node: ast.Expression) -> bool:
    return isinstance(node, ast.Call) and node.name == "CURRENT_TIMESTAMP" and not node.args
