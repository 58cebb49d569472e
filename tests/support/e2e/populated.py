"""A daemon with much to show and no cloud behind it: its own intake, windows, journal and HTTP face, on dicts.

Windows are opened by real notifications. Ended batches are told to the console as the runner tells them, and their
records are in the journal.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, cast
from urllib.parse import quote

import orjson
import structlog
from tests.support.bindings import CoreWarehouse
from tests.support.memory_store import MemoryStore
from tests.support.sim.plain_bigquery import PlainBigQuery

from ingestd.app import App, assemble
from ingestd.batch.content import Fate, Load, Progress, SetAside
from ingestd.batch.journal import Journal
from ingestd.batch.marks import WindowMark
from ingestd.batch.phases import Phase
from ingestd.batch.placement import Placement
from ingestd.batch.record import Kind, Record
from ingestd.batch.rule import PinnedRule
from ingestd.batch.stamp import Stamp
from ingestd.gcp.connect import Clients
from ingestd.localcloud.faults import Hooks
from ingestd.model.clock import SystemClock
from ingestd.model.objects import FileVersion, Generation, ObjectInfo, ObjectRef
from ingestd.ports import Message, PlainMessage
from ingestd.settings import Settings

PROJECT, BUCKET = "acme-data", "acme-landing"
DATA = b'{"id": 1}'

RULES: dict[str, dict[str, Any]] = {
    "clickstream": {
        "When": {"Prefix": "/clickstream/", "Suffix": ".json"},
        "Async": True,
        "Batch": {"Window": {"DurationInSec": 3600}},
        "Dest": {"Table": "web.clicks"},
        "OnSuccess": [{"Action": "delete"}],
    },
    "orders": {
        "When": {"Prefix": "/orders/", "Suffix": ".json"},
        "Batch": {"Window": {"DurationInSec": 7200}},
        "Dest": {"Table": "shop.orders"},
        "OnFailure": [{"Action": "move", "Request": {"DestURL": f"gs://{PROJECT}-ops/failed"}}],
    },
    "customers": {
        "When": {"Prefix": "/customers/", "Suffix": ".csv"},
        "Dest": {"Table": "shop.customers", "Override": True, "SkipLeadingRows": 1},
        "OnFailure": [{"Action": "move", "Request": {"DestURL": f"gs://{PROJECT}-ops/failed"}}],
    },
    "legacy": {
        "When": {"Prefix": "legacy/"},
        "Disabled": True,
        "Dest": {"Table": "old.everything"},
    },
}


class EvenHour(SystemClock):
    """Set back to the last even hour: windows follow the clock, and those above are to stay open for an hour yet."""

    def __init__(self) -> None:
        self._back = timedelta(seconds=super().now().timestamp() % 7200)

    def now(self) -> datetime:
        return super().now() - self._back


class Feed:
    """A subscription that hands out what is put in."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.acked = 0
        self._messages: list[Message] = []
        self._some = asyncio.Event()

    def put(self, messages: Sequence[Message]) -> None:
        self._messages += messages
        self._some.set()

    async def pull(self, limit: int) -> list[Message]:
        await self._some.wait()
        found, self._messages = self._messages[:limit], self._messages[limit:]
        if not self._messages:
            self._some.clear()
        await asyncio.sleep(0)
        return found

    async def ack(self, ack_ids: Sequence[str]) -> None:
        self.acked += len(ack_ids)

    async def extend(self, ack_ids: Sequence[str], deadline: timedelta) -> None: ...


@dataclass(slots=True)
class Ports:
    store: MemoryStore
    warehouse: Any
    feeds: dict[str, Feed]
    publisher: Any = None
    http: Any = None

    def subscription(self, name: str) -> Feed:
        return self.feeds[name]


def notification(info: ObjectInfo, number: int) -> Message:
    attributes = {
        "eventType": "OBJECT_FINALIZE",
        "payloadFormat": "JSON_API_V1",
        "bucketId": info.ref.bucket,
        "objectId": info.ref.name,
        "objectGeneration": str(info.generation),
    }
    document = {
        "name": info.ref.name,
        "bucket": info.ref.bucket,
        "generation": str(info.generation),
        "timeCreated": info.created.isoformat(timespec="milliseconds"),
        "size": str(40_000 + 977 * (number % 61)),
    }
    return PlainMessage(str(number), orjson.dumps(document), attributes, str(number))


class Populated:
    def __init__(self, **settings: Any) -> None:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
        self.clock = EvenHour()
        self.store = MemoryStore(self.clock)
        self.feeds = {name: Feed(name) for name in ("notifications", "completions")}
        for name, rule in RULES.items():
            self.store.put(ObjectRef(f"{PROJECT}-config", f"rules/{name}.json"), orjson.dumps(rule))
        given = {
            "project": PROJECT,
            "rules": {"url": f"gs://{PROJECT}-config/rules"},
            "subscriptions": {"notifications": "notifications", "completions": "completions"},
            "replica": "ingestd-7c9f4-x2mqp",
            "quotas": {"enabled": True},
            "load_state": {"enabled": False},
            "http": {"host": "127.0.0.1", "port": 0},
        }
        bigquery = PlainBigQuery(
            project=PROJECT,
            clock=self.clock,
            hooks=Hooks("bigquery"),
            objects=cast("Any", None),
            on_job_done=lambda entry: None,
            latency=lambda: 5.0,
        )
        ports = Ports(self.store, CoreWarehouse(cast("Any", bigquery), self.clock), self.feeds)
        self.settings = Settings.model_validate(given | settings)
        self.app: App = assemble(self.settings, cast("Clients", ports), self.clock)
        self.journal = Journal(
            cast("Any", self.store), self.settings.journal, self.clock, owner="test", lease=timedelta(seconds=60)
        )
        self._files = 0
        self.first_file = ""  # of the first batch of a file by itself: memory forgets it first

    @property
    def url(self) -> str:
        assert self.app.ops is not None
        return self.app.ops.url

    async def open_windows(self, count: int, files: int = 1) -> None:
        """So many windows: a folder of clicks or orders each, with one file in it, or up to so many."""
        messages = []
        for number in range(count):
            kind = ("clickstream", "orders")[number % 2]
            for part in range(1 + number % files):
                ref = ObjectRef(BUCKET, f"{kind}/shop-{number:05d}/part-{part:04d}.json")
                messages.append(notification(self.store.put(ref, DATA), len(messages)))
        self.feeds["notifications"].put(messages)
        while len(self.app.windows.open_windows) < count:
            await asyncio.sleep(0.02)

    async def end_batches(self, count: int, *, ago: float = 0.0, tables: int = 1) -> None:
        """So many batches that ended, every fiftieth badly."""
        assert self.app.console is not None
        for number in range(count):
            record = self.record(number, ago, tables)
            if record.rule.name == "customers":
                self.first_file = self.first_file or record.files[0].ref.url
            metadata = {"ingestd-event": record.event_id, "ingestd-source": quote(record.files[0].key)}
            self.store.put(self.journal.done(record), record.to_json(), metadata)
            await self.app.console.feed.ended(record)

    def let_go(self, record: Record) -> None:
        """A batch that was let go of and has not ended: in the journal, and leased, so that nobody takes it up."""
        assert self.app.console is not None
        lease = (self.clock.now() + timedelta(hours=1)).isoformat()
        metadata = {"ingestd-event": record.event_id, "ingestd-phase": record.phase, "ingestd-lease-until": lease}
        self.store.put(self.journal.running(record), record.to_json(), metadata)
        self.app.console.feed.released(record)

    def record(self, number: int, ago: float, tables: int = 1) -> Record:
        self._files += 1
        now = self.clock.now() - timedelta(seconds=ago)
        rule = ("clickstream", "orders", "customers")[number % 3]
        spread = tables > 1 and rule != "customers"  # whose table is where its rule says: the journal finds it
        table = RULES[rule]["Dest"]["Table"] + (f"_{number % tables}" if spread else "")
        many = 1 if rule == "customers" else 1 + number % 7
        ending = RULES[rule]["When"]["Suffix"]
        uploaded = now - timedelta(seconds=4 + number % 23)
        files = tuple(
            FileVersion(
                ObjectRef(BUCKET, f"{rule}/2026/{self._files:06d}/part-{part:04d}{ending}"),
                Generation(int(uploaded.timestamp() * 1e6) + part),
                48_000 + 700 * part,
                uploaded,
            )
            for part in range(many)
        )
        rows = 900 * many + number % 101
        failed = number % 50 == 49
        good, aside = tuple(range(many)), {}
        if failed:
            why = "Error while reading data: JSON parsing error in row starting at position 4711: ':' expected"
            aside, good = {many - 1: SetAside(Fate.CORRUPTED, why, "job", row=12)}, tuple(range(many - 1))
        loads = (Load(1, good, rows, sum(files[index].size for index in good)),) if good else ()
        mark = WindowMark(f"{table}_{self._files}_1790000000", 1_789_999_400, ("shard-1",)) if many > 1 else None
        return replace(
            _EMPTY,
            event_id=str(6_000_000_000_000_000_000 + self._files),
            phase=Phase.FAILED if failed and not good else Phase.DONE,
            dest=table,
            files=files,
            rule=PinnedRule(_ACTIONS, f"gs://{PROJECT}-config/rules/{rule}.json", rule, "0f3c9a1d77be" * 5),
            created=now - timedelta(seconds=3),
            stamp=Stamp(now),
            trigger=mark,
            progress=Progress(loads=loads, aside=aside, jobs=1),
            rows=rows if good else None,
            error=aside[many - 1].why if failed and not good else "",
        )


_ACTIONS = {"OnSuccess": [{"Action": "delete"}]}
_EPOCH = SystemClock().now()
_EMPTY = Record(
    event_id="",
    kind=Kind.LOAD,
    phase=Phase.DONE,
    dest="",
    files=(),
    rule=PinnedRule(_ACTIONS, "", ""),
    created=_EPOCH,
    stamp=Stamp(_EPOCH),
    placement=Placement(PROJECT, "US"),
)


@asynccontextmanager
async def running(populated: Populated) -> AsyncIterator[Populated]:
    daemon = asyncio.create_task(populated.app.run())
    while populated.app.missing() and not daemon.done():
        await asyncio.sleep(0.01)
    try:
        yield populated
    finally:
        daemon.cancel()
        await asyncio.gather(daemon, return_exceptions=True)
