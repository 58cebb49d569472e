"""Rows that are alike in what expressions look at: Spark sees one of them, and its answer is everybody's.

An expression of a rule answers by the columns of its row alone. Most of those that rules transform, look up in a side
input or split by have few values (countries, states, codes), so a handful of rows stands for all of a share, and the
others need not go through the JVM and back.

    1. whoever hands kept rows on (`kept.Kept`) hands on the first of each kind, under the kind's number, and leaves
       beside the share which row is of which kind
    2. Spark joins, computes and splits those
    3. whoever writes (`write_task.Writing`) makes rows of them again (`everybody`): none, one or several for each

Rows are alike only where every bit of what is looked at is the same. Where they are too many kinds, all rows go through
Spark, as they would without this.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ingestd.model.schema import Mode, Schema, Type
from ingestd.spark.files.reserved import ROW, ROW_BITS

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

ENOUGH = 8  # rows of each kind: with fewer, telling kinds apart costs more than it saves
MOST_BYTES = 256 << 20  # of the columns that are looked at, in a share
_STEP = 1 << 16  # rows that are made at a time


def comparable(columns: Schema) -> bool:
    """Whether Arrow can tell values of these columns apart, bit by bit."""
    return bool(columns) and not any(item.mode is Mode.REPEATED or item.type is Type.STRUCT for item in columns)


def one_of_each(
    batches: Sequence["pa.RecordBatch"],
    names: Sequence[str],
    marks: "NDArray[np.bool_] | None",
    folder: str,
    share: int,
) -> "pa.RecordBatch | None":
    """The first row of each kind, of those with a mark, under the kind's number; None when there are too many kinds."""
    import numpy as np
    import pyarrow as pa

    if not batches or _too_many(_kinds(pa.table(batches[0].select(list(names)))), batches[0].num_rows):
        return None
    table = pa.Table.from_batches([batch.select(list(names)) for batch in batches])
    rows = np.arange(table.num_rows) if marks is None else np.flatnonzero(marks)
    if table.nbytes > MOST_BYTES:
        return None
    if len(rows) < table.num_rows:
        table = table.filter(pa.array(marks))
    kinds = _kinds(table)
    if _too_many(kinds, len(rows)):
        return None
    firsts = np.empty(int(kinds.max()) + 1, np.int64)
    firsts[kinds[::-1]] = np.arange(len(kinds))[::-1]  # the last that is written stays: the first row
    of_rows = np.full(sum(batch.num_rows for batch in batches), -1, np.int32)
    of_rows[rows] = kinds
    place = _kinds_file(folder, share)
    draft = place.with_suffix(f".{os.getpid()}")
    with draft.open("wb") as file:
        np.save(file, of_rows)
    draft.replace(place)
    shown = table.take(pa.array(firsts)).combine_chunks()
    numbers = pa.array(np.arange(len(firsts), dtype=np.int64) | (share << ROW_BITS))
    return pa.RecordBatch.from_arrays([*(column.chunk(0) for column in shown.columns), numbers], [*names, ROW])


def _too_many(kinds: "NDArray[np.int64]", rows: int) -> bool:
    return not rows or (int(kinds.max()) + 1) * ENOUGH > rows


def _kinds(table: "pa.Table") -> "NDArray[np.int64]":
    """A number per row, from 0 up in the order in which they are met, the same exactly for rows that are alike."""
    import numpy as np
    import pyarrow as pa

    kinds = np.zeros(table.num_rows, np.int64)
    for place, column in enumerate(table.columns):
        own, many = _encoded(pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type))
        kinds = own if place == 0 else _encoded(pa.array(kinds * many + own))[0]
    return kinds


def _encoded(array: "pa.Array") -> "tuple[NDArray[np.int64], int]":
    """A number per value, in the order in which they are met, and how many there are; NULL is one of them."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_float64(array.type):
        array = array.view(pa.int64())  # zero has two signs, and NaN many faces
    found = array.dictionary_encode(null_encoding="encode")
    return found.indices.to_numpy().astype(np.int64), len(found.dictionary)


def everybody(folder: str, batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """All rows of what Spark has made of one of each; rows of shares that came as they are pass."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    waiting: dict[int, list[pa.RecordBatch]] = {}
    for batch in batches:
        shares = batch.column(ROW).to_numpy() >> ROW_BITS
        for share in np.unique(shares).tolist():
            rows = batch if (shares == share).all() else batch.filter(pc.equal(pa.array(shares), share))
            if share in waiting or _kinds_file(folder, share).exists():
                waiting.setdefault(share, []).append(rows)
            else:
                yield rows
    for share, answers in waiting.items():
        yield from _all_of(folder, share, pa.Table.from_batches(answers))


def _all_of(folder: str, share: int, answers: "pa.Table") -> Iterator["pa.RecordBatch"]:
    """The rows of a share whose kinds are among the answers, as often as those are."""
    import numpy as np
    import pyarrow as pa

    of_rows = np.load(_kinds_file(folder, share))
    numbers = answers.column(ROW).to_numpy() & ((1 << ROW_BITS) - 1)
    sorted_answers = answers.take(pa.array(np.argsort(numbers, kind="stable"))).combine_chunks().to_batches()[0]
    starts = np.searchsorted(np.sort(numbers), np.arange(int(of_rows.max()) + 2))
    counts = np.append(np.diff(starts), 0)  # the last one is for -1: a row without a mark
    step = max(1, _STEP // max(1, int(counts.max())))
    for at in range(0, len(of_rows), step):
        kinds = of_rows[at : at + step]
        times = counts[kinds]
        before = np.cumsum(times) - times
        rows = np.repeat(np.arange(at, at + len(kinds)), times)
        if not len(rows):
            continue
        places = np.repeat(starts[kinds] - before, times) + np.arange(len(rows))
        made = sorted_answers.take(pa.array(places))
        yield made.set_column(made.schema.get_field_index(ROW), ROW, pa.array(rows | (share << ROW_BITS)))


def _kinds_file(folder: str, share: int) -> Path:
    return Path(folder) / f"{share}.kinds"
