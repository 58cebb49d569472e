"""How a BigQuery column travels through Spark, and in which file format it leaves it.

Most types have an exact counterpart in Arrow, Spark and Parquet. What has none (BIGNUMERIC, TIME, JSON, GEOGRAPHY,
INTERVAL, RANGE) travels as canonical text, and a schema with such a column is written as newline-delimited JSON, where
BigQuery itself parses the text by the explicit schema. Nothing is rounded on the way and nothing out of range turns
into NULL: such a value is bad data (`UnfitError`).

    INT64 bigint · FLOAT64 double · NUMERIC decimal(38,9) · BOOL boolean · STRING string · BYTES binary · DATE date
    DATETIME timestamp_ntz · TIMESTAMP timestamp · STRUCT struct · ARRAY array · the six above: string
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import partial
from typing import TYPE_CHECKING, Any

from ingestd.formats.columns import arrow_type
from ingestd.formats.temporal import Interval, interval_text
from ingestd.model.schema import Field, Mode, Schema, Type
from ingestd.spark.sql.types import TEXT, from_field, quote, spark_sql

if TYPE_CHECKING:
    import pyarrow as pa

# Their readers answer with something else than the text they travel as.
_RETOLD = frozenset([Type.BIGNUMERIC, Type.TIME, Type.INTERVAL, Type.RANGE])
_EXACT = Context(prec=120, rounding=ROUND_HALF_UP)
# The whole range is ±(2^255) · 10^-38.
_BIGNUMERIC_LIMIT = Decimal(2**255).scaleb(-38, _EXACT)


_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_SPACE = " \t\n\r\f\v"


class UnfitError(ValueError):
    """A value that its column cannot hold."""

    def __init__(self, column: str, shown: str, kind: Type) -> None:
        super().__init__(f"Could not convert value to {kind.value}. Field: {column}; Value: {shown}")
        self.column = column


def spark_ddl(schema: Schema) -> str:
    """The columns as Spark's SQL names them."""
    return ", ".join(f"{quote(item.name)} {spark_type(item)}" for item in schema)


def spark_type(field: Field) -> str:
    return spark_sql(from_field(field))


def textual(schema: Schema, prefix: str = "") -> list[str]:
    """The columns, by dotted name, that only text carries exactly."""
    found: list[str] = []
    for item in schema:
        if item.type in TEXT:
            found.append(prefix + item.name)
        found += textual(item.fields, f"{prefix}{item.name}.")
    return found


def readable(schema: Schema) -> Schema:
    """The schema for the readers of text formats: a BIGNUMERIC is read as text, since no Arrow decimal holds it."""
    return tuple(_readable(item) for item in schema)


def has_wide(schema: Schema) -> bool:
    """Whether a value may turn out not to fit only when it is carried on: a BIGNUMERIC that was read as text."""
    return any(item.type is Type.BIGNUMERIC or has_wide(item.fields) for item in schema)


def _readable(field: Field) -> Field:
    if field.type is Type.BIGNUMERIC:
        return Field(field.name, Type.STRING, field.mode)
    return replace(field, fields=readable(field.fields)) if field.fields else field


def carrier(field: Field) -> "pa.DataType":
    """The Arrow type in which a column goes to Spark."""
    import pyarrow as pa

    if field.type is Type.STRUCT:
        scalar: pa.DataType = pa.struct([pa.field(item.name, carrier(item)) for item in field.fields])
    elif field.type in TEXT:
        scalar = pa.string()
    else:
        scalar = arrow_type(replace(field, mode=Mode.NULLABLE))
    return pa.list_(scalar) if field.mode is Mode.REPEATED else scalar


def carrier_schema(schema: Schema) -> "pa.Schema":
    import pyarrow as pa

    return pa.schema([pa.field(item.name, carrier(item)) for item in schema])


def carry(table: "pa.Table", schema: Schema) -> "pa.Table":
    """What a reader answered, as it goes to Spark; `UnfitError` for a value that no BIGNUMERIC holds."""
    import pyarrow as pa

    columns = []
    for index, item in enumerate(schema):
        column = table.column(index)
        if _retold(item):
            chunks = [_carry(chunk, item, item.name) for chunk in column.chunks]
            column = pa.chunked_array(chunks, carrier(item))
        columns.append(column)
    return pa.table(columns, schema=carrier_schema(schema))


def _retold(field: Field) -> bool:
    return field.type in _RETOLD or any(_retold(item) for item in field.fields)


def _carry(array: "pa.Array", field: Field, path: str) -> "pa.Array":
    import pyarrow as pa
    import pyarrow.compute as pc

    if not _retold(field):
        return array
    if field.mode is Mode.REPEATED:
        elements = _carry(array.flatten(), replace(field, mode=Mode.NULLABLE), path)
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_pylist()
        offsets = [0]
        for length in lengths:
            offsets.append(offsets[-1] + length)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), elements, type=carrier(field))
    if field.type is Type.STRUCT:
        members = [_carry(array.field(index), item, f"{path}.{item.name}") for index, item in enumerate(field.fields)]
        mask = pc.is_null(array) if array.null_count else None
        return pa.StructArray.from_arrays(members, fields=list(carrier(field)), mask=mask)
    tell = _teller(field, path)
    return pa.array([None if value is None else tell(value) for value in array.to_pylist()], pa.string())


def _teller(field: Field, path: str) -> Callable[[Any], str]:
    match field.type:
        case Type.BIGNUMERIC:
            return partial(bignumeric_text, field=field, path=path)
        case Type.TIME:
            return time_text
        case Type.INTERVAL:
            return _interval
        case _:
            return partial(_range, field.range_element or Type.DATE)


def bignumeric_text(value: Any, field: Field, path: str) -> str:
    """A BIGNUMERIC in plain digits, rounded half away from zero to its scale as BigQuery does."""
    scale = 38 if field.precision is None and field.scale is None else field.scale or 0
    limit = _BIGNUMERIC_LIMIT
    if field.precision is not None:
        limit = min(limit, Decimal(10) ** (field.precision - scale))
    text = str(value).strip(_SPACE)
    try:
        number = _EXACT.create_decimal(text if _DECIMAL.fullmatch(text) else "?")
        number = number.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    except InvalidOperation:
        raise UnfitError(path, text, Type.BIGNUMERIC) from None
    if number.copy_abs() >= limit:
        raise UnfitError(path, text, Type.BIGNUMERIC)
    plain = f"{number:f}"
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return "0" if plain == "-0" else plain


def time_text(value: Any) -> str:
    """HH:MM:SS, and six digits where there is a fraction: text that sorts as the times do."""
    text: str = value.isoformat()
    return text


def _interval(value: Any) -> str:
    months, days, nanoseconds = value
    return interval_text(Interval(months, days, nanoseconds // 1000))


def _range(element: Type, value: Mapping[str, Any]) -> str:
    """`[start, end)` as GoogleSQL writes a RANGE literal."""
    start, end = (_bound(element, value.get(name)) for name in ("start", "end"))
    return f"[{start}, {end})"


def _bound(element: Type, value: Any) -> str:
    if value is None:
        return "UNBOUNDED"
    if element is Type.DATE:
        return str(value.isoformat())
    text = str(value.replace(tzinfo=None).isoformat(sep=" "))
    return f"{text}+00:00" if element is Type.TIMESTAMP else text


def required(schema: Schema) -> list[str]:
    return [item.name for item in schema if item.mode is Mode.REQUIRED]
