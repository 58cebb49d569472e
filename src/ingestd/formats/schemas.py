"""Schemas that somebody sends, refused in BigQuery's words."""

from collections.abc import Mapping
from typing import Any

from ingestd.formats.errors import BigQueryError
from ingestd.model import schema
from ingestd.model.schema import Schema, SchemaError


def schema_from_rest(resource: Mapping[str, Any] | None) -> Schema:
    try:
        return schema.schema_from_rest(resource)
    except SchemaError as error:
        raise BigQueryError("invalid", error.why) from None
