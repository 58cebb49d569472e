"""Large Avro files of plain columns, decoded as columns by Polars and proved against the file's own bytes.

fastavro makes a Python object of every value, which takes fifteen times as long. Polars is laxer than it in ways that
matter (another branch of a union, a boolean that is neither, what a block has left over), so its answer counts only
when it is proved: from the decoded values follows how many bytes each of them takes when it is written as Avro
prescribes, and so where each one begins. No value can be written shorter. So when those sizes add up to exactly what
every block has, each value lies where it was computed, and the bytes there that decide about a NULL or a boolean are
looked at. Whatever does not add up raises `Doubt`, and the exact reader takes over, which also tells what is wrong.

Polars gets columns that are numbers, booleans or bytes and nothing else: text is checked here, dates and times are
converted where those of the exact reader are.
"""

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import orjson

from ingestd.formats.avrofile import Block, Container
from ingestd.formats.columns import Doubt

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

BULK_BYTES = 256 << 10  # less is not worth the import
# How a type lies in the file: several are written alike.
_WIRE = {
    "boolean": "boolean",
    "int": "long",
    "long": "long",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "string": "bytes",
}
_FIXED = {"float": 4, "double": 8, "boolean": 1}


@cache
def available() -> bool:
    """Executors of a cluster may have no Polars."""
    return find_spec("polars") is not None


@dataclass(frozen=True, slots=True)
class _Wire:
    """A column as it lies in the file."""

    kind: str
    text: bool = False
    null_at: int | None = None  # the place of `null` in its union


def bulk_columns(container: Container, schema: dict[str, Any]) -> dict[str, "pa.Array"]:
    """Every column by its name, without logical types: int64, double, bool, string or binary. Or `Doubt`."""
    import pyarrow as pa

    size, rows = sum(len(block.data) for block in container.blocks), sum(block.rows for block in container.blocks)
    if size < BULK_BYTES or not available() or min((block.rows for block in container.blocks), default=0) < 0:
        raise Doubt
    if rows > size:  # each of them has at least a byte
        raise Doubt
    wires = {str(field["name"]): _wire(field["type"]) for field in schema["fields"]}
    if len(wires) != len(schema["fields"]):
        raise Doubt
    body = b"".join(block.data for block in container.blocks)
    arrays = _decoded(body, rows, list(wires.values()), container)
    try:
        arrays = [array.cast(_arrow(wire)) for array, wire in zip(arrays, wires.values(), strict=True)]
    except pa.ArrowInvalid:  # text that is none
        raise Doubt from None
    _prove(body, container.blocks, list(zip(wires.values(), arrays, strict=True)))
    return dict(zip(wires, arrays, strict=True))


def _wire(schema: Any) -> _Wire:
    null_at = None
    if isinstance(schema, list):
        if len(schema) != 2 or "null" not in schema or schema[0] == schema[1]:
            raise Doubt
        null_at = schema.index("null")
        schema = schema[1 - null_at]
    while isinstance(schema, dict):
        schema = schema.get("type")
    if not isinstance(schema, str) or schema not in _WIRE:
        raise Doubt
    return _Wire(_WIRE[schema], schema == "string", null_at)


def _arrow(wire: _Wire) -> "pa.DataType":
    import pyarrow as pa

    if wire.kind == "bytes":
        return pa.string() if wire.text else pa.binary()
    return {"long": pa.int64(), "float": pa.float64(), "double": pa.float64(), "boolean": pa.bool_()}[wire.kind]


def _decoded(body: bytes, rows: int, wires: Sequence[_Wire], container: Container) -> list["pa.Array"]:
    """The columns of all blocks as if they were one."""
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # whoever reads has other files for the other cores
    import polars as pl
    import pyarrow as pa

    fields = [{"name": f"c{place}", "type": _union(wire)} for place, wire in enumerate(wires)]
    schema = orjson.dumps({"type": "record", "name": "rows", "fields": fields})
    one = Container({"avro.schema": schema}, container.sync, (Block(rows, body),))
    try:
        frame = pl.read_avro(io.BytesIO(one.build()))
    except (Exception, pl.exceptions.PanicException) as failure:
        raise Doubt from failure  # the exact reader tells what is wrong
    if frame.height != rows or frame.width != len(wires):
        raise Doubt
    columns = frame.to_arrow(compat_level=pl.CompatLevel.oldest()).columns
    return [one.chunk(0) if one.num_chunks == 1 else pa.concat_arrays(one.chunks) for one in columns]


def _union(wire: _Wire) -> Any:
    if wire.null_at is None:
        return wire.kind
    return ["null", wire.kind] if wire.null_at == 0 else [wire.kind, "null"]


@dataclass(frozen=True, slots=True)
class _Deciding:
    """Bytes that decide what a value is: of these rows, so far from the row's beginning, they have to be these."""

    rows: "NDArray[np.int64]"
    places: "NDArray[np.int64]"
    expected: "NDArray[np.uint8]"


def _prove(body: bytes, blocks: Sequence[Block], columns: Sequence[tuple[_Wire, "pa.Array"]]) -> None:
    """That the file says this and nothing else, or `Doubt`."""
    import numpy as np

    rows = np.arange(sum(block.rows for block in blocks))
    ends = np.zeros(len(rows), np.int64)  # of each row's columns so far, from its own beginning
    deciding: list[_Deciding] = []
    for wire, array in columns:
        there = array.is_valid().to_numpy(zero_copy_only=False)
        if wire.null_at is not None:
            tags = np.where(there, np.uint8(2 * (1 - wire.null_at)), np.uint8(2 * wire.null_at))
            deciding.append(_Deciding(rows, ends, tags))
            ends = ends + 1
        elif array.null_count:
            raise Doubt
        if wire.kind == "boolean":
            values = array.drop_null().to_numpy(zero_copy_only=False).astype(np.uint8)
            deciding.append(_Deciding(rows[there], ends[there], values))
        ends = ends + np.where(there, _widths(wire, array), 0)
    begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(ends)])
    at = np.cumsum([0, *(block.rows for block in blocks)])
    if (begins[at] != np.cumsum([0, *(len(block.data) for block in blocks)])).any():
        raise Doubt
    text = np.frombuffer(body, np.uint8)
    if any((text[begins[one.rows] + one.places] != one.expected).any() for one in deciding):
        raise Doubt


def _widths(wire: _Wire, array: "pa.Array") -> "NDArray[np.int64] | int":
    """How many bytes each value takes, but for NULLs."""
    import numpy as np
    import pyarrow.compute as pc

    if wire.kind in _FIXED:
        return _FIXED[wire.kind]
    if wire.kind == "long":
        values = array.fill_null(0).to_numpy()
        return _number_width((values << 1) ^ (values >> 63))
    lengths: NDArray[np.int64] = pc.binary_length(array).fill_null(0).to_numpy().astype(np.int64)
    return lengths + _number_width(lengths << 1)


def _number_width(zigzag: "NDArray[np.int64]") -> "NDArray[np.int64]":
    """Seven bits to a byte."""
    import numpy as np

    numbers = zigzag.view(np.uint64)
    widths = np.ones(len(numbers), np.int64)
    most = int(numbers.max(initial=0))
    for bits in range(7, 64, 7):
        if most < 1 << bits:
            break
        widths += numbers >= np.uint64(1 << bits)
    return widths
