"""One value at a time: JSON values and text into BigQuery values, exactly.

This is the reference for every text format: NDJSON loads, insertAll, CSV loads and hive keys convert here, and the
columnar fast path (`columns.py`) must agree with it. Values come out as plain Python: `Decimal` for NUMERIC, aware UTC
`datetime` for TIMESTAMP, JSON text for JSON, `Interval` for INTERVAL, dicts and lists for STRUCT and REPEATED.
"""

import base64
import binascii
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from enum import StrEnum
from typing import Any

import orjson

from ingestd.formats import temporal
from ingestd.formats.options import PLAIN, Formats
from ingestd.formats.patterns import compile_format
from ingestd.formats.temporal import UnreadableError
from ingestd.model.schema import Field, Mode, Schema, Type

Read = Callable[[Any], Any]


class NumberText(str):
    """A JSON number kept as it was written, because a double would not hold it."""

    __slots__ = ()


class ImpreciseError(Exception):
    """A double arrived where every digit counts: the row must be parsed again with its numbers as text."""


class Fault(StrEnum):
    """What can be wrong with a JSON value."""

    UNKNOWN = "unknown"
    VALUE = "value"
    NULL = "null"
    MISSING = "missing"
    NOT_ARRAY = "not an array"
    NOT_SCALAR = "not a scalar"
    NOT_RECORD = "not a record"
    NESTED_ARRAY = "an array"


@dataclass
class BadValueError(Exception):
    """A value the schema refuses. `path` is dotted; `shown` is the value as an error message shows it."""

    fault: Fault
    path: str
    type: Type | None = None
    shown: str = ""


NUMERIC_LIMIT = Decimal(10) ** 29
# Python's default context rounds to 28 digits, even in abs(); every operation here names this one instead.
WIDE = Context(prec=100, rounding=ROUND_HALF_UP)
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_SPACE = " \t\n\r\f\v"
_BOOLS = {"true": True, "false": False}
_CSV_BOOLS = _BOOLS | {"1": True, "0": False, "t": True, "f": False, "yes": True, "no": False, "y": True, "n": False}
_INFINITIES = {"inf", "infinity"}
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}", re.ASCII)


def read_int(text: str) -> int:
    text = text.strip(_SPACE)
    if not _INTEGER.fullmatch(text) or len(text) > 40:
        raise UnreadableError
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise UnreadableError
    return number


def read_float(text: str) -> float:
    text = text.strip(_SPACE)
    if _DECIMAL.fullmatch(text):
        number = float(text)
        if math.isinf(number):
            raise UnreadableError
        return number
    bare = text.lower().removeprefix("-").removeprefix("+")
    if bare in _INFINITIES:
        return -math.inf if text.startswith("-") else math.inf
    if bare == "nan":
        return math.nan
    raise UnreadableError


def numeric_reader(field: Field) -> Callable[[str], Decimal]:
    """NUMERIC and BIGNUMERIC from text: rounded half away from zero to the scale, as BigQuery does."""
    wide = field.type is Type.BIGNUMERIC
    held = 38 if wide and field.scale is None else 9
    scale = held if field.scale is None else field.scale
    if field.precision is not None:
        scale = field.scale or 0
    stored = min(scale, 38) if wide and field.scale is not None else (18 if wide else 9)
    quantum = Decimal(1).scaleb(-scale)
    limit = NUMERIC_LIMIT if not wide else Decimal(10) ** (38 - stored)
    if field.precision is not None:
        limit = min(limit, Decimal(10) ** (field.precision - scale))

    def read(text: str) -> Decimal:
        text = text.strip(_SPACE)
        if not _DECIMAL.fullmatch(text):
            raise UnreadableError
        try:
            number = WIDE.create_decimal(text)
            if number.adjusted() > 60:
                raise UnreadableError
            number = number.quantize(quantum, context=WIDE)
        except InvalidOperation:
            raise UnreadableError from None
        # DuckDB holds 38 digits: what a BIGNUMERIC has beyond them is refused, never rounded away.
        if number.copy_abs() >= limit or (
            stored < scale and number != number.quantize(Decimal(1).scaleb(-stored), context=WIDE)
        ):
            raise UnreadableError
        return number.quantize(Decimal(1).scaleb(-stored), context=WIDE) if stored != scale else number

    return read


def read_bytes(text: str) -> bytes:
    if not _BASE64.fullmatch(text):
        raise UnreadableError
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise UnreadableError from None


def read_bool(text: str) -> bool:
    return _lookup(_BOOLS, text)


def read_csv_bool(text: str) -> bool:
    return _lookup(_CSV_BOOLS, text)


def read_json_text(text: str) -> str:
    """JSON text in BigQuery's compact form."""
    try:
        return orjson.dumps(orjson.loads(text)).decode()
    except orjson.JSONDecodeError:
        raise UnreadableError from None


def _lookup(table: dict[str, bool], text: str) -> bool:
    found = table.get(text.strip(_SPACE).lower())
    if found is None:
        raise UnreadableError
    return found


def _bounded(read: Callable[[str], Any], limit: int) -> Callable[[str], Any]:
    def bounded(text: str) -> Any:
        value = read(text)
        if len(value) > limit:
            raise UnreadableError
        return value

    return bounded


def text_reader(field: Field, formats: Formats = PLAIN, *, csv: bool = False) -> Callable[[str], Any]:
    """How the text of one scalar becomes a value of the field's type; raises `UnreadableError`."""
    match field.type:
        case Type.STRING | Type.GEOGRAPHY:
            read: Callable[[str], Any] = str
        case Type.BYTES:
            read = read_bytes
        case Type.INT64:
            read = read_int
        case Type.FLOAT64:
            read = read_float
        case Type.NUMERIC | Type.BIGNUMERIC:
            read = numeric_reader(field)
        case Type.BOOL:
            read = read_csv_bool if csv else read_bool
        case Type.JSON:
            read = read_json_text
        case Type.INTERVAL:
            read = temporal.parse_interval
        case Type.RANGE:
            read = _range_reader(field, formats)
        case Type.DATE | Type.TIME | Type.DATETIME | Type.TIMESTAMP:
            read = _temporal_reader(field.type, formats)
        case Type.STRUCT:
            raise AssertionError("a STRUCT is not a scalar")
    return _bounded(read, field.max_length) if field.max_length is not None else read


def _temporal_reader(kind: Type, formats: Formats) -> Callable[[str], Any]:
    default_zone: tzinfo = temporal.zone(formats.zone) if formats.zone else UTC
    custom = {
        Type.DATE: formats.date,
        Type.TIME: formats.time,
        Type.DATETIME: formats.datetime,
        Type.TIMESTAMP: formats.timestamp,
    }[kind]
    if custom:
        return compile_format(custom, kind, default_zone)
    if kind is Type.TIMESTAMP:
        if formats.zone:
            return lambda text: temporal.parse_timestamp(text, default_zone)
        return temporal.parse_timestamp
    return {Type.DATE: temporal.parse_date, Type.TIME: temporal.parse_time, Type.DATETIME: temporal.parse_datetime}[
        kind
    ]


def _range_reader(field: Field, formats: Formats) -> Callable[[str], Any]:
    bound = _temporal_reader(field.range_element or Type.DATE, formats)

    def read(text: str) -> dict[str, Any]:
        found = re.fullmatch(r"\[\s*(.*?)\s*,\s*(.*?)\s*\)", text.strip())
        if found is None:
            raise UnreadableError
        ends = [None if part.upper() in ("UNBOUNDED", "NULL") else bound(part) for part in found.groups()]
        return _range(*ends)

    return read


def _range(start: Any, end: Any) -> dict[str, Any]:
    if start is not None and end is not None and start >= end:
        raise UnreadableError
    return {"start": start, "end": end}


@dataclass(frozen=True, slots=True)
class JsonRules:
    """Where NDJSON loads and streamed rows differ."""

    formats: Formats = PLAIN
    ignore_unknown: bool = False
    exact: bool = True  # a double in a NUMERIC, STRING or INT64 field asks for the row's text
    json_as_text: bool = False  # a string for a JSON field holds JSON (insertAll) or is a JSON string (load)


def shown(value: Any) -> str:
    """A value as error messages print it."""
    if isinstance(value, str):
        return value
    if value is None:
        return "NULL"
    try:
        return orjson.dumps(value, default=float, option=orjson.OPT_PASSTHROUGH_SUBCLASS).decode()
    except TypeError:
        return str(value)


def row_reader(schema: Schema, rules: JsonRules) -> Read:
    """How a JSON object becomes a dict with every column of the schema, in order."""
    return _struct_reader(schema, "", rules)


def member_reader(field: Field, path: str, rules: JsonRules) -> Read:
    """How the JSON value of one column or member is read."""
    if field.type is Type.STRUCT:
        read = _struct_reader(field.fields, path + ".", rules)
    else:
        read = _scalar_reader(field, path, rules)
    if field.mode is Mode.REPEATED:
        return _repeated(read, path, field.type)
    if field.mode is Mode.REQUIRED:
        return _required(read, path, field.type)
    return lambda value: None if value is None else read(value)


def _repeated(read: Read, path: str, kind: Type) -> Read:
    def read_list(value: Any) -> list[Any]:
        if value is None:
            return []
        if type(value) is not list:
            raise BadValueError(Fault.NOT_ARRAY, path, kind, shown(value))
        if None in value:
            raise BadValueError(Fault.NULL, path, kind, "NULL")
        return [read(item) for item in value]

    return read_list


def _required(read: Read, path: str, kind: Type) -> Read:
    def read_required(value: Any) -> Any:
        if value is None:
            raise BadValueError(Fault.NULL, path, kind, "NULL")
        return read(value)

    return read_required


def _struct_reader(fields: Schema, prefix: str, rules: JsonRules) -> Read:
    readers = {item.name: (item.name, member_reader(item, prefix + item.name, rules)) for item in fields}
    folded = {name.lower(): entry for name, entry in readers.items()}
    empty: dict[str, Any] = {item.name: None for item in fields}
    repeated = [item.name for item in fields if item.mode is Mode.REPEATED]
    required = [item.name for item in fields if item.mode is Mode.REQUIRED]
    own_path = prefix.removesuffix(".")

    def read(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            fault = Fault.NESTED_ARRAY if type(value) is list else Fault.NOT_RECORD
            raise BadValueError(fault, own_path, Type.STRUCT, shown(value))
        row = empty.copy()
        for name in repeated:
            row[name] = []
        for key, item in value.items():
            entry = readers.get(key) or folded.get(key.lower())
            if entry is None:
                if rules.ignore_unknown:
                    continue
                raise BadValueError(Fault.UNKNOWN, prefix + key)
            row[entry[0]] = entry[1](item)
        for name in required:
            if row[name] is None:
                raise BadValueError(Fault.MISSING, prefix + name)
        return row

    return read


def _scalar_reader(field: Field, path: str, rules: JsonRules) -> Read:
    kind = field.type
    from_text = text_reader(field, rules.formats)
    if kind is Type.JSON:
        return _json_reader(path, rules)
    if kind is Type.RANGE:
        from_pair = _pair_reader(field, rules)

    def read(value: Any) -> Any:
        if type(value) is float:
            if kind is Type.FLOAT64:
                return value
            if kind is Type.TIMESTAMP and math.isfinite(value):
                return _from_double(value, path)
            if rules.exact:
                raise ImpreciseError
            value = NumberText(repr(value))
        elif type(value) is dict:
            if kind is Type.RANGE:
                return _guarded(from_pair, value, path, kind)
            raise BadValueError(Fault.NOT_SCALAR, path, kind, shown(value))
        elif type(value) is list:
            raise BadValueError(Fault.NESTED_ARRAY, path, kind, shown(value))
        elif type(value) is bool:
            if kind is Type.BOOL:
                return value
            if kind is not Type.STRING:
                raise BadValueError(Fault.VALUE, path, kind, shown(value))
            value = "true" if value else "false"
        elif type(value) is int:
            if kind is Type.FLOAT64:
                return _guarded(float, value, path, kind)
            value = NumberText(value)
        if type(value) is NumberText and kind not in _FROM_NUMBERS:
            raise BadValueError(Fault.VALUE, path, kind, str(value))
        return _guarded(from_text, value, path, kind)

    return read


_FROM_NUMBERS = {Type.INT64, Type.FLOAT64, Type.NUMERIC, Type.BIGNUMERIC, Type.STRING, Type.TIMESTAMP}


def _guarded(read: Read, value: Any, path: str, kind: Type) -> Any:
    try:
        return read(value)
    except (UnreadableError, OverflowError):
        raise BadValueError(Fault.VALUE, path, kind, shown(value)) from None


def _from_double(value: float, path: str) -> Any:
    """Seconds as a double: the microsecond nearest to it is what was written, for every date BigQuery knows."""
    try:
        return temporal.from_micros(round(Decimal(repr(value)).scaleb(6, WIDE)))
    except (UnreadableError, OverflowError):
        raise BadValueError(Fault.VALUE, path, Type.TIMESTAMP, repr(value)) from None


def _json_reader(path: str, rules: JsonRules) -> Read:
    def read(value: Any) -> str:
        if rules.json_as_text and type(value) is str:
            return str(_guarded(read_json_text, value, path, Type.JSON))
        try:
            return orjson.dumps(value, default=float, option=orjson.OPT_PASSTHROUGH_SUBCLASS).decode()
        except TypeError:
            raise BadValueError(Fault.VALUE, path, Type.JSON, str(value)) from None

    return read


def _pair_reader(field: Field, rules: JsonRules) -> Read:
    bound = _temporal_reader(field.range_element or Type.DATE, rules.formats)

    def read(value: dict[str, Any]) -> dict[str, Any]:
        if set(value) - {"start", "end"}:
            raise UnreadableError
        ends = [None if value.get(key) is None else bound(str(value[key])) for key in ("start", "end")]
        return _range(*ends)

    return read
