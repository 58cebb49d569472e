"""The Spark type that carries each GoogleSQL type.

What Spark cannot hold exactly is carried as text: BIGNUMERIC, TIME, JSON, GEOGRAPHY, INTERVAL, RANGE.
"""

from ingestd.googlesql import columns
from ingestd.googlesql.types import SqlType, array_of, struct_of
from ingestd.model.schema import Field

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


def from_field(item: Field) -> SqlType:
    """The type of a column's values."""
    return _opaque(columns.from_field(item))


def _opaque(kind: SqlType) -> SqlType:
    if kind.kind == "RANGE":
        return RANGE
    if kind.element is not None:
        return array_of(_opaque(kind.element))
    return struct_of((name, _opaque(inner)) for name, inner in kind.fields) if kind.fields else kind
