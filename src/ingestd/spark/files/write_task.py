"""Rows into Parquet, in Spark's workers, with the columns that Spark never saw.

Most columns of most batches go into the table as they are. Where rows are kept in scratch (`kept`), only those that
an expression looks at travel through the JVM, each row with its number; `Writing` puts the others beside them, from
scratch, and writes the file. Nothing else of a row is copied between processes, and Arrow writes Parquet twice as fast
as Java does.

A task's files get their names when they are complete, and its rows have the same numbers however often it runs.
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ingestd.model.schema import Field, Mode, Schema
from ingestd.spark.files.carriers import carrier
from ingestd.spark.files.kept import kept_batches
from ingestd.spark.files.output import FAST_LEVEL, SUFFIX, declared
from ingestd.spark.files.reserved import BRANCH, HOME, ROW, ROW_BITS

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

TOLD = "told STRING"
_GROUP_ROWS = 1 << 17
_GROUP_BYTES = 24 << 20  # of a row group, uncompressed: a worker holds it twice
_LEAST_WIDTH = 16


class Source(Protocol):
    """Rows of a share, in a worker."""

    def share(self, number: int) -> Iterator["pa.RecordBatch"]: ...


@dataclass(frozen=True, slots=True)
class Writing:
    """What runs at the end: rows in, one line per task out that tells how many were written.

    As `mapInArrow` where rows come from Spark, else by the number of the share.
    """

    folder: str  # where rows are kept
    target: str
    schema: Schema
    late: tuple[tuple[str, str], ...]  # the destination's columns that wait in scratch, and their names there
    codec: str
    obliged: tuple[str, ...] = ()  # REQUIRED columns of the table, whatever the files are to say of them
    branches: bool = False
    rows: Source | None = None  # where they do not come from Spark

    def tell(self, numbers: Iterable[int]) -> Iterator[str]:
        """Of each share, what was written."""
        for number in numbers:
            assert self.rows is not None
            yield self.write(self.rows.share(number), number)

    def __call__(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        told = self.write(batches, 0 if context is None else context.partitionId())
        yield pa.record_batch([pa.array([told], pa.string())], ["told"])

    def write(self, batches: Iterable["pa.RecordBatch"], number: int) -> str:
        """The rows into files with that number; what is to be told of them."""
        task = _Task(self, number)
        try:
            for batch in batches:
                task.take(batch)
            task.finish()
        finally:
            task.discard()
        return task.told()


@dataclass(frozen=True, slots=True)
class Written:
    """What all tasks wrote."""

    rows: dict[int, int]  # by branch
    empty: dict[str, int]  # REQUIRED columns, and how many rows have no value there

    @classmethod
    def of(cls, told: list[str]) -> "Written":
        rows: dict[int, int] = {}
        empty: dict[str, int] = {}
        for text in told:
            one = json.loads(text)
            for branch, count in one["rows"]:
                rows[branch] = rows.get(branch, 0) + count
            for name, count in one["empty"]:
                empty[name] = empty.get(name, 0) + count
        return cls(rows, empty)


@dataclass(slots=True)
class _File:
    draft: Path
    place: Path
    writer: "pq.ParquetWriter"
    rows: int = 0


class _Task:
    def __init__(self, writing: Writing, number: int) -> None:
        import pyarrow as pa

        self._writing = writing
        self._number = number
        self._files: dict[int, _File] = {}
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._shares: dict[int, _Share] = {}
        self._late = dict(writing.late)
        self._empty: dict[str, int] = {}
        self._schema = pa.schema(
            [pa.field(item.name, carrier(item), nullable=not declared(item)) for item in writing.schema]
        )

    def take(self, batch: "pa.RecordBatch") -> None:
        if not batch.num_rows:
            return
        most = self._most(batch)
        for start in range(0, batch.num_rows, most):
            piece = batch.slice(start, most)
            if self._rows and self._rows + piece.num_rows > most:
                self._flush()
            self._waiting.append(piece)
            self._rows += piece.num_rows

    def _most(self, batch: "pa.RecordBatch") -> int:
        """How many rows go into a row group."""
        width = batch.nbytes / batch.num_rows
        if self._late:
            width += self._share(batch.column(ROW)[0].as_py() >> ROW_BITS).width
        return max(1, min(_GROUP_ROWS, int(_GROUP_BYTES / max(width, _LEAST_WIDTH))))

    def finish(self) -> None:
        self._flush()
        for file in self._files.values():
            file.writer.close()
        for file in self._files.values():
            file.draft.replace(file.place)

    def discard(self) -> None:
        """What was not finished."""
        for file in self._files.values():
            file.draft.unlink(missing_ok=True)

    def told(self) -> str:
        rows = [(branch, file.rows) for branch, file in self._files.items()]
        return json.dumps({"rows": rows, "empty": list(self._empty.items())})

    def _flush(self) -> None:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting)
        self._waiting, self._rows = [], 0
        if self._late:
            numbers = table.column(ROW).to_numpy()
            if np.any(numbers[1:] < numbers[:-1]):  # they went through a shuffle, and their order tells nothing
                table = table.take(pa.array(np.argsort(numbers, kind="stable")))
        if not self._writing.branches:
            self._write(HOME, table)
            return
        branches = table.column(BRANCH)
        for branch in pc.unique(branches).to_pylist():
            self._write(branch, table.filter(pc.equal(branches, branch)))

    def _write(self, branch: int, table: "pa.Table") -> None:
        import pyarrow as pa

        late = self._beside(table.column(ROW).to_numpy()) if self._late else None
        columns = []
        for item in self._writing.schema:
            if late is not None and item.name in self._late:
                column = late.column(self._late[item.name])
            else:
                column = table.column(item.name)
            columns.append(_fitted(column, item))
        file = self._file(branch)
        file.rows += table.num_rows
        missing = {
            item.name: column.null_count
            for item, column in zip(self._writing.schema, columns, strict=True)
            if item.name in self._writing.obliged and column.null_count
        }
        for name, count in missing.items():
            self._empty[name] = self._empty.get(name, 0) + count
        if not any(not self._schema.field(name).nullable for name in missing):  # else the batch is refused for it
            file.writer.write_table(pa.table(columns, schema=self._schema), row_group_size=table.num_rows)

    def _beside(self, numbers: "NDArray[np.int64]") -> "pa.Table":
        """The late columns of these rows, which rise."""
        import numpy as np
        import pyarrow as pa

        wanted = list(dict.fromkeys(self._late.values()))
        found: list[pa.RecordBatch] = []
        shares = numbers >> ROW_BITS
        cuts = [0, *(np.flatnonzero(shares[1:] != shares[:-1]) + 1).tolist(), len(numbers)]
        for first, last in pairwise(cuts):
            share = self._share(int(shares[first]))
            found += share.rows(numbers[first:last] & ((1 << ROW_BITS) - 1), wanted)
        return pa.Table.from_batches(found)

    def _share(self, number: int) -> "_Share":
        if number not in self._shares:
            self._shares[number] = _Share(self._writing.folder, number)
        return self._shares[number]

    def _file(self, branch: int) -> _File:
        import pyarrow.parquet as pq

        if branch not in self._files:
            folder = Path(self._writing.target)
            if self._writing.branches:
                folder /= f"{BRANCH}={branch}"
                folder.mkdir(exist_ok=True)
            name = f"{self._number:05d}{SUFFIX}"
            draft = folder / f"draft-{os.getpid()}-{name}"
            codec = "none" if self._writing.codec == "uncompressed" else self._writing.codec
            options: dict[str, Any] = {"compression_level": FAST_LEVEL} if codec == "zstd" else {}
            writer = pq.ParquetWriter(
                str(draft),
                self._schema,
                compression=codec,
                dictionary_pagesize_limit=64 << 10,
                write_statistics=False,
                store_schema=False,
                **options,
            )
            self._files[branch] = _File(draft, folder / f"part-{name}", writer)
        return self._files[branch]


class _Share:
    """The rows that one task has kept."""

    def __init__(self, folder: str, number: int) -> None:
        import numpy as np

        self._batches = list(kept_batches(folder, number))
        ends = np.cumsum([0, *(batch.num_rows for batch in self._batches)])
        self._starts = ends
        self.width = sum(batch.nbytes for batch in self._batches) / max(int(ends[-1]), 1)

    def rows(self, numbers: "NDArray[np.int64]", names: list[str]) -> Iterator["pa.RecordBatch"]:
        import numpy as np
        import pyarrow as pa

        at = 0
        while at < len(numbers):
            place = int(np.searchsorted(self._starts, numbers[at], side="right")) - 1
            end = int(np.searchsorted(numbers, self._starts[place + 1], side="left"))
            batch, mine = self._batches[place].select(names), numbers[at:end] - self._starts[place]
            if (mine[1:] - mine[:-1] == 1).all():  # none left out, and none there several times
                yield batch.slice(int(mine[0]), len(mine))
            else:
                yield batch.take(pa.array(mine))
            at = end


def _fitted(column: "pa.ChunkedArray", field: Field) -> "pa.ChunkedArray":
    """The column in its own type, and an array that is NULL as an empty one: BigQuery has no others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = carrier(field)
    if column.type != wanted:
        column = column.cast(wanted)
    if field.mode is Mode.REPEATED and column.null_count:
        column = pc.coalesce(column, pa.scalar([], wanted))
    return column
