"""One row per key, decided by the keys alone, before the rows go through Spark.

Of a large batch, Spark's way (send every row to its key's partition, sort, number) costs as much as reading the files,
only to drop a few rows. Where the key, and the order in which one row wins, can be told of each row alone, less will
do:

    1. the workers read the files as ever, but keep the rows in scratch, as Arrow has them, and hand on only reports
    2. the driver looks at the keys, which are mapped into memory, and marks the rows to keep
    3. the workers hand the kept rows to Spark, without the others; or, where one row of each kind is enough for it to
       see (`alike`), they write them

The verdict on every file is known after the first step, so that a batch that has to be read again is not written first.
Whatever dies in between leaves files in the attempt's own scratch folder. A share that Spark runs twice replaces its
file with the same content. A small batch whose rows all have to go through Spark is read by one task, which does all
three at once (`AtOnce`). Keys that are computed are computed by Spark in the first step, from the columns that they
need, and left beside the rows. Keys that rows are filtered before, or too many to look at, go Spark's way (`steps`),
but only with the columns that it looks at: the others stay in scratch until the rows are written (`write_task`). Rows
that would take too much room there go Spark's way as a whole. A side input that leaves no row out is joined to the rows
that were kept; when it turns out to make several of one, the batch is made again, Spark's way.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingestd.formats.columns import arrow_type
from ingestd.googlesql.functions import CHANGEFUL
from ingestd.googlesql.types import SqlType
from ingestd.googlesql.words import named_in
from ingestd.model.errors import Fatal
from ingestd.model.preparation import Shaping
from ingestd.model.schema import Field, Mode, Schema, Type, by_name
from ingestd.spark.files.kept import Keeping, Kept, kept_columns, marks_file
from ingestd.spark.files.reserved import FILE, LINE, REPORT, ROW, ROW_BITS
from ingestd.spark.shape.steps import split_order

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

ALONE_BYTES = 16 << 20  # a smaller batch is read by one task that looks at the keys itself, in the same job
MOST_ROWS = 8_000_000  # the driver holds about 50 bytes of each
MOST_KEY_BYTES = 256 << 20
# Types whose values are equal exactly when what Arrow holds of them is.
_EXACT = {Type.INT64, Type.STRING, Type.BYTES, Type.BOOL, Type.DATE, Type.DATETIME, Type.TIMESTAMP}
_MANY = 50_000  # rows whose text is worth hashing
_SPREAD = 4  # places for each text's hash
_DENSE = 4  # places for each row: more take longer to look through than sorting does
_WHOLE = (Type.INT64, Type.DATETIME, Type.TIMESTAMP)
_NAME = re.compile(r"(?:`?(\w+)`?\.)?`?(\w+)`?")


@dataclass(frozen=True, slots=True)
class By:
    """A column by which rows of one key are ordered: the first wins."""

    column: Field
    descending: bool
    nulls_last: bool


def keys_of(shaping: Shaping, columns: Schema) -> tuple[tuple[Field, ...], tuple[By, ...]]:
    """The columns that make the key, and those that order its rows; none when it takes more than looking at them."""
    nothing: tuple[tuple[Field, ...], tuple[By, ...]] = ((), ())
    if shaping.criteria or any(side.inner for side in shaping.side_inputs):  # they may leave out the row that wins
        return nothing
    known = by_name(columns)
    keys = [_plain_column(text, shaping, known) for text in shaping.unique_columns]
    order = []
    for text in shaping.order_by:
        expression, descending, nulls_last = split_order(text)
        if (found := _plain_column(expression, shaping, known)) is None:
            return nothing
        order.append(By(found, descending, nulls_last))
    if None in keys:
        return nothing
    return tuple(item for item in keys if item is not None), tuple(order)


def _plain_column(text: str, shaping: Shaping, known: Mapping[str, Field]) -> Field | None:
    named = _NAME.fullmatch(text.strip())
    if named is None or (named[1] and (named[1].lower() != shaping.alias.lower() or named[1].lower() in known)):
        return None
    item = known.get(named[2].lower())
    computed = {name.lower() for name in shaping.transform}
    if item is None or item.name.lower() in computed or item.mode is Mode.REPEATED or item.type not in _EXACT:
        return None
    return item


def chosen(shaping: Shaping) -> Shaping:
    """What is left to do once there is one row per key."""
    return replace(shaping, unique_columns=(), order_by=())


def alone(content: int) -> bool:
    """Whether one task is enough for rows of that size."""
    return content < ALONE_BYTES


def computable(shaping: Shaping) -> bool:
    """Whether Spark may compute the keys alone, before the rows: nothing comes before them, and twice is the same."""
    if not shaping.unique_columns or shaping.criteria or shaping.side_inputs:
        return False
    texts = (*shaping.transform.values(), *shaping.unique_columns, *shaping.order_by)
    return not named_in(texts, CHANGEFUL)


def computed_fields(keys: Sequence[SqlType], order: Sequence[tuple[SqlType, bool, bool]]) -> "Computed | None":
    """What Spark computes of each row, as columns to look at; None when it takes more than looking at them."""
    kinds = [*keys, *(kind for kind, _, _ in order)]
    if any(kind.element is not None or kind.kind not in _EXACT for kind in kinds):
        return None
    return Computed(
        tuple(Field(f"k{place}", Type(kind.kind)) for place, kind in enumerate(keys)),
        tuple(By(Field(f"o{at}", Type(kind.kind)), down, last) for at, (kind, down, last) in enumerate(order)),
    )


@dataclass(frozen=True, slots=True)
class Computed:
    """Keys that Spark computes, and the order of their rows."""

    keys: tuple[Field, ...]
    by: tuple[By, ...]


@dataclass(frozen=True, slots=True)
class KeysInto:
    """Computed keys into a file per share, beside its rows and in their order."""

    folder: str

    def __call__(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        place = _computed(self.folder, 0 if context is None else context.partitionId())
        draft = place.with_suffix(f".{os.getpid()}")
        first = next(batches, None)
        if first is not None:
            with pa.OSFile(str(draft), "wb") as target, pa.ipc.new_file(target, first.schema) as kept:
                for batch in chain([first], batches):
                    kept.write_batch(batch)
            draft.replace(place)
        yield pa.record_batch([pa.array([""], pa.string())], [REPORT])


@dataclass(frozen=True, slots=True)
class AtOnce:
    """All steps of a share in one task: where it is the only one, or rows need no marks."""

    keeping: Keeping
    kept: Kept
    keys: tuple[Field, ...] = ()
    order: tuple[int, ...] = ()
    keep_keyless: bool = False
    by: tuple[By, ...] = ()

    def __call__(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.share(number)

    def share(self, number: int) -> Iterator["pa.RecordBatch"]:
        reports, dropped = self.keeping.share(number), 0
        if reports is not None and self.keys:
            found = mark(self.kept.folder, 1, self.keys, self.order, self.keep_keyless, self.by)
            reports, dropped = (None, 0) if found is None else (reports, found)
        draft = _told(self.kept.folder, number).with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({"reports": reports, "dropped": dropped}))
        draft.replace(_told(self.kept.folder, number))
        if reports is not None:
            yield from self.kept.share(number)


def told(folder: str, shares: int) -> tuple[list[str], int] | None:
    """What the tasks of `AtOnce` reported, and how many rows they left out; None when one took too much room."""
    reports: list[str] = []
    dropped = 0
    for number in range(shares):
        one = json.loads(_told(folder, number).read_text())
        if one["reports"] is None:
            return None
        reports += one["reports"]
        dropped += one["dropped"]
    return reports, dropped


def mark(
    folder: str,
    shares: int,
    keys: Sequence[Field],
    order: Sequence[int],
    keep_keyless: bool = False,
    by: Sequence[By] = (),
    computed: bool = False,
) -> int | None:
    """Marks in each share the rows to keep, and tells how many are not; None when there are too many to look at.

    The first row in the order asked for wins, and of equals the newest: the last one of the file that `order` ranks
    highest, as Spark's way has it.
    """
    import numpy as np

    looked_at = [*(item.name for item in keys), *(one.column.name for one in by)]
    names = [FILE, LINE, *(() if computed else dict.fromkeys(looked_at))]
    tables = [kept_columns(folder, number, names) for number in range(shares)]
    if computed:
        tables = [_beside(folder, number, table, looked_at) for number, table in enumerate(tables)]
    counts = [table.num_rows for table in tables]
    rows: int = sum(counts)
    sizes = sum(table.column(name).nbytes for table in tables if table.num_rows for name in looked_at)
    if rows > MOST_ROWS or sizes > MOST_KEY_BYTES:
        return None
    codes = _codes(tables, keys)
    if codes is None:
        return None
    goodness = [one for item in reversed(by) for one in _goodness(_column(tables, item.column), item)]
    oldest_first = _by_age(tables, counts, order)
    if oldest_first is not None:
        codes = codes[oldest_first]
        goodness = [one[oldest_first] for one in goodness]
    winners = _last_of_each(codes, goodness)
    marks = np.zeros(rows, bool)
    marks[winners if oldest_first is None else oldest_first[winners]] = True
    if keep_keyless:
        marks |= _keyless(tables, keys)
    at = 0
    for number, count in enumerate(counts):
        np.save(marks_file(folder, number), marks[at : at + count])
        at += count
    return rows - int(marks.sum())


def _last_of_each(codes: "NDArray[np.int64]", goodness: "Sequence[NDArray[Any]]") -> "NDArray[np.int64]":
    """The rows that come last among those of the same code, or last among the best of them."""
    import numpy as np

    rows = len(codes)
    if not goodness and rows:
        least, most = int(codes.min()), int(codes.max())
        if most - least < _DENSE * rows:  # numbers that are dealt one after the other, as most are: nothing to sort
            last = np.full(most - least + 1, -1, np.int64)
            last[codes - least] = np.arange(rows)  # what is written last stays
            return last[last >= 0]
    sorted_rows = np.lexsort((*goodness, codes)) if goodness else np.argsort(codes, kind="stable")
    codes = codes[sorted_rows]
    last_ones = np.ones(rows, bool)
    np.not_equal(codes[1:], codes[:-1], out=last_ones[:-1])
    return sorted_rows[last_ones]


def _goodness(column: "pa.ChunkedArray", by: By) -> "tuple[NDArray[np.int64], NDArray[np.bool_]]":
    """Of each row, how early it comes among those that have a value, and whether it comes before those that do not.

    The larger the earlier; the second decides before the first.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if by.column.type in (Type.STRING, Type.BYTES):  # by their bytes, as BigQuery and Spark compare them
        codes, words = _words(column)
        places = pc.sort_indices(words.cast(pa.binary())).to_numpy()
        ranks = np.empty(len(places) + 1, np.int64)
        ranks[places] = np.arange(len(places))
        ranks[-1] = 0
        values = ranks[codes]
    else:
        whole = {Type.DATE: pa.int32(), Type.BOOL: pa.uint8()}.get(by.column.type, pa.int64())
        cast = [
            (chunk.cast(whole) if by.column.type is Type.BOOL else chunk.view(whole)).fill_null(0).to_numpy()
            for chunk in column.chunks
        ]
        values = np.concatenate([*cast, np.zeros(0, np.int64)]).astype(np.int64)
    there = np.concatenate(
        [*(chunk.is_valid().to_numpy(zero_copy_only=False) for chunk in column.chunks), np.zeros(0, bool)]
    )
    return (values if by.descending else ~values), (there if by.nulls_last else ~there)


def _column(tables: Sequence["pa.Table"], item: Field) -> "pa.ChunkedArray":
    import pyarrow as pa

    found = [table.column(item.name) for table in tables if item.name in table.column_names]  # one without rows may not
    kind = found[0].type if found else arrow_type(item)
    return pa.chunked_array([chunk for one in found for chunk in one.chunks], type=kind)


def _keyless(tables: Sequence["pa.Table"], keys: Sequence[Field]) -> "NDArray[np.bool_]":
    """Which rows have a NULL in their key."""
    import numpy as np

    found = [np.zeros(0, bool)]
    for table in filter(len, tables):
        nulls = [table.column(item.name).is_null().to_numpy() for item in keys]
        found.append(np.logical_or.reduce(nulls))
    return np.concatenate(found)


def _codes(tables: Sequence["pa.Table"], keys: Sequence[Field]) -> "NDArray[np.int64] | None":
    """A number per row, the same exactly for rows of the same key; NULLs are one key."""
    import numpy as np
    import pyarrow as pa

    codes: NDArray[np.int64] | None = None
    variety = 1
    for item in keys:
        column = _column(tables, item)
        if item.type in _WHOLE and not column.null_count and len(keys) == 1:
            return np.concatenate([*map(_whole, column.chunks), np.zeros(0, np.int64)])
        if len(keys) == 1 and len(column) >= _MANY and item.type in (Type.STRING, Type.BYTES):
            return _text_codes(pa.concat_arrays(column.chunks))
        own, words = _words(column)
        size = 1 + len(words)  # NULL is one more
        variety *= size
        if variety >= 1 << 62:
            return None
        codes = own + 1 if codes is None else codes * size + own + 1
    return codes


def _text_codes(column: "pa.Array") -> "NDArray[np.int64]":
    """A number per row, the same exactly for the same text or NULL.

    Most keys come once. Their hashes show which do, at a fraction of what it takes to compare them; the others, and
    those that only share a hash, are compared.
    """
    import numpy as np
    import polars as pl
    import pyarrow as pa

    rows = np.arange(len(column), dtype=np.int64)
    bits = (_SPREAD * len(column)).bit_length()
    places = (pl.Series(column).hash().to_numpy() >> np.uint64(64 - bits)).astype(np.int64)
    last = np.empty(1 << bits, np.int32)
    last[places] = rows
    shared = np.zeros(1 << bits, bool)
    shared[places[last[places] != rows]] = True
    doubtful = shared[places]
    codes = rows + len(column)
    encoded = column.filter(pa.array(doubtful)).dictionary_encode(null_encoding="encode")
    codes[doubtful] = encoded.indices.to_numpy()
    return codes


def _words(column: "pa.ChunkedArray") -> "tuple[NDArray[np.int64], pa.Array]":
    """A number per row, -1 for NULL, and the values that they stand for.

    Of one array: of many, each would have all values so far, and comparing those takes longer the more there are.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    encoded = whole.dictionary_encode()
    return pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int64), encoded.dictionary


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


def _beside(folder: str, share: int, table: "pa.Table", names: Sequence[str]) -> "pa.Table":
    """The rows with what was computed of them."""
    import numpy as np
    import pyarrow as pa

    if not table.num_rows:
        return table.select([FILE, LINE]).slice(0, 0)
    file: Any = pa.ipc.open_file(pa.memory_map(str(_computed(folder, share))))
    found = file.read_all()
    numbers = found.column(ROW).to_numpy()
    if not np.array_equal(numbers, np.arange(table.num_rows, dtype=np.int64) | (share << ROW_BITS)):
        raise Fatal("the keys that Spark computed are not those of the rows that were kept")
    for name in dict.fromkeys(names):
        table = table.append_column(name, found.column(name))
    return table


def _computed(folder: str, share: int) -> Path:
    return Path(folder) / f"{share}.keys"


def _told(folder: str, share: int) -> Path:
    return Path(folder) / f"{share}.told"
