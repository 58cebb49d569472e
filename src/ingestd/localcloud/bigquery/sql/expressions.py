"""Expressions: names and types resolved as BigQuery resolves them, DuckDB SQL out."""
# ruff: noqa: S608 - identifiers go through `quote`, values are bound or written by `literal`

import math
from decimal import Decimal
from typing import TYPE_CHECKING, NoReturn

from ingestd.formats.errors import BigQueryError, not_implemented
from ingestd.googlesql import ast
from ingestd.googlesql.lexer import Source
from ingestd.googlesql.literals import INT64_MAX, INT64_MIN
from ingestd.googlesql.types import BOOL, BYTES, FLOAT64, INT64, JSON, SCALARS, STRING, SqlType, struct_of
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.sql.coercion import (
    NULL,
    array_value,
    cast,
    coerce,
    literal,
    parse_literal,
    string_sql,
    supertype,
)
from ingestd.localcloud.bigquery.sql.context import Collected, Session, Variable
from ingestd.localcloud.bigquery.sql.duckdb_types import duckdb_type
from ingestd.localcloud.bigquery.sql.names import AmbiguousName, Range, Scope, pack
from ingestd.localcloud.bigquery.sql.parameters import typed_value
from ingestd.localcloud.bigquery.sql.reading import fail, from_node, mistake

if TYPE_CHECKING:
    from ingestd.localcloud.bigquery.sql.queries import CompiledQuery

_LITERALS = {"INT64": INT64, "FLOAT64": FLOAT64, "STRING": STRING, "BYTES": BYTES, "BOOL": BOOL}
_ORDERED = frozenset(
    [
        "INT64",
        "FLOAT64",
        "NUMERIC",
        "BIGNUMERIC",
        "BOOL",
        "STRING",
        "BYTES",
        "DATE",
        "TIME",
        "DATETIME",
        "TIMESTAMP",
        "INTERVAL",
    ]
)


class ExpressionCompiler:
    """Compiles against a `Scope`. `source` words positions; `collected` gathers what the statement uses."""

    def __init__(self, session: Session, source: Source, collected: Collected | None = None) -> None:
        self.session = session
        self.source = source
        self.collected = collected if collected is not None else Collected()

    def compile_query(self, query: ast.Query, parent: Scope | None) -> "CompiledQuery":
        raise NotImplementedError

    def array_query(self, node: ast.ArrayQuery, scope: Scope) -> Value:
        raise NotImplementedError

    def fail(self, message: str, node: ast.Node | int) -> NoReturn:
        fail(self.source, message, node if isinstance(node, int) else node.pos)

    def expr(self, node: ast.Expression, scope: Scope) -> Value:
        self.collected.depth += 1
        if self.collected.depth > 150:
            raise BigQueryError("resourcesExceeded", "Query is too complex: expressions nested too deeply", "query")
        try:
            method = _METHODS.get(type(node))
            if method is None:
                raise not_implemented(type(node).__name__)
            result: Value = getattr(self, method)(node, scope)
        except BigQueryError as error:
            if error.reason == "invalidQuery" and " at [" not in error.message:
                raise mistake(self.source, error.message, node.pos) from None
            raise
        finally:
            self.collected.depth -= 1
        return result

    def typed(self, node: ast.Expression, scope: Scope, target: SqlType, what: str = "") -> Value:
        """An expression that must convert to `target`."""
        value = self.expr(node, scope)
        converted = coerce(value, target)
        if converted is None:
            self.fail(what or f"Expected type {target}; found {value.type}", node)
        return converted

    def condition(self, node: ast.Expression, scope: Scope, clause: str) -> str:
        value = self.expr(node, scope)
        converted = coerce(value, BOOL)
        if converted is None:
            self.fail(f"{clause} should return type BOOL, but returns {value.type}", node)
        return converted.sql

    def _literal(self, node: ast.Literal, scope: Scope) -> Value:
        if node.kind == "NULL":
            return NULL
        if node.kind == "INT64" and isinstance(node.value, int) and not INT64_MIN <= node.value <= INT64_MAX:
            self.fail(f"Invalid integer literal: {node.value}", node)
        return literal(node.value, _LITERALS[node.kind])

    def _typed_literal(self, node: ast.TypedLiteral, scope: Scope) -> Value:
        value = parse_literal(node.text, SCALARS[node.kind])
        if value is not None and isinstance(value.constant, Decimal) and value.constant != Decimal(node.text.strip()):
            value = None  # a literal is not rounded, unlike a CAST
        if value is None:
            self.fail(f"Invalid {node.kind} literal", node)
        return Value(value.sql, value.type, constant=value.constant)

    def _range_literal(self, node: ast.RangeLiteral, scope: Scope) -> Value:
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

    def _interval(self, node: ast.IntervalValue, scope: Scope) -> Value:
        from ingestd.localcloud.bigquery.sql.library.intervals import interval

        return interval(self, node, scope)

    def _param(self, node: ast.Param, scope: Scope) -> Value:
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

    def _system_variable(self, node: ast.SystemVariable, scope: Scope) -> Value:
        known = self.session.system
        if node.name not in known:
            self.fail(f"Unrecognized system variable @@{node.name}", node)
        value = known[node.name]
        kind = INT64 if isinstance(value, int) and not isinstance(value, bool) else STRING
        if node.name == "row_count":
            kind = INT64
        return Value(literal(value, kind).sql, kind)

    def _path(self, node: ast.Path, scope: Scope) -> Value:
        first = node.parts[0]
        try:
            found = scope.lookup(first)
        except AmbiguousName:
            self.fail(f"Column name {first} is ambiguous", node)
        rest = node.parts[1:]
        if found is None:
            variable = self.session.variable(first)
            if variable is None:
                self.fail(f"Unrecognized name: {first}{scope.suggestion(first)}", node)
            value = self.read(variable)
        elif isinstance(found, Range):
            if not rest:
                return found.as_struct()
            columns = found.find(rest[0])
            if not columns:
                if found.value is not None:
                    return self._fields(found.value, rest, node)
                self.fail(f"Name {rest[0]} not found inside {first}", node)
            if len(columns) > 1:
                self.fail(f"Column name {rest[0]} is ambiguous", node)
            value, rest = columns[0].expr, rest[1:]
        else:
            value = found
        return self._fields(value, rest, node)

    def _fields(self, value: Value, names: tuple[str, ...], node: ast.Node) -> Value:
        for name in names:
            value = self.member(value, name, node)
        return value

    def member(self, value: Value, name: str, node: ast.Node) -> Value:
        if value.type is JSON:
            return Value(f"CAST(bq_json_member({value.sql}, {string_sql(name)}) AS JSON)", JSON)
        if value.type.kind != "STRUCT":
            self.fail(f"Cannot access field {name} on a value with type {value.type}", node)
        found = value.type.member(name)
        if found is None:
            self.fail(f"Field name {name} does not exist in {value.type}", node)
        physical, kind = found
        return Value(f"struct_extract({value.sql}, {string_sql(physical)})", kind)

    def _dot(self, node: ast.Dot, scope: Scope) -> Value:
        return self.member(self.expr(node.base, scope), node.name, node)

    def _index(self, node: ast.Index, scope: Scope) -> Value:
        base = self.expr(node.base, scope)
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
        if base.type.kind != "ARRAY":
            self.fail(
                f"Element access using [{node.mode or 'INT64'}] is not supported on values of type {base.type}", node
            )
        assert base.type.element is not None
        if base.null:
            return NULL
        index = self.typed(node.index, scope, INT64, "Array position in [] must be coercible to INT64 type")
        one_based = node.mode.endswith("ORDINAL")
        position = index.sql if one_based else f"({index.sql} + 1)"
        if node.mode.startswith("SAFE"):
            found = f"CASE WHEN {position} > 0 THEN {base.sql}[{position}] END"
        else:
            error = f"'Array index ' || CAST({index.sql} AS VARCHAR) || ' is out of bounds'"
            found = (
                f"CASE WHEN {position} > 0 AND {position} <= len({base.sql}) THEN {base.sql}[{position}] "
                f"WHEN {base.sql} IS NULL OR {index.sql} IS NULL THEN NULL "
                f"ELSE CAST(bq_error({error}) AS {duckdb_type(base.type.element)}) END"
            )
        return Value(f"({found})", base.type.element)

    def _struct_index(self, base: Value, node: ast.Index) -> Value:
        if not isinstance(node.index, ast.Literal) or not isinstance(node.index.value, int):
            self.fail("Field position in a STRUCT must be a literal", node)
        at = node.index.value - (1 if node.mode == "ORDINAL" else 0)
        if not 0 <= at < len(base.type.fields):
            self.fail(f"Field position {node.index.value} is out of bounds in {base.type}", node)
        name = base.type.physical_names[at]
        return Value(f"struct_extract({base.sql}, {string_sql(name)})", base.type.fields[at][1])

    def _call(self, node: ast.Call, scope: Scope) -> Value:
        from ingestd.localcloud.bigquery.sql.library import call

        return call(self, node, scope)

    def _lambda(self, node: ast.Lambda, scope: Scope) -> Value:
        self.fail("Lambda is not expected here", node)

    def _cast(self, node: ast.Cast, scope: Scope) -> Value:
        from ingestd.localcloud.bigquery.sql.library.formats import cast_with_format, cast_with_parameters, safe_cast

        value = self.expr(node.value, scope)
        target = from_node(node.type)
        if node.format is not None:
            return cast_with_format(self, value, target, node, scope)
        if node.type.parameters:
            return cast_with_parameters(self, value, target, node)
        if node.safe:
            return safe_cast(self, value, target)
        literal_text = (
            value.constant if value.literal and isinstance(value.constant, str) and not value.parameter else None
        )
        if literal_text is not None and target.kind in (
            "DATE",
            "DATETIME",
            "TIME",
            "TIMESTAMP",
            "NUMERIC",
            "BIGNUMERIC",
        ):
            parsed = parse_literal(literal_text, target)
            if parsed is None:
                self.fail(f'Could not cast literal "{literal_text}" to type {target}', node.value)
            return Value(parsed.sql, target)
        return cast(value, target)

    def _extract(self, node: ast.Extract, scope: Scope) -> Value:
        from ingestd.localcloud.bigquery.sql.library.dates import extract

        return extract(self, node, scope)

    def _unary(self, node: ast.Unary, scope: Scope) -> Value:
        value = self.expr(node.value, scope)
        if node.op == "NOT":
            if value.null and not value.parameter:
                self.fail("Operands of NOT cannot be literal NULL", node)
            converted = coerce(value, BOOL)
            if converted is None:
                self.fail(f"No matching signature for operator NOT for argument types: {value.type}", node)
            return Value(f"(NOT {converted.sql})", BOOL)
        if value.type.numeric or (value.type.kind == "INTERVAL" and node.op == "-"):
            if node.op == "~" and value.type is not INT64:
                self.fail(f"No matching signature for operator ~ for argument types: {value.type}", node)
            return Value(f"({node.op} {value.sql})", value.type)
        raise mistake(
            self.source, f"No matching signature for operator {node.op} for argument types: {value.type}", node.pos
        )

    def _binary(self, node: ast.Binary, scope: Scope) -> Value:
        from ingestd.localcloud.bigquery.sql.library.operators import binary

        # Chains lean left and may be long (x = 1 OR x = 2 OR …): walk them instead of recursing.
        spine = [node]
        while isinstance(spine[-1].left, ast.Binary):
            spine.append(spine[-1].left)
        value = self.expr(spine[-1].left, scope)
        for item in reversed(spine):
            value = binary(self, item, value, self.expr(item.right, scope))
        return value

    def compare(self, op: str, left: Value, right: Value, node: ast.Node) -> Value:
        kind = supertype([left, right])
        a = coerce(left, kind) if kind else None
        b = coerce(right, kind) if kind else None
        comparable = kind is not None and (
            kind.kind in _ORDERED or (op in ("=", "!=") and kind.kind in ("STRUCT", "RANGE"))
        )
        if a is None or b is None or not comparable:
            self.fail(f"No matching signature for operator {op} for argument types: {left.type}, {right.type}", node)
        return Value(comparison(op, a, b), BOOL)

    def _between(self, node: ast.Between, scope: Scope) -> Value:
        value, low, high = (self.expr(item, scope) for item in (node.value, node.low, node.high))
        kind = supertype([value, low, high])
        parts = [coerce(item, kind) if kind else None for item in (value, low, high)]
        if any(part is None for part in parts) or (kind and kind.kind not in _ORDERED):
            self.fail(
                f"No matching signature for operator BETWEEN for argument types: {value.type}, {low.type}, {high.type}",
                node,
            )
        a, b, c = (part for part in parts if part is not None)
        inside = f"({comparison('>=', a, b)} AND {comparison('<=', a, c)})"
        return Value(f"(NOT {inside})" if node.negated else inside, BOOL)

    def _in(self, node: ast.In, scope: Scope) -> Value:
        value = self.expr(node.value, scope)
        negation = "NOT " if node.negated else ""
        if node.query is not None:
            query = self.compile_query(node.query, scope)
            if len(query.columns) != 1:
                self.fail("Subquery of type IN must have only one output column", node)
            column = query.columns[0]
            kind = supertype([value, Value("", column.type)])
            left = coerce(value, kind) if kind else None
            if left is None or kind is None:
                self.fail(f"Cannot execute IN subquery with uncomparable types {value.type} and {column.type}", node)
            inner = query.sql
            if kind != column.type:
                converted = cast(Value("_v", column.type), kind)
                inner = f"SELECT {converted.sql} FROM ({query.sql}) AS _in(_v)"
            return Value(f"({left.sql} {negation}IN ({inner}))", BOOL)
        if node.array is not None:
            array = self.expr(node.array, scope)
            if array.type.kind != "ARRAY" or array.type.element is None:
                self.fail(f"Second argument of IN UNNEST must be an array but was {array.type}", node)
            kind = supertype([value, Value("", array.type.element)])
            left = coerce(value, kind) if kind else None
            right = coerce(array, SqlType("ARRAY", kind)) if kind else None
            if right is None and kind is not None:
                right = cast(array, SqlType("ARRAY", kind))
            if left is None or right is None:
                self.fail(
                    f"No matching signature for operator IN UNNEST for argument types: {value.type}, {array.type}", node
                )
            return Value(f"({negation}({left.sql} = ANY({numbers_of(right)})))", BOOL)
        items = [self.expr(item, scope) for item in node.items]
        kind = supertype([value, *items])
        parts = [coerce(item, kind) if kind else None for item in (value, *items)]
        if any(part is None for part in parts):
            kinds = ", ".join(str(item.type) for item in (value, *items))
            self.fail(f"No matching signature for operator IN for argument types: {kinds}", node)
        first, *rest = [part for part in parts if part is not None]
        if may_be_nan(first):
            return Value(f"({negation}({' OR '.join(comparison('=', first, item) for item in rest)}))", BOOL)
        return Value(f"({first.sql} {negation}IN ({', '.join(item.sql for item in rest)}))", BOOL)

    def _like(self, node: ast.Like, scope: Scope) -> Value:
        if node.array is not None:
            raise not_implemented("LIKE ANY/ALL UNNEST")
        value = self.expr(node.value, scope)
        operands = (node.value, *(() if node.quantifier else node.patterns))
        if any(isinstance(item, ast.Literal) and item.kind == "NULL" for item in operands):
            self.fail("Operands of LIKE cannot be literal NULL", node)
        parts = []
        for item in node.patterns:
            pattern = self.expr(item, scope)
            left, right = coerce(value, STRING), coerce(pattern, STRING)
            if left is None or right is None:
                if value.type is BYTES:
                    raise not_implemented("LIKE on BYTES")
                self.fail(
                    f"No matching signature for operator LIKE for argument types: {value.type}, {pattern.type}", node
                )
            # NOT LIKE ANY holds when one of the patterns does not match.
            parts.append(f"({left.sql} {'NOT ' if node.negated else ''}LIKE {right.sql} ESCAPE '\\')")
        return Value(f"({(' AND ' if node.quantifier == 'ALL' else ' OR ').join(parts)})", BOOL)

    def _is(self, node: ast.Is, scope: Scope) -> Value:
        value = self.expr(node.value, scope)
        what = "NULL" if node.what == "UNKNOWN" else node.what
        if what != "NULL":
            converted = coerce(value, BOOL)
            if converted is None:
                self.fail(f"No matching signature for operator IS {what} for argument types: {value.type}", node)
            value = converted
        return Value(f"({value.sql} IS {'NOT ' if node.negated else ''}{what})", BOOL)

    def _is_distinct(self, node: ast.IsDistinct, scope: Scope) -> Value:
        left, right = self.expr(node.left, scope), self.expr(node.right, scope)
        kind = supertype([left, right])
        a = coerce(left, kind) if kind else None
        b = coerce(right, kind) if kind else None
        if a is None or b is None:
            self.fail(
                f"No matching signature for operator IS DISTINCT FROM for argument types: {left.type}, {right.type}",
                node,
            )
        return Value(f"({a.sql} IS {'NOT ' if node.negated else ''}DISTINCT FROM {b.sql})", BOOL)

    def _case(self, node: ast.Case, scope: Scope) -> Value:
        results = [self.expr(result, scope) for _, result in node.whens]
        otherwise = self.expr(node.otherwise, scope) if node.otherwise is not None else NULL
        kind = supertype([*results, otherwise])
        if kind is None:
            kinds = ", ".join(str(item.type) for item in (*results, otherwise))
            self.fail(
                "No matching signature for operator CASE; all THEN/ELSE arguments must be coercible to a common type "
                f"but found: {kinds}",
                node,
            )
        converted = [self.must(item, kind, node) for item in results]
        operand = self.expr(node.operand, scope) if node.operand is not None else None
        clauses = []
        for (condition, _), result in zip(node.whens, converted, strict=True):
            if operand is None:
                test = self.condition(condition, scope, "CASE WHEN condition")
            else:
                test = self.compare("=", operand, self.expr(condition, scope), condition).sql
            clauses.append(f"WHEN {test} THEN {result.sql}")
        final = self.must(otherwise, kind, node).sql
        return Value(f"(CASE {' '.join(clauses)} ELSE {final} END)", kind)

    def must(self, value: Value, kind: SqlType, node: ast.Node) -> Value:
        converted = coerce(value, kind)
        if converted is None:
            self.fail(f"Could not coerce {value.type} to {kind}", node)
        return converted

    def common(self, values: list[Value], what: str, node: ast.Node) -> tuple[SqlType, list[Value]]:
        """All values in their common type."""
        kind = supertype(values)
        if kind is None:
            kinds = ", ".join(str(item.type) for item in values)
            self.fail(f"No matching signature for {what} for argument types: {kinds}", node)
        return kind, [self.must(value, kind, node) for value in values]

    def _array(self, node: ast.ArrayValue, scope: Scope) -> Value:
        items = [self.expr(item, scope) for item in node.items]
        if node.element is not None:
            element = from_node(node.element)
            converted = []
            for item, written in zip(items, node.items, strict=True):
                value = coerce(item, element)
                if value is None:
                    self.fail(f"Array element type {item.type} does not coerce to {element}", written)
                converted.append(value)
            return array_value(converted, element)
        if any(item.type.kind == "ARRAY" for item in items):
            self.fail("Cannot construct array with element type ARRAY because nested arrays are not supported", node)
        found = supertype(items)
        if found is None:
            kinds = ", ".join(dict.fromkeys(str(item.type) for item in items))
            self.fail(f"Array elements of types {{{kinds}}} do not have a common supertype", node)
        return array_value([self.must(item, found, node) for item in items], found)

    def _array_query(self, node: ast.ArrayQuery, scope: Scope) -> Value:
        return self.array_query(node, scope)

    def _struct(self, node: ast.StructValue, scope: Scope) -> Value:
        members = [self.expr(item, scope) for item, _ in node.items]
        if node.type is not None:
            kind = from_node(node.type)
            if len(kind.fields) != len(members):
                self.fail(
                    f"STRUCT type has {len(kind.fields)} fields but constructor call has {len(members)} fields", node
                )
            members = [self.must(member, inner, node) for member, (_, inner) in zip(members, kind.fields, strict=True)]
        else:
            names = []
            for item, alias in node.items:
                implied = "" if node.tuple_syntax else implied_name(item)
                names.append(alias or implied)
            kind = struct_of((name, member.type) for name, member in zip(names, members, strict=True))
            members = [
                Value(f"CAST(NULL AS {duckdb_type(member.type)})", member.type, null=True, literal=True)
                if member.null
                else member
                for member in members
            ]
        if not members:
            raise not_implemented("a STRUCT without fields")
        return Value(pack(kind, tuple(members)), kind, members=tuple(members))

    def _scalar_query(self, node: ast.ScalarQuery, scope: Scope) -> Value:
        query = self.compile_query(node.query, scope)
        if len(query.columns) != 1:
            self.fail(
                "Scalar subquery cannot have more than one column unless using SELECT AS STRUCT to build STRUCT values",
                node,
            )
        return Value(f"({query.sql})", query.columns[0].type)

    def _exists(self, node: ast.Exists, scope: Scope) -> Value:
        return Value(f"EXISTS ({self.compile_query(node.query, scope).sql})", BOOL)

    def _default(self, node: ast.Default, scope: Scope) -> Value:
        self.fail("Unexpected keyword DEFAULT", node)


def comparison(op: str, left: Value, right: Value) -> str:
    """Two values of one type compared.

    To DuckDB a NaN equals itself and is the largest number; in GoogleSQL every comparison with one is false, but for
    `!=`. The plain comparison stays a condition of its own, so that DuckDB can still join by it.
    """
    plain = f"{left.sql} {'<>' if op == '!=' else op} {right.sql}"
    sides = ((left, right), (right, left))
    numbers = " AND ".join(f"(NOT isnan({x.sql}) OR {y.sql} IS NULL)" for x, y in sides if may_be_nan(x))
    if not numbers:
        return f"({plain})"
    return f"({plain} OR NOT ({numbers}))" if op == "!=" else f"({plain} AND {numbers})"


def may_be_nan(value: Value) -> bool:
    known = isinstance(value.constant, int | float) and not math.isnan(value.constant)
    return value.type is FLOAT64 and not known


def numbers_of(array: Value) -> str:
    """The array without its NaNs, which equal nothing."""
    if array.type.element is not FLOAT64:
        return array.sql
    return f"list_filter({array.sql}, lambda _e: _e IS NULL OR NOT isnan(_e))"


def implied_name(item: ast.Expression) -> str:
    """The column name an expression brings along: that of the path or field it reads."""
    if isinstance(item, ast.Path):
        return item.parts[-1]
    return item.name if isinstance(item, ast.Dot) else ""


_METHODS: dict[type, str] = {
    ast.Literal: "_literal",
    ast.TypedLiteral: "_typed_literal",
    ast.RangeLiteral: "_range_literal",
    ast.IntervalValue: "_interval",
    ast.Param: "_param",
    ast.SystemVariable: "_system_variable",
    ast.Path: "_path",
    ast.Dot: "_dot",
    ast.Index: "_index",
    ast.Call: "_call",
    ast.Lambda: "_lambda",
    ast.Cast: "_cast",
    ast.Extract: "_extract",
    ast.Unary: "_unary",
    ast.Binary: "_binary",
    ast.Between: "_between",
    ast.In: "_in",
    ast.Like: "_like",
    ast.Is: "_is",
    ast.IsDistinct: "_is_distinct",
    ast.Case: "_case",
    ast.ArrayValue: "_array",
    ast.ArrayQuery: "_array_query",
    ast.StructValue: "_struct",
    ast.ScalarQuery: "_scalar_query",
    ast.Exists: "_exists",
    ast.Default: "_default",
}
