"""Literals, implicit conversion and CAST: from one GoogleSQL type to another, in DuckDB's SQL."""

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal

from ingestd.formats.errors import BigQueryError
from ingestd.googlesql.types import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT64,
    INT64,
    JSON,
    NUMERIC_ORDER,
    STRING,
    TIME,
    TIMESTAMP,
    SqlType,
    array_of,
    coerces,
    struct_of,
)
from ingestd.localcloud.bigquery.sql.duckdb_types import duckdb_type
from ingestd.localcloud.bigquery.sql.names import Expr, pack
from ingestd.localcloud.bigquery.sql.runtime import civil, jsons, numbers

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def string_sql(text: str) -> str:
    quoted = "'" + text.replace("'", "''") + "'"
    return "(" + quoted.replace("\0", "' || chr(0) || '") + ")" if "\0" in text else quoted


def literal(value: object, kind: SqlType) -> Expr:
    """A constant of a scalar type, from its Python value."""
    return Expr(_literal_sql(value, kind), kind, literal=True, value=value, null=value is None)


def _literal_sql(value: object, kind: SqlType) -> str:
    if value is None:
        return f"CAST(NULL AS {duckdb_type(kind)})"
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


NULL = Expr("NULL", INT64, literal=True, null=True)


def parse_literal(text: str, kind: SqlType) -> Expr | None:
    """A string literal read as another type, as in `DATE '2024-01-01'` or `date_column = '2024-01-01'`."""
    try:
        match kind.kind:
            case "DATE":
                return literal(civil.parse_date(text), DATE)
            case "TIME":
                return literal(civil.parse_time(text), TIME)
            case "DATETIME":
                return literal(civil.parse_datetime(text), DATETIME)
            case "TIMESTAMP":
                return literal(civil.parse_timestamp(text, "UTC"), TIMESTAMP)
            case "NUMERIC" | "BIGNUMERIC":
                parse = numbers.parse_numeric if kind.kind == "NUMERIC" else numbers.parse_bignumeric
                return literal(parse(text), kind)
            case "JSON":
                return literal(jsons.normalise(text), JSON)
    except ValueError:
        return None
    return None


def coerce(value: Expr, target: SqlType) -> Expr | None:
    """`value` converted implicitly, or None where GoogleSQL wants a CAST."""
    source = value.type
    if value.null:
        return Expr(f"CAST(NULL AS {duckdb_type(target)})", target)
    if value.raises:
        return Expr(f"CAST({value.value} AS {duckdb_type(target)})", target)
    if source == target:
        return value
    if value.literal and not value.parameter:
        from_literal = _coerce_literal(value, target)
        if from_literal is not None:
            return from_literal
    if (
        value.literal
        and value.parameter
        and source is STRING
        and target.kind in ("DATE", "DATETIME", "TIME", "TIMESTAMP")
    ):
        return cast(value, target)
    if source.kind == "STRUCT" and target.kind == "STRUCT" and len(source.fields) == len(target.fields):
        return _coerce_struct(value, target)
    if source.kind == "ARRAY" and target.kind == "ARRAY":
        return _coerce_array(value, target)
    return cast(value, target) if coerces(source, target) else None


def _coerce_literal(value: Expr, target: SqlType) -> Expr | None:
    source = value.type
    if isinstance(value.value, str) and source is STRING:
        return parse_literal(value.value, target) if target.kind in ("DATE", "DATETIME", "TIME", "TIMESTAMP") else None
    if isinstance(value.value, int) and source is INT64 and target.kind in NUMERIC_ORDER:
        return literal(float(value.value) if target is FLOAT64 else value.value, target)
    if isinstance(value.value, float) and target.kind in ("NUMERIC", "BIGNUMERIC") and math.isfinite(value.value):
        return cast(value, target)
    return None


def _coerce_struct(value: Expr, target: SqlType) -> Expr | None:
    members = value.members or _struct_members(value)
    converted = []
    for member, (_, kind) in zip(members, target.fields, strict=True):
        inner = coerce(member, kind)
        if inner is None:
            return None
        converted.append(inner)
    packed = pack(target, tuple(converted))
    if value.members is not None:
        return Expr(packed, target, members=tuple(converted))
    return Expr(f"CASE WHEN {value.sql} IS NULL THEN NULL ELSE {packed} END", target)


def _struct_members(value: Expr) -> tuple[Expr, ...]:
    return tuple(
        Expr(f"struct_extract({value.sql}, {string_sql(name)})", kind)
        for name, (_, kind) in zip(value.type.physical_names, value.type.fields, strict=True)
    )


def _coerce_array(value: Expr, target: SqlType) -> Expr | None:
    assert value.type.element is not None
    assert target.element is not None
    if value.members is not None:
        converted = [coerce(member, target.element) for member in value.members]
        if any(item is None for item in converted):
            return None
        return array_value([item for item in converted if item is not None], target.element)
    item = coerce(Expr("_e", value.type.element), target.element)
    if item is None or not coerces(value.type, target):
        return None
    return Expr(f"list_transform({value.sql}, lambda _e: {item.sql})", target)


def array_value(items: Sequence[Expr], element: SqlType) -> Expr:
    kind = array_of(element)
    if not items:
        return Expr(f"CAST([] AS {duckdb_type(kind)})", kind, members=())
    return Expr("[" + ", ".join(item.sql for item in items) + "]", kind, members=tuple(items))


def supertype(items: Sequence[Expr]) -> SqlType | None:
    """The type all of these convert to: as for CASE branches, array elements and UNION columns."""
    typed = [item for item in items if not item.null and not item.raises]
    if not typed:
        return INT64
    solid = [item for item in typed if not (item.literal and not item.parameter)] or typed
    candidates: list[SqlType] = []
    for item in [*solid, *typed]:
        if item.type not in candidates:
            candidates.append(item.type)
    if all(kind.kind in NUMERIC_ORDER for kind in candidates):
        candidates.sort(key=lambda kind: NUMERIC_ORDER[kind.kind])
    for candidate in candidates:
        if all(coerce(item, candidate) is not None for item in typed):
            return _named_as(candidate, typed[0].type)
    kinds = {kind.kind for kind in candidates}
    if kinds <= set(NUMERIC_ORDER):
        return FLOAT64
    if kinds == {"STRUCT"} and len({len(kind.fields) for kind in candidates}) == 1:
        return _struct_supertype(typed, candidates[0])
    if kinds == {"ARRAY"} and all(item.members is not None for item in typed):
        inner = supertype([member for item in typed for member in item.members or ()])
        return array_of(inner) if inner else None
    return None


def _named_as(kind: SqlType, first: SqlType) -> SqlType:
    """The fields of a STRUCT have the names that the first of several gives them."""
    if kind.kind != "STRUCT" or len(first.fields) != len(kind.fields):
        return kind
    return struct_of((name, inner) for (name, _), (_, inner) in zip(first.fields, kind.fields, strict=True))


def _struct_supertype(items: Sequence[Expr], first: SqlType) -> SqlType | None:
    fields = []
    for index, (name, _) in enumerate(first.fields):
        inner = supertype([(item.members or _struct_members(item))[index] for item in items])
        if inner is None:
            return None
        fields.append((name, inner))
    return struct_of(fields)


def cast(value: Expr, target: SqlType) -> Expr:
    """An explicit CAST; raises where GoogleSQL has none."""
    source = value.type
    if value.null or source == target:
        return Expr(f"CAST({value.sql} AS {duckdb_type(target)})", target)
    if value.literal and not value.parameter and isinstance(value.value, str) and source is STRING:
        parsed = parse_literal(value.value, target) if target is not JSON else None
        if parsed is not None:
            return Expr(parsed.sql, target)
    if value.literal and isinstance(value.value, float) and target.kind in ("NUMERIC", "BIGNUMERIC"):
        # A literal is taken as it is written, any other FLOAT64 as the number that it is.
        parsed = parse_literal(repr(value.value), target)
        if parsed is not None:
            return Expr(parsed.sql, target)
    if source.kind == "STRUCT" and target.kind == "STRUCT":
        return _cast_struct(value, target)
    if source.kind == "ARRAY" and target.kind == "ARRAY":
        assert source.element is not None
        assert target.element is not None
        if value.members is not None:
            return array_value([cast(member, target.element) for member in value.members], target.element)
        item = cast(Expr("_e", source.element), target.element)
        return Expr(f"list_transform({value.sql}, lambda _e: {item.sql})", target)
    template = _CASTS.get((source.kind, target.kind))
    if template is None:
        raise BigQueryError("invalidQuery", f"Invalid cast from {source} to {target}", "query")
    return Expr(template.format(value.sql), target)


def _cast_struct(value: Expr, target: SqlType) -> Expr:
    members = value.members or _struct_members(value)
    if len(members) != len(target.fields):
        raise BigQueryError("invalidQuery", f"Invalid cast from {value.type} to {target}", "query")
    converted = tuple(cast(member, kind) for member, (_, kind) in zip(members, target.fields, strict=True))
    packed = pack(target, converted)
    if value.members is not None:
        return Expr(packed, target, members=converted)
    return Expr(f"CASE WHEN {value.sql} IS NULL THEN NULL ELSE {packed} END", target)


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

__all__ = [
    "BOOL",
    "BYTES",
    "INT64_MAX",
    "INT64_MIN",
    "NULL",
    "array_value",
    "cast",
    "coerce",
    "literal",
    "parse_literal",
    "string_sql",
    "supertype",
]
