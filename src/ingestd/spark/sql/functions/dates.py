"""Date, time, datetime and timestamp functions.

`*_DIFF` counts crossed boundaries, except TIMESTAMP_DIFF, which counts whole units. Weeks start on Sunday unless said
otherwise. Without a zone, UTC: the session's zone is UTC, too.
"""

import re

from ingestd.googlesql import ast
from ingestd.googlesql.civil import FAMILY, TIME_PARTS, date_part
from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.types import DATE, DATETIME, INT64, STRING, TIME, TIMESTAMP, SqlType
from ingestd.googlesql.values import Value
from ingestd.spark.sql.functions.registry import NEVER_FAILS, Call, define, function, writes
from ingestd.spark.sql.types import spark_sql
from ingestd.spark.sql.values import cast, fill, ranged

_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_DAYS = {"DAY": 1, "WEEK": 7}


def _part(call: Call, node: ast.Expression) -> tuple[str, int]:
    found = date_part(node)
    if found is None:
        raise SqlError(f"{call.name} needs a date part there")
    return found


def in_zone(value: Value, zone: Value | None) -> str:
    """The local time of a TIMESTAMP, as Spark SQL that reads like a UTC one."""
    return value.sql if zone is None else f"from_utc_timestamp({value.sql}, {zone.sql})"


def _back(sql: str, kind: SqlType) -> Value:
    return Value(f"CAST({sql} AS {spark_sql(kind)})", kind)


@writes("CURRENT_TIMESTAMP CURRENT_DATE CURRENT_DATETIME CURRENT_TIME")
def current(call: Call, zone: Value | None = None) -> str:
    return cast(Value(in_zone(Value("current_timestamp()", TIMESTAMP), zone), TIMESTAMP), call.returns).sql


@writes("DATE DATETIME TIME", "DATETIME", "TIMESTAMP, STRING?")
def local(call: Call, value: Value, zone: Value | None = None) -> str:
    return cast(Value(in_zone(value, zone), value.type), call.returns).sql


for _name in ("DATE", "DATETIME"):
    writes(_name, "DATE")(local)
define("TIME", "TIME", "@0")
define("DATE", "INT64, INT64, INT64", "make_date(CAST(@0 AS INT), CAST(@1 AS INT), CAST(@2 AS INT))")
_INTS = ", ".join(f"CAST(@{index} AS INT)" for index in range(6))
define("DATETIME", "INT64, INT64, INT64, INT64, INT64, INT64", f"make_timestamp_ntz({_INTS})")
define("DATETIME", "DATE, TIME", "CAST(concat(CAST(@0 AS STRING), ' ', @1) AS TIMESTAMP_NTZ)")
_MADE = "make_timestamp_ntz(1970, 1, 1, CAST(@0 AS INT), CAST(@1 AS INT), CAST(@2 AS INT))"
define("TIME", "INT64, INT64, INT64", cast(Value(_MADE, DATETIME), TIME).sql)


@writes("DATE", "STRING")
def date(call: Call, value: Value) -> str:
    return cast(value if value.literal else cast(value, TIMESTAMP), DATE).sql


@writes("DATETIME", "STRING")
def datetime_(call: Call, value: Value) -> str:
    return cast(value, DATETIME).sql


@writes("TIMESTAMP")
def timestamp(call: Call, value: Value, zone: Value | None = None) -> str:
    if zone is None:
        return cast(value, TIMESTAMP).sql
    # Text with a zone of its own is refused by the CAST to a civil time.
    local = cast(value, DATETIME) if value.type is STRING else value
    return f"to_utc_timestamp(CAST({local.sql} AS TIMESTAMP), {zone.sql})"


def _interval(call: Call, node: ast.Expression) -> tuple[Value, str]:
    if not isinstance(node, ast.IntervalValue):
        raise SqlError(f"{call.name} needs an INTERVAL")
    if node.to_part:
        raise SqlError(f"{call.name} takes an INTERVAL of one part")
    amount = call.compiler.expr(node.value, call.scope)
    if amount.literal and isinstance(amount.constant, str):
        if not re.fullmatch(r"[+-]?[0-9]+", amount.constant):
            raise SqlError(f"{amount.constant!r} is no number of an INTERVAL")
        amount = Value(f"{int(amount.constant)}L", INT64, simple=True)
    return call.want(amount, INT64), node.part


def _add(call: Call) -> Value:
    moved = _moved(call)
    return cast(moved, DATETIME) if moved.type is DATE and not call.name.startswith("DATE_") else moved


def _moved(call: Call) -> Value:
    family, direction = call.name.rsplit("_", 1)
    value = call.temporal(call.value(0), family)
    if family == "DATE" and value.type is DATE and not isinstance(call.nodes[1], ast.IntervalValue):
        amount, part = call.typed(1, INT64), "DAY"
    else:
        amount, part = _interval(call, call.nodes[1])
    signed = "@1" if direction == "ADD" else "(- @1)"
    if part in _MONTHS and value.type is not TIMESTAMP:
        months = f"CAST({signed} * {_MONTHS[part]} AS INT)"
        if value.type is DATE:
            return ranged(Value(fill(f"add_months(@0, {months})", value, amount), DATE))
        return ranged(Value(fill(f"(@0 + make_ym_interval(0, {months}))", value, amount), DATETIME))
    if part in _DAYS and value.type is DATE:
        return ranged(Value(fill(f"date_add(@0, CAST({signed} * {_DAYS[part]} AS INT))", value, amount), DATE))
    if part == "DAY" or (part == "WEEK" and value.type is DATETIME):
        hours = f"{signed} * {_DAYS[part] * 24}"
        return ranged(Value(fill(f"timestampadd(HOUR, {hours}, @0)", value, amount), value.type))
    if part in TIME_PARTS and value.type in (DATETIME, TIMESTAMP):
        return ranged(Value(fill(f"timestampadd({part}, {signed}, @0)", value, amount), value.type))
    raise SqlError(f"{call.name} does not support the date part {part} of {value.type} on Spark")


for _name in ("DATE", "DATETIME", "TIMESTAMP"):
    function(f"{_name}_ADD", f"{_name}_SUB")(_add)


def _micros(value: Value) -> str:
    return f"unix_micros(CAST({value.sql} AS TIMESTAMP))"


def _floor(sql: str, unit: int) -> str:
    return f"((({sql}) - pmod({sql}, {unit}L)) div {unit}L)"


@function("DATE_DIFF", "DATETIME_DIFF", "TIMESTAMP_DIFF")
def diff(call: Call) -> Value:
    family = call.name.removesuffix("_DIFF")
    end, start = (call.temporal(call.value(index), family) for index in (0, 1))
    kind, (end, start) = call.common([end, start])
    if kind is DATE and family == "DATETIME":
        kind, end, start = DATETIME, cast(end, DATETIME), cast(start, DATETIME)
    part, week = _part(call, call.nodes[2])
    if kind is TIMESTAMP and (part in TIME_PARTS or part == "DAY"):
        unit = TIME_PARTS.get(part, 86_400_000_000)
        return Value(f"(({_micros(end)} - {_micros(start)}) div {unit}L)", INT64)
    if kind is TIMESTAMP and family == "TIMESTAMP":
        raise SqlError(f"TIMESTAMP_DIFF does not support the date part {part}")
    if kind is DATETIME and part in TIME_PARTS:
        unit = TIME_PARTS[part]
        at_end, at_start = (_floor(f"unix_micros(CAST(@{index} AS TIMESTAMP))", unit) for index in (0, 1))
        return Value(fill(f"({at_end} - {at_start})", end, start), INT64)
    days = [Value(f"CAST({item.sql} AS DATE)", DATE, simple=item.simple) for item in (end, start)]
    counted = {
        "DAY": "CAST(unix_date({0}) AS BIGINT)",
        "WEEK": _floor(f"unix_date({{0}}) + {4 - week}", 7),
        "ISOWEEK": _floor("unix_date({0}) + 3", 7),
        "MONTH": "CAST(year({0}) * 12 + month({0}) AS BIGINT)",
        "QUARTER": "CAST(year({0}) * 4 + quarter({0}) AS BIGINT)",
        "YEAR": "CAST(year({0}) AS BIGINT)",
        "ISOYEAR": "CAST(extract(YEAROFWEEK FROM {0}) AS BIGINT)",
    }.get(part)
    if counted is None:
        raise SqlError(f"{call.name} does not support the date part {part}")
    return Value(fill(f"({counted.format('@0')} - {counted.format('@1')})", *days), INT64)


def _week_start(day: str, week: int) -> str:
    return f"date_sub({day}, CAST(pmod(dayofweek({day}) - 1 - {week}, 7) AS INT))"


def _iso_year_start(day: str, later: int = 0) -> str:
    fourth = f"make_date(CAST(extract(YEAROFWEEK FROM {day}) AS INT) + {later}, 1, 4)"
    return f"date_sub({fourth}, weekday({fourth}))"


@function("DATE_TRUNC", "DATETIME_TRUNC", "TIMESTAMP_TRUNC")
def trunc(call: Call) -> Value:
    family = call.name.removesuffix("_TRUNC")
    value = call.temporal(call.value(0), family)
    part, week = _part(call, call.nodes[1])
    if value.type is DATE and family != "DATE" and part not in TIME_PARTS:
        value = cast(value, DATETIME)
    zone = call.typed(2, STRING) if len(call.nodes) == 3 else None
    if zone is not None and value.type is not TIMESTAMP:
        raise SqlError(f"{call.name} takes a time zone only for TIMESTAMP")
    local = Value(in_zone(value, zone), value.type, simple=value.simple and zone is None)
    if part in TIME_PARTS and value.type is not DATE:
        sql = f"date_trunc('{part}', {local.sql})"
    elif part in ("WEEK", "ISOWEEK"):
        sql = fill(_week_start("CAST(@0 AS DATE)", week), local)
    elif part == "ISOYEAR":
        sql = fill(_iso_year_start("CAST(@0 AS DATE)"), local)
    elif part == "DAY":
        sql = f"CAST({local.sql} AS DATE)"
    elif part in _MONTHS:
        sql = f"trunc(CAST({local.sql} AS DATE), '{part}')"
    else:
        raise SqlError(f"{call.name} does not support the date part {part} of {value.type}")
    result = _back(sql, value.type)
    if part in ("WEEK", "ISOWEEK", "ISOYEAR"):
        result = ranged(result)
    return result if zone is None else Value(f"to_utc_timestamp({result.sql}, {zone.sql})", TIMESTAMP)


@function("LAST_DAY")
def last_day(call: Call) -> Value:
    value = call.temporal(call.value(0), "DATE")
    if value.type is TIMESTAMP:
        raise call.mismatch([value])
    part, week = _part(call, call.nodes[1]) if len(call.nodes) == 2 else ("MONTH", 0)
    day = cast(value, DATE)
    template = {
        "MONTH": "last_day(@0)",
        "YEAR": "make_date(year(@0), 12, 31)",
        "QUARTER": "last_day(add_months(trunc(@0, 'QUARTER'), 2))",
        "WEEK": f"date_add({_week_start('@0', week)}, 6)",
        "ISOWEEK": f"date_add({_week_start('@0', 1)}, 6)",
        "ISOYEAR": f"date_sub({_iso_year_start('@0', 1)}, 1)",
    }.get(part)
    if template is None:
        raise SqlError(f"LAST_DAY does not support the date part {part}")
    return Value(fill(template, day), DATE)


_CLOCK_PARTS = {
    "HOUR": "hour(@0)", "MINUTE": "minute(@0)", "SECOND": "second(@0)",
    "MILLISECOND": "pmod(unix_micros(CAST(@0 AS TIMESTAMP)), 1000000L) div 1000L",
    "MICROSECOND": "pmod(unix_micros(CAST(@0 AS TIMESTAMP)), 1000000L)",
}  # fmt: skip
_DAY_PARTS = {
    "DAY": "day(@0)", "MONTH": "month(@0)", "QUARTER": "quarter(@0)", "YEAR": "year(@0)",
    "ISOYEAR": "extract(YEAROFWEEK FROM @0)", "ISOWEEK": "weekofyear(@0)", "DAYOFWEEK": "dayofweek(@0)",
    "DAYOFYEAR": "dayofyear(@0)",
}  # fmt: skip
_TIME_TEXT = {
    "HOUR": "substr(@0, 1, 2)", "MINUTE": "substr(@0, 4, 2)", "SECOND": "substr(@0, 7, 2)",
    "MILLISECOND": "rpad(substr(@0, 10, 3), 3, '0')", "MICROSECOND": "rpad(substr(@0, 10, 6), 6, '0')",
}  # fmt: skip


@function("EXTRACT")
def extract(call: Call) -> Value:
    part, week = _part(call, call.nodes[0])
    value = call.value(1)
    if value.null:
        value = cast(value, TIMESTAMP)
    if value.type is TIME and part in _TIME_TEXT:
        return Value(fill(f"CAST({_TIME_TEXT[part]} AS BIGINT)", value), INT64)
    zone = call.typed(2, STRING) if len(call.nodes) == 3 else None
    if value.type not in (DATE, DATETIME, TIMESTAMP) or (zone is not None and value.type is not TIMESTAMP):
        raise SqlError(f"EXTRACT {part} does not take {value.type}")
    local = Value(in_zone(value, zone), value.type, simple=value.simple and zone is None)
    if part in ("DATE", "DATETIME", "TIME") and value.type is not DATE:
        return cast(local, FAMILY[part])
    if part in _CLOCK_PARTS and value.type is not DATE:
        return Value(f"CAST({fill(_CLOCK_PARTS[part], local)} AS BIGINT)", INT64)
    if part in _DAY_PARTS:
        return Value(f"CAST({fill(_DAY_PARTS[part], local)} AS BIGINT)", INT64)
    if part == "WEEK":
        number = f"(dayofyear(@0) + 6 - pmod(dayofweek(@0) - 1 - {week}, 7)) div 7"
        return Value(f"CAST({fill(number, local)} AS BIGINT)", INT64)
    raise SqlError(f"EXTRACT does not support the date part {part} of {value.type}")


define("UNIX_SECONDS", "TIMESTAMP", "unix_seconds(@0)", safe=NEVER_FAILS)
define("UNIX_MILLIS", "TIMESTAMP", "unix_millis(@0)", safe=NEVER_FAILS)
define("UNIX_MICROS", "TIMESTAMP", "unix_micros(@0)", safe=NEVER_FAILS)
define("UNIX_DATE", "DATE", "CAST(unix_date(@0) AS BIGINT)", safe=NEVER_FAILS)
for _name, _sql, _type in (
    ("DATE_FROM_UNIX_DATE", "date_from_unix_date(CAST(@0 AS INT))", DATE),
    ("TIMESTAMP_SECONDS", "timestamp_seconds(@0)", TIMESTAMP),
    ("TIMESTAMP_MILLIS", "timestamp_millis(@0)", TIMESTAMP),
):
    define(_name, "INT64", ranged(Value(_sql, _type)).sql)
_MICROS = Value("timestamp_micros(@0)", TIMESTAMP)
define("TIMESTAMP_MICROS", "INT64", ranged(_MICROS).sql, safe=ranged(_MICROS, safe=True).sql)


@writes("STRING", "DATE", "DATETIME", "TIME", "TIMESTAMP")
def string(call: Call, value: Value) -> str:
    return cast(value, STRING).sql


_JSON_TEXT = (
    "IF(@0 IS NULL, NULL, IF(schema_of_variant(parse_json(@0)) = 'STRING', get_json_object(@0, '$'), "
    "raise_error('The provided JSON input is not a string')))"
)
define("STRING", "JSON", _JSON_TEXT)
