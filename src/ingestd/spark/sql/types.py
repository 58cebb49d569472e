"""How Spark spells types: the one that carries each of GoogleSQL's, and the column that each of its own becomes.

What Spark cannot hold exactly is carried as text: BIGNUMERIC, TIME, JSON, GEOGRAPHY, INTERVAL, RANGE.
"""

from typing import TYPE_CHECKING

from ingestd.formats.binary import decimal_type
from ingestd.googlesql import columns
from ingestd.googlesql.types import SqlType, array_of, struct_of
from ingestd.model.errors import BadInput
from ingestd.model.schema import Field, Mode, Type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_SPARK = {
    "INT64": "BIGINT", "FLOAT64": "DOUBLE", "NUMERIC": "DECIMAL(38,9)", "BOOL": "BOOLEAN", "BYTES": "BINARY",
    "DATE": "DATE", "DATETIME": "TIMESTAMP_NTZ", "TIMESTAMP": "TIMESTAMP", "STRING": "STRING",
}  # fmt: skip
TEXT = frozenset(kind for kind in Type if kind not in _SPARK and kind is not Type.STRUCT)
DECIMALS = (Type.NUMERIC, Type.BIGNUMERIC, Type.STRING)
_FROM_SPARK = {
    "byte": Type.INT64, "short": Type.INT64, "integer": Type.INT64, "long": Type.INT64, "boolean": Type.BOOL,
    "float": Type.FLOAT64, "double": Type.FLOAT64, "string": Type.STRING, "char": Type.STRING, "varchar": Type.STRING,
    "void": Type.STRING, "binary": Type.BYTES, "date": Type.DATE, "time": Type.TIME, "timestamp": Type.TIMESTAMP,
    "timestamp_ntz": Type.DATETIME,
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


def from_spark(name: str, kind: "DataType", mode: Mode = Mode.NULLABLE) -> Field:
    """A column of a result of Spark's."""
    from pyspark.sql import types as spark

    match kind:
        case spark.ArrayType():
            return from_spark(name, kind.elementType, Mode.REPEATED)
        case spark.StructType():
            return Field(name, Type.STRUCT, mode, tuple(from_spark(item.name, item.dataType) for item in kind))
        case spark.MapType():
            pair = Field(
                "key_value",
                Type.STRUCT,
                Mode.REPEATED,
                (from_spark("key", kind.keyType), from_spark("value", kind.valueType)),
            )
            return Field(name, Type.STRUCT, mode, (pair,))
        case spark.DecimalType():
            return Field(name, decimal_type(kind.precision, kind.scale, DECIMALS), mode)
        case _:
            found = _FROM_SPARK.get(kind.typeName())
            if found is None:
                raise BadInput(f"column {name} of the result is a {kind.simpleString()}, which no table has: cast it")
            return Field(name, found, mode)
