"""The plain BigQuery of the simulations answers as the local cloud's own does."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sim.real_bigquery import RealBigQuery
from tests.support.manual_clock import ManualClock
from tests.support.sim.names import DATASET, PROJECT, SCHEMA
from tests.support.sim.plain_bigquery import PlainBigQuery
from tests.support.virtual_time import VirtualClock, VirtualLoop

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.faults import Hooks
from ingestd.localcloud.feeds import StoredObjects
from ingestd.localcloud.storage.core import StorageCore
from ingestd.warehouse.resources import job_state

FILES = {
    "good": b'{"id": 1, "name": "a"}\n{"id": 2, "name": "b"}',
    "more": b'{"id": 3, "name": "c"}',
    "bad": b'{"id": "x", "name": "a"}',
}
COUNTS = ("inputFiles", "inputFileBytes", "outputRows")


@pytest.fixture
def files() -> Iterator[StorageCore]:
    with tempfile.TemporaryDirectory() as folder:
        core = StorageCore(Path(folder), project=PROJECT, clock=ManualClock())
        core.buckets.insert({"name": "files"})
        for name, data in FILES.items():
            core.write("files", name, data)
        yield core
        core.close()


def load(name: str, *sources: str, table: str = "t", **more: Any) -> dict[str, Any]:
    configuration = {
        "sourceUris": [f"gs://files/{source}" for source in sources],
        "destinationTable": {"projectId": PROJECT, "datasetId": DATASET, "tableId": table},
        "sourceFormat": "NEWLINE_DELIMITED_JSON",
        "writeDisposition": "WRITE_APPEND",
        **more,
    }
    return {"jobReference": {"projectId": PROJECT, "jobId": name}, "configuration": {"load": configuration}}


def copy(name: str, source: str, target: str) -> dict[str, Any]:
    def reference(table: str) -> dict[str, str]:
        return {"projectId": PROJECT, "datasetId": DATASET, "tableId": table}

    configuration = {
        "sourceTables": [reference(source)],
        "destinationTable": reference(target),
        "writeDisposition": "WRITE_APPEND",
    }
    return {"jobReference": {"projectId": PROJECT, "jobId": name}, "configuration": {"copy": configuration}}


JOBS = (
    load("one", "good"),
    load("two", "good", "more"),
    load("one", "more"),
    load("gone", "good", "nowhere"),
    load("refused", "good", "bad", "more"),
    load("no-table", "good", table="none", createDisposition="CREATE_NEVER"),
    load("staged", "more", table="staging"),
    copy("published", "staging", "t"),
    copy("copy-of-nothing", "nowhere", "t"),
)


def told(kind: type[PlainBigQuery | RealBigQuery], files: StorageCore) -> tuple[list[Any], dict[str, Counter[int]]]:
    loop = VirtualLoop()
    audited: list[dict[str, Any]] = []
    core = kind(
        project=PROJECT,
        clock=VirtualClock(loop),
        hooks=Hooks("bigquery"),
        objects=StoredObjects(files),
        on_job_done=audited.append,
        latency=lambda: 1.0,
    )
    answers: list[Any] = []

    async def story() -> None:
        for table in ("t", "staging"):
            resource = {"tableReference": {"datasetId": DATASET, "tableId": table}, "schema": SCHEMA}
            core.metadata.insert_table(PROJECT, DATASET, resource)
        for resource in JOBS:
            answers.append(await run(resource))

    async def run(resource: dict[str, Any]) -> Any:
        name = resource["jobReference"]["jobId"]
        try:
            states = [job_state(core.insert_job(PROJECT, resource).rest()).state]
        except BigQueryError as error:
            return error.status, error.reason
        for _ in range(2):
            await asyncio.sleep(0.7)
            states.append(job_state(core.jobs.get(PROJECT, name, None).rest()).state)
        job = job_state(core.jobs.get(PROJECT, name, None).rest())
        blamed = sorted({error.location for error in job.errors})
        counts = {
            key: job.statistics.get("load", {}).get(key) for key in ("inputFiles", "inputFileBytes", "outputRows")
        }
        copied = job.statistics.get("copy", {}).get("copiedRows")
        return name, states, job.error.reason if job.error else None, set(blamed) - {""}, counts, copied

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(story())
    rows = core.rows()
    core.close()
    answers.append(len(audited))
    return answers, rows


def test_jobs_end_alike(files: StorageCore) -> None:
    plain, real = told(PlainBigQuery, files), told(RealBigQuery, files)
    assert plain == real
    assert plain[1][f"{DATASET}.t"] == Counter({1: 2, 2: 2, 3: 2})
