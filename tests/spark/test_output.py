"""Prepared files: few, well sized, in a format that carries every column."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from tests.spark.batches import Batches
from tests.support.files import lines
from tests.support.loads import schema

from ingestd.model.objects import ObjectRef
from ingestd.model.preparation import BadData, BadFile, FileLayout, Output, Prepared, Shaping
from ingestd.model.schema import Field, Mode, Type
from ingestd.spark.files import manifest
from ingestd.spark.files.read_task import Unit
from ingestd.spark.shape import pipeline


async def test_parquet_files_say_which_columns_are_required_and_which_are_lists(
    batches: Batches, tmp_path: Path
) -> None:
    columns = schema("id INT64 REQUIRED", "at TIMESTAMP REQUIRED", "dt DATETIME", "tags STRING REPEATED", "n NUMERIC")
    files = [await batches.put("in/a.json", lines([{"id": 1, "at": "0001-01-01", "dt": "0001-01-01", "n": "1.5"}]))]
    prepared = await batches.prepare(files, columns)
    data, _ = await batches.store.read(ObjectRef.parse(prepared.outputs[0].uris[0]))
    (tmp_path / "x.parquet").write_bytes(data)
    file = pyarrow.parquet.ParquetFile(tmp_path / "x.parquet")
    required = {column.name: column.max_definition_level == 0 for column in map(file.schema.column, range(2))}
    assert required == {"id": True, "at": True}
    assert file.schema.column(1).logical_type.type == "TIMESTAMP"
    assert file.schema.column(2).logical_type.to_json().count('"isAdjustedToUTC":false') == 1
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert prepared.load_options == {
        "parquetOptions": {"enableListInference": True},
        "columnNameCharacterMap": "V2",
    }
    assert await batches.loaded(prepared) == await batches.direct(files, columns)


@pytest.mark.parametrize(
    ("layout", "suffix"),
    [
        (FileLayout(compression="snappy"), ".parquet"),
        (FileLayout(format="NEWLINE_DELIMITED_JSON"), ".json.gz"),
        (FileLayout(format="json", compression="none"), ".json"),
    ],
)
async def test_format_and_compression_can_be_asked_for(batches: Batches, layout: FileLayout, suffix: str) -> None:
    columns = schema("id INT64 REQUIRED", "f FLOAT64", "tags STRING REPEATED")
    files = [await batches.put("in/a.json", lines([{"id": 2**62, "f": 1e300}, {"id": 2, "tags": ["x"], "f": "NaN"}]))]
    prepared = await batches.prepare(files, columns, layout=layout)
    assert all(uri.endswith(suffix) for uri in prepared.outputs[0].uris)
    assert repr(await batches.loaded(prepared)) == repr(await batches.direct(files, columns))


def _work(sizes: list[int], cores: int, target: int = 256 << 20) -> Any:
    units = tuple(Unit(n, f"{n}", length=size) for n, size in enumerate(sizes))
    plan: Any = None
    return pipeline.Work(
        plan, units, (), Shaping(), BadData.FAIL, FileLayout(target_size=target), "", ("",) * len(sizes), cores=cores
    )


@pytest.mark.parametrize(
    ("sizes", "cores", "count"),
    [
        ([1000], 8, 1),
        ([50_000] * 20, 8, 1),
        ([50_000] * 2000, 8, 8),
        ([50_000] * 300, 8, 4),
        ([5_000_000] * 2000, 2, 19),  # 10 GB into files of about 256 MB
    ],
)
def test_tasks_use_the_cores_and_leave_files_of_some_size(sizes: list[int], cores: int, count: int) -> None:
    assert pipeline.tasks(_work(sizes, cores)) == count


async def test_numbers_that_a_double_would_round_are_text_in_json(batches: Batches) -> None:
    columns = schema("id INT64", "t TIME")
    ids = [2**53 - 1, -(2**53) + 1, 2**53 + 1, -(2**63)]
    files = [await batches.put("in/a.json", lines([{"id": one, "t": "10:00:00"} for one in ids]))]
    prepared = await batches.prepare(files, columns)
    data, _ = await batches.store.read(ObjectRef.parse(prepared.outputs[0].uris[0]))
    written = [json.loads(line)["id"] for line in gzip.decompress(data).splitlines()]
    assert written == [ids[0], ids[1], str(ids[2]), str(ids[3])]
    assert [row[0] for row in await batches.loaded(prepared)] == sorted(ids)


async def test_columns_of_any_name_arrive(batches: Batches) -> None:
    names = ["order id", "größe", "a-b", "percent%", "x=y"]
    columns = tuple(Field(name, Type.STRING) for name in names)
    rows = [dict.fromkeys(names, "v")]
    files = [await batches.put("in/a.json", lines(rows))]
    prepared = await batches.prepare(files, columns)
    assert prepared.format == "PARQUET"
    assert await batches.loaded(prepared) == [("v", "v", "v", "v", "v")]


@pytest.mark.parametrize("transform", [{}, {"ssn": "UPPER(t.ssn)"}])
async def test_what_is_said_of_a_column_besides_its_type_goes_with_it(
    batches: Batches, transform: dict[str, str]
) -> None:
    """Who may read a column is part of a table that a load makes, or replaces."""
    tags = {"policyTags": {"names": ["projects/p/locations/us/taxonomies/1/policyTags/2"]}}
    fields = [{"name": "n", "type": "NUMERIC", "roundingMode": "ROUND_HALF_EVEN", "mode": "NULLABLE"}]
    said = (
        {"name": "ssn", "type": "STRING", "mode": "NULLABLE", "collation": "und:ci", **tags},
        {"name": "r", "type": "RECORD", "mode": "NULLABLE", "fields": fields},
    )
    files = [await batches.put("in/a.json", lines([{"ssn": "x", "r": {"n": "1.5"}}]))]
    columns = tuple(map(Field.from_rest, said))
    request = batches.request(files, (), shaping=Shaping(transform=transform))
    prepared = await batches.preparer.prepare(replace(request, schema=columns))
    assert prepared.schema == columns
    assert tuple(item.rest() for item in prepared.schema) == said


def test_shares_are_balanced_and_lose_nothing() -> None:
    units = [Unit(n, "", length=size) for n, size in enumerate([100, 1, 1, 1, 50, 50])]
    shares = pipeline.share(units, 2)
    assert sorted(unit.index for share in shares for unit in share) == [0, 1, 2, 3, 4, 5]
    assert sorted(sum(unit.length for unit in share) for share in shares) == [101, 102]


def test_a_manifest_comes_back_as_it_was_written() -> None:
    prepared = Prepared(
        attempt=2,
        format="PARQUET",
        schema=(Field("id", Type.INT64, Mode.REQUIRED),),
        outputs=(Output(-1, ("gs://b/x",), 3, 10), Output(1, ("gs://b/y", "gs://b/z"), 5, 20)),
        bad=(BadFile(0, "why", schema=True, line=3, column="c", rows=2, loaded=True), BadFile(4, "gone", missing=True)),
        added=(Field("new", Type.STRING),),
        relaxed=("id",),
        rows_read=10,
        rows_left_out={"duplicate": 2},
        rows_per_file={0: 4, 3: 6},
        rejected=("gs://b/r",),
        load_options={"parquetOptions": {"enableListInference": True}},
    )
    assert manifest.decode(manifest.encode(prepared)) == prepared


def test_files_are_ranked_by_time_then_name() -> None:
    assert pipeline.rank([(2, "a"), (1, "z"), (2, "b"), (1, "a")]) == (2, 1, 3, 0)


def test_files_of_a_task_that_was_not_committed_are_passed_over(tmp_path: Path) -> None:
    for place in ("part-0.parquet", "_temporary/0/part-1.parquet", "_ingestd_branch=0/part-2.parquet"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).touch()
    found = pipeline.local_files(str(tmp_path), {-1: 1, 0: 1})
    assert {branch: [path.name for path in paths] for branch, paths in found.items()} == {
        -1: ["part-0.parquet"],
        0: ["part-2.parquet"],
    }
