"""Typed Spark SQL: literals, implicit conversion and CAST, with GoogleSQL's results and errors.

Spark runs in ANSI mode and in UTC, so that overflow and text that does not fit fail. Where Spark is more tolerant than
GoogleSQL (`CAST('1d' AS DOUBLE)`, `CAST('2024' AS DATE)`), text that GoogleSQL refuses is spoiled first, so that Spark
refuses it too and its `try_cast` answers NULL.
"""

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from itertools import count
from zoneinfo import ZoneInfo

from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.types import (
    ANY_STRUCT,
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT64,
    INT64,
    NUMERIC,
    NUMERIC_ORDER,
    STRING,
    TIME,
    TIMESTAMP,
    SqlType,
    array_of,
    coerces,
    struct_of,
)
from ingestd.prepare.farmhash import NAME as PYTHON
from ingestd.prepare.sqltypes import quote, spark_sql

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_NAMES = count()
_MARK = re.compile(r"@(\d)")
_DAY_TEXT = r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
_TIME_TEXT = r"([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:\.([0-9]{1,6}))?"
# Names that Java has and the time zone database has not.
_JAVA_ZONES = "A[CEGRS]T|BET|[BCIJNPSV]ST|C[ANT]T|E[AC]T|IET|MIT|NET|P[LNR]T"
_ZONE_TEXT = rf"([Zz]|[+-][0-9]{{1,2}}(?::?[0-9]{{2}})?| (?!(?:{_JAVA_ZONES})$)[A-Za-z][A-Za-z0-9_+/:-]*)"
_CIVIL = re.compile(rf"{_DAY_TEXT}(?:[ Tt]{_TIME_TEXT}{_ZONE_TEXT}?)?")
_CLOCK = re.compile(_TIME_TEXT)


@dataclass(frozen=True, slots=True)
class Value:
    """Spark SQL text and the GoogleSQL type of what it computes. `simple` text may be repeated at no cost."""

    sql: str
    type: SqlType
    simple: bool = False
    literal: bool = False  # a constant that converts to what its surroundings want
    constant: object = None  # its Python value, when it is known
    null: bool = False
    members: "tuple[Value, ...] | None" = None  # of an ARRAY or STRUCT written out
    raises: bool = False  # ERROR(): of whatever type its surroundings want; `constant` is the SQL that fails


_SHORT = 160  # characters that are rather repeated: Spark computes what is the same once, as long as it compiles it
_RANDOM = ("rand(", "uuid(")


def fill(template: str, *args: Value) -> str:
    """The template with `@0`, `@1` … replaced; long text that is used more than once is computed once."""
    uses = [template.count(f"@{index}") for index in range(len(args))]
    python = any(PYTHON in arg.sql for arg in args) or PYTHON in template  # no lambda may call it
    if python or all(_repeatable(arg) or used <= 1 for arg, used in zip(args, uses, strict=True)):
        return _MARK.sub(lambda match: args[int(match[1])].sql, template)
    name = f"_x{next(_NAMES)}"
    packed, inside = [], []
    for index, (arg, used) in enumerate(zip(args, uses, strict=True)):
        if used <= 1 or _repeatable(arg):
            inside.append(arg.sql)
        else:
            packed.append(f"'a{index}', {arg.sql}")
            inside.append(f"{name}.a{index}")
    body = _MARK.sub(lambda match: inside[int(match[1])], template)
    return f"transform(array(named_struct({', '.join(packed)})), {name} -> {body})[0]"


def _repeatable(value: Value) -> bool:
    return value.simple or (len(value.sql) <= _SHORT and not any(name in value.sql for name in _RANDOM))


def fresh(prefix: str) -> str:
    """A name for a lambda's variable that nothing else has."""
    return f"_{prefix}{next(_NAMES)}"


def text_sql(text: str) -> str:
    """A string literal of Spark: no character of it can end the literal or start a substitution."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return "'" + escaped.replace("\0", "\\u0000").replace("${", "\\u0024{") + "'"


def literal(value: object, kind: SqlType) -> Value:
    return Value(_literal_sql(value, kind), kind, simple=True, literal=True, constant=value, null=value is None)


def _literal_sql(value: object, kind: SqlType) -> str:
    if value is None:
        return f"CAST(NULL AS {spark_sql(kind)})"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int) and kind is INT64:
        return f"{value}L" if value != INT64_MIN else f"({value + 1}L - 1L)"
    if isinstance(value, int | float) and kind is FLOAT64:
        return f"CAST('{float(value)!r}' AS DOUBLE)"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, datetime):
        if kind is TIMESTAMP:
            moment = value.astimezone(UTC) if value.tzinfo else value
            return f"TIMESTAMP'{moment.replace(tzinfo=None).isoformat(' ')}+00:00'"
        return f"TIMESTAMP_NTZ'{value.replace(tzinfo=None).isoformat(' ')}'"
    if isinstance(value, date):
        return f"DATE'{value.isoformat()}'"
    if isinstance(value, time):
        return text_sql(value.isoformat())
    if isinstance(value, Decimal | int):
        return f"CAST('{Decimal(value):f}' AS {spark_sql(kind)})"
    return text_sql(str(value))


NULL = Value("NULL", INT64, simple=True, literal=True, null=True)


def parse_text(text: str, kind: SqlType) -> Value | None:
    """Text read as another type, as in `DATE '2024-01-01'` or `date_column = '2024-01-01'`; None when it is none."""
    with suppress(ValueError, InvalidOperation, OverflowError):
        if kind is NUMERIC:
            number = Decimal(text.strip())
            if number.is_finite() and number.copy_abs() < 10**29:
                return literal(number.quantize(Decimal("1e-9"), context=Context(80, ROUND_HALF_UP)), NUMERIC)
            return None
        if kind is TIME:
            found = _CLOCK.fullmatch(text)
            if found is None:
                return None
            return literal(time(int(found[1]), int(found[2]), int(found[3]), _micros(found[4])), TIME)
        found = _CIVIL.fullmatch(text)
        if found is None or kind not in (DATE, DATETIME, TIMESTAMP) or (found[8] and kind is not TIMESTAMP):
            return None
        if kind is DATE and found[4]:
            return None
        numbers = [int(found[index] or 0) for index in range(1, 7)]
        moment = datetime(*numbers, _micros(found[7]), tzinfo=UTC)  # type: ignore[misc, arg-type]
        if kind is DATE:
            return literal(moment.date(), DATE)
        if kind is DATETIME:
            return literal(moment.replace(tzinfo=None), DATETIME)
        return literal(moment.replace(tzinfo=_zone((found[8] or "UTC").strip())).astimezone(UTC), TIMESTAMP)
    return None


def _micros(fraction: str | None) -> int:
    return int(fraction[:6].ljust(6, "0")) if fraction else 0


def _zone(name: str) -> tzinfo | None:
    found = re.fullmatch(r"([+-])(\d{1,2})(?::?(\d{2}))?", name)
    if found:
        sign, hours, minutes = found[1], int(found[2]), int(found[3] or 0)
        return datetime.strptime(f"{sign}{hours:02d}{minutes:02d}", "%z").tzinfo
    if name.upper() in ("UTC", "Z", "GMT"):
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, OSError) as error:
        raise ValueError(name) from error


def coerce(value: Value, target: SqlType) -> Value | None:
    """The value converted implicitly; None where GoogleSQL wants a CAST."""
    source = value.type
    if value.null:
        return Value(f"CAST(NULL AS {spark_sql(target)})", target, simple=True)
    if source == target:
        return value
    if source.kind == target.kind and ANY_STRUCT in (source, target):
        return replace(value, type=target, members=None)
    if value.raises:
        return Value(f"CAST({value.constant} AS {spark_sql(target)})", target)
    if value.literal and isinstance(value.constant, str) and source is STRING:
        return parse_text(value.constant, target) if target in (DATE, DATETIME, TIME, TIMESTAMP) else None
    if value.literal and isinstance(value.constant, int) and source is INT64 and target.numeric:
        return literal(value.constant, target)
    if value.literal and isinstance(value.constant, float) and target is NUMERIC and math.isfinite(value.constant):
        return parse_text(repr(value.constant), NUMERIC)
    if source.kind == target.kind == "STRUCT" and len(source.fields) == len(target.fields):
        return _struct(value, target, coerce)
    if source.element is not None and target.element is not None:
        if value.members is not None:
            converted = [coerce(member, target.element) for member in value.members]
            found = [item for item in converted if item is not None]
            return array_value(found, target.element) if len(found) == len(converted) else None
        if not coerces(source, target):
            return None
        item = fresh("e")
        inner = coerce(Value(item, source.element, simple=True), target.element)
        return None if inner is None else Value(f"transform({value.sql}, {item} -> {inner.sql})", target)
    return cast(value, target) if coerces(source, target) else None


def _struct(value: Value, target: SqlType, convert: object) -> Value | None:
    members = value.members or struct_members(value)
    converted = [convert(member, kind) for member, (_, kind) in zip(members, target.fields, strict=True)]  # type: ignore[operator]
    if any(item is None for item in converted):
        return None
    packed = struct_value(target, converted)
    if value.members is not None:
        return packed
    return Value(f"IF({value.sql} IS NULL, NULL, {packed.sql})", target)


def struct_members(value: Value) -> tuple[Value, ...]:
    return tuple(
        Value(f"{value.sql}.{quote(physical)}", kind, simple=value.simple)
        for physical, (_, kind) in zip(value.type.physical_names, value.type.fields, strict=True)
    )


def struct_value(kind: SqlType, members: Sequence[Value]) -> Value:
    named = zip(kind.physical_names, members, strict=True)
    packed = ", ".join(f"{text_sql(name)}, {member.sql}" for name, member in named)
    return Value(f"named_struct({packed})", kind, members=tuple(members))


def array_value(items: Sequence[Value], element: SqlType) -> Value:
    kind = array_of(element)
    if not items:
        return Value(f"CAST(array() AS {spark_sql(kind)})", kind, members=())
    return Value("array(" + ", ".join(item.sql for item in items) + ")", kind, members=tuple(items))


def supertype(items: Sequence[Value]) -> SqlType | None:
    """The type that all of these convert to: branches of CASE, elements of an array."""
    typed = [item for item in items if not item.null and not item.raises]
    if not typed:
        return INT64
    candidates: list[SqlType] = []
    for item in [*(item for item in typed if not item.literal), *typed]:
        if item.type not in candidates:
            candidates.append(item.type)
    if all(kind.numeric for kind in candidates):
        candidates.sort(key=lambda kind: NUMERIC_ORDER[kind.kind])
    for candidate in candidates:
        if all(coerce(item, candidate) is not None for item in typed):
            return _named_as(candidate, typed[0].type)
    if all(kind.numeric for kind in candidates):
        return FLOAT64
    if {kind.kind for kind in candidates} == {"STRUCT"} and len({len(kind.fields) for kind in candidates}) == 1:
        fields = []
        for index, (name, _) in enumerate(candidates[0].fields):
            inner = supertype([(item.members or struct_members(item))[index] for item in typed])
            if inner is None:
                return None
            fields.append((name, inner))
        return struct_of(fields)
    return None


def _named_as(kind: SqlType, first: SqlType) -> SqlType:
    """The fields of a STRUCT have the names that the first of several gives them."""
    if kind.kind != "STRUCT" or len(first.fields) != len(kind.fields):
        return kind
    return struct_of((name, inner) for (name, _), (_, inner) in zip(first.fields, kind.fields, strict=True))


_FIRST_AND_LAST = {
    "DATE": ("DATE'0001-01-01'", "DATE'9999-12-31'"),
    "DATETIME": ("TIMESTAMP_NTZ'0001-01-01 00:00:00'", "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'"),
    "TIMESTAMP": ("TIMESTAMP'0001-01-01 00:00:00+00:00'", "TIMESTAMP'9999-12-31 23:59:59.999999+00:00'"),
}


def ranged(value: Value, *, safe: bool = False) -> Value:
    """A computed date or time, which fails outside the years 1 to 9999; Spark has others as well."""
    first, last = _FIRST_AND_LAST[value.type.kind]
    failing = "NULL" if safe else f"raise_error('{value.type} value out of range')"
    return Value(fill(f"IF(@0 < {first} OR @0 > {last}, {failing}, @0)", value), value.type)


def _spoil(pattern: str) -> str:
    """`@0` unchanged when it matches, made unreadable when it does not."""
    return f"regexp_replace(@0, {text_sql('(?s)^(?!' + pattern + r'$).*$')}, '!')"


_FLOAT = r"\s*[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:nan|inf|infinity))\s*"
_FRACTION = "regexp_replace(regexp_replace(date_format(@0, 'yyyy-MM-dd HH:mm:ss.SSSSSS'), '000$', ''), '[.]000$', '')"
# A TIME is text that sorts as the times do: six digits where there is a fraction.
_CLOCK_TEXT = "regexp_replace(date_format(@0, 'HH:mm:ss.SSSSSS'), '[.]000000$', '')"
_TRIM_ZEROS = "regexp_replace(CAST(@0 AS STRING), '[.]?0+$', '')"
# Shortest digits; the exponent is written from 1e15 up (1e17 for 16 or 17 digits) and below 1e-4, as %g does.
_FLOAT_TEXT = (
    "CASE WHEN @0 = 0 THEN '0' WHEN isnan(@0) THEN 'nan' WHEN abs(@0) = double('Infinity') "
    "THEN IF(@0 > 0, 'inf', '-inf') "
    "WHEN abs(@0) < 1e-4D OR abs(@0) >= IF(length(regexp_replace(CAST(@0 AS STRING), 'E.*|[.]0(?=E|$)|[-.]', '')) > 15,"
    " 1e17D, 1e15D) THEN concat(regexp_replace(split_part(CAST(@0 AS STRING), 'E', 1), '[.]0$', ''), 'e', "
    "IF(abs(@0) < 1, '-', '+'), regexp_replace(regexp_replace(CAST(@0 AS STRING), '^.*E-?', ''), '^(.)$', '0$1')) "
    "ELSE regexp_replace(CAST(CAST(@0 AS DECIMAL(38, 20)) AS STRING), '[.]?0+$', '') END"
)
_DECIMAL = "IF(isnan(@0) OR abs(@0) = double('Infinity'), {}, CAST(@0 AS DECIMAL(38,9)))"
_TO_INT = "CAST(round(@0) AS BIGINT)"
_FLOAT_TO_INT = "IF(@0 >= 9223372036854775807D, {}, CAST(round(@0) AS BIGINT))"  # 2**63 itself is none
_HEXADECIMAL = r"\s*[+-]?0[xX][0-9a-fA-F]+\s*"
_TEXT_TO_INT = (
    f"CASE WHEN @0 RLIKE {text_sql('^' + _HEXADECIMAL + '$')} THEN CAST(IF(contains(@0, '-'), -1, 1) * "
    "CAST(conv(regexp_extract(@0, '[xX]([0-9a-fA-F]+)', 1), 16, 10) AS DECIMAL(20,0)) AS BIGINT) "
    "ELSE CAST(" + _spoil(r"\s*[+-]?\d+\s*") + " AS BIGINT) END"
)
_BOOL = "CASE lower(@0) WHEN 'true' THEN TRUE WHEN 'false' THEN FALSE "

# (source, target): (what CAST does, what SAFE_CAST does); one text when the second only needs CAST → TRY_CAST.
_CASTS: dict[tuple[str, str], str | tuple[str, str]] = {
    ("STRING", "INT64"): (_TEXT_TO_INT, _TEXT_TO_INT.replace("CAST(", "TRY_CAST(")),
    ("STRING", "FLOAT64"): f"CAST({_spoil(_FLOAT)} AS DOUBLE)",
    ("STRING", "NUMERIC"): "CAST(" + _spoil(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*") + " AS DECIMAL(38,9))",
    ("STRING", "BOOL"): (
        _BOOL + "ELSE IF(@0 IS NULL, NULL, raise_error(concat('Bad bool value: ', @0))) END", _BOOL + "END",
    ),
    ("STRING", "BYTES"): "CAST(@0 AS BINARY)",
    ("STRING", "DATE"): f"CAST({_spoil(_DAY_TEXT)} AS DATE)",
    ("STRING", "TIME"): _CLOCK_TEXT.replace(
        "@0", f"CAST(concat('1970-01-01 ', {_spoil(_TIME_TEXT)}) AS TIMESTAMP_NTZ)"
    ),
    ("STRING", "DATETIME"): f"CAST({_spoil(f'{_DAY_TEXT}([ Tt]{_TIME_TEXT})?')} AS TIMESTAMP_NTZ)",
    ("STRING", "TIMESTAMP"): (
        f"CAST(regexp_replace({_spoil(f'{_DAY_TEXT}([ Tt]{_TIME_TEXT}{_ZONE_TEXT}?)?')}, '(?<=[0-9])z$', 'Z') "
        "AS TIMESTAMP)"
    ),
    ("INT64", "STRING"): "CAST(@0 AS STRING)",
    ("INT64", "FLOAT64"): "CAST(@0 AS DOUBLE)",
    ("INT64", "NUMERIC"): "CAST(@0 AS DECIMAL(38,9))",
    ("INT64", "BOOL"): "(@0 <> 0)",
    ("FLOAT64", "STRING"): _FLOAT_TEXT,
    ("FLOAT64", "INT64"): (
        _FLOAT_TO_INT.format("raise_error('double out of int64 range')"),
        _FLOAT_TO_INT.format("NULL").replace("CAST(", "TRY_CAST("),
    ),
    ("FLOAT64", "NUMERIC"): (
        _DECIMAL.format("raise_error('a number that is not finite is no NUMERIC')"),
        _DECIMAL.format("NULL").replace("CAST(", "TRY_CAST("),
    ),
    ("NUMERIC", "STRING"): _TRIM_ZEROS,
    ("NUMERIC", "INT64"): _TO_INT,
    ("NUMERIC", "FLOAT64"): "CAST(@0 AS DOUBLE)",
    ("BOOL", "STRING"): "CAST(@0 AS STRING)",
    ("BOOL", "INT64"): "CAST(@0 AS BIGINT)",
    ("BYTES", "STRING"): ("validate_utf8(CAST(@0 AS STRING))", "try_validate_utf8(CAST(@0 AS STRING))"),
    ("DATE", "STRING"): "CAST(@0 AS STRING)",
    ("DATE", "DATETIME"): "CAST(@0 AS TIMESTAMP_NTZ)",
    ("DATE", "TIMESTAMP"): "CAST(@0 AS TIMESTAMP)",
    ("DATETIME", "STRING"): _FRACTION,
    ("DATETIME", "DATE"): "CAST(@0 AS DATE)",
    ("DATETIME", "TIMESTAMP"): "CAST(@0 AS TIMESTAMP)",
    ("DATETIME", "TIME"): _CLOCK_TEXT,
    ("TIMESTAMP", "STRING"): f"concat({_FRACTION}, '+00')",
    ("TIMESTAMP", "DATE"): "CAST(@0 AS DATE)",
    ("TIMESTAMP", "DATETIME"): "CAST(@0 AS TIMESTAMP_NTZ)",
    ("TIMESTAMP", "TIME"): _CLOCK_TEXT,
    ("TIME", "STRING"): "regexp_replace(@0, '([.]...)000$', '$1')",
    ("BIGNUMERIC", "STRING"): "@0",
    ("STRING", "BIGNUMERIC"): "@0",
    ("INT64", "BIGNUMERIC"): "CAST(@0 AS STRING)",
    ("NUMERIC", "BIGNUMERIC"): _TRIM_ZEROS,
}  # fmt: skip


def cast(value: Value, target: SqlType, *, safe: bool = False) -> Value:
    """An explicit CAST, or SAFE_CAST; raises where GoogleSQL has none."""
    source = value.type
    if value.null:
        return Value(f"CAST(NULL AS {spark_sql(target)})", target, simple=True)
    if source == target:
        return value
    if source.kind == target.kind and ANY_STRUCT in (source, target):
        return replace(value, type=target, members=None)
    if value.literal and isinstance(value.constant, str) and source is STRING:
        parsed = parse_text(value.constant, target)
        if parsed is not None:
            return Value(parsed.sql, target, simple=True)
    if value.literal and isinstance(value.constant, float) and target is NUMERIC and math.isfinite(value.constant):
        # A literal is taken as it is written, any other FLOAT64 as the number that it is.
        parsed = parse_text(repr(value.constant), NUMERIC)
        if parsed is not None:
            return Value(parsed.sql, target, simple=True)
    if source.kind == target.kind == "STRUCT" and len(source.fields) == len(target.fields):
        found = _struct(value, target, lambda member, kind: cast(member, kind, safe=safe))
        assert found is not None
        return found
    if source.element is not None and target.element is not None:
        if value.members is not None:
            return array_value([cast(item, target.element, safe=safe) for item in value.members], target.element)
        item = fresh("e")
        inner = cast(Value(item, source.element, simple=True), target.element, safe=safe)
        return Value(f"transform({value.sql}, {item} -> {inner.sql})", target)
    template = _CASTS.get((source.kind, target.kind))
    if template is None:
        raise SqlError(f"a CAST from {source} to {target} is not available on Spark")
    if isinstance(template, tuple):
        template = template[safe]
    elif safe and (source.kind, target.kind) not in _ALWAYS:
        template = template.replace("CAST(", "TRY_CAST(", 1)
    return Value(fill(template, value), target)


# Conversions that cannot fail: SAFE_CAST is CAST.
_ALWAYS = frozenset(
    [*(pair for pair in _CASTS if pair[1] == "STRING"), ("INT64", "BOOL"), ("INT64", "FLOAT64"), ("BOOL", "INT64")]
)

__all__ = [
    "BOOL",
    "BYTES",
    "INT64_MAX",
    "INT64_MIN",
    "NULL",
    "Value",
    "array_value",
    "cast",
    "coerce",
    "fill",
    "fresh",
    "literal",
    "parse_text",
    "ranged",
    "struct_members",
    "struct_value",
    "supertype",
    "text_sql",
]
