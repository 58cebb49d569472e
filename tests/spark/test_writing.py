"""Files that the workers write: rows that come back from Spark beside the columns that waited in scratch."""

import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.loads import schema

from ingestd.formats.options import LoadOptions
from ingestd.model.preparation import BadData, Shaping, SideInput
from ingestd.model.schema import Schema
from ingestd.spark.files import write_task
from ingestd.spark.files.kept import Keeping, Kept
from ingestd.spark.files.read_task import Reading, Unit
from ingestd.spark.files.readers import ReadPlan
from ingestd.spark.files.reserved import BRANCH, ROW
from ingestd.spark.files.write_task import Writing, Written
from ingestd.spark.shape.steps import late_columns

NDJSON = LoadOptions.from_rest({"sourceFormat": "NEWLINE_DELIMITED_JSON"})
COLUMNS = schema(
    "id INT64 REQUIRED",
    "name STRING",
    "amount NUMERIC",
    "on DATE",
    "at TIMESTAMP",
    "local DATETIME",
    "raw BYTES",
    "tags STRING REPEATED",
)


def row(n: int) -> dict[str, Any]:
    told = {"id": n, "name": f"n{n}", "amount": f"{n}.5", "on": "2026-01-02", "at": "1900-01-01T00:00:00.000001Z"}
    return {**told, "local": "9999-12-31T23:59:59", "raw": "AAE=", "tags": [f"t{n}"] if n % 2 else []}


def value(n: int, name: str) -> dict[str, Any]:
    moment = datetime(1900, 1, 1, 0, 0, 0, 1, UTC)
    told = {"id": n, "name": name, "amount": Decimal(f"{n}.5"), "on": date(2026, 1, 2), "at": moment}
    return {**told, "local": datetime(9999, 12, 31, 23, 59, 59), "raw": b"\0\1", "tags": [f"t{n}"] if n % 2 else []}  # noqa: DTZ001


def keep(folder: Path, columns: Schema, shares: list[list[dict[str, Any]]]) -> str:
    """Rows in scratch, as the workers of that many tasks leave them."""
    units = []
    for number, rows in enumerate(shares):
        path = folder / f"{number}.json"
        path.write_text("".join(json.dumps(one) + "\n" for one in rows))
        units.append((Unit(number, path.name, str(path), 0, path.stat().st_size),))
    reading = Reading(ReadPlan(columns, NDJSON), BadData.QUARANTINE_FILE, tuple(units))
    for number in range(len(shares)):
        assert Keeping(reading, str(folder)).share(number) is not None
    return str(folder)


def seen(folder: str, shares: int, *columns: str) -> list[pa.RecordBatch]:
    """What Spark gets to see."""
    kept = Kept(folder, marked=False, columns=columns)
    return [batch for number in range(shares) for batch in kept.share(number)]


def late(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, name) for name in names)


def test_rows_from_a_shuffle_meet_their_own_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any order, some left out, from several tasks, in row groups of any size."""
    monkeypatch.setattr(write_task, "_GROUP_ROWS", 7)
    folder = keep(tmp_path, COLUMNS, [[row(n) for n in range(40)], [row(n) for n in range(40, 55)]])
    rows = pa.Table.from_batches(seen(folder, 2, "name"))
    order = np.random.default_rng(7).permutation(55)[:30]
    mixed = rows.take(pa.array(order)).to_pylist()
    shaped = pa.Table.from_pylist([{"name": one["name"].upper(), ROW: one[ROW]} for one in mixed])
    task = Writing(
        folder, str(tmp_path), COLUMNS, late(*(item.name for item in COLUMNS if item.name != "name")), "zstd"
    )
    told = Written.of([task.write(shaped.to_batches(max_chunksize=11), 3)])
    assert (told.rows, told.empty) == ({-1: 30}, {})
    file = pq.ParquetFile(tmp_path / "part-00003.parquet")
    assert sorted(file.read().to_pylist(), key=lambda one: one["id"]) == [value(n, f"N{n}") for n in sorted(order)]
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert file.metadata.num_row_groups > 3
    assert [file.schema_arrow.field(item.name).nullable for item in COLUMNS] == [False, *[True] * 7]
    assert not list(tmp_path.glob("draft-*"))


@pytest.mark.parametrize("taken", [[0, 0, 2], [0, 1, 1, 3], [1, 1, 1, 4], [0, 0, 2, 3, 3, 5, 6, 6, 8]])
def test_rows_that_a_join_has_copied_beside_others_that_it_left_out_keep_their_own_columns(
    tmp_path: Path, taken: list[int]
) -> None:
    """As many copies as gaps: from the first to the last number it looks as if none were missing."""
    columns = schema("id INT64", "name STRING")
    folder = keep(tmp_path, columns, [[{"id": n, "name": f"n{n}"} for n in range(9)]])
    joined = pa.Table.from_batches(seen(folder, 1, "name")).take(pa.array(taken))
    Writing(folder, str(tmp_path), columns, late("id"), "none").write(joined.to_batches(), 0)
    found = pq.ParquetFile(tmp_path / "part-00000.parquet").read().to_pylist()
    assert found == [{"id": n, "name": f"n{n}"} for n in taken]


def test_each_branch_has_files_of_its_own(tmp_path: Path) -> None:
    columns = schema("id INT64", "name STRING")
    folder = keep(tmp_path, columns, [[{"id": n, "name": f"n{n}"} for n in range(9)]])
    (batch,) = seen(folder, 1, "id")
    split = batch.append_column(BRANCH, pa.array([n % 3 - 1 for n in range(9)], pa.int32()))
    told = Written.of(
        [Writing(folder, str(tmp_path), columns, late("name"), "snappy", branches=True).write([split], 0)]
    )
    assert told.rows == {-1: 3, 0: 3, 1: 3}
    found = pq.ParquetFile(tmp_path / f"{BRANCH}=1/part-00000.parquet").read().to_pylist()
    assert found == [{"id": n, "name": f"n{n}"} for n in (2, 5, 8)]


def test_what_is_required_and_missing_is_counted_and_an_array_is_never_null(tmp_path: Path) -> None:
    columns = schema("id INT64 REQUIRED", "tags STRING REPEATED")
    rows = pa.record_batch(
        {"id": pa.array([1, None]), "tags": pa.array([None, ["a"]], pa.list_(pa.string())), ROW: [0, 1]}
    )
    told = Written.of([Writing("", str(tmp_path), columns, (), "none", ("id",)).write([rows], 0)])
    assert (told.rows, told.empty) == ({-1: 2}, {"id": 1})
    relaxed = schema("id INT64", "tags STRING REPEATED")
    told = Written.of([Writing("", str(tmp_path), relaxed, (), "uncompressed", ("id",)).write([rows], 0)])
    assert told.empty == {"id": 1}
    found = pq.ParquetFile(tmp_path / "part-00000.parquet").read().to_pylist()
    assert found == [{"id": 1, "tags": []}, {"id": None, "tags": ["a"]}]


def test_only_columns_that_nobody_looks_at_and_nothing_changes_come_late() -> None:
    source = schema("id INT64", "name STRING", "x FLOAT64", "n INT64", "note STRING")
    table = schema("note STRING", "ID INT64", "name STRING", "x FLOAT64", "n NUMERIC", "more STRING")
    every = {"note": "note", "ID": "id", "name": "name", "x": "x"}  # `n` becomes another type on its way
    assert late_columns(Shaping(), source, table) == every
    assert late_columns(Shaping(), source, ()) == {name: name for name in ("id", "name", "x", "n", "note")}
    shaping = Shaping(
        transform={"name": "UPPER(t.name)", "more": "CONCAT(t.note, 'x')"},
        unique_columns=("id",),
        side_inputs=(SideInput("s", "s.id = t.x", select="SELECT 1 AS id"),),
    )
    assert late_columns(shaping, source, table) == {}
    assert late_columns(Shaping(transform={"more": "TO_JSON_STRING(t)"}), source, table) == {}


def test_workers_are_forked_from_a_process_of_one_thread() -> None:
    """It has imported what readers and writers are made of, and not Arrow, whose threads a fork leaves behind."""
    code = (
        "import os, sys; from ingestd.spark.workers import preload; preload(); "
        "print(len(os.listdir('/proc/self/task')), *(name in sys.modules for name in "
        "('ingestd.spark.files.readers', 'pyspark.worker', 'pyarrow', 'pandas')))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["1", "True", "True", "False", "False"]
