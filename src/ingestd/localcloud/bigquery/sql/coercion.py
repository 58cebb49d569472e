"""Literals, implicit conversion and CAST in DuckDB's SQL."""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import ClassVar

from ingestd.formats.errors import BigQueryError
from ingestd.googlesql.coercion import Conversions
from ingestd.googlesql.literals import READERS
from ingestd.googlesql.types import FLOAT64, INT64, SqlType
from ingestd.googlesql.values import Value
from ingestd.localcloud.bigquery.duckdb_types import duckdb_type
from ingestd.localcloud.bigquery.sql.idioms import pack
from ingestd.localcloud.bigquery.sql.runtime import jsons, numbers


def string_sql(text: str) -> str:
    quoted = "'" + text.replace("'", "''") + "'"
    return "(" + quoted.replace("\0", "' || chr(0) || '") + ")" if "\0" in text else quoted


def _constant(value: object, kind: SqlType) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        if kind is FLOAT64:
            return f"CAST({value} AS DOUBLE)"
        return f"CAST({value} AS {duckdb_type(kind)})"
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    if isinstance(value, bytes):
        return f"from_hex('{value.hex()}')"
    if isinstance(value, datetime):
        text = value.astimezone(UTC).strftime("%H:%M:%S.%f") if value.tzinfo else value.strftime("%H:%M:%S.%f")
        day = (value.astimezone(UTC) if value.tzinfo else value).date().isoformat()
        return f"TIMESTAMPTZ '{day} {text}+00'" if kind.kind == "TIMESTAMP" else f"TIMESTAMP '{day} {text}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, time):
        return f"TIME '{value.isoformat()}'"
    if isinstance(value, Decimal):
        return f"CAST('{value:f}' AS {duckdb_type(kind)})"
    if kind.kind == "JSON":
        return f"CAST({string_sql(str(value))} AS JSON)"
    return string_sql(str(value))


class _DuckDb(Conversions):
    readers: ClassVar = {**READERS, "BIGNUMERIC": numbers.parse_bignumeric, "JSON": jsons.normalise}

    def type(self, kind: SqlType) -> str:
        return duckdb_type(kind)

    def constant(self, value: object, kind: SqlType) -> str:
        return _constant(value, kind)

    def struct(self, kind: SqlType, members: Sequence[Value]) -> str:
        return pack(kind, members)

    def field(self, value: Value, name: str) -> str:
        return f"struct_extract({value.sql}, {string_sql(name)})"

    def array(self, items: Sequence[Value], kind: SqlType) -> str:
        return "[" + ", ".join(item.sql for item in items) + "]" if items else f"CAST([] AS {duckdb_type(kind)})"

    def each(self, array: Value, convert: Callable[[Value], Value]) -> str:
        assert array.type.element is not None
        return f"list_transform({array.sql}, lambda _e: {convert(Value('_e', array.type.element)).sql})"

    def unless_null(self, value: Value, then: str) -> str:
        return f"CASE WHEN {value.sql} IS NULL THEN NULL ELSE {then} END"

    def scalar(self, value: Value, target: SqlType, *, safe: bool) -> Value:
        template = _CASTS.get((value.type.kind, target.kind))
        if template is None:
            raise BigQueryError("invalidQuery", f"Invalid cast from {value.type} to {target}", "query")
        return Value(template.format(value.sql), target)

    def same(self, value: Value) -> str:
        return f"CAST({value.sql} AS {duckdb_type(value.type)})"


DUCKDB = _DuckDb()
NULL = Value("NULL", INT64, literal=True, null=True)
literal, parse_literal = DUCKDB.literal, DUCKDB.read
coerce, supertype, cast, array_value = DUCKDB.coerce, DUCKDB.supertype, DUCKDB.cast, DUCKDB.array_value

_NUMERIC_STRING = "rtrim(rtrim(CAST({0} AS VARCHAR), '0'), '.')"
_CASTS = {
    ("STRING", "INT64"): "bq_string_to_int64({0})",
    ("STRING", "FLOAT64"): "bq_string_to_float64({0})",
    ("STRING", "NUMERIC"): "bq_string_to_numeric({0})",
    ("STRING", "BIGNUMERIC"): "bq_string_to_bignumeric({0})",
    ("STRING", "BOOL"): "bq_string_to_bool({0})",
    ("STRING", "BYTES"): "encode({0})",
    ("STRING", "DATE"): "bq_string_to_date({0})",
    ("STRING", "DATETIME"): "bq_string_to_datetime({0})",
    ("STRING", "TIME"): "bq_string_to_time({0})",
    ("STRING", "TIMESTAMP"): "bq_string_to_timestamp({0}, 'UTC')",
    ("STRING", "INTERVAL"): "bq_string_to_interval({0})",
    ("INT64", "STRING"): "CAST({0} AS VARCHAR)",
    ("INT64", "FLOAT64"): "CAST({0} AS DOUBLE)",
    ("INT64", "NUMERIC"): "CAST({0} AS DECIMAL(38,9))",
    ("INT64", "BIGNUMERIC"): "CAST({0} AS DECIMAL(38,18))",
    ("INT64", "BOOL"): "({0} <> 0)",
    ("FLOAT64", "STRING"): "bq_float64_to_string({0})",
    ("FLOAT64", "INT64"): "bq_float64_to_int64({0})",
    ("FLOAT64", "NUMERIC"): "bq_float64_to_numeric({0})",
    ("FLOAT64", "BIGNUMERIC"): "bq_float64_to_bignumeric({0})",
    ("NUMERIC", "STRING"): _NUMERIC_STRING,
    ("BIGNUMERIC", "STRING"): _NUMERIC_STRING,
    ("NUMERIC", "INT64"): "CAST({0} AS BIGINT)",
    ("BIGNUMERIC", "INT64"): "CAST({0} AS BIGINT)",
    ("NUMERIC", "FLOAT64"): "CAST({0} AS DOUBLE)",
    ("BIGNUMERIC", "FLOAT64"): "CAST({0} AS DOUBLE)",
    ("NUMERIC", "BIGNUMERIC"): "CAST({0} AS DECIMAL(38,18))",
    ("BIGNUMERIC", "NUMERIC"): "CAST({0} AS DECIMAL(38,9))",
    ("BOOL", "STRING"): "CAST({0} AS VARCHAR)",
    ("BOOL", "INT64"): "CAST({0} AS BIGINT)",
    ("BYTES", "STRING"): "decode({0})",
    ("DATE", "STRING"): "CAST({0} AS VARCHAR)",
    ("DATE", "DATETIME"): "CAST({0} AS TIMESTAMP)",
    ("DATE", "TIMESTAMP"): "CAST({0} AS TIMESTAMPTZ)",
    ("DATETIME", "STRING"): "bq_datetime_to_string({0})",
    ("DATETIME", "DATE"): "CAST({0} AS DATE)",
    ("DATETIME", "TIME"): "CAST({0} AS TIME)",
    ("DATETIME", "TIMESTAMP"): "CAST({0} AS TIMESTAMPTZ)",
    ("TIMESTAMP", "STRING"): "bq_timestamp_to_string({0})",
    ("TIMESTAMP", "DATE"): "CAST(({0} AT TIME ZONE 'UTC') AS DATE)",
    ("TIMESTAMP", "DATETIME"): "({0} AT TIME ZONE 'UTC')",
    ("TIMESTAMP", "TIME"): "CAST(({0} AT TIME ZONE 'UTC') AS TIME)",
    ("TIME", "STRING"): "bq_time_to_string({0})",
    ("INTERVAL", "STRING"): "bq_interval_to_string({0})",
}
