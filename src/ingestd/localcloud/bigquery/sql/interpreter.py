"""Runs a script: variables, control flow, transactions, error handlers, and each plain statement in turn."""
# ruff: noqa: S608 - identifiers go through `quote`, values are bound or written by `literal`

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ingestd.formats.errors import BigQueryError, not_implemented
from ingestd.googlesql import ast
from ingestd.googlesql.names import Scope
from ingestd.googlesql.parser import Script
from ingestd.googlesql.types import BOOL, STRING, SqlType, struct_of
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.duckdb_types import quote
from ingestd.localcloud.bigquery.sql.context import Variable
from ingestd.localcloud.bigquery.sql.ddl import DdlRunner, table_name
from ingestd.localcloud.bigquery.sql.dml import DmlRunner
from ingestd.localcloud.bigquery.sql.layout import evaluate, partitioning
from ingestd.localcloud.bigquery.sql.reading import fail, from_node, mistake, parse_script
from ingestd.localcloud.bigquery.sql.results import ExportRequest, LoadRequest, StatementResult
from ingestd.localcloud.bigquery.sql.runner import Runner

_DML = (ast.Insert, ast.Update, ast.Delete, ast.Merge, ast.Truncate)
_DDL = (ast.CreateTable, ast.CreateView, ast.CreateSchema, ast.CreateFunction, ast.Drop, ast.Alter)
_NOT_CAUGHT = ("notImplemented", "stopped")


class _Jump(Exception):  # noqa: N818
    def __init__(self, kind: str, label: str) -> None:
        super().__init__(kind)
        self.kind, self.label = kind, label


class Interpreter:
    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.session = runner.session
        self.results: list[StatementResult] = []
        self._dml = DmlRunner(runner)
        self._ddl = DdlRunner(runner)
        self._script: Script | None = None
        self._error: BigQueryError | None = None

    def run(self, script: Script) -> None:
        try:
            with self._frame():
                self._run_script(script)
        except _Jump as jump:
            if jump.kind != "RETURN":
                raise BigQueryError(
                    "invalidQuery", f"{jump.kind} is only allowed inside of a loop body", "query"
                ) from None
        finally:
            self.runner.close()

    def dry(self, script: Script) -> StatementResult:
        self._script = script
        located = script.block[0]
        with self._frame():
            return self.plain(located.statement, script.text(located), dry=True)

    def _run_script(self, script: Script) -> None:
        outer, self._script = self._script, script
        try:
            self._block(script.block)
        finally:
            self._script = outer

    @property
    def script(self) -> Script:
        assert self._script is not None
        return self._script

    @contextlib.contextmanager
    def _frame(self) -> Iterator[None]:
        self.session.variables.append({})
        try:
            yield
        finally:
            self.session.variables.pop()

    def _block(self, block: ast.Block) -> None:
        for located in block:
            check = self.session.surroundings.before_statement
            if check is not None:
                check()
            self.session.now = self.runner.now()
            self._statement(located)

    def _statement(self, located: ast.Located) -> None:
        node = located.statement
        if isinstance(node, (*_DML, *_DDL, ast.QueryStatement, ast.ExportData, ast.LoadData, ast.Assert)):
            self._plain(node, located)
            return
        handler = getattr(self, f"_run_{type(node).__name__.lower()}", None)
        if handler is None:
            raise not_implemented(node.feature if isinstance(node, ast.Unsupported) else type(node).__name__)
        handler(node)

    def _plain(self, node: ast.Statement, located: ast.Located) -> None:
        text = self.script.text(located)
        started = self.runner.now()
        if self.runner.aborted and isinstance(node, ast.QueryStatement):
            result = self.plain(node, text)  # a handler may look around before it rolls back
        else:
            result = self.runner.atomically(lambda: self._committed(node, text))
        line = self.script.source.line(located.start)
        self.results.append(replace(result, started=started, ended=self.runner.now(), line=line))
        if result.dml is not None:
            self.session.system["row_count"] = result.dml.affected
        elif isinstance(node, ast.QueryStatement) and result.relation is not None:
            self.session.system["row_count"] = None

    def _committed(self, node: ast.Statement, text: str) -> StatementResult:
        result = self.plain(node, text)
        committing = self.session.surroundings.committing
        if committing is not None and not self.script.procedural:
            committing(result)
        return result

    def plain(self, node: ast.Statement, text: str, *, dry: bool = False) -> StatementResult:
        source = self.script.source
        if isinstance(node, _DML):
            return self._dml.run(node, source, text, dry=dry)
        if isinstance(node, _DDL):
            return self._ddl.run(node, source, text, dry=dry)
        if isinstance(node, ast.QueryStatement):
            return self._query(node, text, dry)
        if isinstance(node, ast.ExportData):
            return self._export(node, text, dry)
        if isinstance(node, ast.LoadData):
            return self._load(node, text, dry)
        assert isinstance(node, ast.Assert)
        return self._assert(node, text, dry)

    def _query(self, node: ast.QueryStatement, text: str, dry: bool) -> StatementResult:
        compiler = self.runner.compiler(self.script.source)
        query = compiler.compile_query(node.query, None)
        referenced = tuple(compiler.collected.referenced)
        if dry:
            return StatementResult("SELECT", text, schema=self.runner.final(query)[1], referenced_tables=referenced)
        relation, schema = self.runner.keep(query, compiler.collected.bound)
        return StatementResult("SELECT", text, relation, schema, referenced_tables=referenced)

    def _export(self, node: ast.ExportData, text: str, dry: bool) -> StatementResult:
        export = self.session.surroundings.export_data
        if export is None:
            raise not_implemented("EXPORT DATA")
        compiler = self.runner.compiler(self.script.source)
        query = compiler.compile_query(node.query, None)
        options = evaluate(self.runner, node.options, self.script.source)
        referenced = tuple(compiler.collected.referenced)
        if not dry:
            sql, schema = self.runner.final(query)
            name = self.session.unique("_export")
            self.runner.execute(f"CREATE TEMP TABLE {quote(name)} AS {sql}", compiler.collected.bound)
            export(ExportRequest(options, f"temp.{quote(name)}", schema))
            self.runner.execute(f"DROP TABLE temp.{quote(name)}")
        return StatementResult("EXPORT_DATA", text, referenced_tables=referenced)

    def _load(self, node: ast.LoadData, text: str, dry: bool) -> StatementResult:
        load = self.session.surroundings.load_data
        if load is None:
            raise not_implemented("LOAD DATA")
        source = self.script.source
        ref = self.runner.compiler(source).table_ref(node.target, node)
        time, ranges = partitioning(node.partition_by, source, self.runner)
        request = LoadRequest(
            table_name(ref),
            node.overwrite,
            evaluate(self.runner, node.files, source),
            self._ddl.fields(node.columns, source) if node.columns is not None else None,
            self._ddl.fields(node.partition_columns, source) if node.partition_columns is not None else None,
            time.rest() if time else None,
            ranges.rest() if ranges else None,
            node.cluster_by,
            evaluate(self.runner, node.options, source),
        )
        if not dry:
            load(request)
        return StatementResult("LOAD_DATA", text, ddl_target=table_name(ref))

    def _assert(self, node: ast.Assert, text: str, dry: bool) -> StatementResult:
        compiler = self.runner.compiler(self.script.source)
        condition = compiler.condition(node.condition, Scope(), "ASSERT")
        if not dry and self.runner.rows(f"SELECT {condition}", compiler.collected.bound) != [(True,)]:
            raise BigQueryError("invalidQuery", node.message or "Assertion failed", "query")
        return StatementResult("ASSERT", text, referenced_tables=tuple(compiler.collected.referenced))

    def _run_declare(self, node: ast.Declare) -> None:
        if node.type is None and node.default is None:
            fail(self.script.source, "DECLARE needs a type or a DEFAULT", node.pos)
        value: Value | None = None
        kind: SqlType
        compiler = self.runner.compiler(self.script.source)
        if node.type is not None:
            kind = from_node(node.type)
            if node.default is not None:
                value = compiler.typed(node.default, Scope(), kind)
        else:
            assert node.default is not None
            value = compiler.expr(node.default, Scope())
            kind = value.type
        for name in node.names:
            if name.lower() in self.session.variables[-1]:
                fail(self.script.source, f"Variable '{name}' redeclaration", node.pos)
        for name in node.names:
            variable = self.runner.declare(name, kind)
            self.runner.assign(variable, value, compiler.collected.bound)

    def _variable(self, name: str, node: ast.Node) -> Variable:
        found = self.session.variable(name)
        if found is None:
            fail(self.script.source, f"Undeclared variable: {name}", node.pos)
        return found

    def _run_setvariable(self, node: ast.SetVariable) -> None:
        if node.system:
            self._set_system(node)
            return
        compiler = self.runner.compiler(self.script.source)
        if len(node.values) == 1 and len(node.names) > 1:
            self._set_from_struct(node)
            return
        if len(node.names) != len(node.values):
            fail(self.script.source, "SET has different numbers of variables and values", node.pos)
        pending: list[tuple[Variable, Value]] = []
        for name, item in zip(node.names, node.values, strict=True):
            variable = self._variable(name, node)
            pending.append((variable, compiler.typed(item, Scope(), variable.type)))
        if len(pending) == 1:
            self.runner.assign(*pending[0], compiler.collected.bound)
            return
        # All values are read before any variable changes.
        listed = ", ".join(f"{value.sql} AS v{index}" for index, (_, value) in enumerate(pending))
        self.runner.execute(f"CREATE OR REPLACE TEMP TABLE _pending AS SELECT {listed}", compiler.collected.bound)
        for index, (variable, _) in enumerate(pending):
            self.runner.assign(variable, Value(f"(SELECT v{index} FROM temp._pending)", variable.type))

    def _set_from_struct(self, node: ast.SetVariable) -> None:
        compiler = self.runner.compiler(self.script.source)
        value = compiler.expr(node.values[0], Scope())
        if value.type.kind != "STRUCT" or len(value.type.fields) != len(node.names):
            fail(self.script.source, f"Cannot assign {value.type} to {len(node.names)} variables", node.pos)
        self.runner.execute(
            f"CREATE OR REPLACE TEMP TABLE _pending AS SELECT {value.sql} AS v", compiler.collected.bound
        )
        for name, physical, (_, kind) in zip(node.names, value.type.physical_names, value.type.fields, strict=True):
            variable = self._variable(name, node)
            member = Value(f"(SELECT v.{quote(physical)} FROM temp._pending)", kind)
            self.runner.assign(variable, compiler.must(member, variable.type, node))

    def _set_system(self, node: ast.SetVariable) -> None:
        name = node.names[0]
        value, _ = self.runner.value(node.values[0], self.script.source)
        if name == "dataset_id":
            self.session.default_dataset = str(value or "")
        elif name == "dataset_project_id":
            self.session.default_project = str(value or self.session.project)
        elif name == "time_zone":
            if str(value).upper() != "UTC":
                raise not_implemented("SET @@time_zone other than UTC")
        elif name not in ("query_label",):
            raise not_implemented(f"SET @@{name}")
        self.session.system[name] = value

    def _true(self, node: ast.Expression) -> bool:
        value, _ = self.runner.value(node, self.script.source, BOOL)
        return value is True

    def _run_if(self, node: ast.If) -> None:
        for condition, block in node.branches:
            if self._true(condition):
                self._scoped(block)
                return
        self._scoped(node.otherwise)

    def _run_casestatement(self, node: ast.CaseStatement) -> None:
        for condition, block in node.branches:
            test = condition if node.operand is None else ast.Binary(condition.pos, "=", node.operand, condition)
            if self._true(test):
                self._scoped(block)
                return
        self._scoped(node.otherwise)

    def _scoped(self, block: ast.Block) -> None:
        self._block(block)

    def _run_loop(self, node: ast.Loop) -> None:
        while node.kind != "WHILE" or (node.condition is not None and self._true(node.condition)):
            try:
                self._block(node.body)
            except _Jump as jump:
                if not self._stays(jump, node.label):
                    return
            if node.kind == "REPEAT" and node.condition is not None and self._true(node.condition):
                return

    def _stays(self, jump: _Jump, label: str) -> bool:
        """Whether the loop goes on after a jump; a jump meant for another loop passes through."""
        if jump.kind == "RETURN" or (jump.label and jump.label.lower() != label.lower()):
            raise jump
        return jump.kind == "CONTINUE"

    def _run_forin(self, node: ast.ForIn) -> None:
        compiler = self.runner.compiler(self.script.source)
        sql, schema = self.runner.final(compiler.compile_query(node.query, None))
        name = self.session.unique("_for")
        self.runner.execute(
            f"CREATE TEMP TABLE {quote(name)} AS SELECT *, row_number() OVER () AS _n FROM ({sql}) AS _q",
            compiler.collected.bound,
        )
        from ingestd.googlesql.columns import from_schema

        kind = struct_of(from_schema(schema))
        members = ", ".join(f"{quote(item.name)} := {quote(item.name)}" for item in schema)
        total = self.runner.count(f"SELECT count(*) FROM temp.{quote(name)}")
        with self._frame():
            variable = self.runner.declare(node.name, kind)
            for position in range(1, total + 1):
                row = f"(SELECT struct_pack({members}) FROM temp.{quote(name)} WHERE _n = {position})"
                self.runner.assign(variable, Value(row, kind))
                try:
                    self._block(node.body)
                except _Jump as jump:
                    if not self._stays(jump, node.label):
                        break
        if not self.runner.aborted:
            self.runner.execute(f"DROP TABLE temp.{quote(name)}")

    def _run_jump(self, node: ast.Jump) -> None:
        raise _Jump(node.kind, node.label)

    def _run_beginblock(self, node: ast.BeginBlock) -> None:
        with self._frame():
            try:
                self._block(node.body)
            except BigQueryError as error:
                if node.handler is None or error.reason in _NOT_CAUGHT:
                    raise
                handled = error
            except _Jump as jump:
                if jump.kind == "BREAK" and jump.label and jump.label.lower() == node.label.lower():
                    return
                raise
            else:
                return
        self._handle(handled, node.handler)

    def _handle(self, error: BigQueryError, handler: ast.Block) -> None:
        before, self._error = self._error, error
        known = dict(self.session.system)
        self.session.system |= {
            "error.message": error.message,
            "error.statement_text": self.script.source.text,
            "error.formatted_stack_trace": "",
        }
        try:
            with self._frame():
                self._block(handler)
        finally:
            self._error = before
            for name in ("error.message", "error.statement_text", "error.formatted_stack_trace"):
                if name in known:
                    self.session.system[name] = known[name]
                else:
                    self.session.system.pop(name, None)

    def _run_transaction(self, node: ast.Transaction) -> None:
        if node.kind == "BEGIN":
            self.runner.begin()
        elif node.kind == "COMMIT":
            self.runner.commit()
        else:
            self.runner.rollback()
        now = self.runner.now()
        text = f"{node.kind} TRANSACTION"
        line = self.script.source.line(node.pos)
        self.results.append(StatementResult(f"{node.kind}_TRANSACTION", text, started=now, ended=now, line=line))

    def _run_raise(self, node: ast.Raise) -> None:
        if node.message is None:
            if self._error is None:
                fail(self.script.source, "RAISE without a message is only allowed in an EXCEPTION block", node.pos)
            raise self._error
        message, _ = self.runner.value(node.message, self.script.source, STRING)
        raise mistake(self.script.source, str(message), node.pos)

    def _run_executeimmediate(self, node: ast.ExecuteImmediate) -> None:
        text, _ = self.runner.value(node.sql, self.script.source, STRING)
        if text is None:
            fail(self.script.source, "EXECUTE IMMEDIATE of NULL", node.pos)
        using: list[tuple[str, Variable]] = []
        for item, name in node.using:
            compiler = self.runner.compiler(self.script.source)
            value = compiler.expr(item, Scope())
            variable = Variable(self.session.unique("bq_u"), value.type)
            self.runner.assign(variable, value, compiler.collected.bound)
            using.append((name, variable))
        inner = parse_script(str(text))
        if len(inner.block) != 1:
            fail(self.script.source, "EXECUTE IMMEDIATE must have exactly one statement", node.pos)
        before, self.session.using = self.session.using, tuple(using) if using else None
        made = len(self.results)
        try:
            self._run_script(inner)
        finally:
            self.session.using = before
        if node.into:
            self._into(node, self.results[-1] if len(self.results) > made else None)

    def _into(self, node: ast.ExecuteImmediate, result: StatementResult | None) -> None:
        if result is None or result.relation is None or result.schema is None:
            fail(self.script.source, "EXECUTE IMMEDIATE … INTO needs a query", node.pos)
        if len(result.schema) != len(node.into):
            fail(
                self.script.source,
                f"EXECUTE IMMEDIATE INTO has {len(node.into)} variables but the query has {len(result.schema)} columns",
                node.pos,
            )
        if self.runner.in_transaction:
            raise not_implemented("EXECUTE IMMEDIATE … INTO inside a transaction")
        total = self.runner.count(f"SELECT count(*) FROM {result.relation}")
        if total > 1:
            fail(self.script.source, "EXECUTE IMMEDIATE INTO query returned more than one row", node.pos)
        from ingestd.googlesql.columns import from_field

        compiler = self.runner.compiler(self.script.source)
        for name, item in zip(node.into, result.schema, strict=True):
            variable = self._variable(name, node)
            value = Value(f"(SELECT {quote(item.name)} FROM {result.relation})", from_field(item))
            self.runner.assign(variable, compiler.must(value, variable.type, node) if total else None)


def system_variables(project: str, dataset: str, user: str, location: str) -> dict[str, Any]:
    return {
        "project_id": project,
        "dataset_id": dataset,
        "dataset_project_id": project,
        "time_zone": "UTC",
        "row_count": None,
        "location": location,
        "session_user": user,
        "script.num_stack_frames": 1,
    }
