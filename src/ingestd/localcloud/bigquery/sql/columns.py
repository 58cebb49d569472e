"""Columns as CREATE TABLE writes them."""

from ingestd.formats.errors import BigQueryError
from ingestd.googlesql import ast
from ingestd.localcloud.bigquery.sql.reading import from_node
from ingestd.model.schema import Field, Mode, Type


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
