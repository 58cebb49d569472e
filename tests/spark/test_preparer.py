"""What the preparer promises the batch: an answer that lasts, nothing lost, nothing left behind."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark.batches import Batches
from tests.support.files import lines
from tests.support.loads import schema

from ingestd.model.errors import BadInput, Fatal, Throttled, Transient
from ingestd.model.objects import ObjectRef
from ingestd.model.preparation import BadData, FileLayout
from ingestd.model.schema import Field, Schema, Type
from ingestd.spark.files.scratch import Scratch
from ingestd.spark.preparer import SparkPreparer, Where
from ingestd.spark.session.session import Spark
from ingestd.spark.shape import pipeline

COLUMNS = schema("id INT64 REQUIRED", "name STRING", "tags STRING REPEATED")


async def test_many_files_become_few_and_every_row_arrives_once(batches: Batches) -> None:
    rows = [[{"id": i * 10 + k, "name": f"n{k}", "tags": ["a", "b"]} for k in range(10)] for i in range(40)]
    files = await batches.put_all({f"in/{i:03d}.json": lines(part) for i, part in enumerate(rows)})
    prepared = await batches.prepare(files, COLUMNS)
    assert await batches.loaded(prepared) == await batches.direct(files, COLUMNS)
    assert sum(len(output.uris) for output in prepared.outputs) <= 2
    assert prepared.outputs[0].rows == prepared.rows_read == 400
    assert prepared.rows_per_file == dict.fromkeys(range(40), 10)
    assert prepared.bad == ()


async def test_an_attempt_whose_manifest_exists_is_its_own_answer(batches: Batches) -> None:
    files = [await batches.put("in/a.json", lines([{"id": 1}]))]
    request = batches.request(files, COLUMNS)
    first = await batches.preparer.prepare(request)
    await batches.store.delete(files[0].ref)
    assert await batches.preparer.prepare(request) == first
    assert len([name for name in await batches.names("staging/") if "manifest" in name]) == 1


async def test_two_replicas_at_the_same_attempt_agree_on_one_manifest(batches: Batches) -> None:
    files = [await batches.put("in/a.json", lines([{"id": 1}]))]
    request = batches.request(files, COLUMNS)
    one, other = await asyncio.gather(batches.preparer.prepare(request), batches.preparer.prepare(request))
    assert one == other
    assert await batches.loaded(one) == [(1, None, [])]


async def test_files_that_are_gone_or_overwritten_are_named_and_the_others_loaded(batches: Batches) -> None:
    files = await batches.put_all({f"in/{i}.json": lines([{"id": i}]) for i in range(3)})
    await batches.store.delete(files[0].ref)
    await batches.put("in/1.json", lines([{"id": 100}]))
    prepared = await batches.prepare(files, COLUMNS)
    assert [(bad.index, bad.missing) for bad in prepared.bad] == [(0, True), (1, True)]
    assert await batches.loaded(prepared) == [(2, None, [])]


async def test_a_batch_of_nothing_but_missing_files_is_settled_without_rows(batches: Batches) -> None:
    files = [await batches.put("in/a.json", lines([{"id": 1}]))]
    await batches.store.delete(files[0].ref)
    prepared = await batches.prepare(files, COLUMNS)
    assert prepared.outputs == ()
    assert [bad.missing for bad in prepared.bad] == [True]


async def test_empty_files_have_no_rows_and_are_accounted_for(batches: Batches) -> None:
    files = await batches.put_all({"in/a.json": b"", "in/b.json": lines([{"id": 1}]), "in/c.json": b"\n\n"})
    prepared = await batches.prepare(files, COLUMNS)
    assert prepared.rows_per_file == {0: 0, 1: 1, 2: 0}
    assert prepared.bad == ()
    assert await batches.loaded(prepared) == [(1, None, [])]


async def test_scratch_is_empty_after_success_and_after_failure(batches: Batches) -> None:
    files = [await batches.put("in/a.json", b"{")]
    await batches.prepare(files, COLUMNS)
    with pytest.raises(BadInput, match=r"Merge\.Format"):
        await batches.prepare(files, COLUMNS, layout=FileLayout(format="XML"))
    assert list(batches.scratch.folder.iterdir()) == []


@pytest.mark.parametrize("more", [(), schema("more JSON")], ids=["parquet", "lines"])
async def test_names_that_differ_only_in_case_are_the_same_columns(batches: Batches, more: Schema) -> None:
    """Rows that nothing shapes are written as they are, by the names that they have in the files."""

    def columns(name: str, inner: str) -> Schema:
        fields = [{"name": inner, "type": "FLOAT"}]
        return (Field(name, Type.INT64), Field.from_rest({"name": "loc", "type": "RECORD", "fields": fields}), *more)

    files = await batches.put_all({"in/a": b'{"Id": 1, "loc": {"Lat": 2.5}}\n', "in/b": b'{"id": 2}\n'})
    prepared = await batches.prepare(files, columns("id", "lat"), source_schema=columns("Id", "Lat"))
    found = await batches.loaded(prepared)
    assert [(row[0], row[1]) for row in found] == [(1, {"lat": 2.5}), (2, None)]


async def test_a_batch_larger_than_scratch_says_what_to_change(batches: Batches) -> None:
    files = [await batches.put("in/a.json", lines([{"id": 1}]))]
    batches.scratch.limit = 3
    with pytest.raises(Fatal, match=r"spark\.scratch_size"):
        await batches.prepare(files, COLUMNS)


async def test_discard_removes_everything_under_the_batchs_folder_and_nothing_beside_it(batches: Batches) -> None:
    files = [await batches.put("in/a.json", lines([{"id": 1}]))]
    await batches.prepare(files, COLUMNS)
    await batches.store.create(ObjectRef("bucket", "staging/batch10/kept"), b"")
    await batches.preparer.discard(ObjectRef("bucket", "staging/batch1"))
    await batches.preparer.discard(ObjectRef("bucket", "staging/batch1"))
    assert await batches.names("staging/") == ["staging/batch10/kept"]


async def test_a_large_file_of_lines_is_read_by_several_tasks(
    batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingestd.spark.shape.plans.PART_BYTES", 1000)
    rows = [{"id": i, "name": "x" * (i % 50)} for i in range(2000)]
    files = [await batches.put("in/a.json", lines(rows)), await batches.put("in/b.json", lines(rows[:5]))]
    prepared = await batches.prepare(files, COLUMNS)
    assert prepared.rows_per_file == {0: 2000, 1: 5}
    assert await batches.loaded(prepared) == await batches.direct(files, COLUMNS)


async def test_a_large_csv_file_has_one_header(batches: Batches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingestd.spark.shape.plans.PART_BYTES", 1000)
    columns = schema("id INT64 REQUIRED", "name STRING")
    text = "id,name\n" + "".join(f'{n},"a ""{n}"" b"\n' for n in range(1000))
    files = [await batches.put("in/a.csv", text.encode()), await batches.put("in/b.csv", b"id,name\n5,x\n")]
    load = {"sourceFormat": "CSV", "skipLeadingRows": 1}
    prepared = await batches.prepare(files, columns, load)
    assert prepared.rows_per_file == {0: 1000, 1: 1}
    assert await batches.loaded(prepared) == await batches.direct(files, columns, load)


async def test_a_bad_part_of_a_large_file_sets_all_of_the_file_aside(
    batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingestd.spark.shape.plans.PART_BYTES", 1000)
    rows = [{"id": i, "name": "x" * (i % 50)} for i in range(2000)]
    large = lines(rows[:1500]) + b'{"id": "none"}\n' + lines(rows[1500:])
    files = [await batches.put("in/a.json", large), await batches.put("in/b.json", lines(rows[:5]))]
    prepared = await batches.prepare(files, COLUMNS)
    assert [(bad.index, bad.line, bad.column) for bad in prepared.bad] == [(0, 1501, "id")]
    assert await batches.loaded(prepared) == await batches.direct(files[1:], COLUMNS)


async def test_prepared_files_that_somebody_cleared_away_never_pass_for_a_batch_without_rows(
    batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = pipeline.prepare

    def cleared(session: Any, work: Any) -> Any:
        made = plain(session, work)
        shutil.rmtree(made.target)
        return made

    files = [await batches.put("in/a.json", lines([{"id": 1}]))]
    request = batches.request(files, COLUMNS)
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "prepare", cleared)
        with pytest.raises(Transient, match="are gone"):
            await batches.preparer.prepare(request)
    assert await batches.names("staging/") == []
    assert await batches.loaded(await batches.preparer.prepare(request)) == [(1, None, [])]


async def test_a_bad_row_among_rows_whose_columns_are_detected_is_set_aside_alone(batches: Batches) -> None:
    data = lines([{"id": 1, "name": "a"}]) + b"{broken\n" + lines([{"id": 2.5}])
    files = [await batches.put("in/a.json", data)]
    load = {"sourceFormat": "NEWLINE_DELIMITED_JSON", "autodetect": True}
    prepared = await batches.prepare(files, (), load, bad_data=BadData.QUARANTINE_ROWS)
    assert await batches.loaded(prepared) == [(1.0, "a"), (2.5, None)]
    assert [(bad.line, bad.rows, bad.loaded) for bad in prepared.bad] == [(2, 1, True)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of eight megabytes, which really is full when it is."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root may make a small disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


async def test_a_disk_that_is_full_while_spark_writes_holds_the_batch_up_and_costs_it_nothing(
    batches: Batches, spark: Spark, small_disk: Path
) -> None:
    rows = [{"id": n, "name": os.urandom(500).hex()} for n in range(5000)]
    files = [await batches.put("in/a.json", lines(rows))]  # of five megabytes: once there is room for, and not twice
    batches.preparer = SparkPreparer(spark, batches.store, Scratch(small_disk, 1 << 30), Where(cores=2))
    plain = FileLayout(format="NEWLINE_DELIMITED_JSON", compression="NONE")
    request = batches.request(files, COLUMNS, layout=plain)
    with pytest.raises(Throttled, match="No space left"):
        await batches.preparer.prepare(request)
    assert list(small_disk.glob("batch-*")) == []
    assert await batches.names("staging/") == []
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    prepared = await batches.preparer.prepare(request)
    assert await batches.loaded(prepared) == await batches.direct(files, COLUMNS)
