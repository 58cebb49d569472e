"""Rows as BigQuery's REST API writes them: `{"f": [{"v": …}]}`, every scalar a string.

Invariant: what a client decodes equals what is stored, to the microsecond and to the last decimal.
"""
# ruff: noqa: S608 - identifiers go through `quote`

import base64
import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from ingestd.localcloud.bigquery.duckdb_types import quote
from ingestd.model.schema import Field, Mode, Schema, Type

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Encoder = Callable[[Any], Any]


def projection(schema: Schema, relation: str) -> str:
    """SELECT of a relation's columns in schema order, in the forms that `encode_rows` reads."""
    columns = ", ".join(_select(item) for item in schema) or "NULL"
    return f"SELECT {columns} FROM {relation}"


def _select(item: Field) -> str:
    name = quote(item.name)
    if item.mode is not Mode.REPEATED:
        if item.type is Type.TIMESTAMP:
            return f"epoch_us({name})"  # an integer is exact and far cheaper than a zoned datetime
        if item.type is Type.INTERVAL:
            return (
                f"CASE WHEN {name} IS NULL THEN NULL ELSE [datepart('year', {name}), datepart('month', {name}), "
                f"datepart('day', {name}), epoch_us({name} - to_years(CAST(datepart('year', {name}) AS INTEGER)) "
                f"- to_months(CAST(datepart('month', {name}) AS INTEGER)) "
                f"- to_days(CAST(datepart('day', {name}) AS INTEGER)))] END"
            )
    return name


def encode_rows(schema: Schema, rows: Iterable[Sequence[Any]], *, int64_timestamp: bool) -> list[dict[str, Any]]:
    encoders = [encoder(item, int64_timestamp=int64_timestamp) for item in schema]
    return [{"f": [{"v": encode(value)} for encode, value in zip(encoders, row, strict=False)]} for row in rows]


def encoder(item: Field, *, int64_timestamp: bool) -> Encoder:
    """How one column's values become `v`."""
    if item.type is Type.STRUCT:
        scalar = _struct(item.fields, int64_timestamp)
    elif item.type is Type.TIMESTAMP:
        scalar = _timestamp_int64 if int64_timestamp else _timestamp_float
    elif item.type is Type.RANGE:
        scalar = _range(encoder(Field("bound", item.range_element or Type.DATE), int64_timestamp=int64_timestamp))
    else:
        scalar = _SCALARS[item.type]
    if item.mode is Mode.REPEATED:
        return lambda values: [{"v": None if value is None else scalar(value)} for value in values or ()]
    return lambda value: None if value is None else scalar(value)


def _struct(fields: Schema, int64_timestamp: bool) -> Encoder:
    members = [(item.name, encoder(item, int64_timestamp=int64_timestamp)) for item in fields]

    def encode(value: Any) -> dict[str, Any]:
        if isinstance(value, dict):
            return {"f": [{"v": member(value.get(name))} for name, member in members]}
        return {"f": [{"v": member(part)} for (_, member), part in zip(members, value, strict=True)]}

    return encode


def _range(bound: Encoder) -> Encoder:
    def encode(value: dict[str, Any]) -> str:
        low, high = bound(value["start"]), bound(value["end"])
        return f"[{'UNBOUNDED' if low is None else low}, {'UNBOUNDED' if high is None else high})"

    return encode


def _microseconds(value: Any) -> int:
    if isinstance(value, int):
        return value
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return int((aware - _EPOCH) // _MICROSECOND)


def _timestamp_int64(value: Any) -> str:
    return str(_microseconds(value))


def _timestamp_float(value: Any) -> str:
    """Seconds as Java prints a double, the way BigQuery answers without `useInt64Timestamp`."""
    micros = _microseconds(value)
    if micros == 0:
        return "0.0"
    seconds = Decimal(micros).scaleb(-6).normalize()
    if 10**-3 <= abs(seconds) < 10**7:
        text = format(seconds, "f")
        return text if "." in text else text + ".0"
    sign, digits, exponent = seconds.as_tuple()
    assert isinstance(exponent, int)
    mantissa = "".join(map(str, digits))
    return f"{'-' if sign else ''}{mantissa[0]}.{mantissa[1:] or '0'}E{len(mantissa) - 1 + exponent}"


def _float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _decimal(value: Any) -> str:
    text = format(Decimal(value), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _bytes(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _boolean(value: Any) -> str:
    return "true" if value else "false"


def _date(value: date) -> str:
    return value.isoformat()


def _time(value: time | timedelta) -> str:
    return value.isoformat() if isinstance(value, time) else str(value)


def _datetime(value: datetime) -> str:
    return value.isoformat()


def _interval(value: Any) -> str:
    """GoogleSQL's canonical form, `Y-M D H:M:S[.F]`."""
    if isinstance(value, timedelta):
        years, months, days, micros = 0, 0, value.days, value // _MICROSECOND - value.days * 86_400_000_000
    else:
        years, months, days, micros = value
    sign = "-" if years < 0 or months < 0 else ""
    clock = abs(micros)
    hours, rest = divmod(clock, 3_600_000_000)
    minutes, rest = divmod(rest, 60_000_000)
    seconds, fraction = divmod(rest, 1_000_000)
    tail = f".{fraction:06d}".rstrip("0") if fraction else ""
    clock_sign = "-" if micros < 0 else ""
    return f"{sign}{abs(years)}-{abs(months)} {days} {clock_sign}{hours}:{minutes}:{seconds}{tail}"


_SCALARS: dict[Type, Encoder] = {
    Type.STRING: str,
    Type.BYTES: _bytes,
    Type.INT64: str,
    Type.FLOAT64: _float,
    Type.NUMERIC: _decimal,
    Type.BIGNUMERIC: _decimal,
    Type.BOOL: _boolean,
    Type.DATE: _date,
    Type.TIME: _time,
    Type.DATETIME: _datetime,
    Type.GEOGRAPHY: str,
    Type.JSON: str,
    Type.INTERVAL: _interval,
}
