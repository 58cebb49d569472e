"""The first jobs of a session: they load and compile what every later batch uses, so that no batch waits for it.

In a new JVM a read-dedupe-write takes ten times as long as in a warm one.
"""

import json
import shutil
import tempfile
from pathlib import Path

from ingestd.prepare.engine import Engine

_ROWS = 200
_SCHEMA = "id BIGINT, name STRING, amount DOUBLE, at TIMESTAMP, tags ARRAY<STRING>, _bad STRING"


def warm_up(engine: Engine) -> None:
    """Read lines as JSON, keep one row per key, write Parquet, read it back: the shape of every batch."""
    folder = Path(tempfile.mkdtemp(prefix="ingestd-warm-"))
    source = folder / "in"
    source.mkdir()
    try:
        for part in range(2):
            (source / f"{part}.json").write_text("".join(_line(row) for row in range(_ROWS)))
        with engine.tagged("warm-up", "default") as session:
            rows = (
                session.read.schema(_SCHEMA)
                .options(mode="PERMISSIVE", columnNameOfCorruptRecord="_bad")
                .json(str(source))
            )
            shaped = rows.selectExpr("id", "upper(name) AS name", "amount * 2 AS amount", "at", "tags", "_bad")
            target = str(folder / "out")
            for _ in range(2):
                shaped.dropDuplicates(["id"]).write.mode("overwrite").option("compression", "zstd").parquet(target)
            session.read.parquet(target).groupBy().count().collect()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _line(row: int) -> str:
    return (
        json.dumps({"id": row, "name": f"n{row}", "amount": row / 4, "at": "2026-01-01T00:00:00Z", "tags": ["a"]})
        + "\n"
    )
