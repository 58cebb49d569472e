"""CSV: bytes into records, and records into values.

A cell is None where the null marker stands unquoted; a quoted empty cell stays an empty string. Text without any quote
character is split at line speed; a quote brings in the exact tokenizer for its line.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from ingestd.formats.bulk import BULK_BYTES, read_csv
from ingestd.formats.columns import Doubt, text_columns
from ingestd.formats.convert import text_reader
from ingestd.formats.errors import BigQueryError, not_implemented
from ingestd.formats.options import PLAIN, ColumnMatch, LoadOptions
from ingestd.formats.problems import csv_value_text
from ingestd.formats.rowload import BadRecordError, Part, SourceFile
from ingestd.formats.temporal import UnreadableError
from ingestd.formats.textfiles import without_bom
from ingestd.model.schema import Field, Mode, Schema, Type

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_RECORDS = 20_000
PIECE_CHARACTERS = 4 << 20
_LONE_RETURN = re.compile(r"\r(?!\n)")
Cells = list[str | None]


class Malformed:
    """A record that is no CSV."""

    __slots__ = ("message",)

    def __init__(self, message: str) -> None:
        self.message = message


class Dialect:
    """How the characters of a file are cut into cells."""

    def __init__(self, options: LoadOptions, delimiter: str) -> None:
        # BigQuery takes the first byte of a longer separator. Past ASCII, in UTF-8, that is half a character.
        self.delimiter = delimiter[0]
        if ord(self.delimiter) > 127 and options.encoding == "utf-8":
            raise not_implemented("a fieldDelimiter beyond ASCII in UTF-8 files")
        self.quote = options.quote
        self.newlines = options.allow_quoted_newlines
        self.encoding = options.encoding
        self.keep_nul = options.preserve_control_characters
        self.markers = frozenset(options.null_markers)
        self._only_empty = self.markers == {""}
        mark = re.escape(self.quote)
        self._rest = re.compile(rf"([^{mark}]*(?:{mark}{mark}[^{mark}]*)*){mark}(?!{mark})") if self.quote else None

    def decode(self, data: bytes) -> str:
        text = without_bom(data, self.encoding).decode(self.encoding, "replace")
        if "\r" not in text:
            return text
        # A carriage return alone ends a line too; the length stays, so do the positions.
        if not self.quote or self.quote not in text:
            return _LONE_RETURN.sub("\n", text)
        return text if "\n" in text else text.replace("\r", "\n")

    def records(self, text: str) -> Iterator[tuple[int, Cells | Malformed]]:
        """Every record with the character it starts at. Empty lines are no records."""
        lines = text.split("\n")
        quoted = bool(self.quote) and self.quote in text
        nul = not self.keep_nul and "\0" in text
        returns = "\r" in text
        at = 0
        number = 0
        while number < len(lines):
            raw, start = lines[number], at
            number += 1
            at += len(raw) + 1
            line = raw.removesuffix("\r") if returns else raw
            if not line:
                continue
            if nul and "\0" in line:
                yield start, Malformed("Bad character (ASCII 0) encountered.")
            elif quoted and self.quote in line:
                cells, used = self._tokenize(raw, lines, number)
                for skipped in lines[number : number + used]:
                    at += len(skipped) + 1
                number += used
                yield start, cells
            else:
                yield start, self._split(line)

    def _split(self, line: str) -> Cells:
        if self._only_empty:
            return [cell or None for cell in line.split(self.delimiter)]
        return [None if cell in self.markers else cell for cell in line.split(self.delimiter)]

    def _tokenize(self, line: str, lines: list[str], number: int) -> tuple[Cells | Malformed, int]:
        """The cells of a line with quotes, and how many further lines a quoted newline took."""
        assert self._rest is not None
        cells: Cells = []
        at = used = 0
        while True:
            if not line.startswith(self.quote, at):
                end = line.find(self.delimiter, at)
                cell = line[at:].removesuffix("\r") if end < 0 else line[at:end]
                cells.append(None if cell in self.markers else cell)
                if end < 0:
                    return cells, used
                at = end + 1
                continue
            inside = []
            at += 1
            while (closing := self._rest.match(line, at)) is None:
                if not self.newlines or number + used >= len(lines):
                    return Malformed(f"Missing close quote character ({self.quote})."), 0
                inside.append(line[at:])
                line, at = lines[number + used], 0
                used += 1
            inside.append(closing[1])
            cells.append("\n".join(inside).replace(self.quote * 2, self.quote))
            at = closing.end()
            if at == len(line) or line[at:] == "\r":
                return cells, used
            if not line.startswith(self.delimiter, at):
                between = f"Data between close quote character ({self.quote}) and field separator ({self.delimiter})."
                return Malformed(between), used
            at += 1


class Ruler:
    """How many bytes and lines of a file lie before a character of its text.

    Counted on from the place that was last asked for: records are told in their order, and each costs no more than what
    lies between it and the one before.
    """

    def __init__(self, text: str, encoding: str) -> None:
        self._text = text
        self._encoding = encoding
        self._at = self._bytes = self._lines = 0

    def bytes_before(self, at: int) -> int:
        self._move(at)
        return self._bytes

    def lines_before(self, at: int) -> int:
        self._move(at)
        return self._lines

    def _move(self, at: int) -> None:
        sign = 1 if at >= self._at else -1
        between = self._text[min(at, self._at) : max(at, self._at)]
        self._bytes += sign * len(between.encode(self._encoding, "replace"))
        self._lines += sign * between.count("\n")
        self._at = at


class CsvPart(Part, ABC):
    """Consecutive records of one file; positions count bytes of the file as it is."""

    def __init__(self, file: SourceFile, text: str, end: int, ruler: Ruler) -> None:
        self.file = file
        self._text = text
        self._end = end
        self._ruler = ruler

    @property
    def bulky(self) -> bool:
        return False

    @property
    @abstractmethod
    def records(self) -> list[tuple[int, Cells | Malformed]]:
        """With the character of the file that each of them starts at."""

    @cached_property
    def rows(self) -> list[Any]:
        return [cells for _, cells in self.records]

    def locate(self, index: int) -> int:
        return self._ruler.bytes_before(self.records[index][0])

    def line(self, index: int) -> int:
        """The number of the line that a record starts on."""
        return 1 + self._ruler.lines_before(self.records[index][0])

    def text(self, index: int) -> str:
        """A record as it stands in the file."""
        end = self.records[index + 1][0] if index + 1 < len(self.records) else self._end
        return self._text[self.records[index][0] : end].rstrip("\r\n")


class QuotedCsvPart(CsvPart):
    """Records of a file with quotes: only the tokenizer knows where one ends."""

    def __init__(
        self, file: SourceFile, text: str, end: int, ruler: Ruler, records: list[tuple[int, Cells | Malformed]]
    ) -> None:
        super().__init__(file, text, end, ruler)
        self._records = records

    @property
    def records(self) -> list[tuple[int, Cells | Malformed]]:
        return self._records


class PlainCsvPart(CsvPart):
    """Consecutive lines without quotes: records are parsed only when the bulk reader declines them."""

    def __init__(self, file: SourceFile, text: str, start: int, end: int, ruler: Ruler, dialect: Dialect) -> None:
        super().__init__(file, text, end, ruler)
        self.piece = text[start:end]
        self.delimiter = dialect.delimiter
        self._start = start
        self._dialect = dialect

    @property
    def bulky(self) -> bool:
        return len(self.piece) >= BULK_BYTES

    @property
    def records(self) -> list[tuple[int, Cells | Malformed]]:
        return self._parsed

    @cached_property
    def _parsed(self) -> list[tuple[int, Cells | Malformed]]:
        return [(self._start + at, cells) for at, cells in self._dialect.records(self.piece)]


def parts(file: SourceFile, text: str, dialect: Dialect, skip: int) -> Iterator[CsvPart]:
    """The file in pieces, without the records to skip."""
    records = dialect.records(text)
    for _ in islice(records, skip):
        pass
    ruler = Ruler(text, dialect.encoding)
    first = next(records, None)
    if dialect.quote and dialect.quote in text:
        while first is not None:
            taken = [first, *islice(records, PIECE_RECORDS - 1)]
            first = next(records, None)
            yield QuotedCsvPart(file, text, len(text) if first is None else first[0], ruler, taken)
        return
    at = len(text) if first is None else first[0]
    while at < len(text):
        newline = text.find("\n", at + PIECE_CHARACTERS)
        end = len(text) if newline < 0 else newline + 1
        yield PlainCsvPart(file, text, at, end, ruler, dialect)
        at = end


def refuse_nested(schema: Schema) -> None:
    for item in schema:
        if item.type is Type.STRUCT:
            raise BigQueryError("invalid", f"Cannot load CSV data with a nested schema. Field: {item.name}")
        if item.mode is Mode.REPEATED:
            raise BigQueryError("invalid", f"Cannot load CSV data with a repeated field. Field: {item.name}")


_MAY_BE_EMPTY = {Type.STRING, Type.BYTES}


class CsvCodec:
    """Records into values of a schema. `order` says which column of the file feeds each field (None: no column)."""

    label = "CSV"

    def __init__(self, schema: Schema, options: LoadOptions, order: Sequence[int | None] | None = None) -> None:
        refuse_nested(schema)
        self.schema = schema
        self._options = options
        self._order = list(range(len(schema))) if order is None else list(order)
        self._width = len(schema) if order is None else max((i for i in order if i is not None), default=-1) + 1
        self._by_name = order is not None
        self._readers = [text_reader(item, options.formats, csv=True) for item in schema]
        self._empty_is_null = "" in options.null_markers

    def bulk(self, part: Part) -> "pa.Table":
        assert isinstance(part, PlainCsvPart)
        if self._by_name or self._options.formats != PLAIN:
            raise Doubt
        markers = frozenset(self._options.null_markers)
        return read_csv(part.piece.encode(), self.schema, part.delimiter, markers)

    def table(self, parts: Sequence[Part]) -> "pa.Table":
        rows = [row for part in parts for row in part.rows]
        if set(map(type, rows)) != {list} or set(map(len, rows)) != {len(self.schema)} or self._by_name:
            raise Doubt
        columns: list[Sequence[str | None]] = list(zip(*rows, strict=True))
        for index, item in enumerate(self.schema):
            if self._empty_is_null and item.type not in _MAY_BE_EMPTY and "" in columns[index]:
                columns[index] = [cell or None for cell in columns[index]]
        return text_columns(columns, self.schema, self._options.formats)

    def row(self, part: Part, index: int) -> dict[str, Any]:
        cells = part.rows[index]
        if isinstance(cells, Malformed):
            at = part.locate(index)
            raise BadRecordError(f"Error detected while parsing row starting at position: {at}. Error: {cells.message}")
        self._check_width(part, index, len(cells))
        row: dict[str, Any] = {}
        for item, read, source in zip(self.schema, self._readers, self._order, strict=True):
            text = cells[source] if source is not None and source < len(cells) else None
            if text == "" and self._empty_is_null and item.type not in _MAY_BE_EMPTY:
                text = None
            if text is None:
                self._refuse_missing(item, part, index)
                row[item.name] = None
                continue
            try:
                row[item.name] = read(text)
            except UnreadableError as error:
                why = str(error) or "Unable to parse"
                position = source if source is not None else 0
                message = csv_value_text(item, position, text, part.locate(index), why)
                raise BadRecordError(message) from None
        return row

    def _check_width(self, part: Part, index: int, found: int) -> None:
        if found > len(self.schema) and not self._options.ignore_unknown_values and not self._by_name:
            at = part.locate(index)
            raise BadRecordError(
                f"Too many values in row starting at position: {at}. "
                f"Found {found} column(s) while expected {len(self.schema)}."
            )
        if found < self._width and not self._options.allow_jagged_rows:
            raise BadRecordError(
                f"CSV table references column position {found}, but line starting at position:{part.locate(index)} "
                f"contains only {found} columns."
            )

    def _refuse_missing(self, item: Field, part: Part, index: int) -> None:
        if item.mode is Mode.REQUIRED:
            at = part.locate(index)
            position = self.schema.index(item)
            raise BadRecordError(
                f"Required column value for column index: {position} is missing in row starting at position: {at}"
            )


def by_name(options: LoadOptions) -> bool:
    return options.column_match is ColumnMatch.NAME
