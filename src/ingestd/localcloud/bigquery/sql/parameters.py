"""Query parameters: from REST's strings to typed values that DuckDB binds. They are never pasted into SQL."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ingestd.formats.errors import BigQueryError, not_implemented
from ingestd.googlesql import literals
from ingestd.googlesql.types import SCALARS, SqlType, array_of, struct_of
from ingestd.localcloud.bigquery.sql.reading import scalar_name
from ingestd.localcloud.bigquery.sql.runtime import jsons, numbers


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """`name` is empty for a positional parameter. `type` and `value` are REST's parameterType and parameterValue."""

    name: str
    type: dict[str, Any]
    value: dict[str, Any]


def parameters_from_rest(resources: Sequence[dict[str, Any]] | None) -> tuple[QueryParameter, ...]:
    return tuple(
        QueryParameter(str(item.get("name") or ""), item.get("parameterType") or {}, item.get("parameterValue") or {})
        for item in resources or ()
    )


def typed_value(parameter: QueryParameter) -> tuple[SqlType, Any]:
    kind = _type(parameter.type)
    try:
        return kind, _value(kind, parameter.value)
    except (ValueError, KeyError, TypeError) as error:
        name = f"@{parameter.name}" if parameter.name else "a positional parameter"
        raise BigQueryError("invalid", f"Invalid value for query parameter {name} of type {kind}: {error}") from None


def _type(resource: dict[str, Any]) -> SqlType:
    name = str(resource.get("type") or "").upper()
    if name == "ARRAY":
        return array_of(_type(resource.get("arrayType") or {}))
    if name in ("STRUCT", "RECORD"):
        members = resource.get("structTypes") or ()
        return struct_of((str(item.get("name") or ""), _type(item.get("type") or {})) for item in members)
    if name == "RANGE":
        raise not_implemented("RANGE parameters")
    if not name:
        raise BigQueryError("invalid", "Missing type of a query parameter")
    return SCALARS[scalar_name(name)]


def _value(kind: SqlType, resource: Any) -> Any:
    resource = resource or {}
    if kind.kind == "ARRAY":
        assert kind.element is not None
        items = resource.get("arrayValues")
        return [] if items is None else [_value(kind.element, item) for item in items]
    if kind.kind == "STRUCT":
        given = resource.get("structValues") or {}
        by_name = {key.lower(): value for key, value in given.items()}
        names = zip(kind.physical_names, kind.fields, strict=True)
        return {physical: _value(inner, by_name.get(name.lower())) for physical, (name, inner) in names}
    text = resource.get("value")
    return None if text is None else _scalar(kind, str(text))


def _scalar(kind: SqlType, text: str) -> Any:
    match kind.kind:
        case "INT64":
            return numbers.parse_int64(text)
        case "FLOAT64":
            return numbers.parse_float64(text)
        case "BOOL":
            return numbers.parse_bool(text)
        case "NUMERIC":
            return literals.parse_numeric(text)
        case "BIGNUMERIC":
            return numbers.parse_bignumeric(text)
        case "BYTES":
            return base64.b64decode(text)
        case "DATE":
            return literals.parse_date(text)
        case "TIME":
            return literals.parse_time(text)
        case "DATETIME":
            return literals.parse_datetime(text)
        case "TIMESTAMP":
            return literals.parse_timestamp(text, "UTC")
        case "JSON":
            return jsons.normalise(text)
        case "INTERVAL":
            raise not_implemented("INTERVAL parameters")
    return text
