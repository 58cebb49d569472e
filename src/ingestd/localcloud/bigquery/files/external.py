"""External tables: the files behind an `ExternalDataConfiguration` as a DuckDB temp table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb

from ingestd.formats.errors import BigQueryError, ErrorProto, not_implemented
from ingestd.formats.options import LoadOptions
from ingestd.formats.schemas import schema_from_rest
from ingestd.localcloud.bigquery.duckdb_types import quote
from ingestd.localcloud.bigquery.files.load import FILE_NAME, load_files
from ingestd.localcloud.bigquery.files.objects import Objects
from ingestd.model.schema import Schema

__all__ = ["FILE_NAME", "ExternalTable", "attach_external", "external_options"]

# Options of an external definition that a load job has under the same name.
_SHARED = {
    "autodetect",
    "decimalTargetTypes",
    "dateFormat",
    "datetimeFormat",
    "fileSetSpecType",
    "hivePartitioningOptions",
    "ignoreUnknownValues",
    "jsonExtension",
    "maxBadRecords",
    "parquetOptions",
    "referenceFileSchemaUri",
    "sourceFormat",
    "timeFormat",
    "timeZone",
    "timestampFormat",
}
_CSV = {
    "allowJaggedRows",
    "allowQuotedNewlines",
    "encoding",
    "fieldDelimiter",
    "nullMarker",
    "nullMarkers",
    "preserveAsciiControlCharacters",
    "quote",
    "skipLeadingRows",
    "sourceColumnMatch",
}
_IGNORED = {"compression", "connectionId", "metadataCacheMode", "objectMetadata", "schema", "sourceUris", "labels"}
_OTHER_SOURCES = {"BIGTABLE", "GOOGLE_SHEETS", "DATASTORE_BACKUP", "ICEBERG", "DELTA_LAKE"}


@dataclass(frozen=True, slots=True)
class ExternalTable:
    """`relation` is the quoted temp table; it has `schema`'s columns and, last, the hidden `_FILE_NAME`."""

    relation: str
    schema: Schema
    rows: int = 0
    input_files: int = 0
    input_bytes: int = 0
    warnings: tuple[ErrorProto, ...] = field(default=())


def external_options(config: Mapping[str, Any]) -> LoadOptions:
    """The reading options of an `ExternalDataConfiguration`."""
    source = str(config.get("sourceFormat") or "")
    if not source:
        raise BigQueryError("required", "Required parameter is missing: sourceFormat")
    if source.upper() in _OTHER_SOURCES:
        raise not_implemented(f"external tables of sourceFormat {source}")
    load: dict[str, Any] = {}
    for key, value in config.items():
        if key in _SHARED:
            load[key] = value
        elif key == "csvOptions":
            load |= _section(key, value, _CSV)
        elif key == "jsonOptions":
            load |= _section(key, value, {"encoding"})
        elif key == "avroOptions":
            load |= _section(key, value, {"useAvroLogicalTypes"})
        elif key not in _IGNORED:
            raise BigQueryError("invalid", f'Invalid JSON payload received. Unknown name "{key}": Cannot find field.')
    compression = str(config.get("compression") or "NONE").upper()
    if compression not in ("NONE", "GZIP"):
        raise BigQueryError("invalid", f"Invalid value for compression: {compression} is not a valid value")
    return LoadOptions.from_rest(load)


def _section(key: str, value: Any, known: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BigQueryError("invalid", f"Invalid value for {key}: {value} is not a valid value")
    for name in value:
        if name not in known:
            raise BigQueryError(
                "invalid", f'Invalid JSON payload received. Unknown name "{key}.{name}": Cannot find field.'
            )
    return value


def attach_external(
    conn: duckdb.DuckDBPyConnection,
    objects: Objects,
    name: str,
    config: Mapping[str, Any],
    schema: Schema | None = None,
) -> ExternalTable:
    """Read the files of an external definition into the temp table `name`.

    The schema is the given one, else the definition's own, else what the files say.
    """
    options = external_options(config)
    wanted = schema or schema_from_rest(config.get("schema")) or None
    uris = [str(uri) for uri in config.get("sourceUris") or ()]
    outcome = load_files(conn, objects, options, uris, wanted, name, file_name=True)
    return ExternalTable(
        relation=quote(name),
        schema=outcome.schema,
        rows=outcome.rows,
        input_files=outcome.input_files,
        input_bytes=outcome.input_bytes,
        warnings=outcome.errors,
    )
