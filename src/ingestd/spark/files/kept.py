"""Rows kept in scratch between two passes over a batch, a file per share, as Arrow has them.

A share that Spark runs twice replaces its file with the same content; whatever dies leaves files in the attempt's own
scratch folder. Rows that would take too much room are not kept.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingestd.spark.files.alike import everybody, leave_kinds
from ingestd.spark.files.read_task import Reading, output_schema
from ingestd.spark.files.reserved import FILE, LINE, REPORT, ROW, ROW_BITS

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

MOST_KEPT = 3  # times the guess: rows with many empty columns take far more room than their text
_FRAME = 8 << 20  # and what may be taken however small they are


def worthwhile(content: int, most: int | None) -> bool:
    """Whether rows of that size may be kept in scratch, where they may take so much; None: what they are worth."""
    return most is None or room(content) <= most


def room(content: int) -> int:
    """What kept rows may take that were guessed to have so many bytes."""
    return MOST_KEPT * content + _FRAME


@dataclass(frozen=True, slots=True)
class Keeping:
    """The first step, in the workers: rows into a file per share, reports to the driver."""

    reading: Reading
    folder: str
    growth: float = 1.0  # what is in the files, by guess, for each byte that they have

    looked_at: tuple[str, ...] = ()  # columns whose kinds are to be told (`alike`)

    def tell(self, numbers: Iterable[int]) -> Iterator[str | None]:
        """Of each share, the reports on its files, one a line; None for one that takes too much room."""
        for number in numbers:
            reports = self.share(number)
            # One text: thousands of files would take the driver longer to receive than to understand.
            yield None if reports is None else "\n".join(reports)

    def share(self, number: int) -> list[str] | None:
        """The reports on a share whose rows are kept; None when they take too much room."""
        import pyarrow as pa

        wanted = pa.RecordBatch.from_pydict({"id": [number]})
        schema = output_schema(self.reading.plan)
        schema = schema.remove(schema.get_field_index(REPORT))
        reports: list[str] = []
        place = _rows_file(self.folder, number)
        draft = place.with_suffix(f".{os.getpid()}")
        most = room(int(sum(unit.length for unit in self.reading.shares[number]) * self.growth))
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
        if self.looked_at:
            leave_kinds(self.folder, number, list(kept_batches(self.folder, number)), self.looked_at)
        return reports


@dataclass(frozen=True, slots=True)
class Kept:
    """The last step, in the workers: the rows that were kept.

    Where there are marks, only those with one. `columns` are those that Spark is to see, with the rows' numbers;
    without them it gets all, and of marked rows not those by which they were chosen.
    """

    folder: str
    marked: bool
    columns: tuple[str, ...] | None = None

    def __call__(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.share(number)

    def share(self, number: int) -> Iterator["pa.RecordBatch"]:
        import numpy as np
        import pyarrow as pa

        marks = marks_of(self.folder, number) if self.marked else None
        at = 0
        for rows in kept_batches(self.folder, number):
            count = rows.num_rows
            if self.columns is not None:
                numbers = pa.array(np.arange(at, at + count, dtype=np.int64) | (number << ROW_BITS))
                rows = rows.select(list(self.columns)).append_column(ROW, numbers)
            elif marks is not None:
                rows = rows.drop_columns([FILE, LINE])
            mine = None if marks is None else marks[at : at + count]
            at += count
            yield rows if mine is None or mine.all() else rows.filter(pa.array(mine))


@dataclass(frozen=True, slots=True)
class Answered:
    """Instead of the last step, where Spark has seen one row of each kind: what it made of them, for all rows."""

    folder: str
    marked: bool

    def share(self, number: int) -> Iterator["pa.RecordBatch"]:
        return everybody(self.folder, number, marks_of(self.folder, number) if self.marked else None)


def kept_batches(folder: str, share: int) -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa

    file = pa.ipc.open_file(pa.memory_map(str(_rows_file(folder, share))))
    for place in range(file.num_record_batches):
        yield file.get_batch(place)


def kept_columns(folder: str, share: int, names: Sequence[str]) -> "pa.Table":
    """Some columns of a share's rows; the others stay on the disk."""
    import pyarrow as pa

    file: Any = pa.ipc.open_file(pa.memory_map(str(_rows_file(folder, share))))
    return file.read_all().select(list(names))


def marks_of(folder: str, share: int) -> "NDArray[np.bool_]":
    import numpy as np

    found: NDArray[np.bool_] = np.load(marks_file(folder, share))
    return found


def marks_file(folder: str, share: int) -> Path:
    return Path(folder) / f"{share}.npy"


def _rows_file(folder: str, share: int) -> Path:
    return Path(folder) / f"{share}.arrow"
