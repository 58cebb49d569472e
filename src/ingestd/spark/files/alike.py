"""Rows that are alike in what expressions look at: Spark sees one of them, and its answer is everybody's.

An expression of a rule answers by the columns of its row alone. Most of those that rules transform, look up in a side
input or split by have few values (countries, states, codes), so a handful of rows stands for a whole batch, and the
others need not go through the JVM and back.

    1. whoever keeps the rows of a share (`kept.Keeping`) leaves beside them the first row of each kind, and which row
       is of which kind
    2. the driver hands Spark one row of each kind (`shown`), which it joins, computes and splits
    3. whoever writes a share (`write_task.Writing`) makes rows of the answers again: none, one or several for each

Rows are alike only where every bit of what is looked at is the same. Where a share has too many kinds, all rows go
through Spark, as they would without this. Kinds whose rows were all left out as duplicates are not shown.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingestd.model.schema import Mode, Schema, Type
from ingestd.spark.files.reserved import ROW, ROW_BITS

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

FEW = 1_000  # kinds that are few however few rows there are
ENOUGH = 8  # rows of each kind otherwise: with fewer, telling kinds apart costs more than it saves
MOST = 1 << 14  # kinds of a share: they travel through the driver
MOST_BYTES = 256 << 20  # of the columns that are looked at, in a share
_STEP = 1 << 16  # rows that are made at a time


def comparable(columns: Schema) -> bool:
    """Whether Arrow can tell values of these columns apart, bit by bit."""
    return bool(columns) and not any(item.mode is Mode.REPEATED or item.type is Type.STRUCT for item in columns)


def leave_kinds(folder: str, share: int, batches: Sequence["pa.RecordBatch"], names: Sequence[str]) -> None:
    """The first row of each kind, and the kind of each row, beside the share's rows; nothing when they are too many."""
    import numpy as np
    import pyarrow as pa

    some = [batch.select(list(names)) for batch in batches if batch.num_rows]
    if not some:
        _write(_kinds_file(folder, share), pa.table({"kind": pa.array([], pa.int32())}))
        return
    # The first rows tell soon enough where values hardly ever come twice.
    if 2 * _many(_kinds(pa.Table.from_batches(some[:1]))) > max(2 * FEW, some[0].num_rows):
        return
    table = pa.Table.from_batches(some)
    if table.nbytes > MOST_BYTES:
        return
    kinds = _kinds(table)
    if _many(kinds) > max(FEW, min(MOST, table.num_rows // ENOUGH)):
        return
    firsts = np.empty(_many(kinds), np.int64)
    firsts[kinds[::-1]] = np.arange(len(kinds))[::-1]  # what is written last stays: the first row
    first_rows = table.take(pa.array(firsts))
    numbers = pa.array(np.arange(len(firsts), dtype=np.int64) | (share << ROW_BITS))
    _write(_shown_file(folder, share), first_rows.append_column(ROW, numbers))
    _write(_kinds_file(folder, share), pa.table({"kind": kinds.astype(np.int32)}))


def _many(kinds: "NDArray[np.signedinteger[Any]]") -> int:
    return int(kinds.max(initial=-1)) + 1


def _kinds(table: "pa.Table") -> "NDArray[np.int64]":
    """A number per row, from 0 up in the order in which they are met, the same exactly for rows that are alike."""
    import numpy as np
    import pyarrow as pa

    kinds = np.zeros(table.num_rows, np.int64)
    for place, column in enumerate(table.columns):
        own, many = _encoded(pa.concat_arrays(column.chunks))
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


def shown(folder: str, marks: Sequence["NDArray[np.bool_] | None"]) -> "pa.Table | None":
    """One row of each kind in all shares, given the marks of each; None when one has too many, or all have none."""
    import numpy as np
    import pyarrow as pa

    found = []
    for share, marked in enumerate(marks):
        if not _kinds_file(folder, share).exists():
            return None
        if not _shown_file(folder, share).exists():  # a share without rows
            continue
        rows = _read(_shown_file(folder, share))
        if marked is not None:
            used = np.zeros(rows.num_rows, bool)
            used[_kinds_of(folder, share)[marked]] = True
            rows = rows.filter(pa.array(used))
        found.append(rows)
    return pa.concat_tables(found) if sum(map(len, found)) else None


def leave_answers(folder: str, answers: "pa.Table") -> None:
    """What Spark has made of the rows that it was shown, for whoever writes."""
    _write(_answers_file(folder), answers)


def everybody(folder: str, share: int, marks: "NDArray[np.bool_] | None") -> Iterator["pa.RecordBatch"]:
    """The rows of a share with the answers that their kinds have got, as often as there are any."""
    import numpy as np
    import pyarrow as pa

    answers = _read(_answers_file(folder))
    numbers = answers.column(ROW).to_numpy()
    mine = np.flatnonzero(numbers >> ROW_BITS == share)
    if not len(mine):
        return
    mine = mine[np.argsort(numbers[mine], kind="stable")]
    own = answers.take(pa.array(mine)).combine_chunks().to_batches()[0]
    kinds = _kinds_of(folder, share)
    starts = np.searchsorted(numbers[mine] & ((1 << ROW_BITS) - 1), np.arange(_many(kinds) + 1))
    counts = np.diff(starts)
    rows = np.arange(len(kinds)) if marks is None else np.flatnonzero(marks)
    step = max(1, _STEP // max(1, int(counts.max())))
    for at in range(0, len(rows), step):
        some = rows[at : at + step]
        times = counts[kinds[some]]
        made = np.repeat(some, times)
        if not len(made):
            continue
        before = np.cumsum(times) - times
        places = np.repeat(starts[kinds[some]] - before, times) + np.arange(len(made))
        batch = own.take(pa.array(places))
        yield batch.set_column(batch.schema.get_field_index(ROW), ROW, pa.array(made | (share << ROW_BITS)))


def _kinds_of(folder: str, share: int) -> "NDArray[np.int32]":
    found: NDArray[np.int32] = _read(_kinds_file(folder, share)).column(0).to_numpy()
    return found


def _read(place: Path) -> "pa.Table":
    import pyarrow as pa

    file: Any = pa.ipc.open_file(pa.memory_map(str(place)))
    return file.read_all()


def _write(place: Path, table: "pa.Table") -> None:
    import pyarrow as pa

    draft = place.with_name(f"{place.name}-{os.getpid()}")
    with pa.OSFile(str(draft), "wb") as target, pa.ipc.new_file(target, table.schema) as file:
        file.write_table(table)
    draft.replace(place)


def _kinds_file(folder: str, share: int) -> Path:
    return Path(folder) / f"{share}.kinds"


def _shown_file(folder: str, share: int) -> Path:
    return Path(folder) / f"{share}.shown"


def _answers_file(folder: str) -> Path:
    return Path(folder) / "answers"
