"""`spark_transform.sql`: what Spark SQL selects from `temp_ext` is what the directory loads."""

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.waiting import patiently

from ingestd.app import App, assemble
from ingestd.gcp.connect import Clients
from ingestd.intake.notifications import FINALIZE, ObjectEvent
from ingestd.intake.receipts import Receipt
from ingestd.intake.router import EVENTS
from ingestd.model.clock import SystemClock
from ingestd.model.objects import FileVersion, ObjectRef
from ingestd.settings import Settings
from ingestd.spark.files.scratch import Scratch
from ingestd.spark.preparer import SparkPreparer, Where
from ingestd.spark.session.masters import Files
from ingestd.spark.session.session import Spark
from ingestd.spark.statements import SparkStatements

SQL = """WITH spread AS (SELECT id, explode(split(names, ';')) AS name FROM temp_ext)
SELECT id, upper(name) AS name FROM spread WHERE name <> '';
"""


@pytest.fixture
def app(clients: Clients, spark: Spark, bucket: str, tmp_path: Path) -> App:
    (tmp_path / "rules").mkdir()
    settings = Settings.model_validate(
        {
            "project": "test-project",
            "rules": {"url": str(tmp_path / "rules")},
            "journal_url": f"gs://{bucket}/ops/journal",
            "error_url": f"gs://{bucket}/ops/errors",
            "batch_url": f"gs://{bucket}/ops/batch",
            "defer_task_url": f"gs://{bucket}/ops/tasks",
            "staging_url": f"gs://{bucket}/ops/staging",
            "load_state": {"enabled": False},
            "jobs": {"poll_every": "200ms"},
            "success": {"conventions": [{"bucket": bucket}]},
        }
    )
    parts = (spark, clients.store, Scratch(tmp_path / "scratch", 1 << 30), Where(Files.LOCAL, 2))
    return assemble(settings, clients, SystemClock(), SparkPreparer(*parts), statements=SparkStatements(*parts))


class Told:
    """The message about a success file."""

    def __init__(self) -> None:
        self.acknowledged = False

    def ack(self) -> None:
        self.acknowledged = True


async def arrive(app: App, file: FileVersion) -> bool:
    """Deliver the success file's notification; False when it was known already."""
    assert app.success is not None
    known, told = EVENTS.counts["duplicate"], Told()
    work = app.success.deliver(ObjectEvent(FINALIZE, file), None, cast("Receipt", told))
    if work is not None:
        await work
    assert told.acknowledged
    return EVENTS.counts["duplicate"] == known


async def put(clients: Clients, bucket: str, name: str, data: str = "") -> FileVersion:
    ref = ObjectRef(bucket, name)
    return FileVersion(ref, await clients.store.create(ref, data.encode()))


async def test_what_spark_selects_is_loaded_and_replaces_its_partition_at_once(
    app: App, clients: Clients, bucket: str, dataset: str, bigquery_client: Any
) -> None:
    csv = {
        "sourceFormat": "CSV",
        "csvOptions": {"fieldDelimiter": "|", "skipLeadingRows": "1"},
        "schema": {"fields": [{"name": "id", "type": "INTEGER"}, {"name": "names", "type": "STRING"}]},
    }
    bigquery_client.query(f"CREATE TABLE {dataset}.t (id INT64, name STRING)").result()
    await put(clients, bucket, f"{dataset}/t/_config/spark_transform.sql", SQL)
    await put(clients, bucket, f"{dataset}/t/_config/external.json", json.dumps(csv))
    await put(clients, bucket, f"{dataset}/made/_config/spark_transform.sql", "SELECT sum(n) AS total FROM temp_ext")
    await put(clients, bucket, f"{dataset}/broken/_config/spark_transform.sql", "SELECT nothing FROM temp_ext")
    await put(clients, bucket, f"{dataset}/bad/_config/spark_transform.sql", SQL)
    await put(clients, bucket, f"{dataset}/bad/_config/external.json", json.dumps(csv))

    def rows(table: str) -> list[tuple[Any, ...]]:
        found = bigquery_client.query(f"SELECT * FROM {dataset}.{table} ORDER BY 1, 2").result()
        return [tuple(row.values()) for row in found]

    so_far: list[str] = []

    async def phases(wanted: int) -> list[str]:
        while True:
            done = [info async for info in clients.store.list(ObjectRef(bucket, "ops/journal/Done/"))]
            so_far[:] = [info.ref.name for info in done]
            if len(done) >= wanted:
                return [info.metadata["ingestd-phase"] for info in done]
            await asyncio.sleep(0.2)

    async def story() -> None:
        for number in range(2):
            await put(clients, bucket, f"{dataset}/t/b1/f{number}.csv", f"id|names\n{number}|a;b;\n")
        success = await put(clients, bucket, f"{dataset}/t/b1/_SUCCESS")
        assert await arrive(app, success)
        # Without external.json the files are read as load.json, or their names, say; the query makes the table.
        await put(clients, bucket, f"{dataset}/made/x.json", '{"n": 1}\n{"n": 2}\n')
        assert await arrive(app, await put(clients, bucket, f"{dataset}/made/_SUCCESS"))
        await put(clients, bucket, f"{dataset}/broken/x.json", '{"n": 1}\n')
        assert await arrive(app, await put(clients, bucket, f"{dataset}/broken/_SUCCESS"))
        # One row that does not fit: the whole directory fails, and nothing of it is left out without a word.
        await put(clients, bucket, f"{dataset}/bad/good.csv", "id|names\n1|a\n")
        await put(clients, bucket, f"{dataset}/bad/x.csv", "id|names\n2|a\nthree|b\n")
        assert await arrive(app, await put(clients, bucket, f"{dataset}/bad/_SUCCESS"))
        ends = await patiently(phases(4), lambda: f"of 4 batches have ended: {so_far}")
        assert sorted(ends) == ["done", "done", "failed", "failed"]
        assert not await arrive(app, success)  # a duplicate

    await app.run(story)
    found = await asyncio.to_thread(rows, "t")
    assert found == [(0, "A"), (0, "B"), (1, "A"), (1, "B")]
    totals = await asyncio.to_thread(lambda: list(bigquery_client.query(f"SELECT total FROM {dataset}.made").result()))
    assert [row[0] for row in totals] == [3]
    assert [info async for info in clients.store.list(ObjectRef(bucket, "ops/staging/"))] == []
    told = [info.ref async for info in clients.store.list(ObjectRef(bucket, f"ops/errors/{dataset}.bad/"))]
    (error,) = [ref for ref in told if ref.name.endswith(".err")]
    assert b"/bad/x.csv, line 3: Could not parse 'three'" in (await clients.store.read(error))[0]
