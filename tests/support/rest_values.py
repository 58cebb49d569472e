"""Rows of BigQuery's REST answers as Python values, the way Google's client decodes them."""

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

_EPOCH = datetime.fromtimestamp(0, UTC)


def rows_from_rest(schema: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """`schema` and `rows` of a page; timestamps are expected as whole microseconds (`useInt64Timestamp`)."""
    fields = schema.get("fields", ())
    return [_record(fields, row) for row in rows]


def _record(fields: Iterable[Mapping[str, Any]], row: Mapping[str, Any]) -> dict[str, Any]:
    return {field["name"]: _value(field, cell["v"]) for field, cell in zip(fields, row["f"], strict=True)}


def _value(field: Mapping[str, Any], value: Any) -> Any:
    if field.get("mode") == "REPEATED":
        return [_scalar(field, item["v"]) for item in value or ()]
    return _scalar(field, value)


def _scalar(field: Mapping[str, Any], value: Any) -> Any:
    if value is None:
        return None
    kind = field["type"]
    if kind in ("RECORD", "STRUCT"):
        return _record(field.get("fields", ()), value)
    return _DECODERS.get(kind, str)(value)


def _timestamp(value: str) -> datetime:
    return _EPOCH + timedelta(microseconds=int(value))


_DECODERS: dict[str, Callable[[str], Any]] = {
    "INTEGER": int,
    "INT64": int,
    "FLOAT": float,
    "FLOAT64": float,
    "NUMERIC": Decimal,
    "BIGNUMERIC": Decimal,
    "BOOLEAN": lambda value: value.lower() == "true",
    "BOOL": lambda value: value.lower() == "true",
    "BYTES": base64.b64decode,
    "DATE": date.fromisoformat,
    "TIME": time.fromisoformat,
    "DATETIME": datetime.fromisoformat,
    "TIMESTAMP": _timestamp,
    "JSON": json.loads,
}
