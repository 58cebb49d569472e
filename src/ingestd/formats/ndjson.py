"""Newline-delimited JSON: bytes into parsed rows, and rows into values.

Parsing is orjson's, which is strict and fast but reads long numbers as doubles; a row whose digits matter is parsed a
second time with its numbers as text.
"""

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import orjson

from ingestd.formats.bulk import BULK_BYTES, read_json
from ingestd.formats.columns import Doubt, json_columns
from ingestd.formats.convert import BadValueError, ImpreciseError, JsonRules, NumberText, row_reader
from ingestd.formats.options import PLAIN
from ingestd.formats.problems import json_value_text
from ingestd.formats.rowload import BadRecordError, Part, SourceFile
from ingestd.formats.textfiles import without_bom
from ingestd.model.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_BYTES = 4 << 20


class Unparsed:
    """A line that is not one JSON object."""

    __slots__ = ("message",)

    def __init__(self, message: str) -> None:
        self.message = message


class JsonPart(Part):
    """Consecutive lines of one file."""

    def __init__(self, file: SourceFile, data: bytes, start: int) -> None:
        self.file = file
        self.data = data
        self._start = start

    @property
    def bulky(self) -> bool:
        return len(self.data) >= BULK_BYTES

    @cached_property
    def lines(self) -> list[bytes]:
        return [line for line in self.data.split(b"\n") if _has_content(line)]

    @cached_property
    def rows(self) -> list[Any]:
        try:
            return list(map(orjson.loads, self.lines))
        except orjson.JSONDecodeError:
            return [parse_line(line) for line in self.lines]

    def locate(self, index: int) -> int:
        offset = self._start
        for line in self.data.split(b"\n"):
            if _has_content(line):
                if not index:
                    break
                index -= 1
            offset += len(line) + 1
        return offset


def _has_content(line: bytes) -> bool:
    return bool(line) and not line.isspace()


def parts(file: SourceFile, data: bytes, encoding: str) -> Iterator[JsonPart]:
    """The file in pieces of a few megabytes, cut at line ends."""
    data = without_bom(data, encoding)
    if encoding != "utf-8":
        data = data.decode(encoding, "replace").encode()
    at = 0
    while at < len(data):
        end = data.find(b"\n", at + PIECE_BYTES)
        end = len(data) if end < 0 else end
        yield JsonPart(file, data[at:end], at)
        at = end + 1


def parse_line(line: bytes) -> Any:
    """A row, or what is wrong with the line."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        try:
            # Bytes that are not UTF-8 become replacement characters; everything else stays an error.
            return orjson.loads(line.decode("utf-8", "replace"))
        except orjson.JSONDecodeError:
            if error.pos >= len(line.strip()) or "unexpected end" in error.msg:
                return Unparsed("Parser terminated before end of string")
            return Unparsed(f"Syntax error: {error.msg} (offset {error.pos})")


def _whole(text: str) -> int | NumberText:
    return int(text) if len(text) < 19 else NumberText(text)


def parse_exactly(line: bytes) -> Any:
    """A valid line again, with every number that a double or 64 bits might not hold as text."""
    return json.loads(line.decode("utf-8", "replace"), parse_float=NumberText, parse_int=_whole)


class JsonCodec:
    """Parsed rows into values of a schema."""

    label = "JSON"

    def __init__(self, schema: Schema, rules: JsonRules) -> None:
        self.schema = schema
        self._rules = rules
        self._read = row_reader(schema, rules)
        self._exact_first = False

    def bulk(self, part: Part) -> "pa.Table":
        assert isinstance(part, JsonPart)
        if self._rules.formats != PLAIN or self._rules.ignore_unknown or not self.schema:
            raise Doubt
        return read_json(part.data, self.schema)

    def table(self, parts: Sequence[Part]) -> "pa.Table":
        if not self._exact_first:
            rows = [row for part in parts for row in part.rows]
            try:
                return json_columns(rows, self.schema, self._rules)
            except ImpreciseError:
                self._exact_first = True
        return json_columns(
            [_exact(part, i) for part in parts for i in range(len(part.rows))], self.schema, self._rules
        )

    def row(self, part: Part, index: int) -> dict[str, Any]:
        row = part.rows[index]
        if type(row) is not dict:
            raise BadRecordError(
                f"JSON parsing error in row starting at position {part.locate(index)}: {_not_a_row(row)}"
            )
        try:
            try:
                found: dict[str, Any] = self._read(row)
            except ImpreciseError:
                found = self._read(_exact(part, index))
        except BadValueError as bad:
            at = part.locate(index)
            raise BadRecordError(
                f"JSON parsing error in row starting at position {at}: {json_value_text(bad)}"
            ) from None
        return found


def _exact(part: Part, index: int) -> Any:
    assert isinstance(part, JsonPart)
    row = part.rows[index]
    return parse_exactly(part.lines[index]) if type(row) is dict else row


def _not_a_row(row: Any) -> str:
    if isinstance(row, Unparsed):
        return row.message
    if isinstance(row, list):
        return "Start of array encountered without start of object."
    return "Value encountered without start of object."
