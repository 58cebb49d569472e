"""Values as BigQuery writes them into CSV and JSON exports."""

import base64
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import orjson

from ingestd.formats.errors import BigQueryError
from ingestd.formats.temporal import Interval, interval_text
from ingestd.model.schema import Field, Mode, Schema, Type

if TYPE_CHECKING:
    import pyarrow as pa

Encode = Callable[[Any], Any]
# Outside strings JSON has none of these, so they can be replaced in the finished line.
_HTML = ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026"))


def timestamp_text(value: datetime) -> str:
    moment = value.astimezone(UTC)
    return f"{_day(moment)} {_clock(moment.time())} UTC"


def datetime_text(value: datetime) -> str:
    return f"{_day(value)}T{_clock(value.time())}"


def _day(value: date) -> str:
    return f"{value.year:04d}-{value.month:02d}-{value.day:02d}"


def _clock(value: time) -> str:
    fraction = f".{value.microsecond:06d}".rstrip("0") if value.microsecond else ""
    return f"{value.hour:02d}:{value.minute:02d}:{value.second:02d}{fraction}"


def decimal_text(value: Decimal) -> str:
    text = f"{value:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("", "-0") else text


def float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _range_text(bound: Encode) -> Encode:
    def encode(value: Mapping[str, Any]) -> str:
        ends = ["UNBOUNDED" if value[key] is None else bound(value[key]) for key in ("start", "end")]
        return f"[{ends[0]}, {ends[1]})"

    return encode


def text_encoder(field: Field) -> Encode:
    """A non-null scalar as text."""
    if field.type is Type.RANGE:
        return _range_text(text_encoder(Field(field.name, field.range_element or Type.DATE)))
    return _TEXT[field.type]


def _interval(value: Any) -> str:
    return interval_text(as_interval(value))


def as_interval(value: Any) -> Interval:
    """An Arrow interval as BigQuery's three parts."""
    return Interval(value.months, value.days, value.nanoseconds // 1000)


_TEXT: dict[Type, Encode] = {
    Type.STRING: str,
    Type.GEOGRAPHY: str,
    Type.JSON: str,
    Type.BYTES: lambda value: base64.b64encode(value).decode(),
    Type.INT64: str,
    Type.FLOAT64: float_text,
    Type.NUMERIC: decimal_text,
    Type.BIGNUMERIC: decimal_text,
    Type.BOOL: lambda value: "true" if value else "false",
    Type.TIMESTAMP: timestamp_text,
    Type.DATE: _day,
    Type.TIME: _clock,
    Type.DATETIME: datetime_text,
    Type.INTERVAL: _interval,
}


def text_values(field: Field, array: "pa.Array") -> list[str | None]:
    """A column of scalars as text. Arrow formats what it formats as BigQuery does; the rest goes one by one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    match field.type:
        case Type.STRING | Type.GEOGRAPHY | Type.JSON:
            texts = array
        case Type.INT64 | Type.DATE:
            texts = array.cast(pa.string())
        case Type.TIMESTAMP:
            # Always six digits after the second, so zeros before the Z are never part of the seconds.
            texts = pc.replace_substring_regex(array.cast(pa.string()), r"\.?0*Z$", " UTC")
        case Type.TIME | Type.DATETIME:
            texts = pc.replace_substring_regex(array.cast(pa.string()), r"\.?0*$", "")
            if field.type is Type.DATETIME:
                texts = pc.replace_substring(texts, " ", "T")
        case _:
            write = text_encoder(field)
            return [None if value is None else write(value) for value in array.to_pylist()]
    found: list[str | None] = texts.to_pylist()
    return found


def csv_lines(schema: Schema, delimiter: str) -> Callable[["pa.Table"], Iterator[str]]:
    """How rows become lines of CSV: NULL is nothing, an empty string is `""`."""
    for item in schema:
        if item.type is Type.STRUCT or item.mode is Mode.REPEATED:
            raise BigQueryError("invalid", f"Operation cannot be performed on a nested schema. Field: {item.name}")
    special = re.compile(f'["\r\n{re.escape(delimiter)}]')

    def cell(text: str | None) -> str:
        if text is None:
            return ""
        return text if text and not special.search(text) else '"' + text.replace('"', '""') + '"'

    def encode(table: "pa.Table") -> Iterator[str]:
        columns = [map(cell, text_values(item, whole(table.column(i)))) for i, item in enumerate(schema)]
        return map(delimiter.join, zip(*columns, strict=True))

    return encode


def csv_cell(text: str, delimiter: str) -> str:
    if not text or delimiter in text or re.search(r'["\r\n]', text):
        return '"' + text.replace('"', '""') + '"'
    return text


def whole(column: "pa.ChunkedArray") -> "pa.Array":
    """A column as one array that starts at its beginning."""
    import pyarrow as pa

    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def json_lines(schema: Schema) -> Callable[["pa.Table"], Iterator[bytes]]:
    """How rows become lines of JSON: 64-bit integers and decimals are strings, NULLs are left out."""

    def encode(table: "pa.Table") -> Iterator[bytes]:
        columns = [json_values(item, whole(table.column(i))) for i, item in enumerate(schema)]
        return map(_line, _objects(schema, columns))

    return encode


def _line(row: dict[str, Any]) -> bytes:
    text = orjson.dumps(row)
    for plain, escaped in _HTML:
        if plain in text:
            text = text.replace(plain, escaped)
    return text


def _objects(fields: Schema, columns: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
    names = [item.name for item in fields]
    for row in zip(*columns, strict=True):
        yield {name: value for name, value in zip(names, row, strict=True) if value is not None}


def json_values(field: Field, array: "pa.Array") -> list[Any]:
    """A column as values that orjson writes as BigQuery's JSON export has them."""
    if field.mode is Mode.REPEATED:
        elements = json_values(replace(field, mode=Mode.NULLABLE), array.values)
        offsets = array.offsets.to_pylist()
        return [elements[start:end] for start, end in pairwise(offsets)]
    if field.type is Type.STRUCT:
        columns = [json_values(item, array.field(index)) for index, item in enumerate(field.fields)]
        rows = list(_objects(field.fields, columns))
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    if field.type is Type.BOOL:
        return list(array.to_pylist())
    if field.type is Type.FLOAT64:
        return [value if value is None or math.isfinite(value) else float_text(value) for value in array.to_pylist()]
    texts = text_values(field, array)
    return texts if field.type is not Type.JSON else [None if text is None else orjson.Fragment(text) for text in texts]
