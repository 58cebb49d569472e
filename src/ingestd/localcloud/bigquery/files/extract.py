"""Write a relation to files, exactly as a BigQuery extract job would."""

import gzip
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import duckdb

from ingestd.formats.avrofile import Container
from ingestd.formats.columns import arrow_schema, arrow_type
from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.bigquery.duckdb_types import column_type, quote
from ingestd.localcloud.bigquery.files import encode
from ingestd.localcloud.bigquery.files.objects import Objects, split_uri
from ingestd.model.schema import Field, Mode, Schema, Type

if TYPE_CHECKING:
    import pyarrow as pa

SINGLE_FILE_LIMIT = 1 << 30
SHARD_BYTES = 256 << 20
_BATCH_ROWS = 10_000
_COMPRESSIONS = {
    "CSV": ("NONE", "GZIP"),
    "NEWLINE_DELIMITED_JSON": ("NONE", "GZIP"),
    "AVRO": ("NONE", "DEFLATE", "SNAPPY"),
    "PARQUET": ("NONE", "SNAPPY", "GZIP", "ZSTD"),
}
_CONTENT_TYPES = {
    "CSV": "text/csv",
    "NEWLINE_DELIMITED_JSON": "application/json",
    "AVRO": "application/octet-stream",
    "PARQUET": "application/octet-stream",
}
_KNOWN = {
    "sourceTable",
    "sourceModel",
    "destinationUri",
    "destinationUris",
    "printHeader",
    "fieldDelimiter",
    "destinationFormat",
    "compression",
    "useAvroLogicalTypes",
    "modelExtractOptions",
}


@dataclass(frozen=True, slots=True)
class ExtractOutcome:
    """`file_counts` has one entry per destination URI, as `destinationUriFileCounts` in the job's statistics."""

    file_counts: list[int]
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ExtractOptions:
    format: str
    compression: str
    delimiter: str
    header: bool
    logical_types: bool

    @classmethod
    def from_rest(cls, config: Mapping[str, Any]) -> "ExtractOptions":
        for key in config:
            if key not in _KNOWN:
                raise BigQueryError(
                    "invalid", f'Invalid JSON payload received. Unknown name "{key}": Cannot find field.'
                )
        kind = str(config.get("destinationFormat") or "CSV").upper()
        if kind not in _COMPRESSIONS:
            raise BigQueryError("invalid", f"Invalid value for destinationFormat: {kind} is not a valid value")
        compression = str(config.get("compression") or "NONE").upper()
        if compression not in _COMPRESSIONS[kind]:
            raise BigQueryError("invalid", f"Compression {compression} is not supported for format {kind}")
        delimiter = str(config.get("fieldDelimiter") or ",")
        return cls(
            format=kind,
            compression=compression,
            delimiter="\t" if delimiter.lower() in ("\\t", "tab") else delimiter[0],
            header=str(config.get("printHeader", True)).lower() != "false",
            logical_types=str(config.get("useAvroLogicalTypes", False)).lower() == "true",
        )


def extract(
    conn: duckdb.DuckDBPyConnection,
    objects: Objects,
    relation_sql: str,
    schema: Schema,
    config: Mapping[str, Any],
    uris: Sequence[str],
    *,
    shard_bytes: int = SHARD_BYTES,
    single_file_limit: int = SINGLE_FILE_LIMIT,
) -> ExtractOutcome:
    """Write what `relation_sql` (a SELECT, or a quoted table name) yields; `config` is a `JobConfigurationExtract`.

    A URI with a wildcard gets files `000000000000`, `000000000001`, … of about `shard_bytes`; several URIs take turns.
    """
    options = ExtractOptions.from_rest(config)
    _check_uris(uris)
    sharded = all("*" in uri for uri in uris)
    encoder = _ENCODERS[options.format](schema, options)
    counts = [0] * len(uris)
    rows = written = 0
    single = b""
    for number, table in enumerate(_shards(conn, relation_sql, schema, shard_bytes if sharded else single_file_limit)):
        if number and not sharded:
            raise BigQueryError(
                "invalid",
                "Table is too large to be exported to a single file. Specify a uri including a * to shard export. "
                "See 'Exporting data into one or more files' in https://cloud.google.com/bigquery/docs/exporting-data.",
            )
        target = number % len(uris)
        data = encoder(table)
        if sharded:
            objects.write(_shard_uri(uris[target], counts[target]), data, _CONTENT_TYPES[options.format])
        else:
            single = data
        counts[target] += 1
        rows += table.num_rows
        written += len(data)
    if not sharded:
        objects.write(uris[0], single, _CONTENT_TYPES[options.format])
    return ExtractOutcome(counts, rows, written)


def _check_uris(uris: Sequence[str]) -> None:
    if not uris:
        raise BigQueryError("required", "Required parameter is missing: destinationUris")
    for uri in uris:
        bucket, name = split_uri(uri)
        if "*" in bucket or name.count("*") > 1:
            raise BigQueryError("invalid", f"Invalid extract destination URI '{uri}'. Only one wildcard is allowed.")
        if len(uris) > 1 and "*" not in name:
            raise BigQueryError("invalid", f"Destination URI '{uri}' must contain a wildcard when several are given.")


def _shard_uri(uri: str, number: int) -> str:
    return uri.replace("*", f"{number:012d}")


def _shards(conn: duckdb.DuckDBPyConnection, sql: str, schema: Schema, limit: int) -> Iterator["pa.Table"]:
    """The relation as tables of about `limit` bytes; one (empty) table when there are no rows."""
    import pyarrow as pa

    source = sql if not sql.lstrip().upper().startswith(("SELECT", "WITH", "FROM", "VALUES")) else f"({sql})"
    columns = ", ".join(_wire(item) for item in schema)
    target = arrow_schema(schema)
    reader: Any = conn.sql(f"SELECT {columns} FROM {source}").to_arrow_reader(_BATCH_ROWS)  # noqa: S608
    pending: list[pa.RecordBatch] = []
    size = 0
    some = False
    for batch in reader:
        arrays = [batch.column(index).cast(field.type) for index, field in enumerate(target)]
        typed = pa.RecordBatch.from_arrays(arrays, schema=target)
        if pending and size + typed.nbytes > limit:
            yield pa.Table.from_batches(pending, target)
            pending, size, some = [], 0, True
        pending.append(typed)
        size += typed.nbytes
    if pending or not some:
        yield pa.Table.from_batches(pending, target)


def _wire(item: Field) -> str:
    """JSON leaves DuckDB as text."""
    name = quote(item.name)
    return f"{name}::{_plain(item)} AS {name}" if _holds_json(item) else name


def _holds_json(item: Field) -> bool:
    return item.type is Type.JSON or any(_holds_json(member) for member in item.fields)


def _plain(item: Field) -> str:
    if item.type is Type.STRUCT:
        kind = "STRUCT(" + ", ".join(f"{quote(member.name)} {_plain(member)}" for member in item.fields) + ")"
    else:
        kind = "VARCHAR" if item.type is Type.JSON else column_type(Field(item.name, item.type, scale=item.scale))
    return kind + "[]" if item.mode is Mode.REPEATED else kind


Encoder = Callable[["pa.Table"], bytes]


def _csv(schema: Schema, options: ExtractOptions) -> Encoder:
    lines = encode.csv_lines(schema, options.delimiter)
    header = options.delimiter.join(encode.csv_cell(item.name, options.delimiter) for item in schema) + "\n"

    def write(table: "pa.Table") -> bytes:
        body = "".join(line + "\n" for line in lines(table))
        return _packed(((header if options.header else "") + body).encode(), options)

    return write


def _json(schema: Schema, options: ExtractOptions) -> Encoder:
    lines = encode.json_lines(schema)

    def write(table: "pa.Table") -> bytes:
        return _packed(b"".join(line + b"\n" for line in lines(table)), options)

    return write


def _packed(data: bytes, options: ExtractOptions) -> bytes:
    return gzip.compress(data, mtime=0) if options.compression == "GZIP" else data


def _parquet(schema: Schema, options: ExtractOptions) -> Encoder:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [index for index, item in enumerate(schema) if _needs_text(item)]

    def write(table: "pa.Table") -> bytes:
        for index in texts:
            item = schema[index]
            values = [_as_text(item, value) for value in table.column(index).to_pylist()]
            table = table.set_column(index, item.name, pa.array(values, _text_type(item)))
        fields = [
            pa.field(column.name, _unadjusted(column.type), nullable=item.mode is not Mode.REQUIRED)
            for column, item in zip(table.schema, schema, strict=True)
        ]
        codec = options.compression.lower()
        out = io.BytesIO()
        # Documented under "Parquet export details": TIME is adjusted to UTC, TIMESTAMP and DATETIME are not.
        pq.write_table(table.cast(pa.schema(fields)), out, compression=codec, write_time_adjusted_to_utc=True)
        return out.getvalue()

    return write


def _unadjusted(kind: "pa.DataType") -> "pa.DataType":
    """The type, with its timestamps as BigQuery writes them: without a zone."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_unadjusted(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([member.with_type(_unadjusted(member.type)) for member in kind])
    return kind


def _needs_text(item: Field) -> bool:
    """Parquet has no interval or range that BigQuery reads back: they travel as text."""
    return item.type in (Type.INTERVAL, Type.RANGE) or any(map(_needs_text, item.fields))


def _text_type(item: Field) -> "pa.DataType":
    import pyarrow as pa

    if item.type is Type.STRUCT:
        kind = pa.struct([pa.field(member.name, _text_type(member)) for member in item.fields])
    elif _needs_text(item):
        kind = pa.string()
    else:
        return arrow_type(item)
    return pa.list_(kind) if item.mode is Mode.REPEATED else kind


def _as_text(item: Field, value: Any) -> Any:
    if value is None or not _needs_text(item):
        return value
    if item.mode is Mode.REPEATED:
        element = replace(item, mode=Mode.NULLABLE)
        return [_as_text(element, entry) for entry in value]
    if item.type is Type.STRUCT:
        return {member.name: _as_text(member, value[member.name]) for member in item.fields}
    return encode.text_encoder(item)(value)


def _avro(schema: Schema, options: ExtractOptions) -> Encoder:
    import fastavro

    avro = {"type": "record", "name": "Root", "fields": _avro_fields(schema, options, "Root")}
    parsed = fastavro.parse_schema(avro)
    codec = {"NONE": "null", "DEFLATE": "deflate", "SNAPPY": "snappy"}[options.compression]

    def write(table: "pa.Table") -> bytes:
        out = io.BytesIO()
        columns = [_avro_values(item, encode.whole(table.column(i)), options) for i, item in enumerate(schema)]
        fastavro.writer(out, parsed, _records(schema, columns), codec="null")
        return out.getvalue() if codec == "null" else Container.parse(out.getvalue()).build(codec)

    return write


def _avro_fields(schema: Schema, options: ExtractOptions, path: str) -> list[dict[str, Any]]:
    fields = []
    for item in schema:
        kind = _avro_type(item, options, f"{path}_{item.name}")
        if item.mode is Mode.REPEATED:
            kind = {"type": "array", "items": kind}
        elif item.mode is Mode.NULLABLE:
            kind = ["null", kind]
        fields.append({"name": item.name, "type": kind})
    return fields


def _avro_type(item: Field, options: ExtractOptions, path: str) -> Any:
    match item.type:
        case Type.STRUCT:
            return {"type": "record", "name": path, "fields": _avro_fields(item.fields, options, path)}
        case Type.INT64:
            return "long"
        case Type.FLOAT64:
            return "double"
        case Type.BOOL:
            return "boolean"
        case Type.BYTES:
            return "bytes"
        case Type.STRING:
            return "string"
        case Type.NUMERIC | Type.BIGNUMERIC:
            scale = arrow_type(Field(item.name, item.type, scale=item.scale)).scale
            return {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": scale}
        case Type.TIMESTAMP:
            return {"type": "long", "logicalType": "timestamp-micros"}
        case Type.DATE if options.logical_types:
            return {"type": "int", "logicalType": "date"}
        case Type.TIME if options.logical_types:
            return {"type": "long", "logicalType": "time-micros"}
        case Type.DATETIME if options.logical_types:
            return {"type": "string", "logicalType": "datetime", "sqlType": "DATETIME"}
        case _:
            return {"type": "string", "sqlType": item.type.value}


def _records(fields: Schema, columns: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
    names = [item.name for item in fields]
    for row in zip(*columns, strict=True):
        yield dict(zip(names, row, strict=True))


def _avro_values(item: Field, array: "pa.Array", options: ExtractOptions) -> list[Any]:
    """A column as the raw values of its Avro type: numbers for instants, days and times."""
    import pyarrow as pa

    if item.mode is Mode.REPEATED:
        elements = _avro_values(replace(item, mode=Mode.NULLABLE), array.values, options)
        return [elements[start:end] for start, end in pairwise(array.offsets.to_pylist())]
    if item.type is Type.STRUCT:
        columns = [_avro_values(member, array.field(index), options) for index, member in enumerate(item.fields)]
        valid = array.is_valid().to_pylist()
        return [row if there else None for row, there in zip(_records(item.fields, columns), valid, strict=True)]
    if item.type is Type.TIMESTAMP or (item.type is Type.TIME and options.logical_types):
        return list(array.cast(pa.int64()).to_pylist())
    if item.type is Type.DATE and options.logical_types:
        return list(array.cast(pa.int32()).to_pylist())
    if item.type in (Type.INT64, Type.FLOAT64, Type.BOOL, Type.BYTES, Type.NUMERIC, Type.BIGNUMERIC):
        return list(array.to_pylist())
    return encode.text_values(item, array)


_ENCODERS: dict[str, Callable[[Schema, ExtractOptions], Encoder]] = {
    "CSV": _csv,
    "NEWLINE_DELIMITED_JSON": _json,
    "AVRO": _avro,
    "PARQUET": _parquet,
}
