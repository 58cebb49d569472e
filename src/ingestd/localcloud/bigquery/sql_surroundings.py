"""What SQL statements need from outside the SQL engine: files to export to, load from or query in place."""

from collections.abc import Callable, Mapping
from typing import Any

from ingestd.formats.errors import BigQueryError
from ingestd.formats.options import LoadOptions
from ingestd.formats.schemas import schema_from_rest
from ingestd.localcloud.bigquery.destination import Destination, Staged, WriteDisposition, write
from ingestd.localcloud.bigquery.execution import Run, settle
from ingestd.localcloud.bigquery.files.external import attach_external
from ingestd.localcloud.bigquery.files.extract import extract
from ingestd.localcloud.bigquery.files.load import load_files
from ingestd.localcloud.bigquery.resources import Table, TableKind, TableRef
from ingestd.localcloud.bigquery.sql.engine import (
    CreateExternalRequest,
    ExportRequest,
    ExternalTable,
    LoadRequest,
    Surroundings,
)
from ingestd.model.schema import Schema, schema_rest

_LOAD_STAGING = "__load_data_staging"
_FORMATS = {"JSON": "NEWLINE_DELIMITED_JSON", "NEWLINE_DELIMITED_JSON": "NEWLINE_DELIMITED_JSON"}

# GoogleSQL option names (LOAD DATA, CREATE EXTERNAL TABLE) and their REST counterparts.
_CSV_OPTIONS = {
    "allow_jagged_rows": "allowJaggedRows",
    "allow_quoted_newlines": "allowQuotedNewlines",
    "encoding": "encoding",
    "field_delimiter": "fieldDelimiter",
    "preserve_ascii_control_characters": "preserveAsciiControlCharacters",
    "quote": "quote",
    "skip_leading_rows": "skipLeadingRows",
    "null_marker": "nullMarker",
}
_COMMON_OPTIONS = {
    "decimal_target_types": "decimalTargetTypes",
    "ignore_unknown_values": "ignoreUnknownValues",
    "max_bad_records": "maxBadRecords",
    "projection_fields": "projectionFields",
    "reference_file_schema_uri": "referenceFileSchemaUri",
}
_IGNORED = {"uris", "format", "description", "friendly_name", "labels", "expiration_timestamp", "compression"}


def surroundings(run: Run, changing: Callable[[], None]) -> Surroundings:
    """`changing` is called before anything is written on the run's cursor."""

    def load(request: LoadRequest) -> int:
        changing()
        return _load(run, request)

    def create_external(request: CreateExternalRequest) -> None:
        changing()
        _create_external(run, request)

    return Surroundings(
        export_data=lambda request: _export(run, request),
        load_data=load,
        create_external=create_external,
        external_table=lambda table: external_rows(run, table),
        jobs=run.jobs,
        user=run.job.user,
        location=run.job.key.location,
        labels=run.job.labels,
    )


def attach_definitions(run: Run, definitions: Mapping[str, Any]) -> dict[str, ExternalTable]:
    """`tableDefinitions`: files that this query alone sees as tables."""
    attached = {}
    for index, (name, config) in enumerate(definitions.items()):
        schema = schema_from_rest(config.get("schema")) or None
        found = attach_external(run.conn, run.objects, f"__definition_{index}", config, schema)
        attached[name] = ExternalTable(found.relation, found.schema, has_file_name=True)
    return attached


def external_rows(run: Run, table: Table) -> ExternalTable:
    """The rows of a stored external table, read now."""
    assert table.external is not None
    name = f"__external_{table.ref.project}_{table.ref.dataset}_{table.ref.table}"
    found = attach_external(run.conn, run.objects, name, table.external, table.schema or None)
    return ExternalTable(found.relation, found.schema, has_file_name=True)


def detect_external(run: Run, external: Mapping[str, Any], schema: Schema) -> Schema:
    """The schema of an external definition; detected from its files when none is given."""
    if schema:
        return schema
    return attach_external(run.conn, run.objects, "__detect_external", external, None).schema


def _export(run: Run, request: ExportRequest) -> int:
    options = request.options
    uri = str(options.get("uri") or "")
    if "*" not in uri:
        raise BigQueryError("invalidQuery", "Option 'uri' value must be a wildcard URI.")
    if not options.get("overwrite") and run.objects.match(uri):
        raise BigQueryError(
            "invalidQuery", f"Invalid extract destination URI '{uri}'. It already contains files; use overwrite=true."
        )
    given = str(options.get("format") or "").upper()
    config: dict[str, Any] = {"destinationFormat": _FORMATS.get(given, given)}
    for option, key in (
        ("compression", "compression"),
        ("header", "printHeader"),
        ("field_delimiter", "fieldDelimiter"),
        ("use_avro_logical_types", "useAvroLogicalTypes"),
    ):
        if options.get(option) is not None:
            config[key] = options[option]
    config.setdefault("printHeader", False)
    settle(run.conn)
    return extract(run.conn, run.objects, request.relation, request.schema, config, [uri]).rows


def _load(run: Run, request: LoadRequest) -> int:
    ref = TableRef(request.target.project, request.target.dataset, request.target.table)
    rest = _rest_options(request.files)
    uris = [str(uri) for uri in request.files.get("uris") or ()]
    if not uris:
        raise BigQueryError("invalidQuery", "LOAD DATA needs the option uris")
    existing = run.catalog.find_table(ref)
    rest["autodetect"] = request.schema is None and existing is None
    options = LoadOptions.from_rest(rest)
    schema = request.schema or (existing.schema if existing and not request.overwrite else None)
    outcome = load_files(run.conn, run.objects, options, uris, schema, _LOAD_STAGING)
    destination = Destination.from_rest(
        {
            "destinationTable": ref.rest(),
            "writeDisposition": WriteDisposition.TRUNCATE if request.overwrite else WriteDisposition.APPEND,
            "timePartitioning": request.time_partitioning,
            "rangePartitioning": request.range_partitioning,
            "clustering": {"fields": list(request.clustering)} if request.clustering else None,
            "destinationTableProperties": {
                "description": request.options.get("description"),
                "labels": request.options.get("labels"),
            },
        },
        ref.project,
        WriteDisposition.APPEND,
    )
    written = write(run.catalog, destination, Staged(_LOAD_STAGING, outcome.schema, declared=bool(request.schema)))
    run.conn.execute(f"DROP TABLE {_LOAD_STAGING}")
    return written.rows


def _create_external(run: Run, request: CreateExternalRequest) -> None:
    ref = TableRef(request.target.project, request.target.dataset, request.target.table)
    existing = run.catalog.find_table(ref)
    if existing is not None and request.if_not_exists:
        return
    if existing is not None and request.replace:
        run.catalog.drop_table(ref)
    rest = _rest_options(request.options)
    external: dict[str, Any] = {key: rest.pop(key) for key in list(rest) if key in _EXTERNAL_KEYS}
    external["sourceUris"] = [str(uri) for uri in request.options.get("uris") or ()]
    if external.get("sourceFormat") == "CSV" and rest:
        external["csvOptions"] = rest
    if prefix := request.options.get("hive_partition_uri_prefix"):
        mode = "CUSTOM" if request.partition_columns else "AUTO"
        external["hivePartitioningOptions"] = {"mode": mode, "sourceUriPrefix": prefix}
    if request.schema is None:
        external["autodetect"] = True
    else:
        external["schema"] = schema_rest(request.schema)
    schema = detect_external(run, external, request.schema or ())
    now = run.clock.now()
    run.catalog.create_table(
        Table(
            ref=ref,
            schema=schema,
            created=now,
            modified=now,
            kind=TableKind.EXTERNAL,
            external=external,
            description=str(request.options.get("description") or ""),
        )
    )


_EXTERNAL_KEYS = {
    "sourceFormat",
    "ignoreUnknownValues",
    "maxBadRecords",
    "decimalTargetTypes",
    "referenceFileSchemaUri",
    "compression",
}


def _rest_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """GoogleSQL's snake_case options as the REST configuration they stand for; unknown ones are refused."""
    given = str(options.get("format") or "CSV").upper()
    rest: dict[str, Any] = {"sourceFormat": _FORMATS.get(given, given)}
    for name, value in options.items():
        if name in _IGNORED or value is None:
            continue
        if name == "enable_logical_types":
            rest["useAvroLogicalTypes"] = value
        elif name == "hive_partition_uri_prefix":
            rest["hivePartitioningOptions"] = {"mode": "AUTO", "sourceUriPrefix": value}
        elif name in _CSV_OPTIONS or name in _COMMON_OPTIONS:
            rest[_CSV_OPTIONS.get(name) or _COMMON_OPTIONS[name]] = value
        else:
            raise BigQueryError("invalidQuery", f"Unknown option: {name}")
    return rest
