"""Batch windows: how fast files are collected, what a waiting file costs in memory, and what Cloud Storage charges.

200,000 notifications, 2,000 files for each of 100 windows, through the daemon's own intake, windows, journal and loads.
Cloud Storage is a dict with generations and preconditions that counts what is called, BigQuery a plain stand-in, and
time is virtual, so what is measured is the daemon. Two orders of arrival: the files of a window come together (a folder
is written in one go), or the files of all windows come mixed, which is the worst for sharing objects among them.

Beside it stands what bqtail does for the same files, by its code: for every file a stat of the object and a look for
the window file, two more reads with a transient table; for every window its window file, a listing of the folder, and
for every BigQuery step a task that is written, listed for, and moved into the trigger bucket.

`python -m bench.windows` prints a table and, last, one line of JSON.
"""

import asyncio
import gc
import json
import logging
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import orjson
import structlog
from tests.support.bindings import CoreWarehouse
from tests.support.memory_store import MemoryStore
from tests.support.sim.names import DATASET
from tests.support.sim.plain_bigquery import PlainBigQuery
from tests.support.virtual_time import VirtualClock, VirtualLoop

from ingestd.app import App, assemble
from ingestd.gcp.connect import Clients
from ingestd.localcloud.bigquery.files.objects import Objects, SourceObject
from ingestd.localcloud.faults import Hooks
from ingestd.model.objects import ObjectInfo, ObjectRef
from ingestd.ports import Message, PlainMessage
from ingestd.settings import Settings

WINDOWS, FILES = 100, 2_000
PROJECT, BUCKET = "bench", "bench-trigger"
SECONDS = 600  # the length of the windows
RATE = 10_000  # files per simulated second
CLASS_A, CLASS_B = 5.00, 0.40  # dollars per million operations
MEMORY_TARGET, CLASS_A_TARGET, PRICE_TARGET = 600, 5_000, 1.50
DATA = b'{"id": 1}'


class Feed:
    """A subscription that hands out what is put in, at a given pace."""

    def __init__(self, name: str, pace: float = 0.0) -> None:
        self.name = name
        self.acked = 0
        self.making = 0.0  # seconds it took to make the messages, which are no work of the daemon's
        self._pace = pace
        self._messages: Iterator[Message] = iter(())
        self._some = asyncio.Event()

    def put(self, messages: Iterator[Message]) -> None:
        self._messages = messages
        self._some.set()

    async def pull(self, limit: int) -> list[Message]:
        await self._some.wait()
        start = time.perf_counter()
        found = [message for _, message in zip(range(limit), self._messages, strict=False)]
        self.making += time.perf_counter() - start
        if not found:
            self._some.clear()
        await asyncio.sleep(len(found) * self._pace)
        return found

    async def ack(self, ack_ids: Sequence[str]) -> None:
        self.acked += len(ack_ids)

    async def extend(self, ack_ids: Sequence[str], deadline: timedelta) -> None: ...


class Sources(Objects):
    """The files as BigQuery reads them."""

    def match(self, uri: str) -> list[SourceObject]:
        return [SourceObject(uri, len(DATA), 1)]

    def read(self, uri: str) -> bytes:
        return DATA


@dataclass(slots=True)
class Ports:
    store: MemoryStore
    warehouse: Any
    subscription: Callable[[str], Feed]
    publisher: Any = None
    http: Any = None


def name_of(window: int, number: int) -> str:
    return f"data/folder{window:03d}/2024/01/01/part-{number:06d}.json"


def notification(info: ObjectInfo, number: int) -> Message:
    """As Cloud Storage publishes it; the ack id has the length of Google's."""
    created = info.created.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    name, generation = info.ref.name, str(info.generation)
    document = {
        "kind": "storage#object",
        "id": f"{BUCKET}/{name}/{generation}",
        "name": name,
        "bucket": BUCKET,
        "generation": generation,
        "metageneration": "1",
        "contentType": "application/json",
        "timeCreated": created,
        "updated": created,
        "storageClass": "STANDARD",
        "size": str(info.size),
        "md5Hash": "1B2M2Y8AsgTpgAmY7PhCfg==",
        "crc32c": f"{number:06d}==",
        "etag": "CAE=",
    }
    attributes = {
        "notificationConfig": f"projects/_/buckets/{BUCKET}/notificationConfigs/1",
        "eventType": "OBJECT_FINALIZE",
        "payloadFormat": "JSON_API_V1",
        "bucketId": BUCKET,
        "objectId": name,
        "objectGeneration": generation,
        "eventTime": created,
    }
    return PlainMessage(f"{number:0176d}", orjson.dumps(document), attributes, str(7_000_000_000_000_000 + number))


class Deployment:
    """One daemon, and the files that are about to be announced to it."""

    def __init__(self, loop: VirtualLoop, *, files: int = FILES, asynchronous: bool = True, **changes: Any) -> None:
        self.loop = loop
        self.clock = VirtualClock(loop)
        self.store = MemoryStore(self.clock)
        self.files = files
        rule = {
            "When": {"Prefix": "/data/", "Suffix": ".json"},
            "Async": asynchronous,
            "Dest": {"Table": f"{DATASET}.files"},
            "Batch": {"Window": {"DurationInSec": SECONDS}},
            "OnSuccess": [{"Action": "delete"}],
        }
        self.store.put(ObjectRef(f"{PROJECT}-config", "rules/rule.json"), orjson.dumps(rule))
        self.notifications, self.completions = Feed("notifications", 1 / RATE), Feed("completions")
        given = {
            "project": PROJECT,
            "rules": {"url": f"gs://{PROJECT}-config/rules", "check_every": "6h"},
            "subscriptions": {"notifications": "notifications", "completions": "completions"},
            "replica": "replica-0",
            "quotas": {"enabled": False},
            "load_state": {"enabled": False},
        }
        bigquery = PlainBigQuery(
            project=PROJECT,
            clock=self.clock,
            hooks=Hooks("bigquery"),
            objects=cast("Any", Sources()),
            on_job_done=self._announce,
            latency=lambda: 5.0,
        )
        table = {"tableReference": {"datasetId": DATASET, "tableId": "files"}, "schema": {}}
        bigquery.metadata.insert_table(PROJECT, DATASET, table)
        self.rows = lambda: bigquery.rows()[f"{DATASET}.files"].total()
        feeds = {"notifications": self.notifications, "completions": self.completions}
        ports = Ports(self.store, CoreWarehouse(cast("Any", bigquery), self.clock), feeds.__getitem__)
        self.app: App = assemble(Settings.model_validate(given | changes), cast("Clients", ports), self.clock)
        self.app.ops = None

    def _announce(self, entry: dict[str, Any]) -> None:
        self.completions.put(iter([PlainMessage(entry["timestamp"], orjson.dumps(entry), {})]))

    def messages(self, *, mixed: bool) -> Iterator[Message]:
        """What Cloud Storage announces; the files are there before."""
        infos = [
            [self.store.put(ObjectRef(BUCKET, name_of(window, number)), DATA) for number in range(self.files)]
            for window in range(WINDOWS)
        ]
        if mixed:
            ordered = (infos[window][number] for number in range(self.files) for window in range(WINDOWS))
        else:
            ordered = (info for folder in infos for info in folder)
        return (notification(info, number) for number, info in enumerate(ordered))

    def quiet(self) -> bool:
        ops = f"{PROJECT}-ops"
        return not any(self.store.names(ops, folder) for folder in ("journal/Running/", "batch/", "tasks/"))


def in_virtual_time(story: Callable[[VirtualLoop], Any]) -> Any:
    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(story(loop))


async def ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Figures:
    events_per_second: float
    class_a: float  # per million files
    class_b: float
    deletes: float
    jobs: int

    @property
    def price(self) -> float:
        return (self.class_a * CLASS_A + self.class_b * CLASS_B) / 1e6


async def operations(loop: VirtualLoop, *, mixed: bool, asynchronous: bool) -> Figures:
    """Collect and load everything; what a daemon does that has nothing to do is taken off."""
    setup = Deployment(loop, asynchronous=asynchronous)
    total = WINDOWS * setup.files
    messages = setup.messages(mixed=mixed)
    daemon = asyncio.create_task(setup.app.run())
    await asyncio.sleep(1)
    before = dict(setup.store.operations)
    start, since = time.perf_counter(), loop.time()
    setup.notifications.put(messages)
    while setup.notifications.acked < total:
        await asyncio.sleep(0.5)
    seconds = time.perf_counter() - start - setup.notifications.making
    while setup.rows() < total or not setup.quiet():
        await asyncio.sleep(5)
    used = {what: count - before.get(what, 0) for what, count in setup.store.operations.items()}
    passed = loop.time() - since
    await ended(daemon)
    assert setup.rows() == total
    idle = await standing(loop, passed)
    scale = 1e6 / total
    jobs = len([name for name in setup.store.names(f"{PROJECT}-ops", "journal/Done/") if name.endswith(".run")])

    def per_million(*kinds: str) -> float:
        return sum(used.get(kind, 0) - idle.get(kind, 0) for kind in kinds) * scale

    return Figures(
        total / seconds, per_million("insert", "list", "rewrite"), per_million("get"), per_million("delete"), jobs
    )


async def standing(loop: VirtualLoop, seconds: float) -> dict[str, int]:
    """The operations of a daemon that has nothing to do."""
    setup = Deployment(loop)
    daemon = asyncio.create_task(setup.app.run())
    await asyncio.sleep(1)
    before = dict(setup.store.operations)
    await asyncio.sleep(seconds)
    used = {what: count - before.get(what, 0) for what, count in setup.store.operations.items()}
    await ended(daemon)
    return used


async def memory(loop: VirtualLoop) -> tuple[float, float]:
    """Bytes per file that arrived: while all wait to become durable, and once they are (and wait for their window)."""
    patient = {"flush_files": 10**9, "flush_after": "300s"}
    setup = Deployment(loop, windows=patient, intake={"max_messages": 10**6, "max_bytes": "8GB"})
    total = WINDOWS * setup.files
    messages = setup.messages(mixed=True)
    daemon = asyncio.create_task(setup.app.run())
    await asyncio.sleep(1)
    gc.collect()
    tracemalloc.start()
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    setup.notifications.put(messages)
    while setup.app.pullers[0].desk.in_flight < total:
        await asyncio.sleep(1)
    assert setup.notifications.acked == 0
    gc.collect()
    waiting, _ = tracemalloc.get_traced_memory()
    while setup.notifications.acked < total:
        await asyncio.sleep(10)
    gc.collect()
    durable, _ = tracemalloc.get_traced_memory()
    shards = sum(
        len(setup.store.content(ObjectRef(f"{PROJECT}-ops", name)))
        for name in setup.store.names(f"{PROJECT}-ops", "batch/")
    )
    tracemalloc.stop()
    await ended(daemon)
    return (waiting - before) / total, (durable - before - shards) / total


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    waiting, durable = in_virtual_time(memory)
    runs = {
        "a folder at a time": in_virtual_time(lambda loop: operations(loop, mixed=False, asynchronous=True)),
        "a folder at a time, sync": in_virtual_time(lambda loop: operations(loop, mixed=False, asynchronous=False)),
        "all folders at once": in_virtual_time(lambda loop: operations(loop, mixed=True, asynchronous=True)),
    }
    day = in_virtual_time(lambda loop: standing(loop, 3600.0))
    report(runs, waiting, durable, day)


def report(runs: dict[str, Figures], waiting: float, durable: float, hour: dict[str, int]) -> None:
    print(f"{WINDOWS * FILES:,} files in {WINDOWS} windows of {FILES:,}; per 1,000,000 files:\n")
    print(f"{'arriving':28}{'events/s':>10}{'loads':>7}{'Class A':>12}{'Class B':>12}{'deletes':>12}{'price':>9}")
    for name, one in runs.items():
        print(
            f"{name:28}{one.events_per_second:>10,.0f}{one.jobs:>7}{one.class_a:>12,.0f}{one.class_b:>12,.0f}"
            f"{one.deletes:>12,.0f}{one.price:>8.2f}$"
        )
    for name, a, b in BQTAIL:
        print(f"{name:28}{'':>10}{'':>7}{a:>12,.0f}{b:>12,.0f}{'':>12}{(a * CLASS_A + b * CLASS_B) / 1e6:>8.2f}$")
    print(f"\nmemory per pending file: {waiting:.0f} B until it is durable, {durable:.0f} B from then on")
    daily_a = sum(hour.get(kind, 0) for kind in ("insert", "list", "rewrite")) * 24
    daily_b = hour.get("get", 0) * 24
    print(f"a replica with nothing to do: {daily_a:,} Class A and {daily_b:,} Class B per day")
    usual = runs["a folder at a time"]
    met = {
        "memory": waiting <= MEMORY_TARGET,
        "class_a": usual.class_a <= CLASS_A_TARGET,
        "price": usual.price <= PRICE_TARGET,
    }
    for what, value, target in (
        ("memory per pending file (B)", waiting, MEMORY_TARGET),
        ("Class A per 1M files", usual.class_a, CLASS_A_TARGET),
        ("price per 1M files ($)", usual.price, PRICE_TARGET),
    ):
        print(f"  {what:30}{value:>10,.2f}   target {target:,}: {'met' if value <= target else 'MISSED'}")
    figures = {
        "files": WINDOWS * FILES,
        "windows": WINDOWS,
        "memory_per_pending_file": round(waiting),
        "memory_per_durable_file": round(durable),
        "runs": {
            name: {
                "events_per_second": round(one.events_per_second),
                "class_a_per_million": round(one.class_a),
                "class_b_per_million": round(one.class_b),
                "dollars_per_million": round(one.price, 3),
            }
            for name, one in runs.items()
        },
        "idle_class_a_per_day": daily_a,
        "targets_met": met,
    }
    print(json.dumps(figures))


# Operations per million files, at 2,000 files per window: see the module's text. Listings take 1,000 names per page.
_PER_WINDOW_A = 1 + FILES // 1000 + 3  # window file, listing; task: written, listed for, moved
BQTAIL = (
    ("bqtail, window", 1e6 / FILES * _PER_WINDOW_A, 2e6),
    ("bqtail, window, transient", 1e6 / FILES * (_PER_WINDOW_A + 3), 4e6),
    ("bqtail, file by file", 2e6, 1e6),
)


if __name__ == "__main__":
    main()
