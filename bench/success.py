"""The `_SUCCESS` convention: what one batch costs in Cloud Storage and BigQuery calls, and how long it takes.

1,000 directories of 20 files, five levels deep, each completed by a success file: 21,000 notifications. The daemon runs
as it does in production, with Google's clients, against the local cloud; what is counted are the HTTP requests that
leave it, so a retry or a second page would show. First without any configuration, as the original was measured; then
with `_config/` at three levels, which the steady state reads once.

Beside it stands what the original does for one such batch, by its code: for every level of the path a look at the
bucket and at each configuration file, a claim, a listing of the directory, a listing for SQL at every level.

`python -m bench.success [BATCHES]` prints a table and, last, one line of JSON.
"""

import asyncio
import json
import logging
import os
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import requests
import structlog
from requests.adapters import HTTPAdapter

from ingestd.app import build
from ingestd.localcloud.cloud import LocalCloud
from ingestd.settings import Settings

BATCHES, BARE, FILES, TABLES, WARM = 1_000, 200, 20, 20, 20
PROJECT, DATASET = "bench", "sales"
TARGET = 6.0  # Cloud Storage calls per batch
ORIGINAL = {"bucket GETs": 17, "object GETs": 11, "listings": 8, "others": 3}  # one batch, five levels, no _config
ROW = b"1,a\n2,b\n"

# What a daemon does that has nothing to do: heartbeats and looks, by what they are about.
_STANDING = re.compile(r"journal/(replicas|pace|LoadState|ordered)/|prefix=(journal/Running/|batch/|tasks/|rules)")


@dataclass(frozen=True, slots=True)
class Figures:
    batches: int
    seconds: float
    storage: Counter[str]
    bigquery: Counter[str]
    standing: int

    def per_batch(self, calls: Counter[str]) -> float:
        return sum(calls.values()) / self.batches


class Calls:
    """The requests of this process's Google clients."""

    def __init__(self) -> None:
        self.storage: Counter[str] = Counter()
        self.bigquery: Counter[str] = Counter()
        self.standing = 0
        self._lock = threading.Lock()

    def note(self, method: str, url: str, body: object) -> None:
        path = unquote(url.partition("://")[2].partition("/")[2])
        if isinstance(body, bytes):  # an upload has the object's name in its first part
            path += body[:500].decode(errors="replace")
        with self._lock:
            if "bigquery/v2" in path:
                self.bigquery[_bigquery(method, path)] += 1
            elif _STANDING.search(path):
                self.standing += 1
            else:
                self.storage[_storage(method, path)] += 1

    def clear(self) -> None:
        with self._lock:
            self.storage.clear()
            self.bigquery.clear()
            self.standing = 0


def _storage(method: str, path: str) -> str:
    if method == "GET":
        if "/o/" not in path:
            return "list the _config folders" if "matchGlob" in path else "list the directory"
        return "download" if "alt=media" in path else "look at an object"
    about = "record" if "journal/" in path else "file"
    return {"POST": f"write a {about}", "DELETE": f"delete a {about}"}.get(method, method.lower())


def _bigquery(method: str, path: str) -> str:
    kind = next((one for one in ("insertAll", "/jobs", "/tables", "/datasets") if one in path), "other")
    return f"{method} {kind.strip('/')}"


@contextmanager
def counted(calls: Calls) -> Iterator[None]:
    before = HTTPAdapter.send

    def send(self: HTTPAdapter, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        calls.note(str(request.method), str(request.url), request.body)
        return before(self, request, **options)

    HTTPAdapter.send = send  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        HTTPAdapter.send = before  # type: ignore[method-assign]


@contextmanager
def local_cloud() -> Iterator[LocalCloud]:
    """A local cloud in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="local-cloud")
    thread.start()
    with tempfile.TemporaryDirectory() as folder:
        cloud = LocalCloud(Path(folder), PROJECT)
        asyncio.run_coroutine_threadsafe(cloud.__aenter__(), loop).result(30)
        try:
            cloud.provision()
            yield cloud
        finally:
            asyncio.run_coroutine_threadsafe(cloud.__aexit__(None, None, None), loop).result(30)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            loop.close()


def prepare(cloud: LocalCloud) -> None:
    metadata = cloud.bigquery.metadata
    metadata.insert_dataset(PROJECT, {"datasetReference": {"projectId": PROJECT, "datasetId": DATASET}})
    fields = [{"name": "id", "type": "INTEGER"}, {"name": "name", "type": "STRING"}]
    for number in range(TABLES):
        table = {"tableReference": {"datasetId": DATASET, "tableId": f"t{number:02d}"}, "schema": {"fields": fields}}
        metadata.insert_table(PROJECT, DATASET, table)


def configure(cloud: LocalCloud, bucket: str) -> None:
    """`_config/` at the root, at the dataset and at every table."""
    write(cloud, bucket, "_config/load.json", b'{"sourceFormat": "CSV", "fieldDelimiter": "|"}')
    write(cloud, bucket, f"{DATASET}/_config/load.json", b'{"fieldDelimiter": ","}')
    for number in range(TABLES):
        write(cloud, bucket, f"{DATASET}/t{number:02d}/_config/load.json", b'{"labels": {"team": "sales"}}')


def write(cloud: LocalCloud, bucket: str, name: str, data: bytes) -> None:
    cloud.storage.write(bucket, name, data, "application/octet-stream")


def upload(cloud: LocalCloud, bucket: str, first: int, count: int) -> None:
    for number in range(first, first + count):
        folder = f"{DATASET}/t{number % TABLES:02d}/incremental/b{number:05d}/run"  # five levels
        for file in range(FILES):
            write(cloud, bucket, f"{folder}/part-{file:02d}.csv", ROW)
        write(cloud, bucket, f"{folder}/_SUCCESS", b"")


def loaded(cloud: LocalCloud) -> int:
    """Rows in all tables."""
    return sum(
        int(cloud.bigquery.metadata.get_table(PROJECT, DATASET, f"t{number:02d}").get("numRows", 0))
        for number in range(TABLES)
    )


def finished(cloud: LocalCloud) -> int:
    return sum(1 for one in cloud.storage.glob(f"{PROJECT}-ops", "journal/Done/*") if one.name.endswith(".run"))


def settled(cloud: LocalCloud, batches: int) -> bool:
    return finished(cloud) >= batches and not cloud.storage.glob(f"{PROJECT}-ops", "journal/Running/*")


async def measure(cloud: LocalCloud, *, batches: int, before: int, calls: Calls) -> Figures:
    """Upload while the daemon runs; what is counted begins when it is warm."""
    bucket = f"{PROJECT}-trigger"
    await asyncio.to_thread(upload, cloud, bucket, before, WARM)
    await until(lambda: settled(cloud, before + WARM))
    calls.clear()
    start = time.perf_counter()
    await asyncio.to_thread(upload, cloud, bucket, before + WARM, batches)
    await until(lambda: settled(cloud, before + WARM + batches))
    seconds = time.perf_counter() - start
    return Figures(batches, seconds, Counter(calls.storage), Counter(calls.bigquery), calls.standing)


async def until(done: Any) -> None:
    while not await asyncio.to_thread(done):
        await asyncio.sleep(0.25)


async def run(cloud: LocalCloud, batches: int) -> tuple[Figures, Figures]:
    settings = Settings.model_validate(
        {
            "project": PROJECT,
            "rules": {"url": f"gs://{PROJECT}-config/rules"},
            "success": {"conventions": [{"bucket": f"{PROJECT}-trigger"}]},
            "http": {"host": "127.0.0.1", "port": 0},
        }
    )
    calls = Calls()
    bare_batches = min(BARE, batches)
    with counted(calls):
        async with build(settings) as app, asyncio.TaskGroup() as group:
            group.create_task(app.run())
            bare = await measure(cloud, batches=bare_batches, before=0, calls=calls)
            configure(cloud, f"{PROJECT}-trigger")
            done = WARM + bare_batches
            full = await measure(cloud, batches=batches, before=done, calls=calls)
            rows = await asyncio.to_thread(loaded, cloud)
            assert rows == 2 * FILES * (done + WARM + batches), f"{rows} rows"
            app.stop()
    return bare, full


def report(bare: Figures, full: Figures) -> None:
    print(f"{FILES} files per batch, five levels deep; calls per batch:\n")
    print(f"{'':30}{'no _config':>14}{f'_config x {2 + 1}':>14}{'original':>12}")
    for what in sorted({*bare.storage, *full.storage}):
        print(f"{what:30}{bare.storage[what] / bare.batches:>14.2f}{full.storage[what] / full.batches:>14.2f}")
    for what, number in ORIGINAL.items():
        print(f"{what:30}{'':>14}{'':>14}{number:>12}")
    original = sum(ORIGINAL.values())
    print(
        f"{'Cloud Storage':30}{bare.per_batch(bare.storage):>14.2f}{full.per_batch(full.storage):>14.2f}{original:>12}"
    )
    print()
    for what in sorted({*bare.bigquery, *full.bigquery}):
        print(f"{what:30}{bare.bigquery[what] / bare.batches:>14.2f}{full.bigquery[what] / full.batches:>14.2f}")
    print(f"{'BigQuery':30}{bare.per_batch(bare.bigquery):>14.2f}{full.per_batch(full.bigquery):>14.2f}")
    print()
    print(f"{'batches':30}{bare.batches:>14,}{full.batches:>14,}")
    print(f"{'seconds per batch':30}{bare.seconds / bare.batches:>14.3f}{full.seconds / full.batches:>14.3f}")
    print(f"{'heartbeats and looks, in all':30}{bare.standing:>14,}{full.standing:>14,}")
    worst = max(bare.per_batch(bare.storage), full.per_batch(full.storage))
    met = worst <= TARGET
    print(f"\nCloud Storage calls per batch: {worst:.2f} (target {TARGET:g}): {'met' if met else 'MISSED'}")
    figures = {
        "batches": full.batches,
        "files": FILES,
        "gcs_calls_per_batch": round(full.per_batch(full.storage), 3),
        "gcs_calls_per_batch_no_config": round(bare.per_batch(bare.storage), 3),
        "gcs_calls_original": original,
        "bigquery_calls_per_batch": round(full.per_batch(full.bigquery), 3),
        "seconds_per_batch": round(full.seconds / full.batches, 4),
        "target": TARGET,
        "met": met,
    }
    print(json.dumps(figures))


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    batches = int(sys.argv[1]) if len(sys.argv) > 1 else BATCHES
    with local_cloud() as cloud:
        os.environ.update(cloud.endpoints.environ())
        prepare(cloud)
        report(*asyncio.run(run(cloud, batches)))


if __name__ == "__main__":
    main()
