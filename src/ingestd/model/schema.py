"""The one schema: a table's columns, and how BigQuery's REST API spells them.

A `Field` is what rooms tell each other of a column; REST dictionaries are for adapters and stored files. How another
neighbour spells a type (Arrow, Avro, Parquet, Spark, DuckDB) stands beside the adapter that speaks with it.

Invariant: nothing that REST says of a column gets lost. What nobody here looks at (policy tags, collation, rounding)
travels in `other`, and a type that is not known keeps its name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from ingestd.model.errors import BadInput


class SchemaError(BadInput):
    """What is no schema, and why."""

    def __init__(self, why: str) -> None:
        super().__init__(f"schema: {why}")
        self.why = why


class Type(StrEnum):
    """GoogleSQL's names of types."""

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

    @property
    def known(self) -> bool:
        return self in _SPELT

    @property
    def rest(self) -> str:
        """As the REST API answers: with the legacy names."""
        return _REST.get(self, self.value)

    @classmethod
    def of(cls, name: str) -> "Type":
        """The type of that name in any spelling; one that is not `known` where BigQuery has more than we do."""
        return _SPELT.get(name) or _SPELT.get(name.upper()) or cls(name.upper())

    @classmethod
    def _missing_(cls, value: object) -> "Type":
        foreign = str.__new__(cls, value)
        foreign._name_ = foreign._value_ = str(value)
        return foreign


class Mode(StrEnum):
    NULLABLE = "NULLABLE"
    REQUIRED = "REQUIRED"
    REPEATED = "REPEATED"


ALIASES = {
    "INTEGER": "INT64", "INT": "INT64", "SMALLINT": "INT64", "BIGINT": "INT64", "TINYINT": "INT64", "BYTEINT": "INT64",
    "FLOAT": "FLOAT64", "BOOLEAN": "BOOL", "RECORD": "STRUCT", "DECIMAL": "NUMERIC", "BIGDECIMAL": "BIGNUMERIC",
}  # fmt: skip
_REST = {Type.INT64: "INTEGER", Type.FLOAT64: "FLOAT", Type.BOOL: "BOOLEAN", Type.STRUCT: "RECORD"}
_SPELT = {**{kind.value: kind for kind in Type}, **{alias: Type(name) for alias, name in ALIASES.items()}}
_SIZES = {"maxLength": "max_length", "precision": "precision", "scale": "scale"}
_ALWAYS = ("name", "type", "mode")
_NOTHING: tuple[Any, ...] = (None, "", [], {})
_MODELLED = {"fields", "description", "rangeElementType", "defaultValueExpression", *_SIZES}


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a member of a STRUCT."""

    name: str
    type: Type
    mode: Mode = Mode.NULLABLE
    fields: tuple["Field", ...] = ()
    description: str = ""
    range_element: Type | None = None
    max_length: int | None = None
    precision: int | None = None
    scale: int | None = None
    default: str = ""  # an expression
    other: tuple[tuple[str, Any], ...] = field(default=(), hash=False)  # what else REST says, by its own names
    tacit: bool = field(default=False, compare=False)  # REST leaves out that it is NULLABLE

    @property
    def key(self) -> str:
        """Its name to compare by: BigQuery does not tell case apart."""
        return self.name.lower()

    @property
    def repeated(self) -> bool:
        return self.mode is Mode.REPEATED

    @property
    def required(self) -> bool:
        return self.mode is Mode.REQUIRED

    @classmethod
    def from_rest(cls, resource: Mapping[str, Any], *, verbatim: bool = False) -> Self:
        """From a `TableFieldSchema`; `SchemaError` for what is none.

        `verbatim`: as BigQuery gave it, which is to get it back the same; it may have types that are not known here.
        """
        name = str(resource.get("name", ""))
        if not name:
            raise SchemaError("Field name cannot be empty")
        kind, mode = Type.of(str(resource.get("type", ""))), str(resource.get("mode") or "NULLABLE").upper()
        if not (kind.known or verbatim):
            raise SchemaError(f"Invalid value for type: {kind} is not a valid value (field {name})")
        if mode not in Mode.__members__:
            raise SchemaError(f"Invalid value for mode: {mode} is not a valid value (field {name})")
        tacit = verbatim and not resource.get("mode")
        said = {key: value for key, value in resource.items() if key not in _ALWAYS and value not in _NOTHING}
        if kind is Type.STRUCT and "fields" not in said:
            raise SchemaError(f"Field {name} is type RECORD but has no schema")
        if not said:
            return cls(name, kind, Mode(mode), tacit=tacit)
        bound = said.get("rangeElementType", {}).get("type")
        element = Type.of(bound) if bound else None
        if element is not None and not (element.known or verbatim):
            raise SchemaError(f"Invalid value for rangeElementType: {element} is not a valid value (field {name})")
        sizes = {own: _size(said[key], key, name) for key, own in _SIZES.items() if key in said}
        return cls(
            name,
            kind,
            Mode(mode),
            tuple(cls.from_rest(member, verbatim=verbatim) for member in said.get("fields", ())),
            str(said.get("description", "")),
            element,
            default=str(said.get("defaultValueExpression", "")),
            other=tuple(sorted((key, value) for key, value in said.items() if key not in _MODELLED)),
            tacit=tacit,
            **sizes,
        )

    def rest(self) -> dict[str, Any]:
        """As a `TableFieldSchema`."""
        resource: dict[str, Any] = {"name": self.name, "type": self.type.rest}
        if not self.tacit:
            resource["mode"] = self.mode.value
        if self.fields:
            resource["fields"] = [member.rest() for member in self.fields]
        if self.description:
            resource["description"] = self.description
        if self.range_element:
            resource["rangeElementType"] = {"type": self.range_element.value}
        for key, size in (("maxLength", self.max_length), ("precision", self.precision), ("scale", self.scale)):
            if size is not None:
                resource[key] = str(size)
        if self.default:
            resource["defaultValueExpression"] = self.default
        return resource | dict(self.other) if self.other else resource


Schema = tuple[Field, ...]


def _size(value: Any, key: str, name: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise SchemaError(f"Invalid value for {key}: {value} is not a valid value (field {name})") from None


def by_name(schema: Iterable[Field]) -> dict[str, Field]:
    """Columns by their names, to look up with `key`."""
    return {item.key: item for item in schema}


def schema_from_rest(resource: Mapping[str, Any] | None, *, verbatim: bool = False) -> Schema:
    """From a `TableSchema`; see `Field.from_rest`."""
    schema = tuple(Field.from_rest(item, verbatim=verbatim) for item in (resource or {}).get("fields") or ())
    _refuse_duplicates(schema)
    return schema


def schema_rest(schema: Iterable[Field]) -> dict[str, Any]:
    """As a `TableSchema`."""
    return {"fields": [item.rest() for item in schema]}


def _refuse_duplicates(schema: Schema) -> None:
    seen: set[str] = set()
    for item in schema:
        if item.key in seen:
            raise SchemaError(f"Duplicate field name: {item.name}")
        seen.add(item.key)
        _refuse_duplicates(item.fields)
