"""One file's bytes into good rows and bad ones, as BigQuery's load job would read them.

These run in Spark's Python workers. What a row means is decided where the local BigQuery decides it, so that a
prepared batch and a direct load cannot differ: large clean pieces go through Arrow's readers, and whatever those cannot
vouch for is read row by row, exactly, which also tells line, column and reason of what is wrong.

A reader yields, in the file's order: `Good` rows, `Bad` rows (or, `whole`, a file that cannot be read at all), rows
`Left` out because of columns the table has not, and `Unknown` columns a table could get.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from ingestd.formats import delimited, ndjson
from ingestd.formats.avro import parse_container, read_container
from ingestd.formats.binary import FileColumns, UnreadableFileError, fit
from ingestd.formats.bulk import read_json
from ingestd.formats.columnar import orc_parts, parquet_parts
from ingestd.formats.columns import Doubt, arrow_schema, values_array
from ingestd.formats.convert import BadValueError, Fault, ImpreciseError, JsonRules, row_reader
from ingestd.formats.detect import text_type
from ingestd.formats.errors import BigQueryError
from ingestd.formats.options import PLAIN, LoadOptions, SourceFormat
from ingestd.formats.problems import json_value_text
from ingestd.formats.rowload import BadRecordError, SourceFile
from ingestd.formats.textfiles import newlines, without_bom
from ingestd.model.preparation import Drift
from ingestd.model.schema import Field, Mode, Schema, Type, by_name
from ingestd.spark.files.carriers import UnfitError, carry, has_wide, readable
from ingestd.spark.files.unknown import beyond, missing_from, unknown_fields, wider

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_BYTES = 4 << 20
SMALLEST_BULK = 2 << 10
SLICE_BYTES = 32 << 20  # of a self-describing file, read at a time
_CSV_FIELD = re.compile(r"for field (\S+) \(position")
_CSV_REQUIRED = re.compile(r"Required column value for column index: (\d+)")


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What a reader has to know; the same for every file of a batch."""

    schema: Schema  # the files' own columns
    options: LoadOptions
    drift: Drift = Drift.FREEZE
    keys: Schema = ()  # columns that a file's path decides, after the others
    skip: int = 0  # CSV: leading records
    delimiter: str = ","
    by_name: bool = False  # CSV: columns by the names in the last skipped record
    detected: Schema = ()  # CSV without a schema: the columns that the first rows show
    added: frozenset[str] = frozenset()  # dotted names of columns that the files themselves have brought
    table: Schema = ()  # tells the type of a column that its file has none for

    @property
    def cuttable(self) -> bool:
        """Whether a newline always ends a row, so that a large file can be read in parts."""
        options = self.options
        if options.source_format is SourceFormat.JSON:
            return options.encoding == "utf-8"
        plain = options.encoding in ("utf-8", "latin-1") and not options.allow_quoted_newlines
        return options.source_format is SourceFormat.CSV and plain and not self.by_name

    @property
    def lenient(self) -> bool:
        """What the table has no column for is passed over."""
        return self.options.ignore_unknown_values or self.drift is Drift.DISCARD_VALUE


@dataclass(frozen=True, slots=True)
class Good:
    table: "pa.Table"


@dataclass(frozen=True, slots=True)
class Bad:
    why: str
    line: int | None = None
    column: str = ""
    schema: bool = False  # it can be read, but does not fit
    text: str = ""
    whole: bool = False  # not one row of the file can be had


@dataclass(frozen=True, slots=True)
class Left:
    rows: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """Columns that the file has and the table has not; of a known record, only its new members."""

    fields: Schema
    untyped: Schema = ()  # such columns without a value: theirs is the type unless another file has one


Item = Good | Bad | Left | Unknown


class Reader(Protocol):
    def read(self, data: bytes, name: str, part: int = 0) -> Iterator[Item]:
        """A whole file, or the part of one of lines that begins with a line; lines are counted from there."""
        ...


def reader(plan: ReadPlan) -> Reader:
    match plan.options.source_format:
        case SourceFormat.JSON:
            return JsonReader(plan)
        case SourceFormat.CSV:
            return CsvReader(plan)
        case _:
            return BinaryReader(plan)


def pieces(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Pieces of a few megabytes, cut at line ends, and where each of them begins."""
    at = 0
    while at < len(data):
        end = data.find(b"\n", at + PIECE_BYTES)
        end = len(data) if end < 0 else end
        yield at, data[at:end]
        at = end + 1


class JsonReader:
    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan
        self._schema = readable(plan.schema)
        rules = JsonRules(plan.options.formats, ignore_unknown=plan.lenient)
        self._codec = ndjson.JsonCodec(self._schema, rules)
        self._strict = row_reader(self._schema, rules)
        self._lenient = row_reader(self._schema, JsonRules(plan.options.formats, ignore_unknown=True))
        self._plain = plan.options.formats == PLAIN and bool(plan.schema)
        self._names = {item.name for item in plan.schema}
        self._folded = {item.name.lower() for item in plan.schema}
        self._wide = has_wide(plan.schema)

    def read(self, data: bytes, name: str, part: int = 0, first_line: int = 1) -> Iterator[Item]:
        encoding = self._plan.options.encoding
        data = without_bom(data, encoding)
        if encoding != "utf-8":
            data = data.decode(encoding, "replace").encode()
        for start, piece in pieces(data):
            yield from self._piece(piece, name, partial(_line_at, data, start, first_line))

    def joined(self, piece: bytes) -> "pa.Table":
        """Many lines at once, or `Doubt`: what the exact reader would say of each of them."""
        if not self._plain:
            raise Doubt
        try:
            return carry(read_json(piece, self._schema), self._plan.schema)
        except UnfitError:
            raise Doubt from None

    def _piece(self, piece: bytes, name: str, first_line: Callable[[], int]) -> Iterator[Item]:
        try:
            if len(piece) >= SMALLEST_BULK:
                yield Good(self.joined(piece.replace(b"\r\n", b"\n") if b"\r" in piece else piece))
                return
        except Doubt:
            pass
        try:
            part = ndjson.JsonPart(SourceFile(name), piece, 0)
            if part.lines and self._schema:
                if self._plan.lenient:
                    part.rows = [self._known(row) for row in part.rows]
                yield Good(carry(self._codec.table([part]), self._plan.schema))
                return
        except (Doubt, UnfitError):
            pass
        yield from self._rows(piece, first_line())

    def _known(self, row: Any) -> Any:
        """The row without what the table has no column for; `Doubt` when a column's name is spelt differently."""
        if type(row) is not dict or row.keys() <= self._names:
            return row
        if any(key not in self._names and key.lower() in self._folded for key in row):
            raise Doubt
        return {key: value for key, value in row.items() if key in self._names}

    def _rows(self, piece: bytes, first_line: int) -> Iterator[Item]:
        rows: list[dict[str, Any]] = []
        drifted: list[Any] = []
        for number, line in enumerate(piece.split(b"\n"), first_line):
            if not line or line.isspace():
                continue
            parsed = ndjson.parse_line(line)
            if type(parsed) is not dict:
                yield _bad_line(number, "", _not_a_row(parsed), line, schema=False)
                continue
            try:
                row = self._row(parsed, line, drifted)
                if row is None:
                    yield Left(1)
                    continue
                if self._wide:
                    carry(_table([row], self._schema), self._plan.schema)
            except BadValueError as bad:
                yield _bad_line(number, bad.path, json_value_text(bad), line)
            except UnfitError as bad:
                yield _bad_line(number, bad.column, str(bad), line)
            else:
                rows.append(row)
        if rows:
            yield Good(carry(_table(rows, self._schema), self._plan.schema))
        if drifted:
            yield from _new_columns(drifted, self._schema)

    def _row(self, parsed: dict[str, Any], line: bytes, drifted: list[Any]) -> dict[str, Any] | None:
        try:
            return self._exactly(self._strict, parsed, line)
        except BadValueError as bad:
            if bad.fault is not Fault.UNKNOWN or self._plan.drift is Drift.FREEZE:
                raise
            row = self._exactly(self._lenient, parsed, line)
            if self._plan.drift is Drift.DISCARD_ROW:
                return None if beyond(parsed, self._schema) else row
            drifted.append(parsed)
            return row

    @staticmethod
    def _exactly(read: Any, parsed: dict[str, Any], line: bytes) -> dict[str, Any]:
        try:
            found: dict[str, Any] = read(parsed)
        except ImpreciseError:
            found = read(ndjson.parse_exactly(line))
        return found


def _line_at(data: bytes, at: int, first: int) -> int:
    """The number of the line that begins there: counted only for pieces in which something is wrong."""
    return first + newlines(memoryview(data)[:at])


def _table(rows: Sequence[Mapping[str, Any]], schema: Schema) -> "pa.Table":
    import pyarrow as pa

    arrays = [values_array(item, [row[item.name] for row in rows]) for item in schema]
    if not arrays:
        return pa.table({})
    return pa.table(arrays, schema=arrow_schema(schema))


def _new_columns(rows: list[Any], schema: Schema) -> Iterator[Item]:
    try:
        yield Unknown(unknown_fields(rows, schema))
    except BigQueryError as error:
        yield Bad(error.message, schema=True, whole=True)


def _bad_line(number: int, column: str, why: str, line: bytes, *, schema: bool = True) -> Bad:
    return Bad(why, number, column, schema, line.decode("utf-8", "replace"))


def _not_a_row(parsed: Any) -> str:
    if isinstance(parsed, ndjson.Unparsed):
        return parsed.message
    if isinstance(parsed, list):
        return "Start of array encountered without start of object."
    return "Value encountered without start of object."


class CsvReader:
    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan
        self._schema = readable(plan.schema)
        self._dialect = delimited.Dialect(plan.options, plan.delimiter)
        self._options = replace(plan.options, ignore_unknown_values=plan.lenient)
        self._wide = has_wide(plan.schema)

    def read(self, data: bytes, name: str, part: int = 0) -> Iterator[Item]:
        text = self._dialect.decode(data)
        if not self._plan.schema:
            yield Unknown(self._evidence(text, 0 if part else self._plan.skip))
            return
        header = self._header(text)
        if foreign := self._foreign(header):
            why = f"Column {foreign} of the header is not in the table, and values of CSV bring no columns"
            yield Bad(why, column=foreign, schema=True, whole=True)
            return
        codec = delimited.CsvCodec(self._schema, self._options, self._order(header))
        skip = 0 if part else self._plan.skip
        for records in delimited.parts(SourceFile(name), text, self._dialect, skip):
            yield from self._part(codec, records)

    def _evidence(self, text: str, skip: int) -> Schema:
        """What every value says about its column's type; a column without values says nothing."""
        kinds: list[Type | None] = [None] * len(self._plan.detected)
        for _, cells in islice(self._dialect.records(text), skip, None):
            for place, cell in zip(range(len(kinds)), cells if isinstance(cells, list) else (), strict=False):
                if cell is not None and kinds[place] is not Type.STRING:
                    found = text_type(cell)
                    known = kinds[place]
                    kinds[place] = found if known is None else wider(known, found)
        pairs = zip(self._plan.detected, kinds, strict=True)
        return tuple(Field(item.name, kind) for item, kind in pairs if kind is not None)

    def _header(self, text: str) -> list[str] | None:
        """The names in the last skipped record, where columns go by name; None where they do not."""
        if not self._plan.by_name:
            return None
        for number, (_, cells) in enumerate(self._dialect.records(text)):
            if number == max(self._plan.skip - 1, 0) and isinstance(cells, list):
                return [(cell or "").strip() for cell in cells]
        return []

    def _order(self, header: list[str] | None) -> list[int | None] | None:
        if header is None:
            return None
        names = {name.lower(): index for index, name in reversed(list(enumerate(header)))}
        return [names.get(item.name.lower()) for item in self._schema]

    def _foreign(self, header: list[str] | None) -> str:
        """A column of the header that the table has not, where that is not to be passed over."""
        known = {item.name.lower() for item in (*self._schema, *self._plan.keys)}
        strange = (name for name in header or () if name and name.lower() not in known)
        return "" if self._plan.lenient else next(strange, "")

    def _part(self, codec: delimited.CsvCodec, part: delimited.CsvPart) -> Iterator[Item]:
        for quickly in (codec.bulk, lambda part: codec.table([part])):
            try:
                if quickly != codec.bulk or part.bulky:
                    yield Good(carry(quickly(part), self._plan.schema))
                    return
            except (Doubt, UnfitError):
                pass
        rows: list[dict[str, Any]] = []
        for index in range(len(part.rows)):
            try:
                row = codec.row(part, index)
                if self._wide:
                    carry(_table([row], self._schema), self._plan.schema)
            except BadRecordError as bad:
                message = str(bad)
                too_wide = message.startswith("Too many values")
                if too_wide and self._plan.drift is Drift.DISCARD_ROW:
                    yield Left(1)
                    continue
                malformed = message.startswith("Error detected while parsing")
                yield _bad_record(part, index, self._column(message), message, schema=not malformed)
            except UnfitError as bad:
                yield _bad_record(part, index, bad.column, str(bad))
            else:
                rows.append(row)
        if rows:
            yield Good(carry(_table(rows, self._schema), self._plan.schema))

    def _column(self, message: str) -> str:
        if found := _CSV_FIELD.search(message):
            return found[1]
        if found := _CSV_REQUIRED.search(message):
            return self._schema[int(found[1])].name
        return ""


def _bad_record(part: delimited.CsvPart, index: int, column: str, why: str, *, schema: bool = True) -> Bad:
    return Bad(why, part.line(index), column, schema, part.text(index))


@dataclass(frozen=True, slots=True)
class BinaryReader:
    """Avro, Parquet and ORC: a file fits as a whole or not at all, as for BigQuery."""

    plan: ReadPlan

    def read(self, data: bytes | memoryview, name: str, part: int = 0) -> Iterator[Item]:
        try:
            for columns in self._columns(data):
                yield from self._fit(columns)
        except UnreadableFileError as error:
            yield Bad(str(error), whole=True)
        except BigQueryError as error:
            yield Bad(error.message, whole=True)

    def _columns(self, data: bytes | memoryview) -> Iterator[FileColumns]:
        match self.plan.options.source_format:
            case SourceFormat.AVRO:
                return _avro_parts(bytes(data), self.plan.options)
            case SourceFormat.PARQUET:
                return parquet_parts(data, self.plan.options, SLICE_BYTES)
            case _:
                return orc_parts(data, self.plan.options, SLICE_BYTES)

    def _fit(self, columns: FileColumns) -> Iterator[Item]:
        unknown = missing_from(columns.schema, self.plan.schema)
        drift = self.plan.drift
        if unknown and not self.plan.lenient:
            match drift:
                case Drift.DISCARD_ROW:
                    before = columns.rows
                    columns = _without_values(columns, unknown)
                    yield Left(before - columns.rows)
                case Drift.EVOLVE:
                    yield _told_apart(columns, unknown, by_name(self.plan.table))
                    if not self.plan.schema:
                        return
        lenient = self.plan.lenient or drift in (Drift.EVOLVE, Drift.DISCARD_ROW)
        source = self.plan.options.source_format
        try:
            table = fit(columns, self.plan.schema, source, ignore_unknown=lenient, as_text=self.plan.added)
            yield Good(carry(table, self.plan.schema))
        except UnreadableFileError as error:
            yield Bad(str(error), column=_quoted(str(error)), schema=True, whole=True)
        except BigQueryError as error:
            name = unknown[0].name if unknown else ""
            yield Bad(error.message, column=name, schema=True, whole=True)
        except UnfitError as bad:
            yield Bad(str(bad), column=bad.column, schema=True, whole=True)


def _array(columns: FileColumns, name: str) -> "pa.Array":
    place = next(place for place, item in enumerate(columns.schema) if item.name == name)
    return columns.arrays[place]


def _told_apart(columns: FileColumns, unknown: Schema, table: Mapping[str, Field]) -> Unknown:
    """Text without a value proves nothing: writers declare it of columns that they know no type of."""
    typed: list[Field] = []
    untyped: list[Field] = []
    for item in unknown:
        array = _array(columns, item.name)
        if item.type is not Type.STRING or array.null_count < len(array):
            typed.append(item)
        elif item.name in columns.typeless and (there := table.get(item.key)) and there.type is not Type.STRUCT:
            untyped.append(Field(item.name, there.type))
        else:
            untyped.append(item)
    return Unknown(tuple(typed), tuple(untyped))


def _without_values(columns: FileColumns, unknown: Schema) -> FileColumns:
    """The rows that have nothing in these columns."""
    import pyarrow.compute as pc

    valued = None
    for item in unknown:
        found = _valued(_array(columns, item.name), item)
        valued = found if valued is None else pc.or_(valued, found)
    kept = pc.invert(valued)
    arrays = tuple(array.filter(kept) for array in columns.arrays)
    return replace(columns, arrays=arrays, rows=int(pc.sum(kept).as_py() or 0))


def _valued(array: "pa.Array", item: Field) -> "pa.Array":
    """Where there is a value; in a record, in any of the members asked for."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if item.mode is Mode.REPEATED:
        return pc.fill_null(pc.greater(pc.list_value_length(array), 0), fill_value=False)
    if item.type is not Type.STRUCT or not pa.types.is_struct(array.type):
        return pc.is_valid(array)
    found = pa.array([False] * len(array))
    for member in item.fields:
        found = pc.or_(found, _valued(pc.struct_field(array, member.name), member))
    return found


def _avro_parts(data: bytes, options: LoadOptions) -> Iterator[FileColumns]:
    """Rows of many blocks at a time: as Python objects they take many times their size."""
    container = parse_container(data, options)
    if sum(len(block.data) for block in container.blocks) <= SLICE_BYTES:
        yield read_container(container, options)
        return
    blocks: list[Any] = []
    size = 0
    for block in container.blocks:
        blocks.append(block)
        size += len(block.data)
        if size >= SLICE_BYTES:
            yield read_container(replace(container, blocks=tuple(blocks)), options)
            blocks, size = [], 0
    if blocks:
        yield read_container(replace(container, blocks=tuple(blocks)), options)


def _quoted(message: str) -> str:
    found = re.search(r"column '([^']+)'|field '?([\w.]+)|Field ([\w.]+)", message)
    return next((part for part in found.groups() if part), "") if found else ""
