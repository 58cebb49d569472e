"""Queries: WITH, SELECT, set operations, ORDER BY and LIMIT."""
# ruff: noqa: S608 - identifiers go through `quote`, values are bound or written by `literal`

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ingestd.formats.errors import BigQueryError
from ingestd.googlesql import ast
from ingestd.googlesql.analyze import implied_name
from ingestd.googlesql.functions import FUNCTIONS
from ingestd.googlesql.names import AmbiguousName, Column, Range, Scope
from ingestd.googlesql.references import walk
from ingestd.googlesql.types import INT64, SqlType, array_of, struct_of
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.duckdb_types import duckdb_type, quote
from ingestd.localcloud.bigquery.sql.coercion import cast, coerce, supertype
from ingestd.localcloud.bigquery.sql.idioms import pack
from ingestd.localcloud.bigquery.sql.library.windows import direction
from ingestd.localcloud.bigquery.sql.sources import SourceCompiler

MAX_ITERATIONS = 500
_UNGROUPABLE = frozenset({"JSON", "GEOGRAPHY"})


@dataclass(slots=True)
class OutColumn:
    """A result column: its name (empty when it has none), and the one it has in DuckDB's SQL."""

    name: str
    expr: Value
    physical: str

    @property
    def type(self) -> SqlType:
        return self.expr.type


@dataclass(slots=True)
class CompiledQuery:
    sql: str
    columns: list[OutColumn]
    value_table: bool = False


@dataclass(slots=True)
class CteRef:
    """A WITH query in scope, under the name it has in DuckDB."""

    relation: str
    columns: list[OutColumn]
    value_table: bool
    recursive: bool = False  # it counts its iterations


@dataclass(slots=True)
class _Item:
    name: str
    expr: Value
    node: ast.Node
    explicit: bool = False


@dataclass(slots=True)
class _Output:
    items: list[_Item]
    aliases: dict[str, Value] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    ambiguous: set[str] = field(default_factory=set)


class Compiler(SourceCompiler):
    """The whole of query compilation: expressions, sources, and what combines them."""

    def compile_query(self, query: ast.Query, parent: Scope | None) -> CompiledQuery:
        self.collected.depth += 1
        if self.collected.depth > 150:
            raise BigQueryError("resourcesExceeded", "Query is too complex: subqueries nested too deeply", "query")
        try:
            scope = Scope(parent=parent)
            prefix = self._with(query, scope)
            limit = self._limit(query, scope)
            body = query.body
            if isinstance(body, ast.Select):
                compiled = self._select(body, scope, query.order_by)
                compiled.sql = prefix + compiled.sql + limit
                return compiled
            compiled = self._body(body, scope)
            ordering = self._order_output(query.order_by, compiled, scope)
            if ordering or limit or prefix:
                compiled.sql = f"{prefix}SELECT * FROM ({compiled.sql}) AS _q{ordering}{limit}"
            return compiled
        finally:
            self.collected.depth -= 1

    def _body(self, body: ast.Select | ast.SetOperation | ast.Query, scope: Scope) -> CompiledQuery:
        if isinstance(body, ast.Select):
            return self._select(body, scope, ())
        if isinstance(body, ast.Query):
            return self.compile_query(body, scope)
        return self._set_operation(body, scope)

    def _with(self, query: ast.Query, scope: Scope) -> str:
        definitions = []
        seen: set[str] = set()
        for cte in query.ctes:
            lowered = cte.name.lower()
            if lowered in seen:
                self.fail(f"Duplicate alias {cte.name} for WITH subquery", cte)
            seen.add(lowered)
            relation = f'"_w{self.collected.alias()}"'
            if query.recursive and _mentions(cte.query, lowered):
                sql, ref = self._recursive(cte, relation, scope)
            else:
                compiled = self.compile_query(cte.query, scope)
                sql, ref = compiled.sql, CteRef(relation, compiled.columns, compiled.value_table)
            scope.ctes[lowered] = ref
            names = ", ".join(quote(column.physical) for column in ref.columns)
            names += ", _iteration" if ref.recursive else ""
            definitions.append(f"{relation}({names}) AS ({sql})")
        if not definitions:
            return ""
        return f"WITH {'RECURSIVE ' if query.recursive else ''}{', '.join(definitions)} "

    def _recursive(self, cte: ast.Cte, relation: str, scope: Scope) -> tuple[str, CteRef]:
        body = cte.query.body
        if not isinstance(body, ast.SetOperation) or body.op != "UNION":
            self.fail(
                f"Recursive query {cte.name} must be a UNION ALL or UNION DISTINCT of a base term and a recursive term",
                cte,
            )
        base = self._body(body.left, scope)
        columns = [OutColumn(item.name, Value("", item.type), item.physical) for item in base.columns]
        counted = body.every and isinstance(body.right, ast.Select) and _reads(body.right.source, cte.name.lower())
        ref = CteRef(relation, columns, base.value_table, counted)
        inner = Scope(parent=scope, ctes={cte.name.lower(): ref})
        if counted and isinstance(body.right, ast.Select):
            step = self._select(body.right, inner, (), counted=True)
        else:
            step = self._body(body.right, inner)
        if len(step.columns) != len(columns):
            self.fail(f"Recursive query {cte.name} has a different number of columns in its two terms", cte)
        sql = self._aligned(step, [column.type for column in columns], cte, "_iteration" if counted else "")
        first = f"SELECT *, 1 AS _iteration FROM ({base.sql}) AS _first" if counted else base.sql
        return f"({first}) UNION {'ALL ' if body.every else ''}({sql})", ref

    def _limit(self, query: ast.Query, scope: Scope) -> str:
        out = ""
        for word, node in (("LIMIT", query.limit), ("OFFSET", query.offset)):
            if node is None:
                continue
            value = self.typed(node, Scope(), INT64, word)
            if isinstance(value.constant, int) and value.constant < 0:
                self.fail(f"{word} expects a non-negative integer literal or parameter", node)
            out += f" {word} {value.constant if isinstance(value.constant, int) and not value.parameter else value.sql}"
        return out

    def _order_output(self, items: tuple[ast.OrderItem, ...], query: CompiledQuery, scope: Scope) -> str:
        """ORDER BY after a set operation sees the result's columns."""
        if not items:
            return ""
        columns = [Column(item.name, item.type, f"_q.{quote(item.physical)}") for item in query.columns]
        inner = Scope([Range("", columns)], parent=scope)
        parts = []
        for item in items:
            if isinstance(item.value, ast.Literal) and isinstance(item.value.value, int):
                parts.append(f"{self._ordinal(item.value, len(columns))} {direction(item)}")
            else:
                parts.append(f"{self.expr(item.value, inner).sql} {direction(item)}")
        return " ORDER BY " + ", ".join(parts)

    def _ordinal(self, node: ast.Literal, count: int) -> int:
        position = node.value
        assert isinstance(position, int)
        if not 1 <= position <= count:
            self.fail(
                f"ORDER BY column number item is out of range. Must be between 1 and {count}, found {position}", node
            )
        return position

    def _set_operation(self, node: ast.SetOperation, scope: Scope) -> CompiledQuery:
        pending: ast.Select | ast.SetOperation | ast.Query = node
        rights: list[ast.Select | ast.SetOperation | ast.Query] = []
        while isinstance(pending, ast.SetOperation):
            rights.append(pending.right)
            pending = pending.left
        branches = [self._body(item, scope) for item in [pending, *reversed(rights)]]
        first = branches[0]
        name = f"{node.op} {'ALL' if node.every else 'DISTINCT'}"
        for index, branch in enumerate(branches[1:], 2):
            if len(branch.columns) != len(first.columns):
                self.fail(
                    f"Queries in {name} have mismatched column count; query 1 has {len(first.columns)} "
                    f"column{'s' if len(first.columns) != 1 else ''}, query {index} has {len(branch.columns)} "
                    f"column{'s' if len(branch.columns) != 1 else ''}",
                    node,
                )
        kinds = []
        for index in range(len(first.columns)):
            kind = supertype([branch.columns[index].expr for branch in branches])
            if kind is None:
                found = ", ".join(str(branch.columns[index].type) for branch in branches)
                self.fail(f"Column {index + 1} in {name} has incompatible types: {found}", node)
            if not node.every and kind.kind in _UNGROUPABLE:
                self.fail(
                    f"Column {index + 1} in {name} has type that does not support set operation comparisons: {kind}",
                    node,
                )
            kinds.append(kind)
        operator = {"UNION ALL": "UNION ALL", "UNION DISTINCT": "UNION"}.get(name, node.op)
        sql = f" {operator} ".join(f"({self._aligned(branch, kinds, node)})" for branch in branches)
        columns = [
            OutColumn(column.name, Value("", kind), column.physical)
            for column, kind in zip(first.columns, kinds, strict=True)
        ]
        return CompiledQuery(sql, columns, first.value_table)

    def _aligned(self, query: CompiledQuery, kinds: list[SqlType], node: ast.Node, extra: str = "") -> str:
        """The query with its columns converted to these types."""
        if all(column.type == kind and not column.expr.null for column, kind in zip(query.columns, kinds, strict=True)):
            return query.sql
        items = []
        for column, kind in zip(query.columns, kinds, strict=True):
            name = quote(column.physical)
            if column.expr.null:
                items.append(f"CAST(NULL AS {duckdb_type(kind)}) AS {name}")
                continue
            value = Value(f"_b.{name}", column.type)
            converted = coerce(value, kind)
            if converted is None:
                if coerce(column.expr, kind) is None:
                    self.fail(f"Column {column.name} of type {column.type} does not convert to {kind}", node)
                converted = cast(value, kind)
            items.append(f"{converted.sql} AS {name}")
        if extra:
            items.append(extra)
        return f"SELECT {', '.join(items)} FROM ({query.sql}) AS _b"

    def _select(
        self,
        select: ast.Select,
        parent: Scope,
        order_by: tuple[ast.OrderItem, ...],
        *,
        keep_order: bool = False,
        counted: bool = False,
    ) -> CompiledQuery:
        scope = Scope(parent=parent)
        source = self.source_sql(select.source, scope) if select.source is not None else ""
        self.check_partition_filters(select, scope)
        scope.windows = dict(select.windows)
        where = self.condition(select.where, scope, "WHERE clause") if select.where is not None else ""
        output = self._output(select, scope)
        named = replace(scope, aliases=output.aliases)
        grouping = self._group_by(select, scope, output) if select.group_by is not None else ""
        having = self.condition(select.having, named, "HAVING clause") if select.having is not None else ""
        qualify = self.condition(select.qualify, named, "QUALIFY clause") if select.qualify is not None else ""
        if select.distinct:
            for item in output.items:
                if item.expr.type.kind in (*_UNGROUPABLE, "ARRAY"):
                    self.fail(
                        f"Column {item.name} of type {item.expr.type.kind} cannot be used in SELECT DISTINCT",
                        item.node,
                    )
        ordering = self._order_by(select, order_by, named, output)
        if keep_order and not ordering:
            ordering = self._natural_order(select, scope)
        columns = _columns(output.items)
        if select.as_kind:
            columns = [self._as_value(select, output)]
        listed = ", ".join(f"{column.expr.sql} AS {quote(column.physical)}" for column in columns)
        if counted:
            iteration = f"greatest({', '.join(scope.counters)})"
            listed += f", {iteration} + 1 AS _iteration"
            where = " AND ".join(filter(None, [f"({where})" if where else "", _still_recursing(iteration)]))
        sql = f"SELECT {'DISTINCT ' if select.distinct else ''}{listed}"
        sql += f" FROM {source}" if source else ""
        sql += f" WHERE {where}" if where else ""
        sql += grouping
        sql += f" HAVING {having}" if having else ""
        sql += f" QUALIFY {qualify}" if qualify else ""
        return CompiledQuery(sql + ordering, columns, bool(select.as_kind))

    def _as_value(self, select: ast.Select, output: _Output) -> OutColumn:
        if select.as_kind == "VALUE":
            if len(output.items) != 1:
                self.fail("SELECT AS VALUE query must have exactly one column", select)
            return OutColumn("", output.items[0].expr, "_v")
        kind = struct_of((item.name, item.expr.type) for item in output.items)
        members = tuple(_typed_null(item.expr) for item in output.items)
        return OutColumn("", Value(pack(kind, members), kind, members=members), "_v")

    def _output(self, select: ast.Select, scope: Scope) -> _Output:
        items: list[_Item] = []
        for node in select.items:
            if isinstance(node, ast.Star):
                items.extend(self._star(node, scope))
                continue
            value = self.expr(node.value, scope)
            items.append(_Item(node.alias or implied_name(node.value), value, node, bool(node.alias)))
        output = _Output(items)
        for position, item in enumerate(items, 1):
            lowered = item.name.lower()
            if not lowered:
                continue
            if lowered in output.positions and output.aliases[lowered].sql != item.expr.sql:
                output.ambiguous.add(lowered)
            output.positions.setdefault(lowered, position)
            output.aliases.setdefault(lowered, Value(item.expr.sql, item.expr.type))
        return output

    def _star(self, node: ast.Star, scope: Scope) -> Iterator[_Item]:
        if node.base is None:
            if not scope.ranges:
                self.fail("SELECT * must have a FROM clause", node)
            columns = list(scope.columns())
        else:
            columns = self._base_columns(node, scope)
        known = {column.name.lower() for column in columns}
        excluded = {name.lower() for name in node.excluded}
        for name in node.excluded:
            if name.lower() not in known:
                self.fail(f"Column {name} in SELECT * EXCEPT list does not exist", node)
        replaced = {}
        for item in node.replaced:
            if item.alias.lower() not in known:
                self.fail(f"Column {item.alias} in SELECT * REPLACE list does not exist", item)
            replaced[item.alias.lower()] = self.expr(item.value, scope)
        kept = [column for column in columns if column.name.lower() not in excluded]
        if not kept:
            self.fail("SELECT * expands to zero columns after applying EXCEPT", node)
        for column in kept:
            yield _Item(column.name, replaced.get(column.name.lower(), column.expr), node)

    def _base_columns(self, node: ast.Star, scope: Scope) -> list[Column]:
        assert node.base is not None
        if isinstance(node.base, ast.Path) and len(node.base.parts) == 1:
            try:
                found = scope.lookup(node.base.parts[0])
            except AmbiguousName:
                found = None
            if isinstance(found, Range):
                if found.value is not None and found.value.type.kind != "STRUCT":
                    self.fail(f"Dot-star is not supported for type {found.value.type}", node)
                return [column for column in found.columns if not column.pseudo]
        value = self.expr(node.base, scope)
        if value.type.kind != "STRUCT":
            self.fail(f"Dot-star is not supported for type {value.type}", node)
        return [
            Column(name, self.member(value, name, node).type, self.member(value, name, node).sql)
            for name, _ in value.type.fields
        ]

    def _group_by(self, select: ast.Select, scope: Scope, output: _Output) -> str:
        group = select.group_by
        assert group is not None
        if group.everything:
            keys = [
                item.expr.sql
                for item in output.items
                if not isinstance(item.node, ast.SelectItem) or not has_aggregate(item.node.value)
            ]
            return f" GROUP BY {', '.join(keys)}" if keys else " GROUP BY ()"
        parts = []
        for kind, groups in group.items:
            rendered = [[self._group_key(key, scope, output) for key in keys] for keys in groups]
            if kind == "ITEM":
                parts.append(rendered[0][0])
            elif kind == "SETS":
                parts.append("GROUPING SETS (" + ", ".join(f"({', '.join(keys)})" for keys in rendered) + ")")
            else:
                listed = ", ".join(keys[0] if len(keys) == 1 else f"({', '.join(keys)})" for keys in rendered)
                parts.append(f"{kind} ({listed})")
        return " GROUP BY " + ", ".join(parts)

    def _group_key(self, node: ast.Expression, scope: Scope, output: _Output) -> str:
        if isinstance(node, ast.Literal) and isinstance(node.value, int) and not isinstance(node.value, bool):
            if not 1 <= node.value <= len(output.items):
                self.fail(
                    f"GROUP BY column number item is out of range. Must be between 1 and {len(output.items)}, "
                    f"found {node.value}",
                    node,
                )
            value = output.items[node.value - 1].expr
        elif isinstance(node, ast.Path) and len(node.parts) == 1 and node.parts[0].lower() in output.aliases:
            if node.parts[0].lower() in output.ambiguous:
                self.fail(f"Name {node.parts[0]} is ambiguous", node)
            value = output.aliases[node.parts[0].lower()]
        else:
            value = self.expr(node, scope)
        if value.type.kind in _UNGROUPABLE:
            self.fail(f"Grouping by expressions of type {value.type.kind} is not allowed", node)
        return value.sql

    def _order_by(self, select: ast.Select, items: tuple[ast.OrderItem, ...], scope: Scope, output: _Output) -> str:
        if not items:
            return ""
        parts = []
        for item in items:
            node = item.value
            sql = ""
            if isinstance(node, ast.Literal) and isinstance(node.value, int) and not isinstance(node.value, bool):
                position = self._ordinal(node, len(output.items))
                kind = output.items[position - 1].expr.type
                sql = str(position)
            elif isinstance(node, ast.Path) and len(node.parts) == 1 and node.parts[0].lower() in output.positions:
                if node.parts[0].lower() in output.ambiguous:
                    self.fail(f"Column name {node.parts[0]} is ambiguous", node)
                position = output.positions[node.parts[0].lower()]
                kind = output.items[position - 1].expr.type
                sql = str(position)
            else:
                value = self.expr(node, scope)
                kind, sql = value.type, value.sql
            if kind.kind in ("ARRAY", "STRUCT", "JSON", "GEOGRAPHY"):
                self.fail(f"ORDER BY does not support expressions of type {kind.kind}", item)
            if select.as_kind and sql.isdigit():
                sql = output.items[int(sql) - 1].expr.sql
            parts.append(f"{sql} {direction(item)}")
        return " ORDER BY " + ", ".join(parts)

    def array_query(self, node: ast.ArrayQuery, scope: Scope) -> Value:
        query = node.query
        if isinstance(query.body, ast.Select) and not query.order_by and not query.ctes:
            inner = Scope(parent=scope)
            limit = self._limit(query, inner)
            compiled = self._select(query.body, inner, (), keep_order=True)
            compiled.sql += limit
        else:
            compiled = self.compile_query(query, scope)
        if len(compiled.columns) != 1:
            self.fail(
                "ARRAY subquery cannot have more than one column unless using SELECT AS STRUCT to build STRUCT values",
                node,
            )
        column = compiled.columns[0]
        if column.type.kind == "ARRAY":
            self.fail("Cannot use array subquery with column of type ARRAY", node)
        kind = array_of(column.type)
        listed = f"coalesce(list(_a.{quote(column.physical)}), CAST([] AS {duckdb_type(kind)}))"
        return Value(f"(SELECT {listed} FROM ({compiled.sql}) AS _a)", kind)

    def _natural_order(self, select: ast.Select, scope: Scope) -> str:
        """An array built from an UNNEST alone keeps that array's order."""
        simple = not select.group_by and not select.distinct and len(scope.orders) == 1 and not select.having
        aggregated = any(isinstance(item, ast.SelectItem) and has_aggregate(item.value) for item in select.items)
        if not simple or aggregated or isinstance(select.source, ast.Join):
            return ""
        return f" ORDER BY {scope.orders[0]}"


def _still_recursing(iteration: str) -> str:
    """A recursive query that does not end is an error, not a hang. As a filter, DuckDB cannot leave it out."""
    message = f"'A recursive CTE has reached the maximum number of iterations: {MAX_ITERATIONS}'"
    return f"(CASE WHEN {iteration} > {MAX_ITERATIONS} THEN CAST(bq_error({message}) AS BOOLEAN) ELSE TRUE END)"


def _typed_null(value: Value) -> Value:
    return (
        Value(f"CAST(NULL AS {duckdb_type(value.type)})", value.type, null=True, literal=True) if value.null else value
    )


def _columns(items: list[_Item]) -> list[OutColumn]:
    columns: list[OutColumn] = []
    taken: set[str] = set()
    for position, item in enumerate(items, 1):
        physical = item.name if item.name and item.name.lower() not in taken else f"_c{position}"
        taken.add(physical.lower())
        columns.append(OutColumn(item.name, _typed_null(item.expr), physical))
    return columns


def has_aggregate(node: ast.Expression) -> bool:
    return any(
        isinstance(item, ast.Call)
        and item.over is None
        and item.name in FUNCTIONS
        and FUNCTIONS[item.name].kind == "aggregate"
        for item in walk(node)
    )


def _reads(source: ast.TableExpression | None, name: str) -> bool:
    """Whether a FROM clause itself (not a subquery in it) names the table."""
    return any(
        isinstance(item, ast.TableName) and len(item.parts) == 1 and item.parts[0].lower() == name
        for item in walk(source)
    )


def _mentions(query: ast.Query, name: str) -> bool:
    return any(
        isinstance(item, ast.TableName) and len(item.parts) == 1 and item.parts[0].lower() == name
        for item in walk((query.body, query.ctes), into_queries=True)
    )
