"""Typed Spark SQL: literals, implicit conversion and CAST, with GoogleSQL's results and errors.

Spark runs in ANSI mode and in UTC, so that overflow and text that does not fit fail. Where Spark is more tolerant than
GoogleSQL (`CAST('1d' AS DOUBLE)`, `CAST('2024' AS DATE)`), text that GoogleSQL refuses is spoiled first, so that Spark
refuses it too and its `try_cast` answers NULL.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import count

from ingestd.googlesql.coercion import Conversions
from ingestd.googlesql.errors import SqlError
from ingestd.googlesql.literals import INT64_MIN
from ingestd.googlesql.types import FLOAT64, INT64, TIMESTAMP, SqlType
from ingestd.googlesql.values import Value
from ingestd.spark.sql.farmhash import NAME as PYTHON
from ingestd.spark.sql.types import quote, spark_sql

_NAMES = count()
_MARK = re.compile(r"@(\d)")
_DAY_TEXT = r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
_TIME_TEXT = r"([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:\.([0-9]{1,6}))?"
# Names that Java has and the time zone database has not.
_JAVA_ZONES = "A[CEGRS]T|BET|[BCIJNPSV]ST|C[ANT]T|E[AC]T|IET|MIT|NET|P[LNR]T"
_ZONE_TEXT = rf"([Zz]|[+-][0-9]{{1,2}}(?::?[0-9]{{2}})?| (?!(?:{_JAVA_ZONES})$)[A-Za-z][A-Za-z0-9_+/:-]*)"

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


def _constant(value: object, kind: SqlType) -> str:
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


# Conversions that cannot fail: SAFE_CAST is CAST.
_ALWAYS = frozenset(
    [*(pair for pair in _CASTS if pair[1] == "STRING"), ("INT64", "BOOL"), ("INT64", "FLOAT64"), ("BOOL", "INT64")]
)


class _Spark(Conversions):
    def type(self, kind: SqlType) -> str:
        return spark_sql(kind)

    def constant(self, value: object, kind: SqlType) -> str:
        return _constant(value, kind)

    def struct(self, kind: SqlType, members: Sequence[Value]) -> str:
        named = zip(kind.physical_names, members, strict=True)
        return f"named_struct({', '.join(f'{text_sql(name)}, {member.sql}' for name, member in named)})"

    def field(self, value: Value, name: str) -> str:
        return f"{value.sql}.{quote(name)}"

    def array(self, items: Sequence[Value], kind: SqlType) -> str:
        return f"array({', '.join(item.sql for item in items)})" if items else f"CAST(array() AS {spark_sql(kind)})"

    def each(self, array: Value, convert: Callable[[Value], Value]) -> str:
        assert array.type.element is not None
        item = fresh("e")
        return f"transform({array.sql}, {item} -> {convert(Value(item, array.type.element, simple=True)).sql})"

    def unless_null(self, value: Value, then: str) -> str:
        return f"IF({value.sql} IS NULL, NULL, {then})"

    def scalar(self, value: Value, target: SqlType, *, safe: bool) -> Value:
        pair = value.type.kind, target.kind
        template = _CASTS.get(pair)
        if template is None:
            raise SqlError(f"a CAST from {value.type} to {target} is not available on Spark")
        if isinstance(template, tuple):
            template = template[safe]
        elif safe and pair not in _ALWAYS:
            template = template.replace("CAST(", "TRY_CAST(", 1)
        return Value(fill(template, value), target)


SPARK = _Spark()
NULL = Value("NULL", INT64, literal=True, null=True, simple=True)
literal, parse_text = SPARK.literal, SPARK.read
coerce, supertype, cast = SPARK.coerce, SPARK.supertype, SPARK.cast
array_value, struct_value, struct_members = SPARK.array_value, SPARK.struct_value, SPARK.struct_members
