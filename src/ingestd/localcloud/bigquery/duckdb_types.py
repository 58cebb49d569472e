"""GoogleSQL's types as DuckDB spells them: of expressions, and of columns.

Invariant: a value read back from its DuckDB column equals what BigQuery would return; what DuckDB cannot hold exactly
is refused at the door, never rounded.
"""

from collections.abc import Iterable

from ingestd.googlesql.types import SqlType
from ingestd.model.schema import Field, Type

_DUCKDB = {
    "STRING": "VARCHAR", "BYTES": "BLOB", "INT64": "BIGINT", "FLOAT64": "DOUBLE", "NUMERIC": "DECIMAL(38,9)",
    "BIGNUMERIC": "DECIMAL(38,18)", "BOOL": "BOOLEAN", "TIMESTAMP": "TIMESTAMPTZ", "DATE": "DATE", "TIME": "TIME",
    "DATETIME": "TIMESTAMP", "GEOGRAPHY": "VARCHAR", "JSON": "JSON", "INTERVAL": "INTERVAL",
}  # fmt: skip


def quote(name: str) -> str:
    """An identifier."""
    return '"' + name.replace('"', '""') + '"'


def duckdb_type(kind: SqlType) -> str:
    """The type of an expression."""
    if kind.element is not None:
        element = duckdb_type(kind.element)
        return _range(element) if kind.kind == "RANGE" else element + "[]"
    if kind.kind == "STRUCT":
        members = zip(kind.physical_names, kind.fields, strict=True)
        return _struct((name, duckdb_type(inner)) for name, (_, inner) in members)
    return _DUCKDB[kind.kind]


def column_type(item: Field) -> str:
    """The type of a column, whose scale counts."""
    if item.type is Type.STRUCT:
        scalar = _struct((member.name, column_type(member)) for member in item.fields)
    elif item.type is Type.RANGE:
        scalar = _range(_DUCKDB[item.range_element or Type.DATE])
    elif item.type is Type.BIGNUMERIC and item.scale is not None:
        scalar = f"DECIMAL(38,{min(item.scale, 38)})"
    else:
        scalar = _DUCKDB[item.type]
    return scalar + "[]" if item.repeated else scalar


def _struct(members: Iterable[tuple[str, str]]) -> str:
    return "STRUCT(" + ", ".join(f"{quote(name)} {kind}" for name, kind in members) + ")"


def _range(element: str) -> str:
    return f'STRUCT("start" {element}, "end" {element})'
