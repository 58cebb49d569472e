"""Values as BigQuery writes them into CSV and JSON exports."""

import base64
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import orjson

from ingestd.localcloud.bigquery.errors import BigQueryError
from ingestd.localcloud.bigquery.files.temporal import Interval, interval_text
from ingestd.localcloud.bigquery.types import Field, Mode, Schema, Type

Encode = Callable[[Any], Any]
_HTML = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


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


def csv_line(schema: Schema, delimiter: str) -> Callable[[Mapping[str, Any]], str]:
    """How a row becomes a line of CSV: NULL is nothing, an empty string is `""`."""
    for item in schema:
        if item.type is Type.STRUCT or item.mode is Mode.REPEATED:
            raise BigQueryError("invalid", f"Operation cannot be performed on a nested schema. Field: {item.name}")
    encoders = [(item.name, text_encoder(item)) for item in schema]

    def encode(row: Mapping[str, Any]) -> str:
        return delimiter.join(
            "" if row[name] is None else csv_cell(write(row[name]), delimiter) for name, write in encoders
        )

    return encode


def csv_cell(text: str, delimiter: str) -> str:
    if not text or delimiter in text or re.search(r'["\r\n]', text):
        return '"' + text.replace('"', '""') + '"'
    return text


def json_line(schema: Schema) -> Callable[[Mapping[str, Any]], bytes]:
    """How a row becomes a line of JSON: 64-bit integers and decimals are strings, NULLs are left out."""
    encode = _json_struct(schema)

    def line(row: Mapping[str, Any]) -> bytes:
        text = orjson.dumps(encode(row)).decode()
        return text.translate(_HTML).encode()

    return line


def _json_struct(fields: Schema) -> Encode:
    encoders = [(item.name, _json_member(item)) for item in fields]

    def encode(row: Mapping[str, Any]) -> dict[str, Any]:
        return {name: write(row[name]) for name, write in encoders if row[name] is not None}

    return encode


def _json_member(field: Field) -> Encode:
    one = _json_struct(field.fields) if field.type is Type.STRUCT else _json_scalar(field)
    if field.mode is Mode.REPEATED:
        return lambda values: [one(value) for value in values]
    return one


def _json_scalar(field: Field) -> Encode:
    if field.type is Type.BOOL:
        return bool
    if field.type is Type.FLOAT64:
        return lambda value: value if math.isfinite(value) else float_text(value)
    if field.type is Type.JSON:
        return orjson.Fragment
    return text_encoder(field)
