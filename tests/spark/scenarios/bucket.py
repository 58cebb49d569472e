"""Spark reads and writes the bucket itself, through the Cloud Storage connector, against the local Storage."""

import asyncio
import gzip
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.spark.batches import Batches
from tests.spark.scenarios.faults import running
from tests.support.files import lines
from tests.support.loads import schema
from tests.support.spark.connector import connector
from tests.support.spark.processes import QUICK

from ingestd.localcloud.cloud import LocalCloud
from ingestd.model.errors import Transient
from ingestd.model.preparation import BadData, Branch, Shaping
from ingestd.settings import Spark as SparkSettings
from ingestd.spark.files import bucket
from ingestd.spark.preparer import SparkPreparer, Where
from ingestd.spark.session.masters import Files
from ingestd.spark.shape import pipeline, plans
from ingestd.spark.start import spark_for

COLUMNS = schema("id INT64 REQUIRED", "name STRING", "tags STRING REPEATED")


async def main(folder: Path) -> None:
    async with LocalCloud(folder / "cloud", "test-project") as cloud:
        endpoint = cloud.endpoints.environ()["STORAGE_EMULATOR_HOST"]
        conf = {**connector(endpoint), "spark.driver.memory": "768m", "spark.driver.extraJavaOptions": QUICK}
        settings = SparkSettings(master="local[2]", files="gs", scratch=folder / "scratch", warm_up=False, conf=conf)
        async with running(spark_for(settings)) as spark:
            batches = Batches(spark, folder / "world", cloud.storage)
            batches.preparer = SparkPreparer(spark, batches.store, batches.scratch, Where(Files.GS, 2))
            contents = {f"in/{n}.json": lines([{"id": n, "name": "ä", "tags": ["x"]}]) for n in range(5)}
            contents |= {
                "in/a b+ü.json.gz": gzip.compress(lines([{"id": 50}])),
                "in/bad.json": b"{",
                "in/gone.json": b"",
            }
            files = await batches.put_all(contents)
            await batches.store.delete(files[7].ref)
            prepared = await batches.prepare(files, COLUMNS, bad_data=BadData.QUARANTINE_ROWS)
            assert await batches.loaded(prepared) == await batches.direct(files[:6], COLUMNS)
            assert [(bad.index, bad.missing) for bad in prepared.bad] == [(6, False), (7, True)], prepared.bad
            assert len(prepared.rejected) == 1
            assert [len(output.uris) for output in prepared.outputs] == [1], "few rows are one file"
            assert list(batches.scratch.folder.glob("batch-*")) == []
            shaping = Shaping(unique_columns=("name",), branches=(Branch("id = 4"),))
            split = await batches.prepare(files[:6], COLUMNS, shaping=shaping)
            assert [(output.branch, output.rows) for output in split.outputs] == [(-1, 1), (0, 1)]
            assert await batches.loaded(split, 0) == [(4, "ä", ["x"])]
            await large_files(batches)
            await names_that_spark_has_its_own_idea_of(batches)
            await a_file_that_goes_before_it_is_read(batches)


async def large_files(batches: Batches) -> None:
    """Files of lines are cut by Spark, and nobody can tell afterwards."""
    plans.PART_BYTES, pipeline._PARTITION_BYTES = 1000, 20_000
    rows = [{"id": n, "name": "ü" * (n % 50)} for n in range(3000)]
    bad = lines(rows[:2500]) + b'{"id": "none"}\n' + lines(rows[2500:])
    contents = {
        "large/a b+ü.json": b"\xef\xbb\xbf" + lines(rows),
        "large/no-end.json": b"\n" + lines(rows[:2000]).rstrip(b"\n"),
        "large/windows.json": lines(rows).replace(b"\n", b"\r\n"),
        "large/packed.json": gzip.compress(lines(rows), 0),
        "large/bad.json": bad,
    }
    files = await batches.put_all(contents)
    tasks: list[int] = []
    rows_of = bucket.rows

    def counted(*given: Any) -> Any:
        frame = rows_of(*given)
        tasks.append(frame.rdd.getNumPartitions())
        return frame

    bucket.rows = counted
    prepared = await batches.prepare(files, COLUMNS)
    assert tasks[0] > len(files), "they were not cut"
    assert [(item.index, item.line, item.column) for item in prepared.bad] == [(4, 2501, "id")]
    assert prepared.rows_per_file == {0: 3000, 1: 2000, 2: 3000, 3: 3000}
    assert await batches.loaded(prepared) == await batches.direct(files[:4], COLUMNS)
    newest = await batches.prepare(files[:2], COLUMNS, shaping=Shaping(unique_columns=("name",)))
    last = {row["name"]: row["id"] for row in rows[:2000]}  # by name: the later of two files is the newest
    assert {name: number for number, name, _ in await batches.loaded(newest)} == last
    table = "id,name\n" + "".join(f'{n},"a ""{n}"" b"\n' for n in range(3000))
    files = [await batches.put("large/a.csv", table.encode())]
    load = {"sourceFormat": "CSV", "skipLeadingRows": 1}
    columns = schema("id INT64 REQUIRED", "name STRING")
    prepared = await batches.prepare(files, columns, load)
    assert await batches.loaded(prepared) == await batches.direct(files, columns, load)


async def names_that_spark_has_its_own_idea_of(batches: Batches) -> None:
    """A pattern's characters are a name's, and a name that Hadoop cannot spell holds up no other file."""
    names = ["a[1].json", "{b,c}.json", "d*.json", "dx.json", "e?.json", "f%20g.json", "h#i:j.json"]
    hidden = ["_k.json", ".l.json", "m\\n.json", "/o.json"]
    files = await batches.put_all({f"odd/{name}": lines([{"id": n}]) for n, name in enumerate(names + hidden)})
    prepared = await batches.prepare(files, COLUMNS)
    assert prepared.rows_per_file == dict.fromkeys(range(len(names)), 1)
    assert await batches.loaded(prepared) == [(n, None, []) for n in range(len(names))]
    assert [item.index for item in prepared.bad] == list(range(len(names), len(files)))
    assert all("rename it" in item.why and not item.missing for item in prepared.bad)


async def a_file_that_goes_before_it_is_read(batches: Batches) -> None:
    files = await batches.put_all({"goes/a.json": lines([{"id": 1}]), "goes/b.json": lines([{"id": 2}])})
    run = batches.preparer._run

    async def late(*given: Any) -> Any:
        await batches.store.delete(files[0].ref)
        return await run(*given)

    batches.preparer._run = late  # type: ignore[method-assign]
    try:
        await batches.prepare(files, COLUMNS)
    except Transient as error:
        assert "deleted before Spark read them" in str(error)
    else:
        raise AssertionError("nobody noticed")
    batches.preparer._run = run  # type: ignore[method-assign]
    prepared = await batches.prepare(files, COLUMNS)
    assert [item.missing for item in prepared.bad] == [True]
    assert await batches.loaded(prepared) == [(2, None, [])]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(Path(sys.argv[1] if len(sys.argv) > 1 else name)))
