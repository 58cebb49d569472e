"""A small universe: one local cloud, daemons that start and die, and the questions every test asks at the end.

The cloud's cores keep their state while daemons come and go. A daemon dies for real, as far as the cloud can tell: from
one effect to the next its ports stop working, whatever its code still tries.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import orjson
from tests.support.bindings import CorePublisher, CoreStore, CoreSubscription, CoreWarehouse
from tests.support.one_by_one import OneByOne
from tests.support.sim.names import DATASET, OPS, PROJECT, SCHEMA, TRIGGER
from tests.support.sim.plain_bigquery import PlainBigQuery
from tests.support.sim.plain_preparer import PlainPreparer
from tests.support.virtual_time import VirtualClock, VirtualLoop

from ingestd.app import App, assemble
from ingestd.gcp.connect import Clients
from ingestd.localcloud.bigquery.core import BigQueryCore
from ingestd.localcloud.bigquery.settings import BigQuerySettings
from ingestd.localcloud.faults import FaultPlan, Hooks
from ingestd.localcloud.feeds import AuditSink, Notifications, StoredObjects
from ingestd.localcloud.provision import Names, ensure_resources
from ingestd.localcloud.pubsub.core import PubSubCore
from ingestd.localcloud.storage.core import StorageCore
from ingestd.localcloud.storage.errors import StorageError
from ingestd.model.objects import ObjectInfo
from ingestd.retry import Retrier
from ingestd.settings import Settings

_READS = frozenset({"stat", "read", "list", "get_job", "table", "dataset_location", "rows", "pull", "request"})


class Died(BaseException):
    """The process is gone: nothing in the daemon may catch this and go on."""


@dataclass(slots=True)
class Fate:
    """When a daemon dies: after its n-th effect on the world (0: before the first). None: it lives on."""

    dies_after: int | None = None
    effects: int = 0
    dead: bool = False
    struck: bool = False  # it died as planned, not at the end of the story
    log: list[str] = field(default_factory=list)
    on_death: Callable[[], None] = lambda: None
    before: Callable[[str], Awaitable[None]] | None = None  # awaited before each call: it may stand still there

    def check(self) -> None:
        if self.dead:
            raise Died
        if self.dies_after is not None and self.effects >= self.dies_after:
            self.die()

    def die(self) -> None:
        self.dead = self.struck = True
        self.on_death()
        raise Died

    def happened(self, what: str) -> None:
        self.effects += 1
        self.log.append(what)
        if self.dies_after is not None and self.effects >= self.dies_after:
            self.die()


class Mortal:
    """A port whose calls count as effects, take a moment, and stop with their daemon."""

    def __init__(self, port: Any, name: str, fate: Fate, pause: Callable[[], Awaitable[None]]) -> None:
        self._port = port
        self._name = name
        self._fate = fate
        self._pause = pause

    def __getattr__(self, method: str) -> Any:
        if many := getattr(OneByOne, method, None):
            return partial(many, self)  # it may die between any two of them
        target = getattr(self._port, method)
        if not callable(target):
            return target
        if method == "list":
            return lambda *args, **kwargs: self._list(target, *args, **kwargs)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._alive()
            await self._pause()
            if self._fate.before is not None:
                await self._fate.before(f"{self._name}.{method} {args[0] if args else ''}")
            self._alive()
            if method not in _READS:
                self._fate.check()
            result = await target(*args, **kwargs)
            self._alive()
            if method not in _READS:
                self._fate.happened(f"{self._name}.{method} {args[0] if args else ''}"[:160])
            return result

        return call

    def _alive(self) -> None:
        if self._fate.dead:
            raise Died

    async def _list(self, target: Any, *args: Any, **kwargs: Any) -> AsyncIterator[ObjectInfo]:
        await self._pause()
        async for info in target(*args, **kwargs):
            self._alive()
            yield info


class NoHttp:
    async def request(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("simulations call nobody")


class World:
    def __init__(
        self,
        folder: Path,
        loop: VirtualLoop,
        *,
        seed: int = 0,
        job_latency: float = 1.0,
        enforce_quotas: bool = False,
        plain: bool = False,
        names_bad_files: bool = True,
    ) -> None:
        """`plain`: with a BigQuery that knows numbered rows only, and costs next to nothing to start."""
        self.loop = loop
        self.clock = VirtualClock(loop)
        self.faults = FaultPlan()
        self.names = Names(PROJECT)
        self.mishap: Callable[[], bool] = lambda: False  # whether the next write of a preparer fails
        self.preparing = 0.0  # seconds that preparing takes
        self._random = random.Random(seed)
        self._daemons: list[Daemon] = []
        self.pubsub = PubSubCore(None, clock=self.clock, hooks=Hooks("pubsub", self.faults))
        self.storage = StorageCore(
            folder / "storage",
            project=PROJECT,
            clock=self.clock,
            hooks=Hooks("storage", self.faults),
            publish=Notifications(self.pubsub),
        )
        self.plain: PlainBigQuery | None = None
        self.bigquery: BigQueryCore
        surroundings = {
            "project": PROJECT,
            "clock": self.clock,
            "hooks": Hooks("bigquery", self.faults),
            "objects": StoredObjects(self.storage),
            "on_job_done": AuditSink(self.pubsub, self.names.topic(self.names.completions_topic)),
        }
        ensure_resources(self.names, self.storage, self.pubsub)
        if plain:
            self.plain = PlainBigQuery(latency=lambda: job_latency, **surroundings)
            self.plain.names_bad_files = names_bad_files
            self.bigquery = cast("BigQueryCore", self.plain)
            return
        settings = BigQuerySettings(
            workers=0, job_latency=timedelta(seconds=job_latency), enforce_quotas=enforce_quotas
        )
        self.bigquery = BigQueryCore(folder / "bigquery", settings=settings, **surroundings)
        self.bigquery.metadata.insert_dataset(PROJECT, {"datasetReference": {"datasetId": DATASET}})

    def close(self) -> None:
        self.bigquery.close()
        self.storage.close()
        self.pubsub.close()

    def create_table(self, table: str, schema: dict[str, Any] | None = None) -> None:
        resource = {"tableReference": {"datasetId": DATASET, "tableId": table}, "schema": schema or SCHEMA}
        self.bigquery.metadata.insert_table(PROJECT, DATASET, resource)

    def rule(self, name: str, document: Any) -> None:
        data = orjson.dumps(document)
        self.storage.write(f"{PROJECT}-config", f"rules/{name}", data, "application/json")

    def prepared(self, document: Any) -> None:
        """The usual table, and one rule."""
        self.create_table("dummy")
        self.rule("rule.json", document)

    def upload(self, name: str, *rows: dict[str, Any]) -> int:
        """Upload NDJSON; the notification goes out as in the cloud. The generation."""
        data = b"\n".join(orjson.dumps(row) for row in rows)
        return int(self.storage.write(TRIGGER, name, data, "application/json").generation)

    def announce(self, name: str, generation: int, times: int = 1) -> None:
        """Publish the finalize notification again, under new message ids."""
        attributes = {
            "eventType": "OBJECT_FINALIZE",
            "payloadFormat": "NONE",
            "bucketId": TRIGGER,
            "objectId": name,
            "objectGeneration": str(generation),
        }
        topic = self.names.topic(self.names.notifications_topic)
        for _ in range(times):
            self.pubsub.publish(topic, [(b"", attributes, "")])

    def exists(self, name: str, bucket: str = TRIGGER) -> bool:
        try:
            self.storage.stat(bucket, name)
        except StorageError:
            return False
        return True

    def objects(self, prefix: str, bucket: str = OPS) -> list[str]:
        return [one.name for one in self.storage.glob(bucket, f"{prefix}*")]

    def rows(self, table: str = "dummy") -> list[tuple[Any, ...]]:
        if self.plain:
            return sorted((str(number), "x") for number in self.plain.tables[f"{DATASET}.{table}"].rows.elements())
        page = self.bigquery.tabledata.list_rows(PROJECT, DATASET, table, {})
        return sorted(tuple(cell["v"] for cell in row["f"]) for row in page.get("rows", ()))

    def jobs(self, kind: str = "load") -> list[dict[str, Any]]:
        """The jobs of a kind, newest first."""
        if self.plain:
            jobs = [job.rest() for job in reversed(self.plain.known.values())]
        else:
            wanted = {"projection": "full", "maxResults": "1000"}
            jobs = self.bigquery.jobs.list_jobs(PROJECT, wanted, []).get("jobs", [])
        return [job for job in jobs if kind in job["configuration"]]

    def tables(self) -> list[str]:
        if self.plain:
            return [one.removeprefix(f"{DATASET}.") for one in self.plain.tables]
        found = self.bigquery.metadata.list_tables(PROJECT, DATASET, {})["tables"]
        return [one["tableReference"]["tableId"] for one in found]

    def pushed(self) -> list[tuple[bytes, str]]:
        """What actions pushed to the dead-letter topic: content and idempotency key, the same for a repetition."""
        name = self.names.subscription(self.names.dead_letter_subscription)
        received = self.pubsub.pull(name, 100)
        self.pubsub.modify_ack_deadline(name, [one.ack_id for one in received], 0)
        return [(one.data, one.attributes["ingestd-idempotency-key"]) for one in received]

    def record(self, folder: str = "Done") -> list[dict[str, Any]]:
        names = [name for name in self.objects(f"journal/{folder}/") if name.endswith(".run")]
        return [orjson.loads(self.storage.read(OPS, name)) for name in names]

    def settings(self, **changes: Any) -> Settings:
        given: dict[str, Any] = {
            "project": PROJECT,
            "rules": {"url": f"gs://{PROJECT}-config/rules"},
            "recovery": {"lease": timedelta(seconds=20), "sweep_every": timedelta(seconds=5)},
            "jobs": {"poll_every": timedelta(seconds=30)},
            "load_state": {"enabled": False},
            "subscriptions": {
                "notifications": self.names.subscription(self.names.notifications_subscription),
                "completions": self.names.subscription(self.names.completions_subscription),
            },
        }
        return Settings.model_validate(given | changes)

    @contextmanager
    def daemon(self, fate: Fate | None = None, *, skew: timedelta = timedelta(), **changes: Any) -> Iterator["Daemon"]:
        daemon = Daemon(self, fate or Fate(), VirtualClock(self.loop, skew), self.settings(**changes))
        self._daemons.append(daemon)
        try:
            yield daemon
        finally:
            daemon.kill()

    async def pause(self) -> None:
        """Every call takes a little, never the same: replicas interleave differently with every seed."""
        await asyncio.sleep(self._random.uniform(0.001, 0.05))

    async def until(self, done: Callable[[], bool], limit: float = 600) -> None:
        """Let time pass until it is so."""
        start = self.loop.time()
        while not done():
            waited = self.loop.time() - start
            for daemon in self._daemons:
                daemon.raise_if_broken()
            assert waited < limit, f"not settled after {limit} s: {self.describe()}"
            await asyncio.sleep(0.5 if waited < 60 else 10)  # looking is what costs: long waits look less often
            if not self.plain:
                self.bigquery.run_pending()
            self.pubsub.tick()

    async def settled(self, limit: float = 900) -> None:
        """Let time pass until nothing is pending anywhere: no record, no task, no message."""
        await self.until(self.quiet, limit)

    def quiet(self) -> bool:
        folders = ("journal/Running/", "tasks/", "batch/", "staging/")
        return not any(self.objects(folder) for folder in folders) and not self.backlog()

    def backlog(self) -> int:
        names = (self.names.notifications_subscription, self.names.completions_subscription)
        wanted = {self.names.subscription(name) for name in names}
        return sum(one.backlog for one in self.pubsub.stats().subscriptions if one.name in wanted)

    def describe(self) -> dict[str, Any]:
        return {
            "running": self.record("Running"),
            "tasks": self.objects("tasks/"),
            "backlog": self.backlog(),
        }


class Daemon:
    """One replica: the real application on mortal ports."""

    def __init__(self, world: World, fate: Fate, clock: VirtualClock, settings: Settings) -> None:
        self.fate = fate
        retrier = Retrier(clock=clock, chance=random.Random(1))

        def mortal(port: Any, name: str) -> Any:
            return Mortal(port, name, fate, world.pause)

        clients = cast(
            "Clients",
            PlainClients(
                store=mortal(CoreStore(world.storage, clock, retrier), "store"),
                warehouse=mortal(CoreWarehouse(world.bigquery, clock, retrier), "warehouse"),
                publisher=mortal(CorePublisher(world.pubsub, PROJECT, clock, retrier), "publisher"),
                http=NoHttp(),
                subscription=lambda name: mortal(CoreSubscription(world.pubsub, name, clock, retrier), "messages"),
            ),
        )
        store = mortal(CoreStore(world.storage, clock, retrier), "store")
        self.app: App = assemble(settings, clients, clock, PlainPreparer(store, world.mishap, world.preparing))
        self.app.ops = None
        self._task = asyncio.get_running_loop().create_task(self._run(), name="daemon")
        fate.on_death = self._task.cancel

    async def _run(self) -> None:
        try:
            await self.app.run()
        except* Died:
            pass

    @property
    def alive(self) -> bool:
        return not self._task.done()

    def raise_if_broken(self) -> None:
        """A daemon that ended for any other reason than death or SIGTERM has a bug: show it."""
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    async def stopped(self) -> None:
        """SIGTERM, and wait."""
        self.app.stop()
        await self._task

    def kill(self) -> None:
        """SIGKILL."""
        self.fate.dead = True
        self._task.cancel()


@dataclass(slots=True)
class PlainClients:
    """What `assemble` needs of the clients."""

    store: Any
    warehouse: Any
    publisher: Any
    http: Any
    subscription: Callable[[str], Any]
