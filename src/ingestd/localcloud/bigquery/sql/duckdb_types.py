"""GoogleSQL's types as DuckDB holds them, and as columns have them."""

from ingestd.formats.errors import BigQueryError
from ingestd.formats.types import Field, Mode, Schema, Type, quote
from ingestd.googlesql import ast
from ingestd.googlesql.types import SCALARS, SqlType, array_of, struct_of
from ingestd.localcloud.bigquery.sql.reading import from_node

_DUCKDB = {
    "STRING": "VARCHAR", "BYTES": "BLOB", "INT64": "BIGINT", "FLOAT64": "DOUBLE", "NUMERIC": "DECIMAL(38,9)",
    "BIGNUMERIC": "DECIMAL(38,18)", "BOOL": "BOOLEAN", "TIMESTAMP": "TIMESTAMPTZ", "DATE": "DATE", "TIME": "TIME",
    "DATETIME": "TIMESTAMP", "GEOGRAPHY": "VARCHAR", "JSON": "JSON", "INTERVAL": "INTERVAL",
}  # fmt: skip


def duckdb_type(kind: SqlType) -> str:
    if kind.element is not None:
        element = duckdb_type(kind.element)
        return f'STRUCT("start" {element}, "end" {element})' if kind.kind == "RANGE" else element + "[]"
    if kind.kind == "STRUCT":
        members = zip(kind.physical_names, kind.fields, strict=True)
        return "STRUCT(" + ", ".join(f"{quote(name)} {duckdb_type(inner)}" for name, (_, inner) in members) + ")"
    return _DUCKDB[kind.kind]


def from_field(item: Field) -> SqlType:
    if item.type is Type.STRUCT:
        scalar = struct_of((member.name, from_field(member)) for member in item.fields)
    elif item.type is Type.RANGE:
        scalar = SqlType("RANGE", SCALARS[(item.range_element or Type.DATE).value])
    else:
        scalar = SCALARS[item.type.value]
    return array_of(scalar) if item.mode is Mode.REPEATED else scalar


def to_field(name: str, kind: SqlType, *, mode: Mode = Mode.NULLABLE) -> Field:
    if kind.kind == "ARRAY":
        assert kind.element is not None
        return to_field(name, kind.element, mode=Mode.REPEATED)
    if kind.kind == "STRUCT":
        members = zip(kind.physical_names, kind.fields, strict=True)
        return Field(name, Type.STRUCT, mode, tuple(to_field(member, inner) for member, (_, inner) in members))
    if kind.kind == "RANGE":
        assert kind.element is not None
        return Field(name, Type.RANGE, mode, range_element=Type(kind.element.kind))
    return Field(name, Type(kind.kind), mode)


def from_schema(schema: Schema) -> tuple[tuple[str, SqlType], ...]:
    return tuple((item.name, from_field(item)) for item in schema)


def field_from_node(item: ast.FieldNode, *, description: str = "") -> Field:
    """A column as written in CREATE TABLE, keeping length, precision, mode and default."""
    node, mode = item.type, Mode.NULLABLE
    if node.name == "ARRAY":
        assert node.element is not None
        node, mode = node.element, Mode.REPEATED
    elif item.not_null:
        mode = Mode.REQUIRED
    if node.name == "ARRAY":
        raise BigQueryError("invalidQuery", "Arrays of arrays are not supported", "query")
    base = from_node(node)
    length = precision = scale = None
    if node.parameters and base.kind in ("STRING", "BYTES"):
        length = node.parameters[0] if node.parameters[0] >= 0 else None
    elif node.parameters and base.kind in ("NUMERIC", "BIGNUMERIC"):
        precision = node.parameters[0]
        scale = node.parameters[1] if len(node.parameters) > 1 else None
    elif node.parameters:
        raise BigQueryError("invalidQuery", f"{base.kind} does not support type parameters", "query")
    return Field(
        item.name,
        Type(base.kind),
        mode,
        tuple(field_from_node(member) for member in node.fields),
        description,
        Type(base.element.kind) if base.kind == "RANGE" and base.element else None,
        length,
        precision,
        scale,
        item.default_text,
    )
