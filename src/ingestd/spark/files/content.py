"""How many bytes the rows of a batch's files will take, guessed before they are read.

Packed files tell little by their size: the same rows take a hundred megabytes as lines and six as Parquet. By this
guess a batch gets as many tasks as it is worth, and room in scratch for its rows. It looks at beginnings and footers
only, and never inflates more than a bounded piece of a file. A wrong guess costs time, never a row: what takes more
room than was thought goes another way (`shape.distinct`).
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ingestd.formats.avrofile import growth
from ingestd.formats.options import SourceFormat
from ingestd.spark.files import inflate
from ingestd.spark.files.read_task import Unit, mapped
from ingestd.spark.files.readers import ReadPlan

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_LOOKED_AT = 3  # files of each sort, the largest
_HEAD = 256 << 10  # bytes of a compressed file that are inflated
_MOST = 64 << 20  # and what they may become
_UNTOLD = 4  # times its size: a compressed file whose beginning shows nothing yet
_WORD = 16  # bytes of a value whose length nobody tells
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}


def guess(plan: ReadPlan, units: Sequence[Unit]) -> int:
    """At least what the files have on the disk."""
    total = 0.0
    for sort in (True, False):
        some = [unit for unit in units if unit.length and unit.name.endswith(inflate.SUFFIXES) is sort]
        looked_at = sorted(some, key=lambda unit: -unit.length)[:_LOOKED_AT]
        if looked_at:
            found = sum(max(unit.length, _content(plan.options.source_format, unit)) for unit in looked_at)
            total += sum(unit.length for unit in some) * found / sum(unit.length for unit in looked_at)
    return int(total)


def _content(source: SourceFormat, unit: Unit) -> int:
    try:
        match source:
            case SourceFormat.PARQUET:
                return _parquet(unit)
            case SourceFormat.ORC:
                return _orc(unit)
            case SourceFormat.AVRO:
                return int(unit.length * growth(_head(unit)))
            case _:
                return _text(unit)
    except Exception:  # noqa: BLE001 - whoever reads the file tells what is wrong with it
        return unit.length


def _head(unit: Unit) -> bytes:
    file = os.open(unit.path, os.O_RDONLY)
    try:
        return os.pread(file, min(unit.length, _HEAD), unit.start)
    finally:
        os.close(file)


def _text(unit: Unit) -> int:
    head = _head(unit)
    if not inflate.compressed(head):
        return unit.length
    found = 0
    try:
        for chunk in inflate.chunks(head):
            found += len(chunk)
            if found > _MOST:
                break
    except inflate.CorruptError:
        pass  # it is only a beginning
    return unit.length * (found // len(head) or _UNTOLD)


def _parquet(unit: Unit) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(pa.BufferReader(mapped(unit)))
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    return sum(_chunk(group.column(place)) for group in groups for place in range(group.num_columns))


def _chunk(column: "pq.ColumnChunkMetaData") -> int:
    width = _WIDTHS.get(column.physical_type)
    if width is not None:
        return int(column.num_values * width)
    return int(max(column.num_values * _WORD, column.total_uncompressed_size))


def _orc(unit: Unit) -> int:
    import pyarrow as pa
    from pyarrow import orc

    file: Any = orc.ORCFile(pa.BufferReader(mapped(unit)))
    return int(file.nrows * len(file.schema) * _WORD)
