"""CREATE, DROP and ALTER of tables, views, datasets and temporary functions."""
# ruff: noqa: S608 - identifiers go through `quote`, values are bound or written by `literal`

from dataclasses import replace

from ingestd.formats.errors import BigQueryError, not_implemented
from ingestd.googlesql import ast
from ingestd.googlesql.columns import from_field
from ingestd.googlesql.lexer import Source
from ingestd.googlesql.names import Scope
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.catalog import Dataset, DatasetRef, Table, TableKind, TableRef
from ingestd.localcloud.bigquery.duckdb_types import column_type, duckdb_type, quote
from ingestd.localcloud.bigquery.sql.coercion import coerce
from ingestd.localcloud.bigquery.sql.columns import field_from_node
from ingestd.localcloud.bigquery.sql.context import TempTable, UserFunction
from ingestd.localcloud.bigquery.sql.dml import stored
from ingestd.localcloud.bigquery.sql.layout import evaluate, partitioning, with_dataset_options, with_options
from ingestd.localcloud.bigquery.sql.queries import Compiler
from ingestd.localcloud.bigquery.sql.reading import fail, from_node, parse_query
from ingestd.localcloud.bigquery.sql.results import CreateExternalRequest, StatementResult, TableName
from ingestd.localcloud.bigquery.sql.runner import Runner
from ingestd.localcloud.bigquery.sql.sources import missing_table
from ingestd.model.schema import Field, Mode, Schema


def table_name(ref: TableRef) -> TableName:
    return TableName(ref.project, ref.dataset, ref.table)


class DdlRunner:
    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.session = runner.session
        self.catalog = runner.session.catalog

    def run(self, statement: ast.Statement, source: Source, text: str, *, dry: bool = False) -> StatementResult:
        if isinstance(statement, ast.CreateTable):
            return self._create_table(statement, source, text, dry)
        if isinstance(statement, ast.CreateView):
            return self._create_view(statement, source, text, dry)
        if isinstance(statement, ast.CreateSchema):
            return self._create_schema(statement, source, text, dry)
        if isinstance(statement, ast.CreateFunction):
            return self._create_function(statement, source, text)
        if isinstance(statement, ast.Drop):
            return self._drop(statement, source, text, dry)
        assert isinstance(statement, ast.Alter)
        return self._alter(statement, source, text, dry)

    def fields(self, columns: tuple[ast.FieldNode, ...], source: Source) -> Schema:
        found, seen = [], set()
        for item in columns:
            if item.name.lower() in seen:
                fail(source, f"Duplicate column name {item.name} in CREATE TABLE", item.pos)
            seen.add(item.name.lower())
            found.append(self._field(item, source))
        return tuple(found)

    def _field(self, item: ast.FieldNode, source: Source) -> Field:
        if item.default is not None:
            self.runner.compiler(source).typed(item.default, Scope(), from_node(item.type))
        made = field_from_node(item)
        node = item.type.element if item.type.name == "ARRAY" and item.type.element is not None else item.type
        members = tuple(
            self._described(inner, written, source) for inner, written in zip(made.fields, node.fields, strict=True)
        )
        return self._described(replace(made, fields=members), item, source)

    def _described(self, made: Field, item: ast.FieldNode, source: Source) -> Field:
        options = evaluate(self.runner, item.options, source)
        for name in options:
            if name not in ("description", "rounding_mode", "policy_tags", "data_policies"):
                raise BigQueryError("invalidQuery", f"Unknown option: {name}", "query")
        return replace(made, description=str(options.get("description") or made.description))

    def _create_table(self, node: ast.CreateTable, source: Source, text: str, dry: bool) -> StatementResult:
        if node.external:
            return self._create_external(node, source, text, dry)
        kind = "CREATE_SNAPSHOT_TABLE" if node.snapshot else "CREATE_TABLE_AS_SELECT" if node.query else "CREATE_TABLE"
        compiler = self.runner.compiler(source)
        if node.temp or (len(node.target) == 1 and not self.session.default_dataset):
            if not node.temp:
                compiler.table_ref(node.target, node)
            return self._create_temp(node, source, text, kind, dry)
        ref = compiler.table_ref(node.target, node)
        existing = self.catalog.find_table(ref)
        if existing is not None and node.if_not_exists:
            return StatementResult(kind, text, ddl_target=table_name(ref), ddl_operation="SKIP")
        if existing is not None and not node.replace:
            raise BigQueryError("duplicate", f"Already Exists: Table {ref}", "query")
        if existing is not None and existing.kind is TableKind.VIEW:
            raise BigQueryError("invalidQuery", f"{ref} is a VIEW: CREATE OR REPLACE TABLE cannot replace it", "query")
        table, rows = self._new_table(node, ref, source, compiler)
        result = StatementResult(
            kind,
            text,
            schema=table.schema if node.query else None,
            ddl_target=table_name(ref),
            ddl_operation="REPLACE" if existing is not None else "CREATE",
            referenced_tables=tuple(compiler.collected.referenced),
        )
        if dry:
            table.validate()
            return result
        if rows:
            # Read before the old table goes: the query may use it.
            self.runner.execute(f"CREATE OR REPLACE TEMP TABLE _new_rows AS {rows}", compiler.collected.bound)
        if existing is not None:
            self.catalog.drop_table(ref)
        created = self.catalog.create_table(table)
        if rows:
            self._fill(created)
            self.runner.execute("DROP TABLE temp._new_rows")
        return result

    def _fill(self, table: Table) -> None:
        names = [quote(item.name) for item in table.schema]
        values = list(names)
        if table.by_ingestion_time:
            assert table.time_partitioning is not None
            from ingestd.googlesql.types import TIMESTAMP
            from ingestd.localcloud.bigquery.sql.coercion import literal

            names.append(quote("_PARTITIONTIME"))
            has = self.runner.rows(
                "SELECT 1 FROM duckdb_columns() WHERE table_name = '_new_rows' AND column_name = '_PARTITIONTIME'"
            )
            stamp = literal(table.time_partitioning.type.start(self.session.now), TIMESTAMP).sql
            values.append(quote("_PARTITIONTIME") if has else stamp)
        self.runner.execute(
            f"INSERT INTO {table.ref.physical} ({', '.join(names)}) SELECT {', '.join(values)} FROM temp._new_rows"
        )

    def _new_table(self, node: ast.CreateTable, ref: TableRef, source: Source, compiler: Compiler) -> tuple[Table, str]:
        """The table to make, and the query for its rows (empty without one)."""
        now = self.session.now
        base = Table(ref, (), now, now)
        rows = ""
        if node.like or node.copy_of:
            origin = compiler.find_table(compiler.table_ref(node.like or node.copy_of, node), node)
            compiler.collected.referenced[table_name(origin.ref)] = None
            base = replace(origin, ref=ref, created=now, modified=now, etag="", expiration=None)
            if node.copy_of:
                if origin.kind not in (TableKind.TABLE, TableKind.SNAPSHOT):
                    raise BigQueryError(
                        "invalidQuery", f"{origin.ref} is a {origin.kind} and cannot be copied", "query"
                    )
                base = replace(base, kind=TableKind.SNAPSHOT if node.snapshot else TableKind.TABLE)
                rows = f"SELECT * FROM {origin.ref.physical}"
        if node.columns is not None:
            base = replace(base, schema=self.fields(node.columns, source))
        if node.query is not None:
            schema, rows = self._from_query(node, base.schema, compiler)
            base = replace(base, schema=schema)
        if not base.schema and node.query is None and not node.like and not node.copy_of and node.columns is None:
            fail(source, "CREATE TABLE must have a column list or AS SELECT", node.pos)
        if node.partition_by is not None:
            time, ranges = partitioning(node.partition_by, source, self.runner)
            base = replace(base, time_partitioning=time, range_partitioning=ranges)
        if node.cluster_by:
            base = replace(base, clustering=node.cluster_by)
        return with_options(base, evaluate(self.runner, node.options, source)), rows

    def _from_query(self, node: ast.CreateTable, declared: Schema, compiler: Compiler) -> tuple[Schema, str]:
        assert node.query is not None
        query = compiler.compile_query(node.query, None)
        for position, column in enumerate(query.columns, 1):
            if not column.name and not query.value_table:
                compiler.fail(f"CREATE TABLE columns must be named, but column {position} has no name", node.query)
        sql, schema = self.runner.final(query)
        if not declared:
            items = [
                f"{stored(Value(quote(item.name), from_field(item)), item)} AS {quote(item.name)}" for item in schema
            ]
            return schema, f"SELECT {', '.join(items)} FROM ({sql}) AS _c"
        if len(declared) != len(schema):
            compiler.fail(
                f"The number of columns in the column definition list does not match the number of columns produced by "
                f"the query: {len(declared)} and {len(schema)}",
                node,
            )
        items = []
        for item, given, column in zip(declared, schema, query.columns, strict=False):
            value = Value(f"_c.{quote(given.name)}", from_field(given), null=column.expr.null)
            converted = coerce(value, from_field(item))
            if converted is None:
                compiler.fail(
                    f"Query column {given.name} of type {from_field(given)} cannot be stored in {item.name} of type "
                    f"{from_field(item)}",
                    node,
                )
            items.append(f"{stored(converted, item)} AS {quote(item.name)}")
        return declared, f"SELECT {', '.join(items)} FROM ({sql}) AS _c"

    def _create_temp(self, node: ast.CreateTable, source: Source, text: str, kind: str, dry: bool) -> StatementResult:
        name = node.target[-1].lower()
        known = self.session.temp_tables
        if name in known and node.if_not_exists:
            return StatementResult(kind, text, ddl_operation="SKIP")
        if name in known and not node.replace:
            raise BigQueryError("duplicate", f"Already Exists: Table {node.target[-1]}", "query")
        compiler = self.runner.compiler(source)
        ref = TableRef(self.session.project, "_script", node.target[-1])
        if node.partition_by is not None and len(node.target) > 1:
            fail(source, "A temporary table takes no dataset", node.pos)
        table, rows = self._new_table(node, ref, source, compiler)
        relation = f"temp.{quote(self.session.unique('_temp'))}"
        columns = ", ".join(
            f"{quote(item.name)} {column_type(item)}{' NOT NULL' if item.mode is Mode.REQUIRED else ''}"
            + (" DEFAULT []" if item.mode is Mode.REPEATED else "")
            for item in table.schema
        )
        if not dry:
            self.runner.execute(f"CREATE TEMP TABLE {relation.removeprefix('temp.')} ({columns})")
            if rows:
                listed = ", ".join(quote(item.name) for item in table.schema)
                self.runner.execute(
                    f"INSERT INTO {relation} ({listed}) SELECT {listed} FROM ({rows}) AS _r", compiler.collected.bound
                )
            known[name] = TempTable(relation, table.schema)
        operation = "REPLACE" if name in known and node.replace else "CREATE"
        return StatementResult(
            kind, text, ddl_operation=operation, referenced_tables=tuple(compiler.collected.referenced)
        )

    def _create_external(self, node: ast.CreateTable, source: Source, text: str, dry: bool) -> StatementResult:
        create = self.session.surroundings.create_external
        if create is None:
            raise not_implemented("CREATE EXTERNAL TABLE")
        ref = self.runner.compiler(source).table_ref(node.target, node)
        existing = self.catalog.find_table(ref)
        operation = "REPLACE" if existing else "CREATE"
        if existing is not None and node.if_not_exists:
            operation = "SKIP"
        elif existing is not None and not node.replace:
            raise BigQueryError("duplicate", f"Already Exists: Table {ref}", "query")
        elif not dry:
            create(
                CreateExternalRequest(
                    table_name(ref),
                    evaluate(self.runner, node.options, source),
                    self.fields(node.columns, source) if node.columns is not None else None,
                    self.fields(node.partition_columns, source) if node.partition_columns is not None else None,
                    node.replace,
                    node.if_not_exists,
                )
            )
        return StatementResult("CREATE_EXTERNAL_TABLE", text, ddl_target=table_name(ref), ddl_operation=operation)

    def _create_view(self, node: ast.CreateView, source: Source, text: str, dry: bool) -> StatementResult:
        if node.materialized:
            raise not_implemented("materialized views")
        ref = self.runner.compiler(source).table_ref(node.target, node)
        existing = self.catalog.find_table(ref)
        if existing is not None and node.if_not_exists:
            return StatementResult("CREATE_VIEW", text, ddl_target=table_name(ref), ddl_operation="SKIP")
        if existing is not None and (not node.replace or existing.kind is not TableKind.VIEW):
            raise BigQueryError("duplicate", f"Already Exists: Table {ref}", "query")
        schema, read = self._view_schema(node, ref)
        now = self.session.now
        view = Table(ref, schema, now, now, kind=TableKind.VIEW, view_query=node.text)
        view = with_options(view, evaluate(self.runner, node.options, source))
        if not dry:
            if existing is not None:
                self.catalog.drop_table(ref)
            self.catalog.create_table(view)
        operation = "REPLACE" if existing is not None else "CREATE"
        return StatementResult(
            "CREATE_VIEW",
            text,
            schema=schema,
            ddl_target=table_name(ref),
            ddl_operation=operation,
            referenced_tables=read,
        )

    def _view_schema(self, node: ast.CreateView, ref: TableRef) -> tuple[Schema, tuple[TableName, ...]]:
        source, query = parse_query(node.text)
        session = replace(
            self.session, project=ref.project, default_dataset="", variables=[], parameters=(), temp_tables={}
        )
        compiler = Compiler(session, source)
        compiled = compiler.compile_query(query, None)
        _, schema = self.runner.final(compiled)
        if node.columns:
            if len(node.columns) != len(schema):
                raise BigQueryError(
                    "invalidQuery", "View column list and query have different numbers of columns", "query"
                )
            schema = tuple(replace(item, name=name) for item, name in zip(schema, node.columns, strict=True))
        return schema, tuple(compiler.collected.referenced)

    def _dataset_ref(self, parts: tuple[str, ...]) -> DatasetRef:
        if len(parts) > 2:
            raise BigQueryError("invalidQuery", f"Invalid dataset name: {'.'.join(parts)}", "query")
        return DatasetRef(parts[0] if len(parts) == 2 else self.session.project, parts[-1])

    def _create_schema(self, node: ast.CreateSchema, source: Source, text: str, dry: bool) -> StatementResult:
        ref = self._dataset_ref(node.target)
        existing = self.catalog.find_dataset(ref)
        target = TableName(ref.project, ref.dataset, "")
        if existing is not None:
            if not node.if_not_exists:
                raise BigQueryError("duplicate", f"Already Exists: Dataset {ref}", "query")
            return StatementResult("CREATE_SCHEMA", text, ddl_target=target, ddl_operation="SKIP")
        resource = {"datasetReference": ref.rest(), "location": self.session.surroundings.location}
        dataset = Dataset.from_rest(resource, ref.project, self.session.now)
        dataset = with_dataset_options(dataset, evaluate(self.runner, node.options, source))
        if not dry:
            self.catalog.create_dataset(dataset)
        return StatementResult("CREATE_SCHEMA", text, ddl_target=target, ddl_operation="CREATE")

    def _create_function(self, node: ast.CreateFunction, source: Source, text: str) -> StatementResult:
        if not node.temp:
            raise not_implemented("persistent functions (use CREATE TEMP FUNCTION)")
        name = ".".join(node.target)
        if name.lower() in self.session.functions and node.if_not_exists:
            return StatementResult("CREATE_FUNCTION", text, ddl_operation="SKIP")
        assert node.body is not None
        parameters = tuple((item, from_node(kind) if kind is not None else None) for item, kind in node.parameters)
        returns = from_node(node.returns) if node.returns is not None else None
        function = UserFunction(name, parameters, returns, node.body, source)
        if all(kind is not None for _, kind in parameters):
            values = {
                item.lower(): Value(f"CAST(NULL AS {duckdb_type(kind)})", kind) for item, kind in parameters if kind
            }
            self.runner.compiler(source).expr(node.body, Scope(values=values))
        self.session.functions[name.lower()] = function
        return StatementResult("CREATE_FUNCTION", text, ddl_operation="CREATE")

    def _drop(self, node: ast.Drop, source: Source, text: str, dry: bool) -> StatementResult:
        kind = "DROP_" + node.kind.replace(" ", "_")
        if node.kind == "SCHEMA":
            return self._drop_schema(node, text, dry)
        if node.kind == "FUNCTION":
            return self._drop_function(node, text)
        if node.kind == "TABLE" and len(node.target) == 1 and node.target[0].lower() in self.session.temp_tables:
            temp = self.session.temp_tables[node.target[0].lower()]
            if not dry:
                self.runner.execute(f"DROP TABLE {temp.relation}")
                del self.session.temp_tables[node.target[0].lower()]
            return StatementResult(kind, text, ddl_operation="DROP")
        ref = self.runner.compiler(source).table_ref(node.target, node)
        table = self.catalog.find_table(ref)
        if table is None:
            if node.if_exists:
                return StatementResult(kind, text, ddl_target=table_name(ref), ddl_operation="SKIP")
            raise missing_table(self.catalog, ref, self.session.surroundings.location)
        wanted = {
            "TABLE": (TableKind.TABLE,),
            "VIEW": (TableKind.VIEW,),
            "EXTERNAL TABLE": (TableKind.EXTERNAL,),
            "SNAPSHOT TABLE": (TableKind.SNAPSHOT,),
        }.get(node.kind, ())
        if table.kind not in wanted:
            raise BigQueryError("invalidQuery", f"Cannot drop {ref}: it is a {table.kind}, not a {node.kind}", "query")
        if not dry:
            self.catalog.drop_table(ref)
        return StatementResult(kind, text, ddl_target=table_name(ref), ddl_operation="DROP")

    def _drop_schema(self, node: ast.Drop, text: str, dry: bool) -> StatementResult:
        ref = self._dataset_ref(node.target)
        target = TableName(ref.project, ref.dataset, "")
        if self.catalog.find_dataset(ref) is None:
            if node.if_exists:
                return StatementResult("DROP_SCHEMA", text, ddl_target=target, ddl_operation="SKIP")
            location = self.session.surroundings.location
            raise BigQueryError("notFound", f"Not found: Dataset {ref} was not found in location {location}", "query")
        if not dry:
            self.catalog.delete_dataset(ref, delete_contents=node.cascade)
        return StatementResult("DROP_SCHEMA", text, ddl_target=target, ddl_operation="DROP")

    def _drop_function(self, node: ast.Drop, text: str) -> StatementResult:
        name = ".".join(node.target)
        if self.session.functions.pop(name.lower(), None) is None and not node.if_exists:
            raise BigQueryError("notFound", f"Not found: Routine {name}", "query")
        return StatementResult("DROP_FUNCTION", text, ddl_operation="DROP")

    def _alter(self, node: ast.Alter, source: Source, text: str, dry: bool) -> StatementResult:
        if node.kind == "SCHEMA":
            return self._alter_schema(node, source, text, dry)
        compiler = self.runner.compiler(source)
        kind = f"ALTER_{node.kind}"
        ref = compiler.table_ref(node.target, node)
        table = self.catalog.find_table(ref)
        if table is None:
            if node.if_exists:
                return StatementResult(kind, text, ddl_target=table_name(ref), ddl_operation="SKIP")
            raise missing_table(self.catalog, ref, self.session.surroundings.location)
        if (table.kind is TableKind.VIEW) != (node.kind == "VIEW"):
            raise BigQueryError(
                "invalidQuery", f"ALTER {node.kind} is not allowed for {ref}: it is a {table.kind}", "query"
            )
        if not dry:
            for action in node.actions:
                self._apply(action, table.ref, source)
        return StatementResult(kind, text, ddl_target=table_name(ref), ddl_operation="ALTER")

    def _apply(self, action: ast.AlterAction, ref: TableRef, source: Source) -> None:
        table = self.catalog.table(ref)
        column = table.field(action.name) if action.name else None
        if action.name and column is None:
            if action.if_exists:
                return
            raise BigQueryError("invalidQuery", f"Column not found: {action.name}", "query")
        match action.kind:
            case "ADD":
                self._add_column(action, table, source)
            case "DROP":
                self.catalog.drop_column(ref, action.name)
            case "RENAME_COLUMN":
                self.catalog.rename_column(ref, action.name, action.new_name)
            case "RENAME":
                self.catalog.rename_table(ref, action.new_name.split(".")[-1])
            case "SET_OPTIONS":
                self.catalog.update_table(with_options(table, evaluate(self.runner, action.options, source)))
            case _:
                assert column is not None
                self._alter_column(action, table, column, source)

    def _add_column(self, action: ast.AlterAction, table: Table, source: Source) -> None:
        assert action.field is not None
        item = self._field(action.field, source)
        if table.field(item.name) is not None:
            if action.field.if_not_exists:
                return
            raise BigQueryError("invalidQuery", f"Column already exists: {item.name}", "query")
        if item.mode is Mode.REQUIRED:
            raise BigQueryError(
                "invalidQuery",
                f"Cannot add required column {item.name} to an existing table: it must be nullable",
                "query",
            )
        if item.default:
            raise BigQueryError(
                "invalidQuery",
                "Adding a column with a default value is not supported: add it, then SET DEFAULT",
                "query",
            )
        self.catalog.alter_schema(table.ref, (*table.schema, item))

    def _alter_column(self, action: ast.AlterAction, table: Table, column: Field, source: Source) -> None:
        match action.kind:
            case "DROP_NOT_NULL":
                changed = replace(column, mode=Mode.NULLABLE) if column.mode is Mode.REQUIRED else column
            case "SET_TYPE":
                assert action.type is not None
                wanted = field_from_node(ast.FieldNode(action.pos, column.name, action.type))
                changed = replace(wanted, mode=column.mode, description=column.description, default=column.default)
            case "SET_DEFAULT":
                assert action.value is not None
                self.runner.compiler(source).typed(action.value, Scope(), from_field(column))
                changed = replace(column, default=action.text)
            case "DROP_DEFAULT":
                changed = replace(column, default="")
            case _:
                options = evaluate(self.runner, action.options, source)
                changed = replace(column, description=str(options.get("description") or ""))
        schema = tuple(changed if item is column else item for item in table.schema)
        self.catalog.alter_schema(table.ref, schema, widen=True)

    def _alter_schema(self, node: ast.Alter, source: Source, text: str, dry: bool) -> StatementResult:
        ref = self._dataset_ref(node.target)
        dataset = self.catalog.find_dataset(ref)
        target = TableName(ref.project, ref.dataset, "")
        if dataset is None:
            if node.if_exists:
                return StatementResult("ALTER_SCHEMA", text, ddl_target=target, ddl_operation="SKIP")
            raise BigQueryError("notFound", f"Not found: Dataset {ref}", "query")
        for action in node.actions:
            if action.kind != "SET_OPTIONS":
                raise not_implemented(f"ALTER SCHEMA {action.kind}")
            dataset = with_dataset_options(dataset, evaluate(self.runner, action.options, source))
        if not dry:
            self.catalog.update_dataset(dataset)
        return StatementResult("ALTER_SCHEMA", text, ddl_target=target, ddl_operation="ALTER")
