"""Load files into a DuckDB temp table, exactly as a BigQuery load job would read them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import duckdb

from ingestd.formats import delimited, ndjson
from ingestd.formats.avro import read_avro
from ingestd.formats.binary import FileColumns, UnreadableFileError, fit, reading
from ingestd.formats.columnar import read_orc, read_parquet
from ingestd.formats.convert import JsonRules
from ingestd.formats.detect import CsvShape, detect_csv, detect_json
from ingestd.formats.errors import BigQueryError, ErrorProto
from ingestd.formats.hive import partition_columns
from ingestd.formats.options import LoadOptions, SourceFormat
from ingestd.formats.problems import READING, Tally
from ingestd.formats.rowload import Codec, Part, RowLoader, SourceFile, TableWriter
from ingestd.formats.textfiles import CorruptGzipError, gunzip
from ingestd.localcloud.bigquery.files.objects import Objects, SourceObject, check_source_uri
from ingestd.localcloud.bigquery.files.staging import Inline, Staging
from ingestd.model.schema import Field, Schema, Type

FILE_NAME = "_FILE_NAME"


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """What a load read. `errors` are the bad records that `maxBadRecords` tolerated."""

    schema: Schema
    rows: int
    bad_records: int
    errors: tuple[ErrorProto, ...] = field(default=())
    input_files: int = 0
    input_bytes: int = 0
    inline: Inline | None = None  # the rows themselves, when the caller asked for a few of them that way


def load_files(
    conn: duckdb.DuckDBPyConnection,
    objects: Objects,
    options: LoadOptions,
    uris: Sequence[str],
    schema: Schema | None,
    staging: str,
    *,
    file_name: bool = False,
    inline: bool = False,
    check_bytes: Callable[[int], None] = lambda size: None,
) -> LoadOutcome:
    """Read every file into the temp table `staging`, whose columns are typed as `column_type` says.

    The table exists when this returns; when it raises, nothing is left behind. The error's `details` are the entries of
    `errors[]` that follow the error itself. With `file_name`, a last column `_FILE_NAME` names each row's file. With
    `inline`, a few rows come back in the outcome and there is no table. `check_bytes` refuses too many.
    """
    sources = _resolve(objects, options, uris)
    check_bytes(sum(item.size for item in sources))
    job = _Job(conn, objects, options, sources, schema, staging, file_name, inline)
    return job.run()


def _resolve(objects: Objects, options: LoadOptions, uris: Sequence[str]) -> list[SourceObject]:
    """The files behind the URIs; an object named twice is read twice, as BigQuery does."""
    if not uris:
        raise BigQueryError("required", "Required parameter is missing: sourceUris")
    if options.manifest:
        uris = [line.strip() for uri in uris for line in _manifest(objects, uri) if line.strip()]
    found: list[SourceObject] = []
    missing: list[ErrorProto] = []
    for uri in uris:
        check_source_uri(uri)
    for uri, matched in zip(uris, objects.match_all(uris), strict=True):
        if not matched:
            missing.append(ErrorProto("notFound", f"Not found: URI {uri}", uri))
        # Names that end in a slash are folder markers of tools, not data.
        found += [item for item in matched if not (item.uri.endswith("/") and not item.size)]
    if missing:
        first, *others = missing
        raise BigQueryError(first.reason, first.message, first.location, tuple(others))
    return found


def _manifest(objects: Objects, uri: str) -> list[str]:
    check_source_uri(uri)
    matched = objects.match(uri)
    if not matched:
        raise BigQueryError("notFound", f"Not found: URI {uri}", uri)
    return [line for item in matched for line in objects.read(item.uri).decode().splitlines()]


class _Job:
    """One load: its files, its tolerance, its table."""

    def __init__(
        self,
        conn: duckdb.DuckDBPyConnection,
        objects: Objects,
        options: LoadOptions,
        sources: list[SourceObject],
        schema: Schema | None,
        staging: str,
        file_name: bool,
        inline: bool,
    ) -> None:
        self._conn = conn
        self._objects = objects
        self._options = options
        self._sources = sources
        self._name = staging
        self._wants_inline = inline
        self._inline: Inline | None = None
        self._schema = schema or None
        label = {SourceFormat.CSV: "CSV", SourceFormat.JSON: "JSON"}.get(options.source_format, options.source_format)
        self._tally = Tally(label, options.max_bad_records)
        self._keys: Schema = ()
        constants: dict[str, tuple[object, ...]] = {item.uri: () for item in sources}
        if options.hive:
            self._keys, constants = partition_columns(options.hive, [item.uri for item in sources], self._schema)
        self._constants = self._keys
        if file_name:
            self._constants = (*self._keys, Field(FILE_NAME, Type.STRING))
            constants = {uri: (*values, uri) for uri, values in constants.items()}
        self._files = [SourceFile(item.uri, constants[item.uri]) for item in sources]

    def run(self) -> LoadOutcome:
        if self._options.source_format in (SourceFormat.CSV, SourceFormat.JSON):
            schema = self._run_text()
        else:
            schema = self._run_binary()
        return LoadOutcome(
            schema=(*schema, *self._keys),
            rows=self._tally.rows,
            bad_records=self._tally.bad_records,
            errors=self._tally.warnings(),
            input_files=len(self._sources),
            input_bytes=sum(item.size for item in self._sources),
            inline=self._inline,
        )

    def _given(self) -> Schema | None:
        """The given schema without the columns that come from the path."""
        if self._schema is None:
            return None
        keys = {item.name.lower() for item in self._keys}
        return tuple(item for item in self._schema if item.name.lower() not in keys)

    def _bytes(self) -> Iterator[tuple[SourceFile, bytes]]:
        """Every file that decompresses, one at a time."""
        contents = iter(self._objects.read_all([file.uri for file in self._files]))
        for file in self._files:
            if self._tally.full:
                return
            try:
                yield file, gunzip(file.uri, next(contents))
            except CorruptGzipError as error:
                message = f"{READING}Failed to decompress gzip data: {error}. File: {file.uri}"
                self._tally.unreadable(file.uri, message)

    def _run_text(self) -> Schema:
        if self._schema is None and not self._options.autodetect:
            raise BigQueryError("invalid", "No schema specified on job or table.")
        codec, parts = self._csv() if self._options.source_format is SourceFormat.CSV else self._json()
        columns = (*codec.schema, *self._constants)
        with Staging(self._conn, self._name, columns, inline=self._wants_inline).open() as staging:
            loader = RowLoader(staging, codec, self._constants, self._tally)
            for part in parts:
                loader.add(part)
            loader.flush()
            self._tally.raise_if_failed()
        self._inline = staging.inline
        return codec.schema

    def _json(self) -> tuple[Codec, Iterator[Part]]:
        given = self._given()
        if given is None:
            given = detect_json(row for part in self._json_parts() for row in part.rows)
            self._require_columns(given)
        rules = JsonRules(self._options.formats, ignore_unknown=self._options.ignore_unknown_values)
        return ndjson.JsonCodec(given, rules), self._json_parts()

    def _json_parts(self) -> Iterator[Part]:
        for file, data in self._bytes():
            for part in ndjson.parts(file, data, self._options.encoding):
                if self._tally.gave_up(file.uri):
                    break
                yield part

    def _csv(self) -> tuple[Codec, Iterator[Part]]:
        options, given = self._options, self._given()
        skip = options.skip_leading_rows or 0
        delimiter = options.delimiter or ","
        if options.autodetect:
            shape = self._csv_shape()
            delimiter, skip = shape.delimiter, shape.skip
            if given is None:
                given = shape.schema
                self._require_columns(given)
        assert given is not None
        dialect = delimited.Dialect(options, delimiter)
        order = self._csv_order(dialect, given, skip) if delimited.by_name(options) else None
        return delimited.CsvCodec(given, options, order), self._csv_parts(dialect, skip)

    def _csv_shape(self) -> CsvShape:
        """Detection looks at as many files as it takes to see its sample."""
        plain = delimited.Dialect(self._options, self._options.delimiter or ",")
        texts: list[str] = []
        lines = 0
        for _, data in self._bytes():
            texts.append(plain.decode(data))
            lines += texts[-1].count("\n")
            if lines > 2 * 500:
                break
        return detect_csv(self._options, texts)

    def _csv_parts(self, dialect: delimited.Dialect, skip: int) -> Iterator[Part]:
        for file, data in self._bytes():
            for part in delimited.parts(file, dialect.decode(data), dialect, skip):
                if self._tally.gave_up(file.uri):
                    break
                yield part

    def _csv_order(self, dialect: delimited.Dialect, schema: Schema, skip: int) -> list[int | None]:
        """Columns by the names in the last skipped row of the first file."""
        for _, data in self._bytes():
            for number, (_, cells) in enumerate(dialect.records(dialect.decode(data))):
                if number == max(skip - 1, 0) and isinstance(cells, list):
                    names = {(cell or "").strip().lower(): index for index, cell in reversed(list(enumerate(cells)))}
                    return [names.get(item.name.lower()) for item in schema]
        return [None for _ in schema]

    def _require_columns(self, schema: Schema) -> None:
        self._tally.raise_if_failed()
        if not schema:
            raise BigQueryError("invalid", "Schema has no fields.")

    def _run_binary(self) -> Schema:
        schema = self._given()
        if schema is None:
            schema = self._schema_of_files()
        with Staging(self._conn, self._name, (*schema, *self._constants)).open() as staging:
            writer = TableWriter(staging, self._constants)
            for file in self._files:
                columns = self._read_binary(file.uri)
                if columns is None:
                    continue
                try:
                    table = fit(
                        columns,
                        schema,
                        self._options.source_format,
                        ignore_unknown=self._options.ignore_unknown_values,
                    )
                except UnreadableFileError as error:
                    self._tally.unreadable(file.uri, reading(str(error), file.uri))
                    continue
                self._tally.good(file.uri, table.num_rows)
                if not self._tally.failed:
                    writer.add(file, table)
            self._tally.raise_if_failed()
            writer.flush()
        return schema

    def _schema_of_files(self) -> Schema:
        """The schema of the reference file, or of the last file by name, as BigQuery takes it."""
        if reference := self._options.reference_schema_uri:
            if not self._objects.match(reference):
                raise BigQueryError("notFound", f"Not found: URI {reference}", reference)
            columns = self._read_binary(reference)
            self._tally.raise_if_failed()
            return columns.schema if columns else ()
        for file in sorted(self._files, key=lambda file: file.uri, reverse=True):
            if columns := self._read_binary(file.uri):
                return columns.schema
        self._tally.raise_if_failed()
        raise BigQueryError("invalid", "Schema has no fields.")

    def _read_binary(self, uri: str) -> FileColumns | None:
        """A file's columns, or None for an empty object and for one that cannot be read (which is noted)."""
        data = self._objects.read(uri)
        if not data:
            return None
        try:
            match self._options.source_format:
                case SourceFormat.AVRO:
                    return read_avro(data, self._options)
                case SourceFormat.PARQUET:
                    return read_parquet(data, self._options)
                case _:
                    return read_orc(data, self._options)
        except UnreadableFileError as error:
            self._tally.unreadable(uri, reading(str(error), uri))
            return None
