"""Arrow columns for BigQuery fields, and the columnar fast path of the JSON and CSV readers.

Invariant: a fast path answers only where its result is provably that of `convert.py` (the Python types in the column,
or a regular expression over all of its text, leave no room for doubt); otherwise it raises `Doubt` and the rows are
converted one by one. Arrow is imported on first use: it is most of a second that a start-up should not pay.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from ingestd.formats.convert import BadValueError, JsonRules, member_reader, text_reader
from ingestd.formats.options import PLAIN, Formats
from ingestd.formats.temporal import Interval, UnreadableError
from ingestd.model.schema import Field, Mode, Schema, Type

if TYPE_CHECKING:
    import pyarrow as pa

_NONE = type(None)
_EARLIEST = datetime(1, 1, 1, tzinfo=UTC)
_LATEST = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)


class Doubt(Exception):  # noqa: N818
    """The fast path cannot vouch for this column."""


def arrow_type(field: Field) -> "pa.DataType":
    """The Arrow type that holds its values, as DuckDB reads it (JSON travels as text)."""
    import pyarrow as pa

    match field.type:
        case Type.STRUCT:
            scalar = pa.struct([pa.field(item.name, arrow_type(item)) for item in field.fields])
        case Type.RANGE:
            bound = arrow_type(Field("bound", field.range_element or Type.DATE))
            scalar = pa.struct([pa.field("start", bound), pa.field("end", bound)])
        case Type.NUMERIC:
            scalar = pa.decimal128(38, 9)
        case Type.BIGNUMERIC:
            scalar = pa.decimal128(38, 18 if field.scale is None else min(field.scale, 38))
        case _:
            scalar = {
                Type.STRING: pa.string(),
                Type.BYTES: pa.binary(),
                Type.INT64: pa.int64(),
                Type.FLOAT64: pa.float64(),
                Type.BOOL: pa.bool_(),
                Type.TIMESTAMP: pa.timestamp("us", tz="UTC"),
                Type.DATE: pa.date32(),
                Type.TIME: pa.time64("us"),
                Type.DATETIME: pa.timestamp("us"),
                Type.GEOGRAPHY: pa.string(),
                Type.JSON: pa.string(),
                Type.INTERVAL: pa.month_day_nano_interval(),
            }[field.type]
    return pa.list_(scalar) if field.mode is Mode.REPEATED else scalar


def arrow_schema(schema: Schema) -> "pa.Schema":
    import pyarrow as pa

    return pa.schema([pa.field(item.name, arrow_type(item)) for item in schema])


def has_interval(schema: Schema) -> bool:
    return any(item.type is Type.INTERVAL or has_interval(item.fields) for item in schema)


def values_array(field: Field, values: Sequence[Any]) -> "pa.Array":
    """Converted values as an Arrow column."""
    import pyarrow as pa

    if has_interval((field,)):
        values = [_with_arrow_intervals(field, value) for value in values]
    return pa.array(values, arrow_type(field))


def _with_arrow_intervals(field: Field, value: Any) -> Any:
    import pyarrow as pa

    if value is None:
        return None
    if field.mode is Mode.REPEATED:
        element = replace(field, mode=Mode.NULLABLE)
        return [_with_arrow_intervals(element, item) for item in value]
    if isinstance(value, Interval):
        return pa.MonthDayNano([value.months, value.days, value.micros * 1000])
    if field.type is Type.STRUCT:
        return {item.name: _with_arrow_intervals(item, value[item.name]) for item in field.fields}
    return value


def json_columns(rows: Sequence[dict[str, Any]], schema: Schema, rules: JsonRules) -> "pa.Table":
    """Whole rows of parsed JSON as a table, or `Doubt`; `ImpreciseError` asks for rows with their numbers as text."""
    import pyarrow as pa

    if not schema:
        raise Doubt
    if set(map(type, rows)) != {dict} or not set(chain.from_iterable(rows)) <= {item.name for item in schema}:
        raise Doubt
    arrays = [_json_column(item, [row.get(item.name) for row in rows], rules) for item in schema]
    return pa.table(arrays, schema=arrow_schema(schema))


def _json_column(field: Field, values: list[Any], rules: JsonRules) -> "pa.Array":
    import pyarrow as pa

    if field.mode is Mode.REPEATED:
        return _json_lists(field, values, rules)
    kinds = set(map(type, values))
    if field.mode is Mode.REQUIRED and _NONE in kinds:
        raise Doubt
    kinds.discard(_NONE)
    if not kinds:
        return pa.nulls(len(values), arrow_type(field))
    if field.type is Type.STRUCT:
        return _json_structs(field, values, kinds, rules)
    plain = _PLAIN.get(field.type)
    if plain is not None and kinds <= plain and field.max_length is None:
        try:
            return pa.array(values, arrow_type(field))
        except (pa.ArrowInvalid, OverflowError, UnicodeError):
            raise Doubt from None
    if kinds == {str} and field.type in _PATTERNS and rules.formats == PLAIN:
        return parse_text(field, pa.array(values, pa.string()), text_reader(field))
    read = member_reader(field, field.name, rules)
    try:
        return values_array(field, [read(value) for value in values])
    except BadValueError:
        raise Doubt from None


_PLAIN: dict[Type, set[type]] = {
    Type.STRING: {str},
    Type.GEOGRAPHY: {str},
    Type.INT64: {int},
    Type.FLOAT64: {float},
    Type.BOOL: {bool},
}


def _json_lists(field: Field, values: list[Any], rules: JsonRules) -> "pa.Array":
    import pyarrow as pa

    if not set(map(type, values)) <= {list, _NONE}:
        raise Doubt
    offsets = [0, *accumulate(len(value) if value else 0 for value in values)]
    flat = [item for value in values if value for item in value]
    if None in flat:
        raise Doubt
    elements = _json_column(replace(field, mode=Mode.NULLABLE), flat, rules)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), elements, type=arrow_type(field))


def _json_structs(field: Field, values: list[Any], kinds: set[type], rules: JsonRules) -> "pa.Array":
    import pyarrow as pa

    names = {item.name for item in field.fields}
    present = [value for value in values if value is not None]
    if kinds != {dict} or not set(chain.from_iterable(present)) <= names:
        raise Doubt
    holes = len(present) != len(values)
    if holes and any(item.mode is Mode.REQUIRED for item in field.fields):
        raise Doubt
    filled = [value or {} for value in values] if holes else values
    arrays = [_json_column(item, [value.get(item.name) for value in filled], rules) for item in field.fields]
    members = list(arrow_type(field))
    mask = pa.array([value is None for value in values]) if holes else None
    return pa.StructArray.from_arrays(arrays, fields=members, mask=mask)


def text_columns(columns: Sequence[Sequence[str | None]], schema: Schema, formats: Formats = PLAIN) -> "pa.Table":
    """Columns of CSV text as a table, or `Doubt`."""
    import pyarrow as pa

    arrays = [_text_column(item, values, formats) for item, values in zip(schema, columns, strict=True)]
    return pa.table(arrays, schema=arrow_schema(schema))


def _text_column(field: Field, values: Sequence[str | None], formats: Formats) -> "pa.Array":
    import pyarrow as pa

    return text_array_column(field, pa.array(values, pa.string()), formats)


def text_array_column(field: Field, text: "pa.Array", formats: Formats) -> "pa.Array":
    """A CSV column that is already Arrow text."""
    if field.mode is Mode.REQUIRED and text.null_count:
        raise Doubt
    return parse_text(field, text, text_reader(field, formats, csv=True), plain=formats == PLAIN)


def parse_text(field: Field, text: "pa.Array", read: Callable[[str], Any], *, plain: bool = True) -> "pa.Array":
    """Text as values: by Arrow where one canonical shape covers it, else one by one with the exact reader."""
    if field.max_length is None and plain:
        if field.type in (Type.STRING, Type.GEOGRAPHY):
            return text
        if field.type in _PATTERNS:
            try:
                return _parsed(field, text)
            except Doubt:
                pass
    try:
        return values_array(field, [None if value is None else read(value) for value in text.to_pylist()])
    except UnreadableError:
        raise Doubt from None


_CLOCK = r"\d{2}:\d{2}:\d{2}(\.\d{1,6})?"
_DAY = r"\d{4}-\d{2}-\d{2}"
_PATTERNS = {
    Type.INT64: r"^-?(0|[1-9]\d{0,17})$",
    Type.FLOAT64: r"^-?\d{1,15}(\.\d{1,17})?$",
    Type.NUMERIC: r"^-?\d{1,28}(\.\d{1,9})?$",
    Type.DATE: rf"^{_DAY}$",
    Type.DATETIME: rf"^{_DAY}[T ]{_CLOCK}$",
    Type.TIMESTAMP: rf"^{_DAY}[T ]{_CLOCK}(Z| UTC|[+-]\d{{2}}:\d{{2}})$",
}
_SECONDS, _MICROS = len("2026-01-01T00:00:00Z"), len("2026-01-01T00:00:00.000000Z")
_ZONELESS = rf"^{_DAY}[T ]{_CLOCK}$"


def _parsed(field: Field, text: "pa.Array") -> "pa.Array":
    """Text of one canonical shape, parsed by Arrow."""
    import pyarrow as pa
    import pyarrow.compute as pc

    target = arrow_type(field)
    if field.precision is not None:
        raise Doubt
    try:
        if field.type is Type.TIMESTAMP and _in_zulu(text):
            parsed = text.cast(target)
        elif _all(pc.match_substring_regex(text, _PATTERNS[field.type])):
            if field.type is Type.TIMESTAMP:
                text = pc.replace_substring_regex(text, " UTC$", "Z")
            parsed = text.cast(target)
        elif field.type is Type.TIMESTAMP and _all(pc.match_substring_regex(text, _ZONELESS)):
            parsed = text.cast(pa.timestamp("us")).cast(target)
        else:
            raise Doubt
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise Doubt from None
    if field.type in (Type.DATE, Type.DATETIME, Type.TIMESTAMP):
        _check_years(parsed)
    return parsed


def _in_zulu(text: "pa.Array") -> bool:
    """Whether all of it is as long as date, time and `Z`: the only shapes of that length that Arrow parses at all.

    Of the shorter ones that it knows, and BigQuery does not, none with a `Z` has 20 characters.
    """
    import pyarrow.compute as pc

    lengths = pc.min_max(pc.binary_length(text)).as_py()
    if lengths["min"] is None or lengths["min"] < _SECONDS or lengths["max"] > _MICROS:
        return False
    return _all(pc.ends_with(text, "Z"))


def _all(flags: Any) -> bool:
    import pyarrow.compute as pc

    return pc.all(flags).as_py() is not False


def _check_years(parsed: "pa.Array") -> None:
    """Arrow knows the year 0 and offsets that leave year 9999; BigQuery does not."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ends = pc.min_max(parsed.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())).as_py()
    if ends["min"] is None:
        return
    micros = 1_000_000
    low, high = int(_EARLIEST.timestamp()) * micros, int(_LATEST.timestamp()) * micros + micros - 1
    if ends["min"] < low or ends["max"] > high:
        raise Doubt
