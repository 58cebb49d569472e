"""The Spark type that carries each GoogleSQL type, and columns in BigQuery's REST form.

What Spark cannot hold exactly is carried as text: BIGNUMERIC, TIME, JSON, GEOGRAPHY, INTERVAL, RANGE.
"""

from collections.abc import Mapping
from typing import Any

from ingestd.googlesql.types import ALIASES, SCALARS, SqlType, array_of, struct_of

_SPARK = {
    "INT64": "BIGINT", "FLOAT64": "DOUBLE", "NUMERIC": "DECIMAL(38,9)", "BOOL": "BOOLEAN", "BYTES": "BINARY",
    "DATE": "DATE", "DATETIME": "TIMESTAMP_NTZ", "TIMESTAMP": "TIMESTAMP", "STRING": "STRING",
}  # fmt: skip
RANGE = SqlType("RANGE")  # of whatever element: it is only passed on


def spark_sql(kind: SqlType) -> str:
    """The type in Spark's SQL."""
    if kind.element is not None:
        return f"ARRAY<{spark_sql(kind.element)}>"
    if kind.kind == "STRUCT":
        members = zip(kind.physical_names, kind.fields, strict=True)
        return "STRUCT<" + ", ".join(f"{quote(name)}: {spark_sql(inner)}" for name, (_, inner) in members) + ">"
    return _SPARK.get(kind.kind, "STRING")


def quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def from_field(field: Mapping[str, Any]) -> SqlType:
    """The type of a column in BigQuery's REST form."""
    name = str(field["type"]).upper()
    name = ALIASES.get(name, name)
    if name in ("STRUCT", "RECORD"):
        scalar = struct_of((str(member["name"]), from_field(member)) for member in field.get("fields") or ())
    else:
        scalar = RANGE if name == "RANGE" else SCALARS[name]
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
