"""The first jobs of a session: they load and compile what every later batch uses, so that no batch waits for it.

In a new JVM the same small batch takes ten times as long as in a warm one, and Spark's Python workers have to be
started and to import what they read files with. Where the workers see this machine's disk, the warm-up is a small batch
through the real pipeline; elsewhere, a job that wakes the executors.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from ingestd.formats.options import LoadOptions
from ingestd.model.preparation import BadData, FileLayout, Shaping
from ingestd.prepare import pipeline
from ingestd.prepare.engine import Engine
from ingestd.prepare.masters import Kind, Master
from ingestd.prepare.readers import ReadPlan
from ingestd.prepare.reading import Unit
from ingestd.prepare.types import parse_schema

_ROWS = 20_000  # enough to be worth compiling for
_TIMES = 3  # the compiler looks at what ran more than once
_COLUMNS: tuple[dict[str, Any], ...] = (
    {"name": "id", "type": "INT64"},
    {"name": "name", "type": "STRING"},
    {"name": "amount", "type": "FLOAT64"},
    {"name": "at", "type": "TIMESTAMP"},
    {"name": "tags", "type": "STRING", "mode": "REPEATED"},
)


def warm_up(engine: Engine, where: Master, times: int = _TIMES) -> None:
    if where.kind is not Kind.LOCAL:
        with engine.tagged("warm-up", "default") as session:
            session.range(0, 1000, 1, 4).selectExpr("id % 7 AS k").groupBy("k").count().collect()
        return
    folder = Path(tempfile.mkdtemp(prefix="ingestd-warm-"))
    try:
        for number in range(times):
            work = _batch(folder, number, where.cores)
            with engine.tagged("warm-up", "default") as session:
                pipeline.prepare(session, work)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _batch(folder: Path, number: int, cores: int) -> pipeline.Work:
    """Lines as JSON, one row per key, a transformed column, Parquet: the shape of every batch."""
    units = []
    for index in range(2):
        path = folder / f"{number}-{index}.json"
        path.write_text("".join(map(_line, range(_ROWS))))
        units.append(Unit(index, path.name, str(path), 0, path.stat().st_size))
    schema = parse_schema(_COLUMNS)
    options = LoadOptions.from_rest({"sourceFormat": "NEWLINE_DELIMITED_JSON"})
    return pipeline.Work(
        plan=ReadPlan(schema, options),
        units=tuple(units),
        destination=schema,
        shaping=Shaping(transform={"name": "UPPER(t.name)"}, unique_columns=("id",)),
        policy=BadData.QUARANTINE_FILE,
        layout=FileLayout(),
        target=str(folder / f"out-{number}"),
        names=tuple(unit.name for unit in units),
        order=(0, 1),
        cores=cores,
    )


def _line(row: int) -> str:
    value = {"id": row, "name": f"n{row}", "amount": row / 4, "at": "2026-01-01T00:00:00Z", "tags": ["a"]}
    return json.dumps(value) + "\n"
