"""GoogleSQL's types, as rule expressions see them, and the Spark type that carries each.

What Spark cannot hold exactly is carried as text: BIGNUMERIC, TIME, JSON, GEOGRAPHY, INTERVAL, RANGE.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_ALIASES = {
    "INTEGER": "INT64", "INT": "INT64", "SMALLINT": "INT64", "BIGINT": "INT64", "TINYINT": "INT64", "BYTEINT": "INT64",
    "FLOAT": "FLOAT64", "BOOLEAN": "BOOL", "DECIMAL": "NUMERIC", "BIGDECIMAL": "BIGNUMERIC", "RECORD": "STRUCT",
}  # fmt: skip
_SPARK = {
    "INT64": "BIGINT", "FLOAT64": "DOUBLE", "NUMERIC": "DECIMAL(38,9)", "BOOL": "BOOLEAN", "BYTES": "BINARY",
    "DATE": "DATE", "DATETIME": "TIMESTAMP_NTZ", "TIMESTAMP": "TIMESTAMP", "STRING": "STRING",
}  # fmt: skip
_TEXT = frozenset(["BIGNUMERIC", "TIME", "JSON", "GEOGRAPHY", "INTERVAL", "RANGE"])
NUMERIC_ORDER = {"INT64": 0, "NUMERIC": 1, "BIGNUMERIC": 2, "FLOAT64": 3}


@dataclass(frozen=True, slots=True)
class SqlType:
    """`kind` is GoogleSQL's name of the type; an ARRAY has an element, a STRUCT has fields (a name may be empty)."""

    kind: str
    element: "SqlType | None" = None
    fields: tuple[tuple[str, "SqlType"], ...] = ()

    def __str__(self) -> str:
        if self.kind == "ARRAY":
            return f"ARRAY<{self.element}>"
        if self.kind == "STRUCT":
            return "STRUCT<" + ", ".join(f"{name} {kind}".strip() for name, kind in self.fields) + ">"
        return self.kind

    @property
    def spark(self) -> str:
        """The type in Spark's SQL."""
        if self.element is not None:
            return f"ARRAY<{self.element.spark}>"
        if self.kind == "STRUCT":
            members = zip(self.physical_names, self.fields, strict=True)
            return "STRUCT<" + ", ".join(f"{quote(name)}: {kind.spark}" for name, (_, kind) in members) + ">"
        return "STRING" if self.kind in _TEXT else _SPARK[self.kind]

    @property
    def physical_names(self) -> tuple[str, ...]:
        """Names of a STRUCT's members in Spark, which wants them present."""
        return tuple(name or f"_field_{position}" for position, (name, _) in enumerate(self.fields, 1))

    def member(self, name: str) -> tuple[str, "SqlType"] | None:
        """The physical name and type of a STRUCT member; names ignore case."""
        for physical, (own, kind) in zip(self.physical_names, self.fields, strict=True):
            if own.lower() == name.lower():
                return physical, kind
        return None

    @property
    def numeric(self) -> bool:
        return self.kind in NUMERIC_ORDER


def quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


SCALARS = {kind: SqlType(kind) for kind in (*_SPARK, *sorted(_TEXT))}
INT64, FLOAT64, NUMERIC, BIGNUMERIC = (SCALARS[kind] for kind in ("INT64", "FLOAT64", "NUMERIC", "BIGNUMERIC"))
BOOL, STRING, BYTES, JSON = (SCALARS[kind] for kind in ("BOOL", "STRING", "BYTES", "JSON"))
DATE, TIME, DATETIME, TIMESTAMP = (SCALARS[kind] for kind in ("DATE", "TIME", "DATETIME", "TIMESTAMP"))
ANY_STRUCT = SqlType("STRUCT")  # one whose fields are not known: it fits every other


def array_of(element: SqlType) -> SqlType:
    return SqlType("ARRAY", element)


def struct_of(fields: Iterable[tuple[str, SqlType]]) -> SqlType:
    return SqlType("STRUCT", fields=tuple(fields))


def from_field(field: Mapping[str, Any]) -> SqlType:
    """The type of a column in BigQuery's REST form."""
    name = str(field["type"]).upper()
    name = _ALIASES.get(name, name)
    if name == "STRUCT":
        scalar = struct_of((str(member["name"]), from_field(member)) for member in field.get("fields") or ())
    else:
        scalar = SCALARS[name]
    return array_of(scalar) if str(field.get("mode") or "").upper() == "REPEATED" else scalar


_REST = {"INT64": "INTEGER", "FLOAT64": "FLOAT", "BOOL": "BOOLEAN", "STRUCT": "RECORD"}


def to_field(name: str, kind: SqlType) -> dict[str, Any]:
    """A column in BigQuery's REST form."""
    if kind.kind == "ARRAY":
        assert kind.element is not None
        return {**to_field(name, kind.element), "mode": "REPEATED"}
    field: dict[str, Any] = {"name": name, "type": _REST.get(kind.kind, kind.kind), "mode": "NULLABLE"}
    if kind.kind == "STRUCT":
        members = zip(kind.physical_names, kind.fields, strict=True)
        field["fields"] = [to_field(physical, inner) for physical, (_, inner) in members]
    return field


def coerces(source: SqlType, target: SqlType) -> bool:
    """Whether any value of `source` becomes one of `target` without a CAST."""
    if source == target:
        return True
    if source.numeric and target.numeric:
        return NUMERIC_ORDER[source.kind] < NUMERIC_ORDER[target.kind]
    if source.kind == "DATE" and target.kind == "DATETIME":
        return True
    if source.kind == target.kind == "STRUCT" and ANY_STRUCT in (source, target):
        return True
    if source.kind == target.kind == "STRUCT" and len(source.fields) == len(target.fields):
        return all(coerces(a, b) for (_, a), (_, b) in zip(source.fields, target.fields, strict=True))
    if source.element is not None and target.element is not None:
        same = source.element.kind == target.element.kind == "STRUCT"
        return source.element == target.element or (same and coerces(source.element, target.element))
    return False
