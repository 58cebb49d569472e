"""Large clean pieces of NDJSON and CSV through Arrow's readers.

Arrow's readers are laxer than BigQuery in a few known ways: several objects on a line, objects across lines, NaN,
invalid UTF-8, NUL bytes. Each is excluded by a check before or after; every other difference makes Arrow refuse, and a
refusal only means that the exact reader takes over. `tests` compare both on generated files.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from ingestd.formats.columns import (
    Doubt,
    arrow_schema,
    arrow_type,
    parse_text,
    text_array_column,
)
from ingestd.formats.convert import text_reader
from ingestd.formats.options import PLAIN
from ingestd.model.schema import Field, Mode, Schema, Type

if TYPE_CHECKING:
    import pyarrow as pa

BULK_BYTES = 64 << 10
_SAMPLE_LINES = 20
_NEWLINE, _OPEN, _CLOSE = b"\n{}"


def read_json(piece: bytes, schema: Schema) -> "pa.Table":
    """A piece of NDJSON as a table, or `Doubt`."""
    import pyarrow as pa
    import pyarrow.json as pj

    piece = piece.rstrip(b"\n")
    rows = _objects(piece)
    if b"\0" in piece:
        raise Doubt
    try:
        piece.decode()
        samples = [orjson.loads(line) for line in piece.split(b"\n", _SAMPLE_LINES)[:_SAMPLE_LINES]]
    except ValueError:
        raise Doubt from None
    wire = pa.schema(
        [pa.field(item.name, _wire_type(item, [row.get(item.name) for row in samples])) for item in schema]
    )
    # One block in one thread: whoever reads has other pieces for the other cores.
    read = pj.ReadOptions(use_threads=False, block_size=len(piece) + 1)
    parse = pj.ParseOptions(explicit_schema=wire, unexpected_field_behavior="error", newlines_in_values=False)
    try:
        table = pj.read_json(pa.BufferReader(piece), read, parse)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise Doubt from None
    if table.num_rows != rows:  # several objects on a line
        raise Doubt
    arrays = [_finish(item, _array(table.column(item.name))) for item in schema]
    return pa.table(arrays, schema=arrow_schema(schema))


def _objects(piece: bytes) -> int:
    """How many lines there are, each one `{…}`, or `Doubt`.

    Then a row cannot span lines, since nothing in JSON continues a value with `}` newline `{`.
    """
    import numpy as np

    if not (piece.startswith(b"{") and piece.endswith(b"}")):
        raise Doubt
    text = np.frombuffer(piece, np.uint8)
    ends = np.flatnonzero(text == _NEWLINE)
    if not ((text[ends - 1] == _CLOSE).all() and (text[ends + 1] == _OPEN).all()):
        raise Doubt
    return len(ends) + 1


def _array(column: "pa.ChunkedArray") -> "pa.Array":
    import pyarrow as pa

    chunks = column.chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


_STRINGS_ONLY = {
    Type.STRING,
    Type.GEOGRAPHY,
    Type.BYTES,
    Type.DATE,
    Type.TIME,
    Type.DATETIME,
    Type.TIMESTAMP,
    Type.NUMERIC,
}


def _wire_type(field: Field, samples: list[Any]) -> "pa.DataType":
    """What the values look like in the file, judged by the first rows; Arrow refuses a later change of mind."""
    import pyarrow as pa

    present = [value for value in samples if value is not None]
    if field.mode is Mode.REPEATED:
        if any(type(value) is not list for value in present):
            raise Doubt
        return pa.list_(_wire_type(replace(field, mode=Mode.NULLABLE), [item for value in present for item in value]))
    if field.type is Type.STRUCT:
        if any(type(value) is not dict for value in present):
            raise Doubt
        members = [
            pa.field(item.name, _wire_type(item, [value.get(item.name) for value in present])) for item in field.fields
        ]
        return pa.struct(members)
    text = any(type(value) is str for value in present)
    if field.type in _STRINGS_ONLY and (text or not present):
        return pa.string()
    if field.type in (Type.INT64, Type.FLOAT64):
        return pa.string() if text else arrow_type(field)
    if field.type is Type.BOOL and not text:
        return pa.bool_()
    raise Doubt


def _finish(field: Field, array: "pa.Array") -> "pa.Array":
    """What Arrow read, as the field's own type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if field.mode is Mode.REPEATED:
        if (
            array.offset
            or array.values.null_count
            or pc.sum(pc.list_value_length(array)).as_py() not in (len(array.values), None)
        ):
            raise Doubt
        elements = _finish(replace(field, mode=Mode.NULLABLE), array.values)
        # Dropping the validity makes a null array an empty one.
        return pa.ListArray.from_arrays(array.offsets, elements, type=arrow_type(field))
    if field.mode is Mode.REQUIRED and array.null_count:
        raise Doubt
    if field.type is Type.STRUCT:
        members = [_finish(item, array.field(index)) for index, item in enumerate(field.fields)]
        mask = pc.is_null(array) if array.null_count else None
        return pa.StructArray.from_arrays(members, fields=list(arrow_type(field)), mask=mask)
    if pa.types.is_string(array.type):
        return parse_text(field, array, text_reader(field))
    if field.type is Type.FLOAT64 and pc.all(pc.is_finite(array)).as_py() is False:
        raise Doubt
    return array


def read_csv(piece: bytes, schema: Schema, delimiter: str, null_markers: frozenset[str]) -> "pa.Table":
    """A piece of CSV that holds no quote character as a table, or `Doubt`."""
    import pyarrow as pa
    import pyarrow.csv as pc

    names = [str(index) for index in range(len(schema))]
    if b"\0" in piece or not schema:
        raise Doubt
    read = pc.ReadOptions(column_names=names, block_size=4 << 20)
    parse = pc.ParseOptions(delimiter=delimiter, quote_char=False, escape_char=False, newlines_in_values=False)
    convert = pc.ConvertOptions(
        column_types={name: pa.string() for name in names}, null_values=list(null_markers), strings_can_be_null=True
    )
    try:
        table = pc.read_csv(pa.BufferReader(piece), read, parse, convert)
    except (pa.ArrowInvalid, UnicodeError):
        raise Doubt from None
    arrays = [text_array_column(item, _array(table.column(index)), PLAIN) for index, item in enumerate(schema)]
    return pa.table(arrays, schema=arrow_schema(schema))
