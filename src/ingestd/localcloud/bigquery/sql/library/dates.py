"""Date, time, datetime and timestamp functions.

`*_DIFF` counts crossed boundaries, except TIMESTAMP_DIFF, which counts whole units. Weeks start on Sunday unless said
otherwise. Without a zone, UTC.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from ingestd.googlesql import ast
from ingestd.googlesql.civil import TIME_PARTS, date_part, escape_format
from ingestd.googlesql.names import Scope
from ingestd.googlesql.types import DATE, DATETIME, INT64, INTERVAL, STRING, TIME, TIMESTAMP, SqlType
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.duckdb_types import duckdb_type
from ingestd.localcloud.bigquery.sql.coercion import cast, coerce, literal, string_sql
from ingestd.localcloud.bigquery.sql.expressions import ExpressionCompiler
from ingestd.localcloud.bigquery.sql.idioms import ranged
from ingestd.localcloud.bigquery.sql.library.intervals import add
from ingestd.localcloud.bigquery.sql.library.registry import Call, constant_text, define, function, writes
from ingestd.localcloud.bigquery.sql.reading import mistake
from ingestd.localcloud.bigquery.sql.runtime import civil

_DATE_PARTS = frozenset(["DAY", "WEEK", "ISOWEEK", "MONTH", "QUARTER", "YEAR", "ISOYEAR"])
ADDABLE = {
    "DATE": frozenset(["DAY", "WEEK", "MONTH", "QUARTER", "YEAR"]),
    "DATETIME": frozenset([*TIME_PARTS, *["DAY", "WEEK", "MONTH", "QUARTER", "YEAR"]]),
    "TIMESTAMP": frozenset([*TIME_PARTS, "DAY"]),
    "TIME": frozenset(TIME_PARTS),
}


def part_of(c: ExpressionCompiler, node: ast.Expression) -> tuple[str, int]:
    """A date part and, for weeks, how many days before Monday they start."""
    found = date_part(node)
    if found is None:
        raise mistake(c.source, "A valid date part name is required", node.pos)
    return found[0], (1 - found[1]) % 7


def zone_sql(c: ExpressionCompiler, zone: Value | None) -> str:
    if zone is None:
        return "'UTC'"
    text = constant_text(zone)
    if text is None:
        return f"bq_zone({zone.sql})"
    try:
        return string_sql(civil.icu_zone(text))
    except ValueError as error:
        c.fail(str(error), 0)


def _civil(value: Value, zone: str = "'UTC'") -> str:
    """A DuckDB TIMESTAMP with the local time of a DATE, DATETIME or TIMESTAMP."""
    if value.type is TIMESTAMP:
        return f"({value.sql} AT TIME ZONE {zone})"
    return f"CAST({value.sql} AS TIMESTAMP)" if value.type is DATE else value.sql


def _back(sql: str, kind: SqlType, zone: str = "'UTC'") -> Value:
    if kind is TIMESTAMP:
        return Value(f"({sql} AT TIME ZONE {zone})", TIMESTAMP)
    return Value(f"CAST({sql} AS DATE)" if kind is DATE else sql, kind)


@writes("CURRENT_TIMESTAMP CURRENT_DATE CURRENT_DATETIME CURRENT_TIME")
def current(call: Call, zone: Value | None = None) -> str:
    now = literal(call.compiler.session.now.astimezone(UTC), TIMESTAMP)
    if call.returns is TIMESTAMP:
        return now.sql
    local = f"({now.sql} AT TIME ZONE {zone_sql(call.compiler, zone)})"
    return local if call.returns is DATETIME else f"CAST({local} AS {duckdb_type(call.returns)})"


@writes("DATE DATETIME TIME", "DATETIME", "TIMESTAMP, STRING?")
def _local(call: Call, value: Value, zone: Value | None = None) -> str:
    if zone is None:
        return cast(value, call.returns).sql
    local = _civil(value, zone_sql(call.compiler, zone))
    return local if call.returns is DATETIME else f"CAST({local} AS {duckdb_type(call.returns)})"


writes("DATE DATETIME", "DATE")(_local)
writes("DATETIME", "STRING")(_local)
writes("TIME", "TIME")(_local)
define("DATE", "INT64, INT64, INT64", "make_date({0}, {1}, {2})")
define("DATETIME", "DATE, TIME", "({0} + {1})")


@writes("DATE", "STRING")
def date(call: Call, value: Value) -> str:
    return cast(value if constant_text(value) is None else cast(value, TIMESTAMP), DATE).sql


def _clock(numbers: Sequence[str], made: str, kind: SqlType) -> str:
    """A time of day made of hour, minute and second; DuckDB has an hour 24 and a second 60."""
    hour, minute, second = numbers
    inside = f"{hour} BETWEEN 0 AND 23 AND {minute} BETWEEN 0 AND 59 AND {second} BETWEEN 0 AND 59"
    return f"CASE WHEN NOT ({inside}) THEN CAST(bq_error('Invalid time value') AS {duckdb_type(kind)}) ELSE {made} END"


define("TIME", "INT64, INT64, INT64", _clock(["{0}", "{1}", "{2}"], "make_time({0}, {1}, CAST({2} AS DOUBLE))", TIME))
define(
    "DATETIME", "INT64, INT64, INT64, INT64, INT64, INT64",
    _clock(["{3}", "{4}", "{5}"], "make_timestamp({0}, {1}, {2}, {3}, {4}, CAST({5} AS DOUBLE))", DATETIME),
)  # fmt: skip


@writes("TIMESTAMP")
def timestamp(call: Call, value: Value, zone: Value | None = None) -> str:
    if value.type is STRING:
        if zone is not None:  # text with a zone of its own is refused
            return f"bq_civil_to_timestamp(bq_string_to_datetime({value.sql}), {zone.sql})"
        return f"bq_string_to_timestamp({value.sql}, 'UTC')"
    if zone is not None:
        return f"bq_civil_to_timestamp({_civil(value)}, {zone.sql})"
    return _back(_civil(value), TIMESTAMP).sql if value.type is not TIMESTAMP else cast(value, TIMESTAMP).sql


def _add(call: Call) -> Value:
    moved = _moved(call)
    return cast(moved, DATETIME) if moved.type is DATE and not call.name.startswith("DATE_") else moved


def _moved(call: Call) -> Value:
    family, direction = call.name.rsplit("_", 1)
    sign = "+" if direction == "ADD" else "-"
    value = call.temporal(call.value(0), family)
    written = call.nodes[1]
    if not isinstance(written, ast.IntervalValue):
        if family == "DATE" and value.type is DATE:
            whole = call.want(call.compiler.expr(written, call.scope), INT64)
            return ranged(Value(f"CAST({value.sql} {sign} CAST({whole.sql} AS INTEGER) AS DATE)", DATE))
        call.fail(f"{call.name} needs an INTERVAL")
    if written.part not in ADDABLE[value.type.kind]:
        call.fail(
            f"{call.name} does not support the {written.part} date part when the argument is {value.type} type", written
        )
    amount = call.compiler.expr(written.value, call.scope)
    number = coerce(amount, INT64)
    if number is None and isinstance(amount.constant, str) and amount.literal:
        number = cast(Value(amount.sql, STRING), INT64)
    if number is None:
        call.fail(f"Interval value must be coercible to INT64 type but was {amount.type}", written)
    if value.type is TIMESTAMP:
        unit = TIME_PARTS.get(written.part, 86_400_000_000)
        return ranged(Value(f"({value.sql} {sign} to_microseconds({number.sql} * {unit}))", TIMESTAMP))
    if value.type is DATE and written.part in ("DAY", "WEEK"):
        days = number.sql if written.part == "DAY" else f"({number.sql} * 7)"
        return ranged(Value(f"CAST({value.sql} {sign} CAST({days} AS INTEGER) AS DATE)", DATE))
    moved = f"({value.sql} {sign} {add(number, written.part)})"
    return ranged(Value(f"CAST({moved} AS {duckdb_type(value.type)})", value.type))


for _name in ("DATE", "DATETIME", "TIME", "TIMESTAMP"):
    function(f"{_name}_ADD", f"{_name}_SUB")(_add)


@writes("ADD_MONTHS")
def add_months(call: Call, value: Value, months: Value) -> str:
    return f"CAST({value.sql} + {add(months, 'MONTH')} AS {duckdb_type(value.type)})"


def _date_diff(end: str, start: str, part: str, shift: int) -> str | None:
    match part:
        case "WEEK" | "ISOWEEK":
            return f"bq_week_diff({end}, {start}, {shift})"
        case "ISOYEAR":
            return f"(isoyear({end}) - isoyear({start}))"
        case "DAY" | "MONTH" | "QUARTER" | "YEAR":
            return f"date_diff('{part.lower()}', {start}, {end})"
    return None


@function("DATE_DIFF", "DATETIME_DIFF", "TIMESTAMP_DIFF", "TIME_DIFF")
def diff(call: Call) -> Value:
    family = call.name.removesuffix("_DIFF")
    end, start = (call.temporal(call.value(index), family) for index in (0, 1))
    if end.type is start.type is DATE and family == "DATETIME":
        end, start = cast(end, DATETIME), cast(start, DATETIME)
    if end.type != start.type:
        _, (end, start) = call.common([end, start])
    part, shift = part_of(call.compiler, call.nodes[2])
    kind = end.type
    if kind is TIMESTAMP:
        unit = TIME_PARTS.get(part) or (86_400_000_000 if part == "DAY" else None)
        if unit is not None:
            return Value(f"((epoch_us({end.sql}) - epoch_us({start.sql})) // {unit})", INT64)
        if family == "TIMESTAMP":
            call.fail(f"TIMESTAMP_DIFF does not support the {part} date part", call.nodes[2])
    if part in TIME_PARTS and kind in (DATETIME, TIME):
        return Value(f"date_diff('{part.lower()}', {start.sql}, {end.sql})", INT64)
    days = [f"CAST({_civil(item)} AS DATE)" for item in (end, start)] if kind is not DATE else [end.sql, start.sql]
    sql = _date_diff(days[0], days[1], part, shift) if kind is not TIME else None
    if sql is None:
        call.fail(f"{call.name} does not support the {part} date part", call.nodes[2])
    return Value(sql, INT64)


def _truncate(local: str, part: str, shift: int) -> str | None:
    """A DuckDB TIMESTAMP or DATE at the start of the part that holds `local`."""
    day = f"CAST({local} AS DATE)"
    match part:
        case "WEEK" | "ISOWEEK":
            return f"bq_week_start({day}, {shift})"
        case "ISOYEAR":
            return f"bq_week_start(make_date(isoyear({day}), 1, 4), 0)"
        case "DAY":
            return day
        case "MONTH" | "QUARTER" | "YEAR" | "HOUR" | "MINUTE" | "SECOND" | "MILLISECOND" | "MICROSECOND":
            return f"date_trunc('{part.lower()}', {local})"
    return None


@function("DATE_TRUNC", "DATETIME_TRUNC", "TIMESTAMP_TRUNC")
def trunc(call: Call) -> Value:
    family = call.name.removesuffix("_TRUNC")
    value = call.temporal(call.value(0), family)
    part, shift = part_of(call.compiler, call.nodes[1])
    if value.type is DATE and family != "DATE" and part in _DATE_PARTS:
        value = cast(value, DATETIME)
    if value.type is DATE and part not in _DATE_PARTS:
        call.fail(f"{call.name} does not support the {part} date part when the argument is DATE type", call.nodes[1])
    zone = call.typed(2, STRING) if len(call.nodes) == 3 else None
    if zone is not None and value.type is not TIMESTAMP:
        call.fail(f"{call.name} takes a time zone only for TIMESTAMP")
    where = zone_sql(call.compiler, zone)
    sql = _truncate(_civil(value, where), part, shift)
    if sql is None:
        call.fail(f"{call.name} does not support the {part} date part", call.nodes[1])
    if value.type is not DATE:
        sql = f"CAST({sql} AS TIMESTAMP)"
    moved = _back(sql, value.type, where)
    return ranged(moved) if part in ("WEEK", "ISOWEEK", "ISOYEAR") else moved


@function("TIME_TRUNC")
def time_trunc(call: Call) -> Value:
    value = call.typed(0, TIME)
    part, _ = part_of(call.compiler, call.nodes[1])
    if part not in TIME_PARTS:
        call.fail(f"TIME_TRUNC does not support the {part} date part", call.nodes[1])
    sql = f"date_trunc('{part.lower()}', DATE '1970-01-01' + {value.sql})"
    return Value(f"CAST({sql} AS TIME)", TIME)


@function("LAST_DAY")
def last_day(call: Call) -> Value:
    value = call.temporal(call.value(0), "DATE")
    if value.type is TIMESTAMP:
        raise call.mismatch([value])
    part, shift = part_of(call.compiler, call.nodes[1]) if len(call.nodes) == 2 else ("MONTH", 1)
    day = cast(value, DATE).sql
    sql = {
        "MONTH": f"last_day({day})",
        "YEAR": f"make_date(year({day}), 12, 31)",
        "QUARTER": f"last_day(CAST(date_trunc('quarter', {day}) + to_months(2) AS DATE))",
        "WEEK": f"(bq_week_start({day}, {shift}) + 6)",
        "ISOWEEK": f"(bq_week_start({day}, 0) + 6)",
        "ISOYEAR": f"(bq_week_start(make_date(CAST(isoyear({day}) AS BIGINT) + 1, 1, 4), 0) - 1)",
    }.get(part)
    if sql is None:
        call.fail(f"LAST_DAY does not support the {part} date part", call.nodes[1])
    return Value(f"CAST({sql} AS DATE)", DATE)


def extract(c: ExpressionCompiler, node: ast.Extract, scope: Scope) -> Value:
    part, shift = part_of(c, node.part)
    value = c.expr(node.value, scope)
    if value.type is INTERVAL:
        return _extract_interval(c, node, value, part)
    if value.null:
        value = cast(value, TIMESTAMP)
    if value.type not in (DATE, DATETIME, TIMESTAMP, TIME):
        c.fail(f"EXTRACT does not support arguments of type {value.type}", node)
    if node.zone is not None and value.type is not TIMESTAMP:
        c.fail("EXTRACT takes AT TIME ZONE only for TIMESTAMP", node)
    zone = c.typed(node.zone, scope, STRING) if node.zone is not None else None
    local = value.sql if value.type in (TIME, DATE) else _civil(value, zone_sql(c, zone))
    sql, kind = _extract_part(part, local, shift, value.type)
    if sql is None:
        c.fail(f"EXTRACT from {value.type} does not support the {part} date part", node)
    return Value(sql, kind)


def _extract_part(part: str, x: str, shift: int, kind: SqlType) -> tuple[str | None, SqlType]:
    if kind is not DATE:
        match part:
            case "HOUR" | "MINUTE":
                return f"datepart('{part.lower()}', {x})", INT64
            case "SECOND":
                return f"(datepart('microsecond', {x}) // 1000000)", INT64
            case "MILLISECOND":
                return f"(datepart('microsecond', {x}) % 1000000 // 1000)", INT64
            case "MICROSECOND":
                return f"(datepart('microsecond', {x}) % 1000000)", INT64
            case "TIME":
                return (f"CAST({x} AS TIME)" if kind is not TIME else None), TIME
    if kind is TIME:
        return None, INT64
    day = x if kind is DATE else f"CAST({x} AS DATE)"
    match part:
        case "DATE":
            return (day if kind is not DATE else None), DATE
        case "DATETIME":
            return (x if kind is TIMESTAMP else None), DATETIME
        case "DAYOFWEEK":
            return f"(dayofweek({day}) + 1)", INT64
        case "DAYOFYEAR":
            return f"dayofyear({day})", INT64
        case "WEEK":
            return f"bq_week_number({day}, {shift})", INT64
        case "ISOWEEK":
            return f"weekofyear({day})", INT64
        case "DAY" | "MONTH" | "QUARTER" | "YEAR" | "ISOYEAR":
            return f"{part.lower()}({day})", INT64
    return None, INT64


def _extract_interval(c: ExpressionCompiler, node: ast.Extract, value: Value, part: str) -> Value:
    x = value.sql
    sql = {
        "YEAR": f"(bq_interval_months({x}) // 12)",
        "MONTH": f"(bq_interval_months({x}) % 12)",
        "DAY": f"datepart('day', {x})",
        "HOUR": f"(bq_interval_us({x}) // 3600000000)",
        "MINUTE": f"(bq_interval_us({x}) // 60000000 % 60)",
        "SECOND": f"(bq_interval_us({x}) // 1000000 % 60)",
        "MILLISECOND": f"(bq_interval_us({x}) // 1000 % 1000)",
        "MICROSECOND": f"(bq_interval_us({x}) % 1000000)",
    }.get(part)
    if sql is None:
        c.fail(f"EXTRACT from INTERVAL does not support the {part} date part", node)
    return Value(f"CAST({sql} AS BIGINT)", INT64)


# Elements that DuckDB's strftime writes the same way.
_SAME = {code: f"%{code}" for code in "YmdHMSyjBbAapI"} | {"F": "%Y-%m-%d", "T": "%H:%M:%S", "%": "%%", "R": "%H:%M"}


def _native_pattern(pattern: str) -> str | None:
    out, at = "", 0
    while at < len(pattern):
        if pattern[at] != "%":
            out += pattern[at]
            at += 1
            continue
        code = pattern[at + 1 : at + 2]
        if code not in _SAME:
            return None
        out += _SAME[code]
        at += 2
    return out


@writes("FORMAT_DATE FORMAT_DATETIME FORMAT_TIMESTAMP FORMAT_TIME")
def format_(call: Call, pattern: Value, value: Value, zone: Value | None = None) -> str:
    text = constant_text(pattern)
    kind = call.name.removeprefix("FORMAT_") if value.type is DATE else value.type.kind
    if text is not None:
        text = escape_format(text, kind)
        pattern = literal(text, STRING)
        try:
            civil.format_civil(text, datetime(2000, 1, 1, tzinfo=UTC))
        except ValueError as error:
            call.fail(str(error))
    else:
        pattern = Value(f"bq_escape_format({pattern.sql}, '{kind}')", STRING)
    native = _native_pattern(text) if text is not None else None
    if value.type is TIME:
        return f"bq_format_time({pattern.sql}, {value.sql})"
    if native is not None:
        return f"strftime({_civil(value, zone_sql(call.compiler, zone))}, {string_sql(native)})"
    if value.type is TIMESTAMP:
        where = zone.sql if zone is not None else "'UTC'"
        return f"bq_format_timestamp({pattern.sql}, {value.sql}, {where})"
    return f"bq_format_datetime({pattern.sql}, {_civil(value)})"


define("PARSE_DATE", "STRING STRING", "bq_parse_date({0}, {1})")
define("PARSE_DATETIME", "STRING STRING", "bq_parse_datetime({0}, {1})")
define("PARSE_TIME", "STRING STRING", "bq_parse_time({0}, {1})")
define("PARSE_TIMESTAMP", "STRING STRING", "bq_parse_timestamp({0}, {1}, 'UTC')")
define("PARSE_TIMESTAMP", "STRING STRING STRING", "bq_parse_timestamp({0}, {1}, {2})")
define("UNIX_SECONDS", "TIMESTAMP", "bq_floor_div(epoch_us({0}), 1000000)")
define("UNIX_MILLIS", "TIMESTAMP", "bq_floor_div(epoch_us({0}), 1000)")
define("UNIX_MICROS", "TIMESTAMP", "epoch_us({0})")
define("UNIX_DATE", "DATE", "date_diff('day', DATE '1970-01-01', {0})")
define(
    "DATE_FROM_UNIX_DATE", "INT64",
    ranged(Value("CAST(DATE '1970-01-01' + CAST({0} AS INTEGER) AS DATE)", DATE)).sql,
)  # fmt: skip
define("TIMESTAMP_SECONDS", "INT64", "make_timestamptz({0} * 1000000)")
define("TIMESTAMP_MILLIS", "INT64", "make_timestamptz({0} * 1000)")
define("TIMESTAMP_MICROS", "INT64", "make_timestamptz({0})")


define("STRING", "JSON", "bq_json_to_string({0})")
define("STRING", "TIMESTAMP, STRING", "bq_timestamp_in_zone({0}, {1})")


@writes("STRING", "DATE", "DATETIME", "TIME", "TIMESTAMP")
def string(call: Call, value: Value) -> str:
    return cast(value, STRING).sql
