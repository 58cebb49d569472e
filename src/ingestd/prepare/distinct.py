"""One row per key, decided by the keys alone, before the rows go through Spark.

Of a large batch, Spark's way (send every row to its key's partition, sort, number) costs as much as reading the files,
only to drop a few rows. Where the key is made of the files' own columns and the newest row wins, less will do:

    1. the workers read the files as ever, but keep the rows in scratch, as Arrow has them, and hand on only reports
    2. the driver looks at the keys, which are mapped into memory, and marks the rows to keep
    3. the workers hand the kept rows to Spark, without the others

The verdict on every file is known after the first step, so that a batch that has to be read again is not written first.
Whatever dies in between leaves files in the attempt's own scratch folder. A share that Spark runs twice replaces its
file with the same content. Keys that are computed, ordered otherwise, filtered or joined before, or too many to look
at, go Spark's way (`shaping`), and so do rows that take too much room in scratch.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingestd.formats.options import SourceFormat
from ingestd.formats.types import Field, Mode, Schema, Type
from ingestd.model.preparation import Shaping
from ingestd.prepare import inflate
from ingestd.prepare.reading import REPORT, Reading, Unit, output_schema
from ingestd.prepare.shaping import FILE, LINE

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

WORTH_BYTES = 16 << 20  # a smaller batch is sorted sooner than a second job is started
MOST_KEPT = 3  # times the files' size: rows with many empty columns take far more room than their text
_FRAME = 1 << 20  # what Arrow adds, however few rows there are
MOST_ROWS = 8_000_000  # the driver holds about 50 bytes of each
MOST_KEY_BYTES = 256 << 20
_TEXT = (SourceFormat.JSON, SourceFormat.CSV)
# Types whose values are equal exactly when what Arrow holds of them is.
_EXACT = {Type.INT64, Type.STRING, Type.BYTES, Type.BOOL, Type.DATE, Type.DATETIME, Type.TIMESTAMP}
_WHOLE = (Type.INT64, Type.DATETIME, Type.TIMESTAMP)
_NAME = re.compile(r"(?:`?(\w+)`?\.)?`?(\w+)`?")


def keys_of(shaping: Shaping, columns: Schema) -> tuple[Field, ...]:
    """The columns that make the key; none when it takes more than looking at them."""
    if shaping.criteria or shaping.side_inputs or shaping.order_by:
        return ()
    known = {item.name.lower(): item for item in columns}
    computed = {name.lower() for name in shaping.transform}
    found = []
    for text in shaping.unique_columns:
        named = _NAME.fullmatch(text.strip())
        if named is None or (named[1] and (named[1].lower() != shaping.alias.lower() or named[1].lower() in known)):
            return ()
        item = known.get(named[2].lower())
        if item is None or item.name.lower() in computed or item.mode is Mode.REPEATED or item.type not in _EXACT:
            return ()
        found.append(item)
    return tuple(found)


def worthwhile(source: SourceFormat, units: Sequence[Unit]) -> bool:
    """Whether rows may be kept in scratch: not those of files that are far smaller than what is in them."""
    packed = source not in _TEXT or any(unit.name.endswith(inflate.SUFFIXES) for unit in units)
    return not packed and sum(unit.length for unit in units) >= WORTH_BYTES


@dataclass(frozen=True, slots=True)
class Keeping:
    """The first step, in the workers: rows into a file per share, reports to the driver."""

    reading: Reading
    folder: str

    def __call__(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                reports = self._share(pa.RecordBatch.from_pydict({"id": [number]}), number)
                # One row: thousands of files would take the driver longer to receive than to understand.
                told = None if reports is None else "\n".join(reports)
                yield pa.record_batch([pa.array([told], pa.string())], [REPORT])

    def _share(self, wanted: "pa.RecordBatch", number: int) -> list[str] | None:
        """The reports on a share whose rows are kept; None when they take too much room."""
        import pyarrow as pa

        schema = output_schema(self.reading.plan)
        schema = schema.remove(schema.get_field_index(REPORT))
        reports: list[str] = []
        place = _rows(self.folder, number)
        draft = place.with_suffix(f".{os.getpid()}")
        most = _FRAME + MOST_KEPT * sum(unit.length for unit in self.reading.shares[number])
        with pa.OSFile(str(draft), "wb") as target, pa.ipc.new_file(target, schema) as kept:
            for batch in self.reading(iter([wanted])):
                told = batch.column(REPORT)
                if told.null_count == len(told):
                    kept.write_batch(batch.select(schema.names))
                    if target.tell() > most:
                        draft.unlink()
                        return None
                else:
                    reports += told.to_pylist()
        draft.replace(place)
        return reports


@dataclass(frozen=True, slots=True)
class Kept:
    """The last step, in the workers: the rows that were kept.

    Where there are marks, only those with one, and without the columns by which they were chosen.
    """

    folder: str
    marked: bool

    def __call__(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        import numpy as np
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                marks = np.load(_marks(self.folder, number)) if self.marked else None
                at = 0
                for rows in _batches(self.folder, number):
                    if marks is not None:
                        mine = marks[at : at + rows.num_rows]
                        at += rows.num_rows
                        rows = rows.drop_columns([FILE, LINE])
                        rows = rows if mine.all() else rows.filter(pa.array(mine))
                    yield rows


def mark(
    folder: str, shares: int, keys: Sequence[Field], order: Sequence[int], keep_keyless: bool = False
) -> int | None:
    """Marks in each share the rows to keep, and tells how many are not; None when there are too many to look at.

    The newest row wins: the last one of the file that `order` ranks highest, as Spark's way has it.
    """
    import numpy as np

    tables = [_columns(folder, number, [FILE, LINE, *(item.name for item in keys)]) for number in range(shares)]
    counts = [table.num_rows for table in tables]
    rows: int = sum(counts)
    sizes = sum(table.column(2 + place).nbytes for table in tables for place in range(len(keys)))
    if rows > MOST_ROWS or sizes > MOST_KEY_BYTES:
        return None
    codes = _codes(tables, keys)
    if codes is None:
        return None
    oldest_first = _by_age(tables, counts, order)
    if oldest_first is not None:
        codes = codes[oldest_first]
    sorted_rows = np.argsort(codes, kind="stable")
    codes = codes[sorted_rows]
    last = np.ones(rows, bool)
    np.not_equal(codes[1:], codes[:-1], out=last[:-1])
    winners = sorted_rows[last]
    marks = np.zeros(rows, bool)
    marks[winners if oldest_first is None else oldest_first[winners]] = True
    if keep_keyless:
        marks |= _keyless(tables, keys)
    at = 0
    for number, count in enumerate(counts):
        np.save(_marks(folder, number), marks[at : at + count])
        at += count
    return rows - int(marks.sum())


def _keyless(tables: Sequence["pa.Table"], keys: Sequence[Field]) -> "NDArray[np.bool_]":
    """Which rows have a NULL in their key."""
    import numpy as np

    found = [np.zeros(0, bool)]
    for table in tables:
        nulls = [table.column(2 + place).is_null().to_numpy() for place in range(len(keys))]
        found.append(np.logical_or.reduce(nulls))
    return np.concatenate(found)


def _codes(tables: Sequence["pa.Table"], keys: Sequence[Field]) -> "NDArray[np.int64] | None":
    """A number per row, the same exactly for rows of the same key; NULLs are one key."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    codes: NDArray[np.int64] | None = None
    variety = 1
    for place, item in enumerate(keys):
        found = [table.column(2 + place) for table in tables]
        column = pa.chunked_array([chunk for one in found for chunk in one.chunks], type=found[0].type)
        if item.type in _WHOLE and not column.null_count and len(keys) == 1:
            return np.concatenate([*map(_whole, column.chunks), np.zeros(0, np.int64)])
        encoded = column.dictionary_encode().unify_dictionaries()
        size = 1 + (len(encoded.chunk(0).dictionary) if encoded.num_chunks else 0)  # NULL is one more
        variety *= size
        if variety >= 1 << 62:
            return None
        chunks = [pc.fill_null(chunk.indices, -1).to_numpy() for chunk in encoded.chunks]
        own = np.concatenate([*chunks, np.zeros(0, np.int32)]).astype(np.int64) + 1
        codes = own if codes is None else codes * size + own
    return codes


def _whole(chunk: "pa.Array") -> "NDArray[np.int64]":
    import pyarrow as pa

    found: NDArray[np.int64] = chunk.view(pa.int64()).to_numpy()
    return found


def _by_age(tables: Sequence["pa.Table"], counts: Sequence[int], order: Sequence[int]) -> "NDArray[np.int64] | None":
    """All rows, the oldest first, by their number over all shares; None when that is as they are.

    Rows of one file lie together and rise by one line each, in every part of a file: only such runs are sorted.
    """
    import numpy as np

    runs: list[tuple[int, int, int, int]] = []
    at = 0
    for table, count in zip(tables, counts, strict=True):
        if count:
            files, lines = table.column(0).to_numpy(), table.column(1).to_numpy()
            starts = np.flatnonzero((np.diff(files) != 0) | (np.diff(lines) != 1)) + 1
            ends = [*starts.tolist(), count]
            for start, end in zip([0, *ends[:-1]], ends, strict=True):
                file = int(files[start])
                runs.append((order[file] if order else file, int(lines[start]), at + start, at + end))
        at += count
    ranked = sorted(runs)
    if all(left[3] == right[2] for left, right in pairwise(ranked)):
        return None
    return np.concatenate([np.arange(start, end) for _, _, start, end in ranked])


def _rows(folder: str, share: int) -> Path:
    return Path(folder) / f"{share}.arrow"


def _marks(folder: str, share: int) -> Path:
    return Path(folder) / f"{share}.npy"


def _batches(folder: str, share: int) -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa

    file = pa.ipc.open_file(pa.memory_map(str(_rows(folder, share))))
    for place in range(file.num_record_batches):
        yield file.get_batch(place)


def _columns(folder: str, share: int, names: Sequence[str]) -> "pa.Table":
    """Some columns of a share's rows; the others stay on the disk."""
    import pyarrow as pa

    file: Any = pa.ipc.open_file(pa.memory_map(str(_rows(folder, share))))
    return file.read_all().select(list(names))
