"""Runs DuckDB statements for one script: errors translated, values bound, each BigQuery statement one transaction."""
# ruff: noqa: S608 - identifiers go through `quote`, values are bound or written by `literal`

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import duckdb

from ingestd.formats.errors import BigQueryError
from ingestd.googlesql import ast
from ingestd.googlesql.columns import to_field
from ingestd.googlesql.lexer import Source
from ingestd.googlesql.names import Scope
from ingestd.googlesql.types import SqlType
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.duckdb_types import column_type, duckdb_type, quote
from ingestd.localcloud.bigquery.sql.coercion import string_sql
from ingestd.localcloud.bigquery.sql.context import Collected, Session, Variable
from ingestd.localcloud.bigquery.sql.failures import from_duckdb, is_conflict
from ingestd.localcloud.bigquery.sql.queries import CompiledQuery, Compiler, OutColumn
from ingestd.model.clock import Clock
from ingestd.model.schema import Schema

_Answer = TypeVar("_Answer")
_ATTEMPTS = 20


class Runner:
    """The cursor, and the transaction it is in. `aborted` means a statement failed inside BEGIN TRANSACTION."""

    def __init__(self, conn: duckdb.DuckDBPyConnection, session: Session, clock: Clock) -> None:
        self.conn = conn
        self.session = session
        self.clock = clock
        self.in_transaction = False
        self.aborted = False
        self._kept: list[tuple[str, Any, Schema]] = []

    def execute(self, sql: str, bound: Mapping[str, object] | None = None) -> None:
        """Run a statement to its end; its rows do not matter."""
        try:
            self._start(sql, bound).complete()
        except duckdb.Error as error:
            if is_conflict(error):
                raise
            raise from_duckdb(error) from error

    def rows(self, sql: str, bound: Mapping[str, object] | None = None) -> list[tuple[Any, ...]]:
        try:
            return self._start(sql, bound).fetchall()
        except duckdb.Error as error:
            if is_conflict(error):
                raise
            raise from_duckdb(error) from error

    def _start(self, sql: str, bound: Mapping[str, object] | None) -> duckdb.DuckDBPyConnection:
        return self.conn.execute(sql, dict(bound)) if bound else self.conn.execute(sql)

    def count(self, sql: str, bound: Mapping[str, object] | None = None) -> int:
        """Run a statement that answers with a number: the rows it changed."""
        rows = self.rows(sql, bound)
        return int(rows[0][0]) if rows else 0

    def atomically(self, work: Callable[[], _Answer]) -> _Answer:
        """All of `work` or nothing. Lost races with other transactions are tried again, as BigQuery queues DML."""
        if self.in_transaction:
            return self._inside(work)
        for attempt in range(_ATTEMPTS):
            last = attempt == _ATTEMPTS - 1
            version = self.session.catalog.version
            self.conn.execute("BEGIN TRANSACTION")
            try:
                answer = work()
                if self._outdated(version) and not last:
                    self._rollback()
                    continue
                self.conn.execute("COMMIT")
            except duckdb.Error as error:
                self._rollback()
                if last or not (is_conflict(error) or self._outdated(version)):
                    raise self._translated(error) from error
            except BigQueryError:
                self._rollback()
                if last or not self._outdated(version):
                    raise
            except BaseException:
                self._rollback()
                raise
            else:
                return answer
        raise AssertionError

    def _outdated(self, version: int) -> bool:
        """Whether names or columns changed since: the statement may have been compiled from others than it ran on.

        Only a reader can find them changed; a writer's own changes move the version when they are committed.
        """
        return self.session.catalog.version != version

    def _inside(self, work: Callable[[], _Answer]) -> _Answer:
        if self.aborted:
            raise BigQueryError("invalidQuery", "Transaction was aborted by an earlier error; roll it back", "query")
        try:
            return work()
        except duckdb.Error as error:
            self.abort()
            raise self._translated(error) from error
        except BaseException:
            self.abort()
            raise

    def _translated(self, error: duckdb.Error) -> BigQueryError:
        if is_conflict(error):
            return BigQueryError("invalidQuery", "Transaction is aborted due to concurrent update", "query")
        return from_duckdb(error)

    def _rollback(self) -> None:
        try:
            self.conn.execute("ROLLBACK")
        except duckdb.Error:
            return

    def begin(self) -> None:
        if self.in_transaction:
            raise BigQueryError("invalidQuery", "Cannot begin a transaction within another transaction", "query")
        self.conn.execute("BEGIN TRANSACTION")
        self.in_transaction, self.aborted = True, False

    def commit(self) -> None:
        if not self.in_transaction:
            raise BigQueryError("invalidQuery", "There is no transaction to commit", "query")
        if self.aborted:
            raise BigQueryError("invalidQuery", "Transaction was aborted by an earlier error; roll it back", "query")
        try:
            self.conn.execute("COMMIT")
        except duckdb.Error as error:
            self._rollback()
            raise self._translated(error) from error
        finally:
            self.in_transaction = False
            self._restore()

    def rollback(self) -> None:
        if not self.in_transaction:
            raise BigQueryError("invalidQuery", "There is no transaction to roll back", "query")
        self.close()

    def abort(self) -> None:
        """DuckDB undoes everything now; the script still has to say ROLLBACK."""
        if not self.aborted:
            self._rollback()
        self.aborted = True

    def close(self) -> None:
        """Leave no transaction behind."""
        if self.in_transaction and not self.aborted:
            self._rollback()
        self.in_transaction = self.aborted = False
        self._restore()

    def keep(self, query: CompiledQuery, bound: Mapping[str, object]) -> tuple[str, Schema]:
        """Store a query's rows in a temp table of their own."""
        sql, schema = self.final(query)
        name = self.session.unique("_result")
        relation = f"temp.{quote(name)}"
        if self.in_transaction and not self.aborted:
            # A temp table would vanish with a rollback; the rows a client saw do not.
            self._kept.append((relation, self._arrow(sql, bound), schema))
        else:
            self.execute(f"CREATE TEMP TABLE {quote(name)} AS {sql}", bound)
        return relation, schema

    def _arrow(self, sql: str, bound: Mapping[str, object]) -> Any:
        try:
            self.conn.execute("SELECT 1").complete()  # an unread result of before would be in the way
            return self.conn.sql(sql, params=dict(bound) if bound else None).to_arrow_table()
        except duckdb.Error as error:
            raise from_duckdb(error) from error

    def _restore(self) -> None:
        for relation, rows, schema in self._kept:
            self.conn.register("_kept_rows", rows)
            columns = ", ".join(
                f"CAST({quote(item.name)} AS {column_type(item)}) AS {quote(item.name)}" for item in schema
            )
            self.conn.execute(f"CREATE TEMP TABLE {relation.removeprefix('temp.')} AS SELECT {columns} FROM _kept_rows")
            self.conn.unregister("_kept_rows")
        self._kept.clear()

    def compiler(self, source: Source) -> Compiler:
        return Compiler(self.session, source, Collected())

    def final(self, query: CompiledQuery) -> tuple[str, Schema]:
        """A query as the outermost one: every column has a name, and a value table of STRUCTs shows its fields."""
        columns = query.columns
        if query.value_table and columns[0].type.kind == "STRUCT":
            kind = columns[0].type
            names = [name or f"_field_{at}" for at, (name, _) in enumerate(kind.fields, 1)]
            _check_names(names)
            parts = [
                f"struct_extract(_s._v, '{physical.replace(chr(39), chr(39) * 2)}') AS {quote(name)}"
                for physical, name in zip(kind.physical_names, names, strict=True)
            ]
            schema = tuple(to_field(name, inner) for name, (_, inner) in zip(names, kind.fields, strict=True))
            return f"SELECT {', '.join(parts)} FROM ({query.sql}) AS _s", schema
        names, anonymous = [], 0
        for column in columns:
            names.append(column.name or f"f{anonymous}_")
            anonymous += 0 if column.name else 1
        _check_names(names)
        schema = tuple(to_field(name, column.type) for name, column in zip(names, columns, strict=True))
        arrays = any(column.type.kind == "ARRAY" for column in columns)
        if not arrays and all(name == column.physical for name, column in zip(names, columns, strict=True)):
            return query.sql, schema
        listed = ", ".join(
            f"{_output(column, name)} AS {quote(name)}" for column, name in zip(columns, names, strict=True)
        )
        return f"SELECT {listed} FROM ({query.sql}) AS _s", schema

    def value(self, node: ast.Expression, source: Source, target: SqlType | None = None) -> tuple[Any, SqlType]:
        """An expression's value, as Python sees it."""
        compiler = self.compiler(source)
        compiled = self._evaluated(compiler, node, target)
        return self.rows(f"SELECT {compiled.sql}", compiler.collected.bound)[0][0], compiled.type

    def _evaluated(self, compiler: Compiler, node: ast.Expression, target: SqlType | None) -> Value:
        if target is None:
            return compiler.expr(node, Scope())
        return compiler.typed(node, Scope(), target)

    def declare(self, name: str, kind: SqlType) -> Variable:
        variable = Variable(self.session.unique("bq_v"), kind)
        self.session.variables[-1][name.lower()] = variable
        return variable

    def assign(self, variable: Variable, value: Value | None, bound: Mapping[str, object] | None = None) -> None:
        """Set a variable's session slot. The value goes through a temp table: SET VARIABLE binds no parameters."""
        if value is None:
            self.execute(f"SET VARIABLE {variable.slot} = CAST(NULL AS {duckdb_type(variable.type)})")
        elif not bound:
            self.execute(f"SET VARIABLE {variable.slot} = (SELECT CAST({value.sql} AS {duckdb_type(variable.type)}))")
        else:
            typed = f"CAST({value.sql} AS {duckdb_type(variable.type)})"
            self.execute(f"CREATE OR REPLACE TEMP TABLE _assigned AS SELECT {typed} AS v", bound)
            self.execute(f"SET VARIABLE {variable.slot} = (SELECT v FROM _assigned)")

    def now(self) -> datetime:
        return self.clock.now()


def _output(column: OutColumn, name: str) -> str:
    """A column as a result shows it: a NULL array is empty, and one with NULL elements is an error."""
    sql = f"_s.{quote(column.physical)}"
    return whole_array(sql, column.type, name) if column.type.kind == "ARRAY" else sql


def whole_array(sql: str, kind: SqlType, name: str) -> str:
    message = string_sql(f"Array cannot have a null element; error in writing field {name}")
    return (
        f"CASE WHEN len({sql}) > list_count({sql}) THEN CAST(bq_error({message}) AS {duckdb_type(kind)}) "
        f"ELSE coalesce({sql}, []) END"
    )


# BigQuery also reserves _FILE_; an unaliased _FILE_NAME is let through here, as a convenience with external tables.
_RESERVED_NAMES = ("_PARTITION", "_TABLE_", "_ROW_TIMESTAMP", "__ROOT__", "_COLIDENTIFIER")


def _check_names(names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.upper().startswith(_RESERVED_NAMES):
            raise BigQueryError(
                "invalidQuery",
                f'Invalid field name "{name}". Field names are not allowed to start with the (case-insensitive) '
                "prefixes _PARTITION, _TABLE_, _FILE_, _ROW_TIMESTAMP, __ROOT__ and _COLIDENTIFIER",
                "query",
            )
        if name.lower() in seen:
            raise BigQueryError(
                "invalidQuery",
                "Duplicate column names in the result are not supported when a destination table is present. "
                f"Found duplicate(s): {name}",
                "query",
            )
        seen.add(name.lower())
