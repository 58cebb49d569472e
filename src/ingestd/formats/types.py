"""BigQuery's types and how DuckDB stores them.

Invariant: a value read back from its DuckDB column equals what BigQuery would return; what DuckDB cannot hold exactly
is refused at the door, never rounded.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ingestd.formats.errors import BigQueryError


class Type(StrEnum):
    """GoogleSQL type names."""

    STRING = "STRING"
    BYTES = "BYTES"
    INT64 = "INT64"
    FLOAT64 = "FLOAT64"
    NUMERIC = "NUMERIC"
    BIGNUMERIC = "BIGNUMERIC"
    BOOL = "BOOL"
    TIMESTAMP = "TIMESTAMP"
    DATE = "DATE"
    TIME = "TIME"
    DATETIME = "DATETIME"
    GEOGRAPHY = "GEOGRAPHY"
    JSON = "JSON"
    INTERVAL = "INTERVAL"
    RANGE = "RANGE"
    STRUCT = "STRUCT"


class Mode(StrEnum):
    NULLABLE = "NULLABLE"
    REQUIRED = "REQUIRED"
    REPEATED = "REPEATED"


_ALIASES = {
    "INTEGER": Type.INT64,
    "INT": Type.INT64,
    "SMALLINT": Type.INT64,
    "BIGINT": Type.INT64,
    "TINYINT": Type.INT64,
    "BYTEINT": Type.INT64,
    "FLOAT": Type.FLOAT64,
    "BOOLEAN": Type.BOOL,
    "RECORD": Type.STRUCT,
    "DECIMAL": Type.NUMERIC,
    "BIGDECIMAL": Type.BIGNUMERIC,
}
# tables.get and query results answer with the legacy names.
_REST = {Type.INT64: "INTEGER", Type.FLOAT64: "FLOAT", Type.BOOL: "BOOLEAN", Type.STRUCT: "RECORD"}

_DUCKDB = {
    Type.STRING: "VARCHAR",
    Type.BYTES: "BLOB",
    Type.INT64: "BIGINT",
    Type.FLOAT64: "DOUBLE",
    Type.NUMERIC: "DECIMAL(38,9)",
    Type.BIGNUMERIC: "DECIMAL(38,18)",
    Type.BOOL: "BOOLEAN",
    Type.TIMESTAMP: "TIMESTAMPTZ",
    Type.DATE: "DATE",
    Type.TIME: "TIME",
    Type.DATETIME: "TIMESTAMP",
    Type.GEOGRAPHY: "VARCHAR",
    Type.JSON: "JSON",
    Type.INTERVAL: "INTERVAL",
}


def quote(name: str) -> str:
    """A DuckDB identifier."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class Field:
    """A column (or a member of a STRUCT) as BigQuery's `TableFieldSchema` describes it."""

    name: str
    type: Type
    mode: Mode = Mode.NULLABLE
    fields: tuple["Field", ...] = ()
    description: str = ""
    range_element: Type | None = None
    max_length: int | None = None
    precision: int | None = None
    scale: int | None = None
    default: str = ""

    @classmethod
    def from_rest(cls, resource: dict[str, Any]) -> "Field":
        name = str(resource.get("name", ""))
        if not name:
            raise BigQueryError("invalid", "Field name cannot be empty")
        raw = str(resource.get("type", "")).upper()
        kind = _ALIASES.get(raw) or (Type(raw) if raw in Type.__members__ else None)
        if kind is None:
            raise BigQueryError("invalid", f"Invalid value for type: {raw} is not a valid value (field {name})")
        members = tuple(cls.from_rest(member) for member in resource.get("fields") or ())
        if kind is Type.STRUCT and not members:
            raise BigQueryError("invalid", f"Field {name} is type RECORD but has no schema")
        element = (resource.get("rangeElementType") or {}).get("type")
        return cls(
            name=name,
            type=kind,
            mode=Mode(str(resource.get("mode") or "NULLABLE").upper()),
            fields=members,
            description=str(resource.get("description") or ""),
            range_element=Type(element.upper()) if element else None,
            max_length=int(resource["maxLength"]) if resource.get("maxLength") else None,
            precision=int(resource["precision"]) if resource.get("precision") else None,
            scale=int(resource["scale"]) if resource.get("scale") else None,
            default=str(resource.get("defaultValueExpression") or ""),
        )

    def rest(self) -> dict[str, Any]:
        resource: dict[str, Any] = {"name": self.name, "type": _REST.get(self.type, self.type.value), "mode": self.mode}
        if self.fields:
            resource["fields"] = [member.rest() for member in self.fields]
        if self.description:
            resource["description"] = self.description
        if self.range_element:
            resource["rangeElementType"] = {"type": self.range_element.value}
        for key, value in (("maxLength", self.max_length), ("precision", self.precision), ("scale", self.scale)):
            if value is not None:
                resource[key] = str(value)
        if self.default:
            resource["defaultValueExpression"] = self.default
        return resource

    @property
    def duckdb(self) -> str:
        """The DuckDB type of the column."""
        if self.type is Type.STRUCT:
            scalar = "STRUCT(" + ", ".join(f"{quote(member.name)} {member.duckdb}" for member in self.fields) + ")"
        elif self.type is Type.RANGE:
            element = _DUCKDB[self.range_element or Type.DATE]
            scalar = f'STRUCT("start" {element}, "end" {element})'
        elif self.type is Type.BIGNUMERIC and self.scale is not None:
            scalar = f"DECIMAL(38,{min(self.scale, 38)})"
        else:
            scalar = _DUCKDB[self.type]
        return scalar + "[]" if self.mode is Mode.REPEATED else scalar


Schema = tuple[Field, ...]


def schema_from_rest(resource: dict[str, Any] | None) -> Schema:
    fields = tuple(Field.from_rest(item) for item in (resource or {}).get("fields") or ())
    _refuse_duplicates(fields)
    return fields


def schema_rest(schema: Iterable[Field]) -> dict[str, Any]:
    return {"fields": [item.rest() for item in schema]}


def _refuse_duplicates(fields: Schema) -> None:
    seen: set[str] = set()
    for item in fields:
        if item.name.lower() in seen:
            raise BigQueryError("invalid", f"Duplicate field name: {item.name}")
        seen.add(item.name.lower())
        _refuse_duplicates(item.fields)
