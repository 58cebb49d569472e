"""Rows of BigQuery's REST answers as Python values, the way Google's client decodes them."""

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from ingestd.model.schema import Field, Schema, Type, schema_from_rest

_EPOCH = datetime.fromtimestamp(0, UTC)


def rows_from_rest(schema: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """`schema` and `rows` of a page; timestamps are expected as whole microseconds (`useInt64Timestamp`)."""
    fields = schema_from_rest(schema)
    return [_record(fields, row) for row in rows]


def _record(fields: Schema, row: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: _value(field, cell["v"]) for field, cell in zip(fields, row["f"], strict=True)}


def _value(field: Field, value: Any) -> Any:
    return [_scalar(field, item["v"]) for item in value or ()] if field.repeated else _scalar(field, value)


def _scalar(field: Field, value: Any) -> Any:
    if value is None:
        return None
    return _record(field.fields, value) if field.fields else _DECODERS.get(field.type, str)(value)


def _timestamp(value: str) -> datetime:
    return _EPOCH + timedelta(microseconds=int(value))


_DECODERS: dict[Type, Callable[[str], Any]] = {
    Type.INT64: int,
    Type.FLOAT64: float,
    Type.NUMERIC: Decimal,
    Type.BIGNUMERIC: Decimal,
    Type.BOOL: lambda value: value.lower() == "true",
    Type.BYTES: base64.b64decode,
    Type.DATE: date.fromisoformat,
    Type.TIME: time.fromisoformat,
    Type.DATETIME: datetime.fromisoformat,
    Type.TIMESTAMP: _timestamp,
    Type.JSON: json.loads,
}
