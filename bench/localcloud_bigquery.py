"""Milliseconds per one-row load and per statement of the local BigQuery: in process, raw HTTP, and Google's client.

A load is measured from jobs.insert until the job is DONE. Over raw HTTP the server runs in a process of its own and
jobs.get tells the end; Google's client adds its own polling. The processor time of that server per job says what a job
costs on a machine that does other things as well.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.servers import cpu_seconds, http_server

TARGET_MS = 10.0
WARM_UP = 10
PROJECT = "bench"
TABLE = {"projectId": PROJECT, "datasetId": "d", "tableId": "t"}
SCHEMA = {"fields": [{"name": "id", "type": "INTEGER"}, {"name": "name", "type": "STRING"}]}
LOAD = {
    "configuration": {
        "load": {
            "sourceUris": ["gs://bench/row.json"],
            "sourceFormat": "NEWLINE_DELIMITED_JSON",
            "destinationTable": TABLE,
        }
    }
}
STATEMENTS = {
    "select": "SELECT id, name FROM d.t LIMIT 1",
    "insert": "INSERT INTO d.t (id, name) VALUES (1, 'x')",
    "update": "UPDATE d.one SET name = 'y' WHERE id = 1",
}


def _core(root: Path) -> Any:
    from tests.support.memory_objects import MemoryObjects

    from ingestd.localcloud.bigquery.core import BigQueryCore

    objects = MemoryObjects({"gs://bench/row.json": b'{"id": 1, "name": "x"}\n'})
    core = BigQueryCore(root, project=PROJECT, objects=objects, on_job_done=lambda _: None)
    core.metadata.insert_dataset(PROJECT, {"datasetReference": {"datasetId": "d"}})
    for name in ("t", "one"):
        core.metadata.insert_table(PROJECT, "d", {"tableReference": {"tableId": name}, "schema": SCHEMA})
    core.tabledata.insert_all(PROJECT, "d", "one", {"rows": [{"json": {"id": 1, "name": "x"}}]})
    return core


def serve(root: Path) -> None:
    """The server process: prints its port, then serves until it is terminated."""
    from ingestd.localcloud.bigquery.server import make_handler
    from ingestd.localcloud.http import HttpServer

    async def main() -> None:
        server = HttpServer(make_handler(_core(root)))
        await server.start()
        print(server.port, flush=True)
        await asyncio.Event().wait()

    asyncio.run(main())


def _measure(work: Callable[[], Any], count: int) -> dict[str, float]:
    for _ in range(min(WARM_UP, count)):
        work()
    taken = []
    for _ in range(count):
        before = time.perf_counter()
        work()
        taken.append((time.perf_counter() - before) * 1000)
    return {
        "median_ms": round(statistics.median(taken), 2),
        "p95_ms": round(sorted(taken)[int(len(taken) * 0.95)], 2),
    }


def _in_process(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as root, _core(Path(root)) as core:

        def load() -> None:
            if core.wait(core.insert_job(PROJECT, LOAD)).error:
                raise RuntimeError("the load failed")

        figures = {"load": _measure(load, count)}
        for name, sql in STATEMENTS.items():
            request = {"query": sql, "useLegacySql": False}
            figures[name] = _measure(lambda request=request: core.query(PROJECT, request), count)  # type: ignore[misc]
        return figures


def _raw(port: int, pid: int, count: int) -> dict[str, Any]:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port)
    base = f"/bigquery/v2/projects/{PROJECT}"

    def call(method: str, path: str, body: Any = None) -> Any:
        content = json.dumps(body) if body is not None else None
        connection.request(method, base + path, content, {"content-type": "application/json"})
        answer = connection.getresponse()
        value = json.loads(answer.read())
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {value}")
        return value

    def load() -> None:
        job = call("POST", "/jobs", LOAD)
        while job["status"]["state"] != "DONE":
            job = call("GET", f"/jobs/{job['jobReference']['jobId']}")
        if "errorResult" in job["status"]:
            raise RuntimeError(job["status"])

    work: dict[str, Callable[[], Any]] = {"load": load}
    for name, sql in STATEMENTS.items():
        request = {"query": sql, "useLegacySql": False}
        work[name] = lambda request=request: call("POST", "/queries", request)  # type: ignore[misc]
    figures = {}
    for name, job in work.items():
        before = cpu_seconds(pid)
        figures[name] = _measure(job, count)
        jobs = count + min(WARM_UP, count)
        figures[name]["server_cpu_ms"] = round((cpu_seconds(pid) - before) / jobs * 1000, 2)
    connection.close()
    return figures


def _client(port: int, count: int) -> dict[str, Any]:
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import bigquery

    client = bigquery.Client(
        project=PROJECT,
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": f"http://127.0.0.1:{port}"},
    )
    config = bigquery.LoadJobConfig(source_format="NEWLINE_DELIMITED_JSON")

    def load() -> None:
        client.load_table_from_uri("gs://bench/row.json", f"{PROJECT}.d.t", job_config=config).result()

    figures = {"load": _measure(load, count)}
    for name, sql in STATEMENTS.items():
        figures[name] = _measure(lambda sql=sql: list(client.query_and_wait(sql)), count)  # type: ignore[misc]
    client.close()
    return figures


def run(count: int = 100) -> dict[str, Any]:
    """Measure each way `count` times per operation."""
    figures: dict[str, Any] = {"service": "bigquery", "in_process": _in_process(count)}
    with http_server("bench.localcloud_bigquery") as (port, pid):
        figures["raw"] = _raw(port, pid, count)
        figures["client"] = _client(port, count)
    slowest = max(item["median_ms"] for item in figures["raw"].values())
    return figures | {"target_ms": TARGET_MS, "slowest_raw_over_target": round(slowest / TARGET_MS, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    result = run(options.count)
    ways = {"in_process": "in process", "raw": "raw HTTP", "client": "google-cloud-bigquery"}
    print(f"local BigQuery, one row, median / p95 ms (target {TARGET_MS:g})")
    print(f"{'':<10}" + "".join(f"{title:>24}" for title in ways.values()) + f"{'server CPU (raw)':>24}")
    for name in ("load", *STATEMENTS):
        cells = (f"{result[way][name]['median_ms']:.2f} / {result[way][name]['p95_ms']:.2f}" for way in ways)
        cpu = f"{result['raw'][name]['server_cpu_ms']:.2f}"
        print(f"{name:<10}" + "".join(f"{cell:>24}" for cell in cells) + f"{cpu:>24}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
