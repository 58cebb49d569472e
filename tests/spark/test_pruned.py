"""Batches of which no row is to be loaded: Spark then leaves the reading out, and the files are judged all the same."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.batches import Batches
from tests.support.files import lines
from tests.support.loads import schema

from ingestd.model.objects import ObjectRef
from ingestd.model.preparation import BadData, Branch, Shaping, SideInput, Unmatched
from ingestd.model.schema import Field, Type
from ingestd.ports import TableRows
from ingestd.spark.files import kept
from ingestd.spark.files.carriers import carrier_schema
from ingestd.spark.preparer import SparkPreparer, Where
from ingestd.spark.session.session import Spark
from ingestd.spark.shape import distinct, pipeline
from ingestd.spark.shape.side_inputs import side_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = schema("id INT64 REQUIRED", "name STRING")
ROWS = lines([{"id": n % 7, "name": f"n{n}"} for n in range(20)])
INNER = SideInput("s", "s.id = t.id", select="SELECT 1", inner=True)
SOME = Branch("id > 1")
NOTHING = {
    "no rows to join": (Shaping(side_inputs=(INNER,)), {}),
    "no rows to join, a key": (Shaping(side_inputs=(INNER,), unique_columns=("id",)), {}),
    "no rows to join, criteria": (Shaping(side_inputs=(INNER,), criteria="t.id > 1 AND s.label = 'x'"), {}),
    "no rows to join, a split": (
        Shaping(side_inputs=(INNER,), branches=(SOME,), unmatched=Unmatched.DROP, every_branch=True),
        {},
    ),
    "never true": (Shaping(criteria="1 = 2"), {"criteria": 40}),
    "never true, a key": (Shaping(criteria="1 = 2", unique_columns=("UPPER(name)",)), {"criteria": 40}),
    "never true, a parameter": (
        Shaping(criteria="@on", parameters={"on": False}, unique_columns=("id",)),
        {"criteria": 40},
    ),
    "never true, a split": (Shaping(branches=(Branch("1 = 2"),), unmatched=Unmatched.DROP), {"unmatched": 40}),
}
SETTINGS = {
    "spark's way, planned as it runs": ("spark.sql.adaptive.enabled", "true"),
    "uncompiled": ("spark.sql.codegen.wholeStage", "false"),  # as plans of many columns are
    "spark's way, uncompiled": ("spark.sql.codegen.wholeStage", "false"),
}
CASES = [(why, way) for why in NOTHING for way in ("kept", "spark's way")]
CASES += [(why, way) for why in ("no rows to join, a key", "no rows to join, criteria") for way in SETTINGS]


class NoRows:
    """A side input that has no rows now."""

    async def ready(self, _: Shaping) -> pipeline.Sides:
        columns = (Field("id", Type.INT64), Field("label", Type.STRING))
        rows = TableRows(columns, carrier_schema(columns).empty_table())
        return lambda session: {"s": side_frame(session, rows)}


@pytest.mark.parametrize(("why", "way"), CASES)
async def test_files_of_which_no_row_is_left_are_judged_and_the_batch_is_done(
    spark: Spark, batches: Batches, monkeypatch: pytest.MonkeyPatch, why: str, way: str
) -> None:
    batches.preparer = SparkPreparer(spark, batches.store, batches.scratch, Where(cores=2), NoRows())
    if way in SETTINGS:
        plain = pipeline.prepare

        def prepare(session: "SparkSession", work: pipeline.Work) -> pipeline.Made:
            session.conf.set(*SETTINGS[way])
            return plain(session, work)

        monkeypatch.setattr(pipeline, "prepare", prepare)
    if way.startswith("spark's way"):
        monkeypatch.setattr(kept, "worthwhile", lambda *_: False)
    files = await batches.put_all({"in/a": ROWS, "in/bad": b'{"id": "?"}\n', "in/b": ROWS})
    shaping, left_out = NOTHING[why]
    prepared = await batches.prepare(files, COLUMNS, shaping=shaping)
    assert [bad.index for bad in prepared.bad] == [1]
    assert (prepared.rows_read, prepared.rows_left_out) == (40, left_out)
    assert sum(output.rows for output in prepared.outputs) == 0


@pytest.mark.parametrize("way", ["kept", "spark's way"])
async def test_bad_rows_are_told_where_no_good_one_is_left(
    spark: Spark, batches: Batches, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    batches.preparer = SparkPreparer(spark, batches.store, batches.scratch, Where(cores=2), NoRows())
    if way == "spark's way":
        monkeypatch.setattr(kept, "worthwhile", lambda *_: False)
    files = await batches.put_all({"in/a": ROWS, "in/bad": ROWS + b'{"id": "?"}\n'})
    shaping, _ = NOTHING["no rows to join, a key"]
    prepared = await batches.prepare(files, COLUMNS, shaping=shaping, bad_data=BadData.QUARANTINE_ROWS)
    assert (prepared.rows_read, prepared.rows_left_out) == (41, {"bad": 1})
    (url,) = prepared.rejected
    told, _ = await batches.store.read(ObjectRef.parse(url))
    assert [json.loads(line)["line"] for line in told.splitlines()] == [21]


def test_a_task_of_several_that_has_not_reported_is_a_defect_and_not_read_again(tmp_path: Path) -> None:
    """Its rows may be missing among those that were written."""
    assert distinct.silent(str(tmp_path), 2)
    (tmp_path / "0.told").write_text('{"reports": [], "dropped": 0}')
    assert not distinct.silent(str(tmp_path), 2)
    with pytest.raises(FileNotFoundError, match=r"1\.told"):
        distinct.told(str(tmp_path), 2)
