"""Types of GoogleSQL expressions, how they relate, and how DuckDB holds them."""

from collections.abc import Iterable
from dataclasses import dataclass

from ingestd.formats.errors import BigQueryError, not_implemented
from ingestd.formats.types import Field, Mode, Schema, Type, quote
from ingestd.localcloud.bigquery.sql import ast

_ALIASES = {
    "INT": "INT64", "SMALLINT": "INT64", "INTEGER": "INT64", "BIGINT": "INT64", "TINYINT": "INT64",
    "BYTEINT": "INT64", "FLOAT": "FLOAT64", "BOOLEAN": "BOOL", "DECIMAL": "NUMERIC", "BIGDECIMAL": "BIGNUMERIC",
}  # fmt: skip

_DUCKDB = {
    "STRING": "VARCHAR", "BYTES": "BLOB", "INT64": "BIGINT", "FLOAT64": "DOUBLE", "NUMERIC": "DECIMAL(38,9)",
    "BIGNUMERIC": "DECIMAL(38,18)", "BOOL": "BOOLEAN", "TIMESTAMP": "TIMESTAMPTZ", "DATE": "DATE", "TIME": "TIME",
    "DATETIME": "TIMESTAMP", "GEOGRAPHY": "VARCHAR", "JSON": "JSON", "INTERVAL": "INTERVAL",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SqlType:
    """`kind` is a GoogleSQL type name, or ARRAY. STRUCT fields may be unnamed (an empty name)."""

    kind: str
    element: "SqlType | None" = None
    fields: tuple[tuple[str, "SqlType"], ...] = ()

    def __str__(self) -> str:
        if self.kind in ("ARRAY", "RANGE"):
            return f"{self.kind}<{self.element}>"
        if self.kind == "STRUCT":
            return "STRUCT<" + ", ".join(f"{name} {kind}".strip() for name, kind in self.fields) + ">"
        return self.kind

    @property
    def duckdb(self) -> str:
        if self.element is not None:
            if self.kind == "RANGE":
                return f'STRUCT("start" {self.element.duckdb}, "end" {self.element.duckdb})'
            return self.element.duckdb + "[]"
        if self.kind == "STRUCT":
            members = zip(self.physical_names, self.fields, strict=True)
            return "STRUCT(" + ", ".join(f"{quote(name)} {kind.duckdb}" for name, (_, kind) in members) + ")"
        return _DUCKDB[self.kind]

    @property
    def physical_names(self) -> tuple[str, ...]:
        """Names of a STRUCT's members in DuckDB, which wants them present and unique."""
        names: list[str] = []
        taken: set[str] = set()
        for position, (name, _) in enumerate(self.fields, 1):
            chosen = name if name and name.lower() not in taken else f"_field_{position}"
            taken.add(chosen.lower())
            names.append(chosen)
        return tuple(names)

    def field(self, name: str) -> tuple[str, "SqlType"] | None:
        """The physical name and type of a STRUCT member."""
        lowered = name.lower()
        for physical, (own, kind) in zip(self.physical_names, self.fields, strict=True):
            if own.lower() == lowered:
                return physical, kind
        return None

    @property
    def numeric(self) -> bool:
        return self.kind in NUMERIC_ORDER


INT64 = SqlType("INT64")
FLOAT64 = SqlType("FLOAT64")
NUMERIC = SqlType("NUMERIC")
BIGNUMERIC = SqlType("BIGNUMERIC")
BOOL = SqlType("BOOL")
STRING = SqlType("STRING")
BYTES = SqlType("BYTES")
DATE = SqlType("DATE")
TIME = SqlType("TIME")
DATETIME = SqlType("DATETIME")
TIMESTAMP = SqlType("TIMESTAMP")
INTERVAL = SqlType("INTERVAL")
JSON = SqlType("JSON")
GEOGRAPHY = SqlType("GEOGRAPHY")
SCALARS = {
    item.kind: item
    for item in (
        INT64, FLOAT64, NUMERIC, BIGNUMERIC, BOOL, STRING, BYTES, DATE, TIME, DATETIME, TIMESTAMP, INTERVAL, JSON,
        GEOGRAPHY,
    )
}  # fmt: skip
NUMERIC_ORDER = {"INT64": 0, "NUMERIC": 1, "BIGNUMERIC": 2, "FLOAT64": 3}


def array_of(element: SqlType) -> SqlType:
    return SqlType("ARRAY", element)


def struct_of(fields: Iterable[tuple[str, SqlType]]) -> SqlType:
    return SqlType("STRUCT", fields=tuple(fields))


def coerces(source: SqlType, target: SqlType) -> bool:
    """Whether a value (not a literal) of `source` converts to `target` without CAST."""
    if source == target:
        return True
    if source.kind in NUMERIC_ORDER and target.kind in NUMERIC_ORDER:
        return NUMERIC_ORDER[source.kind] < NUMERIC_ORDER[target.kind]
    if source.kind == "DATE" and target.kind == "DATETIME":
        return True
    if source.kind == target.kind == "STRUCT" and len(source.fields) == len(target.fields):
        return all(coerces(a, b) for (_, a), (_, b) in zip(source.fields, target.fields, strict=True))
    if source.kind == target.kind == "ARRAY":
        assert source.element is not None
        assert target.element is not None
        return source.element == target.element or (
            source.element.kind == target.element.kind == "STRUCT" and coerces(source.element, target.element)
        )
    return False


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


def from_node(node: ast.TypeNode) -> SqlType:
    """The type an expression of this written type has (length and precision do not matter there)."""
    if node.name == "ARRAY":
        assert node.element is not None
        element = from_node(node.element)
        if element.kind == "ARRAY":
            raise BigQueryError("invalidQuery", "Arrays of arrays are not supported", "query")
        return array_of(element)
    if node.name == "STRUCT":
        return struct_of((item.name, from_node(item.type)) for item in node.fields)
    if node.name == "RANGE":
        assert node.element is not None
        return SqlType("RANGE", from_node(node.element))
    return SCALARS[scalar_name(node.name)]


def scalar_name(name: str) -> str:
    known = _ALIASES.get(name, name)
    if known in SCALARS:
        return known
    if known in ("PROTO", "ENUM", "UUID", "TOKENLIST"):
        raise not_implemented(f"the type {known}")
    raise BigQueryError("invalidQuery", f"Type not found: {name}", "query")


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
