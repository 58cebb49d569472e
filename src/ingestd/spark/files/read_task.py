"""A batch's files read by Spark's Python workers: every file once, each row with its file, and a report per file.

`Reading` is what `mapInArrow` runs: a task gets the number of its share and answers with record batches of good rows
and, for every file (or part of a large one), one row that holds nothing but a `Report`. Reports leave the job through
an observation of the same frame, so that one pass yields the rows and the verdict on every file.

What stays true:
- Rows of a file are held back until the whole file is read, so that nothing of a bad one gets out. A file (or part)
  that does not fit into `HOLD_BYTES` lets its rows go before its end is seen; `Report.out` tells, and the caller then
  reads the batch again without it.
- A share yields the same rows and reports however often Spark runs it.
- Small files are joined before they are parsed: thousands of them cost as much as one of their size.
"""

import json
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingestd.formats.columns import Doubt
from ingestd.formats.errors import BigQueryError
from ingestd.formats.options import SourceFormat
from ingestd.formats.rowload import SourceFile, with_constants
from ingestd.formats.textfiles import newlines, without_bom
from ingestd.model.preparation import BadData
from ingestd.model.schema import Schema
from ingestd.spark.files import inflate
from ingestd.spark.files.carriers import carrier_schema, carry
from ingestd.spark.files.readers import (
    PIECE_BYTES,
    Bad,
    BinaryReader,
    Good,
    Item,
    JsonReader,
    Left,
    ReadPlan,
    Unknown,
    reader,
)
from ingestd.spark.files.reserved import FILE, LINE, REPORT
from ingestd.spark.files.unknown import agree, usable, usable_ones

if TYPE_CHECKING:
    import pyarrow as pa

HOLD_BYTES = 96 << 20
_JOINED = 16 << 20  # bytes of a file, inflated, that is parsed with others
_REJECTED_IN_REPORT = 1 << 20  # characters of bad rows that travel in a report where there is no shared folder


@dataclass(frozen=True, slots=True)
class Unit:
    """A file, or a part of a large one that begins and ends with a line."""

    index: int  # the file's place in the request
    name: str
    path: str = ""  # where its bytes are
    start: int = 0
    length: int = 0
    part: int = 0
    followed: bool = False  # by another part of the file, whose lines are counted from here on
    in_parts: bool = False  # where Spark itself reads the file: by several tasks, cut as Spark sees fit
    constants: tuple[Any, ...] = ()  # values of the columns that its path decides


@dataclass(slots=True)
class Report:
    """What became of a unit."""

    index: int
    part: int = 0
    rows: int = 0  # good ones
    out: int = 0  # of these, given to Spark
    bad: int = 0
    left: int = 0  # left out for having columns the table has not
    lines: int = 0  # of a part that another one follows
    size: int = 0  # of a part that Spark has cut
    whole: bool = False  # unreadable, or unfit, as a whole
    why: str = ""
    line: int | None = None
    column: str = ""
    schema: bool = False
    unknown: list[dict[str, Any]] = field(default_factory=list)
    untyped: list[dict[str, Any]] = field(default_factory=list)  # the same, where no value tells a type
    rejected: list[str] = field(default_factory=list)
    unkept: int = 0  # bad rows that are told by their number alone

    def text(self) -> str:
        told = {name: value for name in self.__slots__ if (value := getattr(self, name))}
        return json.dumps(told)

    @classmethod
    def parse(cls, text: str) -> "Report":
        return cls(**{"index": 0, **json.loads(text)})


@dataclass(frozen=True, slots=True)
class Reading:
    """Picklable: goes to the workers with every task."""

    plan: ReadPlan
    policy: BadData
    shares: tuple[tuple[Unit, ...], ...] = ()
    tolerated: int = 0  # bad rows a file may have
    hold: int = HOLD_BYTES
    rejects: str = ""  # folder for bad rows, where workers and driver see the same disk

    def __call__(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                worker = Worker(self, f"{number}")
                sliced = self.plan.options.source_format in (SourceFormat.PARQUET, SourceFormat.ORC)
                for unit in self.shares[number]:
                    yield from worker.take(unit, mapped(unit) if sliced else _bytes(unit))
                yield from worker.finish()


def output_schema(plan: ReadPlan) -> "pa.Schema":
    import pyarrow as pa

    schema = carrier_schema((*plan.schema, *plan.keys))
    for name, kind in ((FILE, pa.int32()), (LINE, pa.int64()), (REPORT, pa.string())):
        schema = schema.append(pa.field(name, kind))
    return schema


def _bytes(unit: Unit) -> bytes:
    file = os.open(unit.path, os.O_RDONLY)
    try:
        data = os.pread(file, unit.length, unit.start)
        while len(data) < unit.length:
            more = os.pread(file, unit.length - len(data), unit.start + len(data))
            if not more:
                raise OSError(f"{unit.path} ends before {unit.name}")
            data += more
    finally:
        os.close(file)
    return data


def _report(unit: Unit) -> Report:
    return Report(unit.index, unit.part, size=unit.length if unit.in_parts else 0)


def _first_line(unit: Unit) -> int:
    """Rows of a later part come after those of the earlier ones: a row takes at least one byte."""
    return unit.start if unit.part else 0


def mapped(unit: Unit) -> bytes | memoryview:
    """The unit's bytes, of which only those come into memory that are looked at: files that are read in slices."""
    if not unit.length:
        return b""
    with Path(unit.path).open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))[unit.start : unit.start + unit.length]


def _told(unit: Unit, bad: Bad) -> str:
    """A bad row as the side file has it."""
    told = {"file": unit.name, "line": bad.line, "column": bad.column, "reason": bad.why, "row": bad.text}
    return json.dumps(told, ensure_ascii=False)


class Worker:
    """One share: files in, batches and reports out."""

    def __init__(self, reading: Reading, share: str) -> None:
        self._reading = reading
        self._plan = reading.plan
        self._reader = reader(reading.plan)
        self._schema = output_schema(reading.plan)
        self._columns = (*reading.plan.schema, *reading.plan.keys)
        self._joins = isinstance(self._reader, JsonReader) and not reading.plan.keys
        self._joins &= reading.plan.options.encoding == "utf-8"
        self._waiting: list[tuple[Unit, bytes]] = []
        self._size = 0
        self._rejects = Path(reading.rejects) / f"{share}.jsonl" if reading.rejects else None
        self._rejected: list[str] = []

    def take(self, unit: Unit, data: bytes | memoryview) -> Iterator["pa.RecordBatch"]:
        if not self._joins or len(data) > PIECE_BYTES or isinstance(data, memoryview):
            yield from self._single(unit, data)
            return
        try:
            plain = inflate.inflated_if_small(unit.name, data, _JOINED) if unit.part == 0 else data
        except inflate.CorruptError:
            plain = None
        if plain is None:
            yield from self._single(unit, data)
            return
        self._waiting.append((unit, without_bom(plain, "utf-8") if unit.part == 0 else plain))
        self._size += len(plain)
        if self._size >= PIECE_BYTES:
            yield from self._flush()

    def finish(self) -> Iterator["pa.RecordBatch"]:
        yield from self._flush()
        if self._rejects is not None and self._rejected:
            # Under the share's own name: a second run of the share replaces what the first one wrote.
            draft = self._rejects.with_suffix(f".{os.getpid()}")
            draft.write_text("".join(line + "\n" for line in self._rejected))
            draft.replace(self._rejects)

    def _flush(self) -> Iterator["pa.RecordBatch"]:
        waiting, self._waiting, self._size = self._waiting, [], 0
        if len(waiting) > 1:
            try:
                yield from self._together(waiting)
            except Doubt:
                pass
            else:
                return
        for unit, data in waiting:
            yield from self._single(unit, data, plain=True)

    def _together(self, waiting: list[tuple[Unit, bytes]]) -> Iterator["pa.RecordBatch"]:
        """Many small files as one piece; `Doubt`, before anything was yielded, when not all of it is beyond doubt."""
        import numpy as np
        import pyarrow as pa

        assert isinstance(self._reader, JsonReader)
        bodies = [data.strip(b"\r\n \t") for _, data in waiting]
        piece = b"\n".join(body for body in bodies if body)
        if not piece:
            raise Doubt
        table = self._reader.joined(piece.replace(b"\r\n", b"\n") if b"\r" in piece else piece)
        counts = [newlines(body) + 1 if body else 0 for body in bodies]
        if sum(counts) != table.num_rows:
            raise Doubt
        files = pa.concat_arrays(
            [pa.repeat(pa.scalar(unit.index, pa.int32()), n) for (unit, _), n in zip(waiting, counts, strict=True)]
        )
        firsts = [_first_line(unit) for unit, _ in waiting]
        lines = np.concatenate([np.arange(first, first + n) for first, n in zip(firsts, counts, strict=True)])
        yield from self._batches(table, files, pa.array(lines, pa.int64()))
        reports = []
        for (unit, _), n in zip(waiting, counts, strict=True):
            report = _report(unit)
            report.rows = report.out = report.lines = n
            reports.append(report)
        yield self._reports(reports)

    def _single(self, unit: Unit, data: bytes | memoryview, *, plain: bool = False) -> Iterator["pa.RecordBatch"]:
        report = _report(unit)
        held: list[pa.Table] = []
        holding = 0
        unknown: Schema = ()
        untyped: Schema = ()
        try:
            for item in self._items(unit, data, report, plain=plain):
                match item:
                    case Good():
                        report.rows += item.table.num_rows
                        if self._refused(report):
                            continue
                        held.append(item.table)
                        holding += item.table.nbytes
                        if holding > self._reading.hold:
                            yield from self._release(unit, held, report)
                            holding = 0
                    case Bad():
                        self._note(unit, item, report)
                    case Left():
                        report.left += item.rows
                    case Unknown():
                        unknown = agree(unknown, usable(item.fields))
                        untyped = agree(untyped, usable_ones(item.untyped))
        except inflate.CorruptError as error:
            self._note(unit, Bad(str(error), whole=True), report)
        except BigQueryError as error:
            self._note(unit, Bad(error.message, schema=True, whole=True), report)
        except (OSError, MemoryError):
            raise  # the machine's trouble, not the file's
        except Exception as error:  # noqa: BLE001 - whatever a file does to a reader, it must not hold up the others
            self._note(unit, Bad(f"the file cannot be read: {type(error).__name__}: {error}", whole=True), report)
        report.unknown = [item.rest() for item in unknown]
        report.untyped = [item.rest() for item in untyped]
        if report.unkept:
            why = f"{report.unkept:,} more bad rows are not shown: together they are too large; they are in the file"
            report.rejected.append(_told(unit, Bad(why)))
        if not self._refused(report):
            yield from self._release(unit, held, report)
        yield self._reports([report])

    def _items(self, unit: Unit, data: bytes | memoryview, report: Report, *, plain: bool) -> Iterator[Item]:
        kind = self._plan.options.source_format
        if isinstance(self._reader, BinaryReader):
            if data:
                yield from self._reader.read(data, unit.name)
            return
        assert isinstance(data, bytes)
        if unit.part == 0 and not plain:
            inflate.check_name(unit.name, data)
        packed = not plain and unit.part == 0 and inflate.compressed(data)
        bound = self._plan.options.inflation
        if packed and kind is SourceFormat.JSON and self._plan.options.encoding == "utf-8":
            line = 1
            for piece in inflate.lines(inflate.chunks(data, bound), PIECE_BYTES):
                assert isinstance(self._reader, JsonReader)
                yield from self._reader.read(piece, unit.name, first_line=line)
                line += newlines(piece) + 1
            return
        if packed:
            data = b"".join(inflate.chunks(data, bound))
        if unit.followed:
            report.lines = newlines(data)
        yield from self._reader.read(data, unit.name, unit.part)

    def _refused(self, report: Report) -> bool:
        """Whether nothing more of the file may get out."""
        if report.whole:
            return True
        return self._reading.policy is not BadData.QUARANTINE_ROWS and report.bad > self._reading.tolerated

    def _note(self, unit: Unit, bad: Bad, report: Report) -> None:
        if not report.bad or bad.whole:
            report.why, report.line, report.column, report.schema = bad.why[:2000], bad.line, bad.column, bad.schema
        report.whole |= bad.whole
        report.bad += 1
        if self._reading.policy is not BadData.QUARANTINE_ROWS or bad.whole:
            return
        line = _told(unit, bad)
        if self._rejects is not None:
            self._rejected.append(line)
        elif not report.unkept and sum(map(len, report.rejected)) + len(line) <= _REJECTED_IN_REPORT:
            report.rejected.append(line)
        else:
            report.unkept += 1

    def _release(self, unit: Unit, held: list["pa.Table"], report: Report) -> Iterator["pa.RecordBatch"]:
        import numpy as np
        import pyarrow as pa

        for table in held:
            rows = table.num_rows
            first = _first_line(unit) + report.out
            files = pa.repeat(pa.scalar(unit.index, pa.int32()), rows)
            if self._plan.keys:
                run = (SourceFile(unit.name, unit.constants), rows)
                keys = carry(with_constants(table.select([]), self._plan.keys, [run]), self._plan.keys)
                table = pa.table([*table.columns, *keys.columns], schema=carrier_schema(self._columns))
            report.out += rows
            yield from self._batches(table, files, pa.array(np.arange(first, first + rows), pa.int64()))
        held.clear()

    def _batches(self, table: "pa.Table", files: "pa.Array", lines: "pa.Array") -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa

        nothing = pa.nulls(table.num_rows, pa.string())
        whole = pa.table([*table.columns, files, lines, nothing], schema=self._schema)
        yield from whole.to_batches(max_chunksize=100_000)

    def _reports(self, reports: list[Report]) -> "pa.RecordBatch":
        import pyarrow as pa

        count = len(reports)
        columns = [pa.nulls(count, item.type) for item in self._schema]
        columns[-3] = pa.array([report.index for report in reports], pa.int32())
        columns[-1] = pa.array([report.text() for report in reports], pa.string())
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
