"""SIGKILL at any moment: an acknowledged job ends DONE, its rows are there once, its completion is announced."""

import random
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
from tests.support.google import PROJECT
from tests.support.killable import killable
from tests.support.waiting import eventually


@contextmanager
def server(root: Path) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    with killable("-m", "tests.integration.bigquery.killable", str(root)) as (process, port):
        url = f"http://127.0.0.1:{port}/bigquery/v2/projects/{PROJECT}"
        with httpx.Client(base_url=url, timeout=60) as client:
            yield process, client


def load_request(number: int) -> dict[str, Any]:
    target = {"projectId": PROJECT, "datasetId": "d", "tableId": "t"}
    load = {
        "sourceUris": [f"gs://b/{number}.json"],
        "sourceFormat": "NEWLINE_DELIMITED_JSON",
        "destinationTable": target,
    }
    return {"jobReference": {"jobId": f"job-{number}"}, "configuration": {"load": load}}


def wait_done(client: httpx.Client, job_id: str) -> dict[str, Any]:
    job: dict[str, Any] = {}

    def done() -> bool:
        job.update(client.get(f"/jobs/{job_id}").json())
        return bool(job["status"]["state"] == "DONE")

    eventually(done, lambda: f"{job_id} is not DONE: {job}")
    return job


def test_killed_at_any_moment_every_acknowledged_job_counts_once(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    rounds, per_round = 3, 400
    for number in range(rounds * per_round):
        (tmp_path / "objects" / f"{number}.json").write_text(f'{{"id": {number}}}\n')
    with server(tmp_path) as (_, client):
        client.post("/datasets", json={"datasetReference": {"datasetId": "d"}}).raise_for_status()
        schema = {"fields": [{"name": "id", "type": "INTEGER"}]}
        table = {"tableReference": {"tableId": "t"}, "schema": schema}
        client.post("/datasets/d/tables", json=table).raise_for_status()

    acknowledged: list[int] = []
    chance = random.Random(7)
    for turn in range(rounds):
        survived = chance.randint(3, 30)  # the kill falls among the answers after these, however fast the machine is
        with server(tmp_path) as (process, client):
            killer = threading.Timer(chance.uniform(0, 0.02), process.kill)
            for count, number in enumerate(range(turn * per_round, (turn + 1) * per_round)):
                if count == survived:
                    killer.start()
                try:
                    answer = client.post("/jobs", json=load_request(number))
                except httpx.HTTPError:
                    break
                assert answer.status_code == 200
                acknowledged.append(number)
            else:
                raise AssertionError("the kill must fall into the work")
            killer.join()

    with server(tmp_path) as (_, client):
        for number in acknowledged:
            job = wait_done(client, f"job-{number}")
            assert "errorResult" not in job["status"]
            assert job["statistics"]["load"]["outputRows"] == "1"
            assert client.post("/jobs", json=load_request(number)).status_code == 409
        rows = client.get("/datasets/d/tables/t/data").json()["rows"]
        counts = Counter(int(row["f"][0]["v"]) for row in rows)
        assert set(counts.values()) == {1}
        # A job whose answer was lost may have run; what was acknowledged must have.
        assert set(acknowledged) <= set(counts)
        wanted = {f"job-{number}" for number in acknowledged}
        eventually(lambda: wanted <= _announced(tmp_path), lambda: f"not announced: {wanted - _announced(tmp_path)}")


def _announced(root: Path) -> set[str]:
    lines = (root / "audit.jsonl").read_bytes().splitlines()
    return {orjson.loads(line)["protoPayload"]["resourceName"].rpartition("/")[2] for line in lines}
