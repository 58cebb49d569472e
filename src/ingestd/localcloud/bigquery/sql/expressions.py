"""Expressions: names and types resolved as BigQuery resolves them, DuckDB SQL out."""
# ruff: noqa: S608 - identifiers go through `quote`, values are bound or written by `literal`

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from ingestd.formats.errors import BigQueryError, not_implemented
from ingestd.googlesql import ast
from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.lexer import Source
from ingestd.googlesql.names import Scope
from ingestd.googlesql.types import BOOL, BYTES, INT64, JSON, SCALARS, STRING, SqlType
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.duckdb_types import duckdb_type
from ingestd.localcloud.bigquery.sql.coercion import (
    cast,
    coerce,
    literal,
    parse_literal,
    string_sql,
    supertype,
)
from ingestd.localcloud.bigquery.sql.context import Collected, Session, Variable
from ingestd.localcloud.bigquery.sql.operators import DuckDbOperators
from ingestd.localcloud.bigquery.sql.parameters import typed_value
from ingestd.localcloud.bigquery.sql.reading import fail, from_node, mistake, worded

if TYPE_CHECKING:
    from ingestd.localcloud.bigquery.sql.queries import CompiledQuery


class ExpressionCompiler(DuckDbOperators):
    """Compiles against a `Scope`. `source` words positions; `collected` gathers what the statement uses."""

    def __init__(self, session: Session, source: Source, collected: Collected | None = None) -> None:
        self.session = session
        self.source = source
        self.collected = collected if collected is not None else Collected()

    def compile_query(self, query: ast.Query, parent: Scope | None) -> "CompiledQuery":
        raise NotImplementedError

    def fail(self, message: str, node: ast.Node | int) -> NoReturn:
        fail(self.source, message, node if isinstance(node, int) else node.pos)

    def expr(self, node: ast.Expression, scope: Scope) -> Value:
        self.collected.depth += 1
        if self.collected.depth > 150:
            raise BigQueryError("resourcesExceeded", "Query is too complex: expressions nested too deeply", "query")
        try:
            return super().expr(node, scope)
        except (SqlError, BigQueryError) as error:
            found = worded(error) if isinstance(error, SqlError) else error
            if found.reason == "invalidQuery" and " at [" not in found.message:
                raise mistake(self.source, found.message, node.pos) from None
            raise found from None
        finally:
            self.collected.depth -= 1

    def unavailable(self, node: ast.Expression) -> BigQueryError:
        return not_implemented(type(node).__name__)

    def condition(self, node: ast.Expression, scope: Scope, clause: str) -> str:
        return self.typed(node, scope, BOOL, clause).sql

    def must(self, value: Value, kind: SqlType, node: ast.Node) -> Value:
        converted = coerce(value, kind)
        if converted is None:
            self.fail(f"Could not coerce {value.type} to {kind}", node)
        return converted

    def mistake(self, message: str, node: ast.Node) -> BigQueryError:
        return mistake(self.source, message, node.pos)

    def mismatch(self, what: str, values: Sequence[Value], node: ast.Node) -> Exception:
        if what == "operator LIKE" and values[0].type is BYTES:
            return not_implemented("LIKE on BYTES")
        return super().mismatch(what, values, node)

    def range_literal(self, node: ast.RangeLiteral, scope: Scope) -> Value:
        element = SCALARS.get(node.element)
        bounds = node.text.strip()
        if element is None or not bounds.startswith("[") or not bounds.endswith(")") or "," not in bounds:
            self.fail("Invalid RANGE literal", node)
        kind = SqlType("RANGE", element)
        parts = []
        for text in bounds[1:-1].split(","):
            text = text.strip()
            if text.upper() in ("UNBOUNDED", "NULL"):
                parts.append(f"CAST(NULL AS {duckdb_type(element)})")
                continue
            value = parse_literal(text, element)
            if value is None:
                self.fail("Invalid RANGE literal", node)
            parts.append(value.sql)
        return Value(f'struct_pack("start" := {parts[0]}, "end" := {parts[1]})', kind)

    def interval(self, node: ast.IntervalValue, scope: Scope) -> Value:
        from ingestd.localcloud.bigquery.sql.library.intervals import interval

        return interval(self, node, scope)

    def parameter(self, node: ast.Param, scope: Scope) -> Value:
        if self.session.using is not None:
            return self._using_param(node, self.session.using)
        parameters = self.session.parameters
        if node.name:
            found = next((item for item in parameters if item.name.lower() == node.name.lower()), None)
            if found is None:
                self.fail(f"Query parameter '{node.name}' not found", node)
            key = f"p_{node.name.lower()}"
        else:
            positional = [item for item in parameters if not item.name]
            if node.index > len(positional):
                self.fail("Query parameter not found: too few positional parameters were given", node)
            found, key = positional[node.index - 1], f"p_{node.index}"
        kind, value = typed_value(found)
        self.collected.bound[key] = value
        return Value(f"CAST(${key} AS {duckdb_type(kind)})", kind, literal=True, constant=value, parameter=True)

    def _using_param(self, node: ast.Param, using: tuple[tuple[str, Variable], ...]) -> Value:
        if node.name:
            found = next((item for name, item in using if name.lower() == node.name.lower()), None)
        else:
            found = using[node.index - 1][1] if node.index <= len(using) else None
        if found is None:
            self.fail(f"Query parameter '{node.name or node.index}' not found", node)
        return self.read(found)

    def read(self, variable: Variable) -> Value:
        return Value(f"CAST(getvariable('{variable.slot}') AS {duckdb_type(variable.type)})", variable.type)

    def system_variable(self, node: ast.SystemVariable, scope: Scope) -> Value:
        known = self.session.system
        if node.name not in known:
            self.fail(f"Unrecognized system variable @@{node.name}", node)
        value = known[node.name]
        kind = INT64 if isinstance(value, int) and not isinstance(value, bool) else STRING
        if node.name == "row_count":
            kind = INT64
        return Value(literal(value, kind).sql, kind)

    def variable(self, name: str) -> Value | None:
        found = self.session.variable(name)
        return None if found is None else self.read(found)

    def member(self, value: Value, name: str, node: ast.Node) -> Value:
        if value.type is JSON:
            return Value(f"CAST(bq_json_member({value.sql}, {string_sql(name)}) AS JSON)", JSON)
        return super().member(value, name, node)

    def subscript(self, base: Value, node: ast.Index, scope: Scope) -> Value:
        if base.type is JSON and not node.mode:
            key = self.expr(node.index, scope)
            if key.type is STRING:
                return Value(f"CAST(bq_json_member({base.sql}, {key.sql}) AS JSON)", JSON)
            item = coerce(key, INT64)
            if item is None:
                self.fail(f"Subscript of JSON must be INT64 or STRING, not {key.type}", node)
            return Value(f"CAST(bq_json_item({base.sql}, {item.sql}) AS JSON)", JSON)
        if base.type.kind == "STRUCT" and node.mode in ("OFFSET", "ORDINAL", ""):
            return self._struct_index(base, node)
        return super().subscript(base, node, scope)

    def _struct_index(self, base: Value, node: ast.Index) -> Value:
        if not isinstance(node.index, ast.Literal) or not isinstance(node.index.value, int):
            self.fail("Field position in a STRUCT must be a literal", node)
        at = node.index.value - (1 if node.mode == "ORDINAL" else 0)
        if not 0 <= at < len(base.type.fields):
            self.fail(f"Field position {node.index.value} is out of bounds in {base.type}", node)
        name = base.type.physical_names[at]
        return Value(f"struct_extract({base.sql}, {string_sql(name)})", base.type.fields[at][1])

    def call(self, node: ast.Call, scope: Scope) -> Value:
        from ingestd.localcloud.bigquery.sql.library import call

        return call(self, node, scope)

    def lambda_(self, node: ast.Lambda, scope: Scope) -> Value:
        self.fail("Lambda is not expected here", node)

    def cast(self, node: ast.Cast, scope: Scope) -> Value:
        from ingestd.localcloud.bigquery.sql.library.formats import cast_with_format, cast_with_parameters, safe_cast

        value = self.expr(node.value, scope)
        target = from_node(node.type)
        if node.format is not None:
            return cast_with_format(self, value, target, node, scope)
        if node.type.parameters:
            return cast_with_parameters(self, value, target, node)
        if node.safe:
            return safe_cast(self, value, target)
        return self.read_as(value, target, node) or cast(value, target)

    def extract(self, node: ast.Extract, scope: Scope) -> Value:
        from ingestd.localcloud.bigquery.sql.library.dates import extract

        return extract(self, node, scope)

    def in_query(self, node: ast.In, query: ast.Query, scope: Scope) -> Value:
        value = self.expr(node.value, scope)
        found = self.compile_query(query, scope)
        if len(found.columns) != 1:
            self.fail("Subquery of type IN must have only one output column", node)
        column = found.columns[0]
        kind = supertype([value, Value("", column.type)])
        left = coerce(value, kind) if kind else None
        if left is None or kind is None:
            self.fail(f"Cannot execute IN subquery with uncomparable types {value.type} and {column.type}", node)
        inner = found.sql
        if kind != column.type:
            converted = cast(Value("_v", column.type), kind)
            inner = f"SELECT {converted.sql} FROM ({found.sql}) AS _in(_v)"
        return Value(f"({left.sql} {'NOT ' if node.negated else ''}IN ({inner}))", BOOL)

    def like(self, node: ast.Like, scope: Scope) -> Value:
        if node.array is not None:
            raise not_implemented("LIKE ANY/ALL UNNEST")
        return super().like(node, scope)

    def struct(self, node: ast.StructValue, scope: Scope) -> Value:
        if not node.items:
            raise not_implemented("a STRUCT without fields")
        return super().struct(node, scope)

    def scalar_query(self, node: ast.ScalarQuery, scope: Scope) -> Value:
        query = self.compile_query(node.query, scope)
        if len(query.columns) != 1:
            self.fail(
                "Scalar subquery cannot have more than one column unless using SELECT AS STRUCT to build STRUCT values",
                node,
            )
        return Value(f"({query.sql})", query.columns[0].type)

    def exists(self, node: ast.Exists, scope: Scope) -> Value:
        return Value(f"EXISTS ({self.compile_query(node.query, scope).sql})", BOOL)

    def default(self, node: ast.Default, scope: Scope) -> Value:
        self.fail("Unexpected keyword DEFAULT", node)
