"""The first jobs of a session: they prove that a batch can be prepared on it, and warm up what every later batch uses.

A session that came up may still be of no use: PySpark without pandas, workers with another Python, executors that never
come. So no session is ready before `prove` got an answer out of its Python workers, which import what they read files
with and answer in Arrow. Where the workers see this machine's disk, `warm_up` then runs small batches through the real
pipeline: in a new JVM the same batch takes ten times as long as in a warm one. Where only few batches are to come, that
would take longer than it saves.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from ingestd.formats.options import LoadOptions
from ingestd.model.errors import Fatal
from ingestd.model.preparation import BadData, FileLayout, Shaping
from ingestd.model.schema import Field, Mode, Type
from ingestd.spark.files.read_task import Unit
from ingestd.spark.files.readers import ReadPlan
from ingestd.spark.session.engine import Engine
from ingestd.spark.session.masters import Kind, Master
from ingestd.spark.shape import pipeline

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 20_000  # enough to be worth compiling for
_NAMES = 50
_TASKS = 4  # for the executors
_TIMES = 3  # the compiler looks at what ran more than once
_COLUMNS = (
    Field("id", Type.INT64),
    Field("name", Type.STRING),
    Field("amount", Type.FLOAT64),
    Field("at", Type.TIMESTAMP),
    Field("tags", Type.STRING, Mode.REPEATED),
)


def warm_up(engine: Engine, where: Master, times: int = _TIMES, rows: int = _ROWS) -> None:
    """Raises what kept the session from preparing a batch."""
    prove(engine, where)
    if where.kind is not Kind.LOCAL:
        return
    folder = Path(tempfile.mkdtemp(prefix="ingestd-warm-"))
    try:
        for number in range(times):
            # Of many names and of few, which Spark sees all of and one of each.
            content = b"".join(_line(row, rows if number % 2 else _NAMES) for row in range(rows))
            work = _batch(folder, number, where.cores, content)
            with engine.tagged("warm-up", "default") as session:
                made = pipeline.prepare(session, work)
            if sum(made.rows.values()) != rows:
                raise Fatal(f"Spark made {sum(made.rows.values())} rows of {rows} when it was tried")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def prove(engine: Engine, where: Master) -> None:
    """The shortest work that takes every part a batch takes: PySpark's packages, workers, Arrow, a shuffle.

    On one machine, one worker proves as much as all, and what is shuffled meets no network: a trial's first seconds.
    """
    local = where.kind is Kind.LOCAL
    tasks = 1 if local else _TASKS
    with engine.tagged("proof", "default") as session:
        awake = session.range(0, tasks, 1, tasks).mapInArrow(Awake(), "k BIGINT")
        found = awake.collect() if local else awake.groupBy("k").count().collect()
    if (len(found) if local else sum(row["count"] for row in found)) != tasks:
        raise Fatal(f"Spark's workers lost rows when they were tried: {found}")


class Awake:
    """What `mapInArrow` runs on executors: whatever reading files needs is there, or the import says what is not."""

    def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        from ingestd.spark.files import bucket, readers

        assert bucket and readers
        for batch in batches:
            yield pa.record_batch({"k": pa.array([number % 7 for number in batch.column(0).to_pylist()], pa.int64())})


def _batch(folder: Path, number: int, cores: int, content: bytes) -> pipeline.Work:
    """Lines as JSON, one row per key, a transformed column, Parquet: the shape of every batch."""
    units = []
    for index in range(2):
        path = folder / f"{number}-{index}.json"
        path.write_bytes(content)
        units.append(Unit(index, path.name, str(path), 0, len(content)))
    options = LoadOptions.from_rest({"sourceFormat": "NEWLINE_DELIMITED_JSON"})
    return pipeline.Work(
        plan=ReadPlan(_COLUMNS, options),
        units=tuple(units),
        destination=_COLUMNS,
        shaping=Shaping(transform={"name": "UPPER(t.name)"}, unique_columns=("id",)),
        policy=BadData.QUARANTINE_FILE,
        layout=FileLayout(),
        target=str(folder / f"out-{number}"),
        names=tuple(unit.name for unit in units),
        order=(0, 1),
        cores=cores,
    )


def _line(row: int, names: int) -> bytes:
    value = {"id": row, "name": f"n{row % names}", "amount": row / 4, "at": "2026-01-01T00:00:00Z", "tags": ["a"]}
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
