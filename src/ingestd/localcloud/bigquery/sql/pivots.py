"""PIVOT and UNPIVOT, written out as the grouping and the union they stand for."""
# ruff: noqa: S608 - identifiers go through `quote`, values are bound or written by `literal`

from dataclasses import replace

from ingestd.googlesql import ast
from ingestd.googlesql.names import Column, Range, Scope
from ingestd.googlesql.references import walk
from ingestd.googlesql.types import STRING
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.duckdb_types import quote
from ingestd.localcloud.bigquery.sql.coercion import coerce, literal, string_sql, supertype
from ingestd.localcloud.bigquery.sql.reading import mistake
from ingestd.localcloud.bigquery.sql.sources import SourceCompiler


def pivot(c: SourceCompiler, node: ast.Pivot, scope: Scope) -> str:
    inner = Scope(parent=scope.parent, ctes=scope.ctes)
    source = c.source_sql(node.source, inner)
    used = {
        item.parts[-1].lower()
        for part in (*(aggregate.value for aggregate in node.aggregates), node.column)
        for item in walk(part)
        if isinstance(item, ast.Path)
    }
    if len(node.aggregates) > 1 and any(not item.alias for item in node.aggregates):
        c.fail("If multiple aggregate expressions are used in PIVOT, each must have an alias", node)
    keys = [column for column in inner.columns() if column.name.lower() not in used]
    items = [f"{column.sql} AS {quote(column.name)}" for column in keys]
    own = c.collected.alias()
    columns = [Column(column.name, column.type, f"{own}.{quote(column.name)}") for column in keys]
    for value in node.values:
        label = value.alias or _label(c, value.value)
        for aggregate in node.aggregates:
            name = f"{aggregate.alias}_{label}" if aggregate.alias else label
            compiled = c.expr(_filtered(c, aggregate.value, node.column, value.value), inner)
            items.append(f"{compiled.sql} AS {quote(name)}")
            columns.append(Column(name, compiled.type, f"{own}.{quote(name)}"))
    grouping = f" GROUP BY {', '.join(column.sql for column in keys)}" if keys else ""
    c.add_range(scope, Range(node.alias, columns), node)
    return f"(SELECT {', '.join(items)} FROM {source}{grouping}) AS {own}"


def _filtered(
    c: SourceCompiler, aggregate: ast.Expression, column: ast.Expression, value: ast.Expression
) -> ast.Expression:
    """The aggregate over the rows where the column has the value."""
    if not isinstance(aggregate, ast.Call):
        c.fail("PIVOT expression must be an aggregate function call", aggregate)
    test = ast.IsDistinct(aggregate.pos, column, value, negated=True)
    if aggregate.star:
        return replace(aggregate, name="COUNTIF", star=False, args=(test,))
    if not aggregate.args:
        c.fail("PIVOT expression must be an aggregate function call with an argument", aggregate)
    chosen = ast.Call(aggregate.pos, "IF", (test, aggregate.args[0], ast.Literal(aggregate.pos, "NULL", None)))
    nulls = "IGNORE" if aggregate.name == "ARRAY_AGG" else aggregate.nulls
    return replace(aggregate, args=(chosen, *aggregate.args[1:]), nulls=nulls)


def _label(c: SourceCompiler, value: ast.Expression) -> str:
    """The column name a pivot value gives: `Q1`, `_2024`, `minus`-signs spelt out, NULL as `NULL`."""
    if isinstance(value, ast.Literal):
        if value.value is None:
            return "NULL"
        if isinstance(value.value, bool):
            return "TRUE" if value.value else "FALSE"
        text = str(value.value)
        if isinstance(value.value, int | float):
            return "_" + text.replace("-", "minus_").replace(".", "_point_")
        return text
    if isinstance(value, ast.TypedLiteral):
        return value.text.replace("-", "_")
    raise mistake(c.source, "Implicit pivot column names need a literal; give the value an alias", value.pos)


def unpivot(c: SourceCompiler, node: ast.Unpivot, scope: Scope) -> str:
    inner = Scope(parent=scope.parent, ctes=scope.ctes)
    source = c.source_sql(node.source, inner)
    by_name = {column.name.lower(): column for column in inner.columns()}
    used: set[str] = set()
    groups: list[list[Column]] = []
    for names, _ in node.columns:
        if len(names) != len(node.values):
            c.fail("The UNPIVOT column groups must have as many columns as there are value columns", node)
        for name in names:
            if name.lower() not in by_name:
                c.fail(f"Unrecognized name: {name}", node)
        used.update(name.lower() for name in names)
        groups.append([by_name[name.lower()] for name in names])
    kinds = []
    for index in range(len(node.values)):
        kind = supertype([group[index].expr for group in groups])
        if kind is None:
            c.fail("The UNPIVOT columns have no common type", node)
        kinds.append(kind)
    labels = [_unpivot_label(c, names, written) for names, written in node.columns]
    rows = []
    for group, label in zip(groups, labels, strict=True):
        members = []
        for position, (column, kind) in enumerate(zip(group, kinds, strict=True)):
            converted = coerce(column.expr, kind)
            assert converted is not None
            members.append(f"v{position} := {converted.sql}")
        rows.append(f"struct_pack({', '.join(members)}, n := {label.sql})")
    kept = [column for name, column in by_name.items() if name not in used]
    own = c.collected.alias()
    inside = [f"{column.sql} AS {quote(column.name)}" for column in kept]
    items = [quote(column.name) for column in kept]
    columns = [Column(column.name, column.type, f"{own}.{quote(column.name)}") for column in kept]
    for position, (name, kind) in enumerate(zip(node.values, kinds, strict=True)):
        items.append(f"_s.v{position} AS {quote(name)}")
        columns.append(Column(name, kind, f"{own}.{quote(name)}"))
    items.append(f"_s.n AS {quote(node.name)}")
    columns.append(Column(node.name, labels[0].type, f"{own}.{quote(node.name)}"))
    where = ""
    if not node.include_nulls:
        where = " WHERE " + " OR ".join(f"_s.v{position} IS NOT NULL" for position in range(len(kinds)))
    c.add_range(scope, Range(node.alias, columns), node)
    unnested = ", ".join([*inside, f"unnest([{', '.join(rows)}]) AS _s"])
    return f"(SELECT {', '.join(items)} FROM (SELECT {unnested} FROM {source}){where}) AS {own}"


def _unpivot_label(c: SourceCompiler, names: tuple[str, ...], written: ast.Expression | None) -> Value:
    if written is None:
        return literal("_".join(names), STRING)
    value = c.expr(written, Scope())
    return Value(value.sql if value.type is not STRING else string_sql(str(value.constant)), value.type)
