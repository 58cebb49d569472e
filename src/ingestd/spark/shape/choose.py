"""Which row of each key stays: decided by looking at the keys of rows that are kept in scratch.

The first row in the order asked for wins, and of equals the newest: the last one of the file that is ranked highest, as
Spark's way has it (`steps`). Keys are mapped into memory; where they are too many to be looked at together, those with
hashes alike are, one part after the other, and of each share its own are taken out: a batch of any size takes about as
much memory, and two bytes for each row.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingestd.formats.columns import arrow_type
from ingestd.model.errors import Fatal
from ingestd.model.schema import Field, Type
from ingestd.spark.files.kept import kept_columns, marks_file
from ingestd.spark.files.reserved import FILE, LINE, ROW, ROW_BITS

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

MOST_ROWS = 4_000_000  # looked at together: about 50 bytes of each
MOST_KEY_BYTES = 256 << 20
MOST_PARTS = 32
_MANY = 50_000  # rows whose text is worth hashing
_SPREAD = 4  # places for each text's hash
_DENSE = 4  # places for each row: more take longer to look through than sorting does
_WHOLE = (Type.INT64, Type.DATETIME, Type.TIMESTAMP)
_Runs = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class By:
    """A column by which rows of one key are ordered: the first wins."""

    column: Field
    descending: bool
    nulls_last: bool


def mark(
    folder: str,
    shares: int,
    keys: Sequence[Field],
    order: Sequence[int],
    keep_keyless: bool = False,
    by: Sequence[By] = (),
    computed: bool = False,
) -> int | None:
    """Marks in each share the rows to keep, and tells how many are not; None when there are too many to look at."""
    import numpy as np

    look = _Look(folder, [*dict.fromkeys([*(item.name for item in keys), *(one.column.name for one in by)])], computed)
    counts, runs = _by_age((look.places(number) for number in range(shares)), order)
    filled = [number for number, count in enumerate(counts) if count]
    rows = sum(counts)
    size = sum(look.values(number).nbytes for number in filled)
    parts = max(1, -(-rows // MOST_ROWS), -(-size // MOST_KEY_BYTES))
    if parts > MOST_PARTS:
        return None
    marks = np.zeros(rows, bool)
    for some, some_runs, places in _parts(look, filled, keys, runs, parts):
        winners = _winners(some, keys, by, some_runs)
        if winners is None:
            return None
        marks[winners if places is None else places[winners]] = True
    if keep_keyless:
        marks |= _keyless((look.values(number) for number in filled), keys)
    at = 0
    for number, count in enumerate(counts):
        np.save(marks_file(folder, number), marks[at : at + count])
        at += count
    return rows - int(marks.sum())


@dataclass(frozen=True, slots=True)
class _Look:
    """What is looked at of the rows of a share. It is mapped into memory while somebody holds it, and no longer."""

    folder: str
    names: Sequence[str]
    computed: bool

    def places(self, share: int) -> "pa.Table":
        """Each row's file and line."""
        table = kept_columns(self.folder, share, [FILE, LINE])
        if self.computed and table.num_rows:
            _check_beside(self.folder, share, table.num_rows)
        return table

    def values(self, share: int) -> "pa.Table":
        """The keys of its rows, of which there are some, and what orders them."""
        if self.computed:
            return _computed(self.folder, share).select(list(self.names))
        return kept_columns(self.folder, share, self.names)


def _parts(
    look: _Look, shares: Sequence[int], keys: Sequence[Field], runs: _Runs, parts: int
) -> "Iterator[tuple[Sequence[pa.Table], _Runs, NDArray[np.int64] | None]]":
    """Rows that are looked at together: all of a key are. And their places among all, where they are only some."""
    import numpy as np
    import pyarrow as pa

    if parts == 1:
        yield [look.values(share) for share in shares], runs, None
        return
    of_part = [_part(look.values(share), keys, parts) for share in shares]
    for part in range(parts):
        some, found, at = [], [], 0
        for share, numbers in zip(shares, of_part, strict=True):
            mine = numbers == part
            some.append(look.values(share).filter(pa.array(mine)))
            found.append(np.flatnonzero(mine) + at)
            at += len(numbers)
        places = np.concatenate(found)
        ends = np.searchsorted(places, np.array(runs, np.int64).reshape(-1, 2))
        yield some, [(int(start), int(end)) for start, end in ends if start < end], places


def _part(table: "pa.Table", keys: Sequence[Field], parts: int) -> "NDArray[np.uint8]":
    """A small number per row, the same for rows of the same key, by their hashes."""
    import numpy as np
    import polars as pl

    found = [np.zeros(0, np.uint8)]
    for batch in table.to_batches():
        hashes = np.zeros(batch.num_rows, np.uint64)
        for item in keys:
            hashes *= np.uint64(31)
            hashes += pl.Series(batch.column(item.name)).hash().to_numpy() >> np.uint64(32)
        found.append((hashes % np.uint64(parts)).astype(np.uint8))
    return np.concatenate(found)


def _winners(
    tables: Sequence["pa.Table"], keys: Sequence[Field], by: Sequence[By], runs: _Runs
) -> "NDArray[np.int64] | None":
    """The rows that stay, by their places; None when there are too many values to combine."""
    codes = _codes(tables, keys)
    if codes is None:
        return None
    goodness = [one for item in reversed(by) for one in _goodness(_column(tables, item.column), item)]
    oldest_first = _placed(runs)
    if oldest_first is None:
        return _last_of_each(codes, goodness)
    return oldest_first[_last_of_each(codes[oldest_first], [one[oldest_first] for one in goodness])]


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


def _keyless(tables: Iterable["pa.Table"], keys: Sequence[Field]) -> "NDArray[np.bool_]":
    """Which rows have a NULL in their key."""
    import numpy as np

    found = [np.zeros(0, bool)]
    for table in tables:
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


def _by_age(shares: Iterable["pa.Table"], order: Sequence[int]) -> tuple[list[int], _Runs]:
    """How many rows each share has; and all of them, the oldest first, as runs of their places over all shares.

    Rows of one file lie together and rise by one line each, in every part of a file: only such runs are sorted.
    """
    import numpy as np

    runs: list[tuple[int, int, int, int]] = []
    counts: list[int] = []
    at = 0
    for table in shares:
        first = len(runs)
        for batch in filter(len, table.to_batches()):
            files, lines = batch.column(FILE).to_numpy(), batch.column(LINE).to_numpy()
            starts = [0, *(np.flatnonzero((np.diff(files) != 0) | (np.diff(lines) != 1)) + 1).tolist()]
            for start, end in pairwise([*starts, len(files)]):
                rank, line = order[int(files[start])] if order else int(files[start]), int(lines[start])
                before = runs[-1] if len(runs) > first else None
                if before and (before[0], before[1] + before[3] - before[2]) == (rank, line):
                    runs[-1] = (*before[:3], at + end)
                else:
                    runs.append((rank, line, at + start, at + end))
            at += len(files)
        counts.append(table.num_rows)
    return counts, [(start, end) for _, _, start, end in sorted(runs)]


def _placed(runs: _Runs) -> "NDArray[np.int64] | None":
    """The places of all rows in runs; None when that is as they lie."""
    import numpy as np

    if all(left[1] == right[0] for left, right in pairwise(runs)):
        return None
    return np.concatenate([np.arange(start, end) for start, end in runs])


def _check_beside(folder: str, share: int, rows: int) -> None:
    """What was computed is of the rows that were kept, each in its place."""
    import numpy as np

    numbers = _computed(folder, share).column(ROW).to_numpy()
    if not np.array_equal(numbers, np.arange(rows, dtype=np.int64) | (share << ROW_BITS)):
        raise Fatal("the keys that Spark computed are not those of the rows that were kept")


def _computed(folder: str, share: int) -> "pa.Table":
    import pyarrow as pa

    file: Any = pa.ipc.open_file(pa.memory_map(str(computed_file(folder, share))))
    return file.read_all()


def computed_file(folder: str, share: int) -> Path:
    return Path(folder) / f"{share}.keys"
