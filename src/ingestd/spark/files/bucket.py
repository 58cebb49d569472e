"""Files that Spark itself reads from the bucket: small ones whole, large ones of lines in parts, by several tasks.

Spark says of every row which file it comes from and, of a large one, where the part begins that the row is in. What
stays true:
- A part is read like a part of a fetched file (`Unit`): where it begins orders its rows among those of the other parts,
  wherever Spark cuts and whoever reads.
- The lines of all parts together are the file, byte for byte in number: whatever Spark passed over would show
  (`short`).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ingestd.spark.files.read_task import Reading, Report, Unit, Worker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

# What Hadoop's readers of lines take for compressed, whatever is in it.
CODECS = (".gz", ".bz2", ".zst", ".deflate", ".snappy", ".lz4")
_PATTERN = re.compile(r"([{}\[\]*?\\])")
_BOM = 3


def rows(session: "SparkSession", reading: Reading, units: Sequence[Unit], ddl: str) -> "DataFrame":
    """The frame of good rows and reports, as `Reading` has it."""
    whole = {unit.name: unit for unit in units if not unit.in_parts}
    cut = {unit.name: unit for unit in units if unit.in_parts}
    frames = []
    if whole:
        files = session.read.format("binaryFile").load(_paths(whole)).select("path", "content")
        frames.append(files.mapInArrow(ReadingContents(reading, whole), ddl))
    if cut:
        text = session.read.option("lineSep", "\n").text(_paths(cut))
        place = ("_metadata.file_path AS path", "_metadata.file_block_start AS start")
        frames.append(
            text.selectExpr(*place, "CAST(value AS BINARY) AS line").mapInArrow(ReadingLines(reading, cut), ddl)
        )
    if not frames:
        return session.createDataFrame([], ddl)
    return frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1])


def _paths(names: Iterable[str]) -> list[str]:
    """Names as Spark takes them: a bracket or a star in one is not a pattern."""
    return [_PATTERN.sub(r"\\\1", name) for name in names]


def unspeakable(name: str) -> bool:
    """Whether Spark passes over an object of this name, or spells it otherwise and so reads another one, or none."""
    *folders, last = name.split("/")
    return last.startswith(("_", ".")) or any(part in ("", ".", "..") for part in (*folders, last)) or "\\" in name


@dataclass(frozen=True, slots=True)
class ReadingContents:
    """What `mapInArrow` runs on `binaryFile`: rows of path and content."""

    reading: Reading
    units: Mapping[str, Unit]

    def __call__(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        worker = Worker(self.reading, "")
        for batch in batches:
            paths, contents = batch.column("path"), batch.column("content")
            for row in range(batch.num_rows):
                yield from worker.take(self.units[paths[row].as_py()], contents[row].as_py())
        yield from worker.finish()


@dataclass(frozen=True, slots=True)
class ReadingLines:
    """The same on lines of text: rows of path, beginning of the part, and line; those of a part one after another."""

    reading: Reading
    units: Mapping[str, Unit]

    def __call__(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        worker = Worker(self.reading, "")
        at: tuple[str, int] | None = None
        part = bytearray()
        for batch in batches:
            for place, lines in _runs(batch):
                if at is not None and place != at:
                    yield from worker.take(self._unit(at, len(part)), bytes(part))
                    part.clear()
                at = place
                part += lines
        if at is not None:
            yield from worker.take(self._unit(at, len(part)), bytes(part))
        yield from worker.finish()

    def _unit(self, at: tuple[str, int], size: int) -> Unit:
        path, start = at
        return replace(self.units[unquote(path)], start=start, part=start, length=size, followed=True)


def _runs(batch: "pa.RecordBatch") -> Iterator[tuple[tuple[str, int], memoryview]]:
    """The lines of each part in the batch, every one with its newline."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not batch.num_rows:
        return
    paths, starts = batch.column("path").dictionary_encode(), batch.column("start").to_numpy()
    ended = pc.binary_join_element_wise(batch.column("line"), pa.scalar(b""), pa.scalar(b"\n"))
    files = paths.indices.to_numpy()
    bounds = (np.flatnonzero((np.diff(files) != 0) | (np.diff(starts) != 0)) + 1).tolist()
    for first, last in zip([0, *bounds], [*bounds, batch.num_rows], strict=True):
        yield (paths.dictionary[int(files[first])].as_py(), int(starts[first])), _content(ended[first:last])


def _content(lines: "pa.Array") -> memoryview:
    """All of the values, as they lie one behind the other."""
    import numpy as np

    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, np.int32)[lines.offset : lines.offset + len(lines) + 1]
    return memoryview(data)[int(ends[0]) : int(ends[-1])]


def short(units: Iterable[Unit], reports: Iterable[Report]) -> list[str]:
    """The files of which Spark did not hand over everything; a mark at the beginning is, and a last newline may be."""
    parts = {(report.index, report.part): report.size for report in reports}
    sizes: Counter[int] = Counter()
    for (index, _), size in parts.items():
        sizes[index] += size
    cut = [unit for unit in units if unit.in_parts]
    return [unit.name for unit in cut if sizes[unit.index] - unit.length not in (0, 1, -_BOM, 1 - _BOM)]
