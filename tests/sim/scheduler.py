"""Runs one scenario: real daemons on the local cloud's cores, in virtual time, with everything going wrong as drawn.

One process, one thread, and all chance from the seed: a run repeats exactly. Faults stop at `healed_at` (crashes and
pauses are few and strike once each), then everything has to settle by itself.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import orjson
from tests.sim import newer
from tests.sim.changes import Change
from tests.sim.checker import Deletions, Evidence, Input, check, finished
from tests.sim.grouped import TOPIC, GroupWatch
from tests.sim.junk import Junk
from tests.sim.operators import Gesture, GoOn, Operator, Roll, Skip
from tests.sim.plain_database import PlainDatabase
from tests.sim.queues import QueueWatch
from tests.sim.real_bigquery import RealBigQuery
from tests.sim.scenario import Crash, Delivery, Pause, Scenario, Upload
from tests.sim.sites import LOOKS, RARE, READS, site_of
from tests.sim.surroundings import draw_surroundings
from tests.support.bindings import CorePublisher, CoreStore, CoreSubscription, CoreWarehouse
from tests.support.one_by_one import OneByOne
from tests.support.sim.names import CONFIG, DATASET, OPS, PROJECT, SCHEMA, TRIGGER
from tests.support.sim.plain_bigquery import PlainBigQuery
from tests.support.sim.plain_preparer import PlainPreparer
from tests.support.sim.world import Died, NoHttp, PlainClients
from tests.support.virtual_time import START, VirtualClock, VirtualLoop

from ingestd.app import App, assemble
from ingestd.gcp.connect import Clients
from ingestd.ledger.parts import explainer
from ingestd.localcloud.faults import Fault, FaultKind, FaultPlan, Hooks, ResponseLost
from ingestd.localcloud.feeds import StoredObjects
from ingestd.localcloud.provision import Names, ensure_resources
from ingestd.localcloud.pubsub import wire
from ingestd.localcloud.pubsub.core import PubSubCore
from ingestd.localcloud.storage.core import StorageCore
from ingestd.localcloud.storage.model import ListQuery
from ingestd.model.errors import IngestError
from ingestd.model.objects import ObjectInfo, ObjectRef
from ingestd.retry import Retrier, RetryPolicy
from ingestd.rules.bucket import rule_source
from ingestd.rules.loading import RuleLoader
from ingestd.settings import Settings

SETTLES_WITHIN = 1500.0  # seconds after the last fault; clocks are up to 300 s apart and leases are 30 s
_STANDSTILL = 300.0  # beyond that, seconds in which a batch has to end: slow jobs on a single slot take their time
_NEVER = 6000.0
REPLICA: ContextVar[str] = ContextVar("replica", default="-")

_PATIENCE = timedelta(seconds=45)  # looking is what costs: an empty pull waits long
_UPTIMES = tuple(timedelta(days=days) for days in (0, 9, 400))
_QUIET_FOLDERS = ("journal/Running/", "tasks/", "batch/", "staging/")
_TRANSIENT_REASONS = ("backendError", "internalError", "rateLimitExceeded")

Trace = Callable[[str, str], None]


class Trouble(FaultPlan):
    """Faults drawn call by call; the universe's own calls are spared."""

    def __init__(self, universe: "Universe") -> None:
        super().__init__()
        self._universe = universe

    def active(self) -> list[dict[str, object]]:
        return []  # what Pub/Sub delivers twice or late is decided where messages are published

    def take(self, service: str, method: str, resource: str, *kinds: FaultKind) -> Fault | None:
        universe = self._universe
        if universe.calm or universe.healed:
            return None
        if FaultKind.FAIL in kinds:
            return universe.refusal(service, method)
        if FaultKind.DROP_RESPONSE in kinds and not method.startswith("job."):
            share = universe.mischief.unanswered.get(service, 0.0)
            if share and universe.chance.random() < share:
                universe.trace("fault", f"{service} {method} {resource}: answer lost")
                universe.faults[f"answer lost: {service}"] += 1
                return Fault(service, method, FaultKind.DROP_RESPONSE)
        return None


@dataclass(slots=True)
class Life:
    """One incarnation of a replica."""

    slot: int
    name: str
    app: App | None = None
    task: asyncio.Task[None] | None = None
    dead: bool = False
    effects: int = 0
    reads: int = 0
    open: asyncio.Event = field(default_factory=asyncio.Event)  # cleared while the replica is paused

    def check(self) -> None:
        if self.dead:
            raise Died

    def kill(self) -> None:
        self.dead = True
        self.open.set()
        if self.task is not None:
            self.task.cancel()


class LifeClock(VirtualClock):
    """A replica's clock: skewed, and of no use to the dead (a call being retried must not reach the cloud)."""

    def __init__(self, loop: VirtualLoop, skew: timedelta, uptime: timedelta, life: Life) -> None:
        super().__init__(loop, skew, uptime)
        self._life = life

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(duration.total_seconds())
        self._life.check()


class Port:
    """A port whose calls take a moment, may hang, and are the last thing a replica does when its time has come."""

    def __init__(self, target: Any, kind: str, life: Life, universe: "Universe", about: str = "") -> None:
        self._target = target
        self._kind = kind
        self._life = life
        self._universe = universe
        self._about = about

    def __getattr__(self, method: str) -> Any:
        if many := getattr(OneByOne, method, None):
            return partial(many, self)  # it may die between any two of them
        target = getattr(self._target, method)
        if not callable(target):
            return target
        made = self._listing(target) if method == "list" else self._calling(method, target)
        setattr(self, method, made)
        return made

    def _calling(self, method: str, target: Any) -> Any:
        life, universe, kind, about = self._life, self._universe, self._kind, self._about
        reads, may_hang = method in READS, method in LOOKS

        async def call(*args: Any, **kwargs: Any) -> Any:
            if life.dead:
                raise Died
            await universe.latency()
            if not life.open.is_set():
                await life.open.wait()
            if life.dead:
                raise Died
            if reads:
                hung = await universe.looking(life, f"{kind}.{method} {_short(args)}") if may_hang else 0.0
                result = await target(*args, **kwargs)
                if hung:
                    await asyncio.sleep(hung)
                if life.dead:
                    raise Died
                return result
            site = site_of(kind, method, args, kwargs, ops=universe.ops) + about
            await universe.before(life)
            try:
                result = await target(*args, **kwargs)
            except Exception as error:
                universe.trace(life.name, f"{site} {_short(args)} failed: {error}")
                raise
            universe.after(life, site, _short(args))
            if not life.open.is_set():
                await life.open.wait()
            life.check()
            return result

        return call

    def _listing(self, target: Any) -> Any:
        life, universe = self._life, self._universe

        async def listing(*args: Any, **kwargs: Any) -> AsyncIterator[ObjectInfo]:
            life.check()
            await universe.latency()
            await life.open.wait()
            if hung := await universe.looking(life, f"{self._kind}.list {_short(args)}"):
                listed = [info async for info in target(*args, **kwargs)]
                await asyncio.sleep(hung)
                for info in listed:
                    life.check()
                    yield info
                return
            async for info in target(*args, **kwargs):
                life.check()
                yield info

        return listing


class Universe:
    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        loop: VirtualLoop,
        trace: Trace | None = None,
        bigquery: type[PlainBigQuery | RealBigQuery] = PlainBigQuery,
    ) -> None:
        self.scenario = scenario
        sites = [crash.site for crash in scenario.crashes]
        tables = [rule.prefix for rule in scenario.ordered]
        self.surroundings = draw_surroundings(scenario.seed, len(scenario.skews), scenario.healed_at, sites, tables)
        self._littered = self.surroundings.litter
        self._pages: list[str] = []  # of the register, by a newer version
        self.mischief = scenario.mischief
        self._keeps_load_state = scenario.load_state and bigquery is PlainBigQuery
        self.loop = loop
        self.clock = VirtualClock(loop)
        self.chance = random.Random(f"run {scenario.seed}")
        self.calm = 0
        self.healed = False
        self._over = False
        self._away = False  # nobody comes back meanwhile
        self.trace: Trace = trace or (lambda who, what: None)
        self.ops, self.trigger = OPS, TRIGGER
        self.names = Names(PROJECT)
        self.effects: Counter[str] = Counter()
        self.crashed_at: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()  # that struck, by kind
        self.last_fault = 0.0
        self.lives: list[Life] = []
        self._crashes: list[Crash] = list(scenario.crashes)
        if any(sites):
            self._crashes += [Crash(1, site, back_after=15.0) for site in RARE]
        self._pauses: list[Pause] = list(scenario.pauses)
        self._born: Counter[int] = Counter()
        self._under_way = 0  # messages that were sent and did not arrive yet
        self._sent: Counter[str] = Counter()  # by topic
        self._arrived: Counter[str] = Counter()  # the latest of them
        self._withheld: list[tuple[str, bytes, dict[str, str]]] = []
        self.inputs: list[Input] = []
        self._taken_back: set[tuple[str, int]] = set()  # what producers deleted themselves
        self._replaced: dict[tuple[str, int], float] = {}  # what producers overwrote or deleted, and when
        self._ends: list[tuple[float, str, bytes]] = []  # of batches
        self.broken: list[str] = []
        plan = Trouble(self)
        self.pubsub = PubSubCore(None, clock=self.clock, hooks=Hooks("pubsub", plan))
        self.storage = StorageCore(
            folder,
            project=PROJECT,
            clock=self.clock,
            hooks=Hooks("storage", plan),
            publish=self._notify,
            database=PlainDatabase,
        )
        with self.undisturbed():
            self.bigquery = bigquery(
                project=PROJECT,
                clock=self.clock,
                hooks=Hooks("bigquery", plan),
                objects=StoredObjects(self.storage),
                on_job_done=self._audit,
                latency=lambda: self.chance.uniform(*scenario.job_seconds),
            )
            self.bigquery.names_bad_files = scenario.names_bad_files
            ensure_resources(self.names, self.storage, self.pubsub)
        # Of what is written; None: it is deleted.
        self.observers: list[Callable[[str, bytes | None], None]] = [self._see_end]
        self._groups = GroupWatch()
        if any("Group" in (rule.batch or {}) for rule in scenario.rules):
            with self.undisturbed():
                self.pubsub.create_topic(wire.Topic(name=self.names.topic(TOPIC)))
            self.observers.append(lambda name, data: data is None or self._groups.wrote(name, self.loop.time()))
        around = self.surroundings
        stops = [one.seconds for one in (*scenario.pauses, *around.hangs, *around.hung_reads)]
        self.order = QueueWatch(max(stops, default=0.0))
        if scenario.ordered:
            self.observers.append(self._queued)
        self._watch()
        self.deletions = Deletions(self._rows, self._exists)
        self._documents = [rule.document(self.ops) for rule in scenario.rules]  # as they are now
        self._rule_names = [f"rules/r{rule.number}.json" for rule in scenario.rules]
        for rule in scenario.ordered:
            self._create_tables(rule.tables)
        for rule in scenario.rules:
            if not rule.broken:
                self._create_tables(rule.created)
            with self.undisturbed():
                self._write_rule(rule.number)
        self.settings = Settings.model_validate(self._settings())

    def close(self) -> None:
        self.bigquery.close()
        self.storage.close()
        self.pubsub.close()

    def undisturbed(self) -> "_Undisturbed":
        return _Undisturbed(self)

    def _watch(self) -> None:
        """See every write and delete of the operations bucket, and what groups publish, the moment it takes place."""
        objects, pubsub = self.storage.objects, self.pubsub
        insert, delete, publish = objects.insert, objects.delete, pubsub.publish

        def inserting(bucket: str, name: str, data: Any, *args: Any, **kwargs: Any) -> Any:
            if bucket != self.ops:
                return insert(bucket, name, data, *args, **kwargs)
            return _noted(lambda: insert(bucket, name, data, *args, **kwargs), lambda: self._tell(name, data))

        def deleting(bucket: str, name: str, *args: Any, **kwargs: Any) -> Any:
            if bucket != self.ops:
                return delete(bucket, name, *args, **kwargs)
            return _noted(lambda: delete(bucket, name, *args, **kwargs), lambda: self._tell(name, None))

        def publishing(topic: str, messages: Any) -> Any:
            if topic != self.names.topic(TOPIC):
                return publish(topic, messages)
            attributes = [attributes for _, attributes, _ in messages]
            return _noted(lambda: publish(topic, messages), lambda: self._groups.published(attributes))

        objects.insert, objects.delete = inserting, deleting  # type: ignore[method-assign]
        pubsub.publish = publishing  # type: ignore[method-assign]

    def _tell(self, name: str, data: bytes | None) -> None:
        for observer in self.observers:
            observer(name, data)

    def _see_end(self, name: str, data: bytes | None) -> None:
        if data is not None and name.startswith("journal/Done/"):
            self._ends.append((self.loop.time(), name, data))

    def _queued(self, name: str, data: bytes | None) -> None:
        if name not in self._littered:
            self.order.saw(name, data, self.loop.time())

    def _leave_newer(self) -> None:
        """A replica of a newer version was here."""
        with self.undisturbed():
            if self.chance.random() < 0.25 and not self.healed:
                name = newer.leave_page(self.storage, self.ops, self.chance)
                self._pages += [name] if name else []
            elif name := newer.leave(self.storage, self.ops, self.chance, self._littered):
                self._littered.add(name)
            if name:
                self.trace("world", f"of a newer version: {name}")
                self.faults[f"a newer version's object in {'/'.join(name.split('/')[:-1][:2])}/"] += 1

    def _litter(self, junk: Junk) -> None:
        with self.undisturbed():
            self.trace("world", f"junk {junk.name}")
            self.faults[f"junk in {junk.folder}"] += 1
            junk.put(self.storage)

    def _mutter(self, data: bytes) -> None:
        """Somebody publishes what is no notification."""
        self.faults["message that nobody can read"] += 1
        self._publish(self.names.topic(self.names.notifications_topic), data, {})

    async def _operate(self, gesture: Gesture) -> None:
        self._under_way += 1
        self.faults[f"operator {gesture}"] += 1
        self.trace("operator", f"{gesture}: {gesture!r}")
        try:
            if isinstance(gesture, Roll):
                await self._roll(gesture)
                return
            clock = VirtualClock(self.loop)
            retrier = Retrier(RetryPolicy(attempts=self.mischief.attempts), clock=clock, chance=random.Random(1))
            operator = Operator(
                CoreStore(self.storage, clock, retrier),
                CoreWarehouse(cast("Any", self.bigquery), clock, retrier),
                CorePublisher(self.pubsub, PROJECT, clock, retrier),
                self.settings,
                clock,
            )
            topic = self.names.topic(self.names.notifications_topic)
            await operator.make(gesture, self.trigger, topic, [rule.prefix for rule in self.scenario.ordered])
        finally:
            self._under_way -= 1
            self.last_fault = max(self.last_fault, self.loop.time())

    async def _look_after_tables(self) -> None:
        """Whoever leaves batches out sees to it that a table does not stay held over that."""
        while not self._over:
            await asyncio.sleep(20)
            if self.healed and not self._over and any(queue.held for queue in self.order.queues.values()):
                await self._operate(GoOn(self.loop.time()))

    async def _roll(self, roll: Roll) -> None:
        """SIGTERM, a while to drain, SIGKILL; and a new one."""
        life = next((one for one in self.lives if one.slot == roll.replica and not one.dead), None)
        if life is None or life.app is None or life.task is None or life.task.done():
            return
        life.app.stop()
        await asyncio.wait([life.task], timeout=roll.grace)
        if not life.dead:  # else it has died of something else, and whoever saw to that starts it again
            life.kill()
            self.loop.call_later(roll.back_after, self._start, life.slot)
            self.last_fault = max(self.last_fault, self.loop.time() + roll.back_after)

    async def run(self) -> Evidence:
        scenario = self.scenario
        for at, junk in self.surroundings.junk:
            self.loop.call_at(at, self._litter, junk)
        for at in self.surroundings.newer:
            self.loop.call_at(at, self._leave_newer)
        operators = []
        for at, data in self.surroundings.gibberish:
            self.loop.call_at(at, self._mutter, data)
        for gesture in self.surroundings.gestures:
            start = partial(self._operate, gesture)
            self.loop.call_at(gesture.at, lambda start=start: operators.append(self.loop.create_task(start())))
        for upload in scenario.uploads:
            if upload.absent is not None:
                self.loop.call_at(max(0.0, upload.at - upload.absent), self._delete, upload.name)
            self.loop.call_at(upload.at, self._upload, upload)
        for change in scenario.changes:
            self.loop.call_at(change.at, self._change, change)
        for slot in range(len(scenario.skews)):
            self.loop.call_at(slot * 0.7, self._start, slot)
        if any(isinstance(gesture, Skip) for gesture in self.surroundings.gestures):
            operators.append(self.loop.create_task(self._look_after_tables()))
        await asyncio.sleep(scenario.healed_at)
        self._heal()
        settled_after = await self._settle()
        if scenario.repeated:
            await self._wait_long(scenario.patience)
            self.trace("world", f"announcing {len(scenario.repeated)} files once more")
            wait = "long after" if scenario.patience >= 3600 else "after"
            for number in scenario.repeated:
                self.faults[f"duplicate {wait} the end"] += 1
                self._announce(self.inputs[number])
            await asyncio.sleep(1)
            self.last_fault = self.loop.time()
            await self._settle()
        self._over = True
        await asyncio.gather(*operators)
        for life in self.lives:
            life.kill()
        await asyncio.wait([life.task for life in self.lives if life.task is not None])
        evidence = self._evidence(settled_after)
        with self.undisturbed():
            evidence.explained = await self._explained()
        evidence.early += [*self._groups.problems(finished(evidence)), *self.order.overtaken]
        return evidence

    async def _explained(self) -> dict[str, list[dict[str, Any]]]:
        """What `ingestd explain` says of every name that was ever uploaded, to somebody who asks in the end."""
        store = CoreStore(self.storage, self.clock)
        warehouse = CoreWarehouse(cast("Any", self.bigquery), self.clock)
        book = await RuleLoader(rule_source(self.settings.rules.url, store), self.clock).refresh()
        asked = explainer(self.settings, store, warehouse, self.clock, load_state=False)
        reported = {problem.file for problem in book.problems}
        for _, junk in self.surroundings.junk:
            if junk.reported and f"gs://{junk.bucket}/{junk.name}" not in reported:
                self.deletions.early.append(f"G8: nobody is told that {junk.name} is no rule: {reported}")
        found = {}
        for name in sorted({given.name for given in self.inputs}):
            answer = await asked.explain(ObjectRef(self.trigger, name), book.route(name))
            found[name] = [one.to_json() for one in answer.history]
        return found

    # What the scenario does.

    def _start(self, slot: int) -> None:
        if self._over or self._away:
            return
        self._born[slot] += 1
        suffix = "" if self.scenario.same_names else f"-{self._born[slot]}"
        life = Life(slot, f"replica{slot}{suffix}")
        life.open.set()
        # Its node may have been started with it, or years ago.
        uptime = _UPTIMES[(self.scenario.seed + slot) % len(_UPTIMES)]
        clock = LifeClock(self.loop, timedelta(seconds=self.scenario.skews[slot]), uptime, life)
        policy = RetryPolicy(attempts=self.mischief.attempts)
        retrier = Retrier(policy, clock=clock, chance=random.Random(f"{self.scenario.seed} {slot}"))

        def subscription(name: str) -> Any:
            about = " completions" if name.endswith("completions") else " notifications"
            return Port(
                CoreSubscription(self.pubsub, name, clock, retrier, patience=_PATIENCE), "messages", life, self, about
            )

        clients = cast(
            "Clients",
            PlainClients(
                store=Port(CoreStore(self.storage, clock, retrier), "store", life, self),
                warehouse=Port(CoreWarehouse(cast("Any", self.bigquery), clock, retrier), "warehouse", life, self),
                publisher=Port(CorePublisher(self.pubsub, PROJECT, clock, retrier), "publisher", life, self),
                http=NoHttp(),
                subscription=subscription,
            ),
        )
        settings = self.settings.model_copy(update={"replica": life.name})
        store = Port(CoreStore(self.storage, clock, retrier), "store", life, self)
        life.app = assemble(settings, clients, clock, PlainPreparer(store, self.mishap, self.scenario.job_seconds[0]))
        life.app.ops = life.app.console = None  # nobody watches
        self.lives.append(life)
        self.trace(life.name, "starts")
        life.task = self.loop.create_task(self._live(life), name=life.name)

    async def _live(self, life: Life) -> None:
        REPLICA.set(life.name)
        assert life.app is not None
        died = False
        try:
            await life.app.run()
        except* Died:
            died = True
        except* Exception as group:  # noqa: BLE001 - it is noted and fails the run
            # What else failed in the moment of its death is nobody's any more: a process that is killed raises nothing.
            if not died:
                self._ended(life, group.exceptions)

    def _ended(self, life: Life, why: tuple[Exception, ...]) -> None:
        assert life.app is not None
        if life.app.missing() and all(isinstance(error, IngestError) for error in why):
            self.trace(life.name, f"does not come up: {why}")  # whoever supervises it starts it again
            life.kill()
            self.loop.call_later(5, self._start, life.slot)
        else:
            self.broken.append(f"{life.name} ended: {why}")

    def _delete(self, name: str) -> None:
        """The producer takes its file back."""
        with self.undisturbed():
            for one in list(self.storage.objects.list(self.trigger, ListQuery(prefix=name)).items):
                if one.name == name:
                    self.trace("world", f"delete {name}#{one.generation}")
                    self.faults["file taken back by its producer"] += 1
                    self._taken_back.add((name, int(one.generation)))
                    self._replaced.setdefault((name, int(one.generation)), self.loop.time())
                    self.storage.objects.delete(self.trigger, name)

    def _upload(self, upload: Upload) -> None:
        rows = [{"id": number if not upload.bad else f"bad{number}", "name": "x"} for number in upload.ids]
        data = b"\n".join(orjson.dumps(row) for row in rows)
        with self.undisturbed():
            version = self.storage.write(self.trigger, upload.name, data, "application/json")
        self.trace("world", f"upload {upload.name}#{version.generation} ids {upload.ids}{' bad' if upload.bad else ''}")
        given = Input(upload.name, int(version.generation), upload.ids, upload.rule, upload.bad)
        if upload.bad:
            self.faults["bad file"] += 1
        if before := [one for one in self.inputs if one.name == upload.name]:
            self._replaced.setdefault((upload.name, before[-1].generation), self.loop.time())
            how = "uploaded again after its deletion" if upload.absent is not None else "overwritten"
            self.faults[f"name {how}{', not for the first time' if len(before) > 1 else ''}"] += 1
        self.inputs.append(given)
        self.deletions.uploaded(given)
        if upload.rule.success:
            self.faults["success file of an ordered table"] += 1
            with self.undisturbed():
                self.storage.write(self.trigger, _sign(upload.name), b"", "text/plain")

    def _change(self, change: Change) -> None:
        with self.undisturbed():
            if change.pace is not None:
                for table in self.scenario.rules[change.rule].tables:
                    name = f"{PROJECT}.{DATASET}.{table}"
                    data = change.note(name, START.timestamp())
                    self.storage.write(self.ops, f"journal/pace/{name}.json", data, "application/json")
            else:
                self._documents[change.rule] = change.apply(self._documents[change.rule])
                if change.moved:
                    self.storage.objects.delete(CONFIG, self._rule_names[change.rule])
                    self._rule_names[change.rule] = f"rules/moved{int(change.at * 1000)}/r{change.rule}.json"
                self._write_rule(change.rule)
        self.faults[f"change under way: {change.kind}"] += 1
        self.trace("world", f"change {change}")

    def _write_rule(self, number: int) -> None:
        data = orjson.dumps(self._documents[number])
        self.storage.write(CONFIG, self._rule_names[number], data, "application/json")

    async def _wait_long(self, seconds: float) -> None:
        """Everybody is away meanwhile, or it would take as long to simulate."""
        if seconds < 3600:
            await asyncio.sleep(seconds)
            return
        self._away = True
        for life in self.lives:
            life.kill()
        await asyncio.wait([life.task for life in self.lives if life.task is not None])
        await asyncio.sleep(seconds)
        self._away = False
        for slot in range(len(self.scenario.skews)):
            self._start(slot)

    def _heal(self) -> None:
        self.healed = True
        self.last_fault = max(self.last_fault, self.loop.time())
        self.trace("world", "the trouble is over")
        for rule in self.scenario.rules:
            if rule.broken:
                self.faults["table missing until the end of the trouble"] += 1
                self._create_tables(rule.created)
        for topic, data, attributes in self._withheld:
            self._publish(topic, data, attributes)
        with self.undisturbed():
            for name in self._pages:
                newer.understand_page(self.storage, self.ops, name)
            for _, junk in self.surroundings.junk:
                if junk.mended:
                    self.trace("world", f"mends {junk.name}")
                    self.storage.write(self.trigger, junk.name, b"{}", "application/json")

    async def _settle(self) -> float:
        ended, since = 0, 0.0
        while True:
            waited = self.loop.time() - self.last_fault
            if self.broken:
                raise AssertionError(self.broken[0])
            if self.quiet():
                return waited
            if waited >= SETTLES_WITHIN:
                with self.undisturbed():
                    over = len(self._left_in("journal/Done/", None))
                ended, since = (over, waited) if over > ended else (ended, since)
                goes_on = waited < min(since + _STANDSTILL, _NEVER)
                assert goes_on, f"G5: not settled {waited:.0f} s after the last fault: {self.describe()}"
            await asyncio.sleep(5)

    def quiet(self) -> bool:
        if self._under_way:
            return False
        with self.undisturbed():
            if any(self._left_in(folder) for folder in _QUIET_FOLDERS):
                return False
            if self.scenario.ordered and any("/queue/" in name for name in self._left_in("journal/ordered/", None)):
                return False
        wanted = (self.names.notifications_subscription, self.names.completions_subscription)
        names = {self.names.subscription(name) for name in wanted}
        return not any(one.backlog for one in self.pubsub.stats().subscriptions if one.name in names)

    def describe(self) -> dict[str, Any]:
        with self.undisturbed():
            left = {folder: self._left_in(folder)[:5] for folder in _QUIET_FOLDERS}
        backlog = {one.name.rpartition("/")[2]: one.backlog for one in self.pubsub.stats().subscriptions}
        return {**left, "backlog": backlog}

    # What the network does.

    def _notify(self, topic: str, data: bytes, attributes: dict[str, str]) -> None:
        """Storage tells of a change: the only witness of deletions, and the start of a message's way."""
        kind, name = attributes["eventType"], attributes["objectId"]
        if kind == "OBJECT_DELETE" and "overwrittenByGeneration" not in attributes:
            generation = int(attributes["objectGeneration"])
            if (name, generation) not in self._taken_back:
                self.deletions.deleted(name, generation)
        if kind == "OBJECT_FINALIZE":
            self._send(self.mischief.notifications, topic, data, attributes)

    def _audit(self, entry: dict[str, Any]) -> None:
        topic = self.names.topic(self.names.completions_topic)
        self._send(self.mischief.audit, topic, orjson.dumps(entry), {}, forever=True)

    def _send(
        self, delivery: Delivery, topic: str, data: bytes, attributes: dict[str, str], *, forever: bool = False
    ) -> None:
        if self.healed:
            self._publish(topic, data, attributes)
            return
        chance = self.chance
        if chance.random() < delivery.lost:
            self.trace("fault", f"message lost: {attributes.get('objectId', topic)}")
            self.faults[f"message lost: {'completion' if forever else 'notification'}"] += 1
            if not forever:  # nobody repeats an audit event; a notification is published again by hand
                self._withheld.append((topic, data, attributes))
            return
        kind = "completion" if forever else "notification"
        copies = 2 if chance.random() < delivery.duplicated else 1
        self.faults[f"message twice: {kind}"] += copies - 1
        for _ in range(copies):
            delay = chance.uniform(0, delivery.latest) if delivery.latest else 0.0
            if chance.random() < delivery.late:
                self.faults[f"message late: {kind}"] += 1
                delay += chance.uniform(10, 120)
            self._under_way += 1
            self._sent[topic] += 1
            self.last_fault = max(self.last_fault, self.loop.time() + delay)
            self.loop.call_later(delay, self._arrive, self._sent[topic], topic, data, attributes)

    def _arrive(self, number: int, topic: str, data: bytes, attributes: dict[str, str]) -> None:
        self._under_way -= 1
        if number < self._arrived[topic]:
            self.faults["message overtaken by a later one"] += 1
        self._arrived[topic] = max(number, self._arrived[topic])
        self._publish(topic, data, attributes)

    def _publish(self, topic: str, data: bytes, attributes: dict[str, str]) -> None:
        with self.undisturbed():
            self.pubsub.publish(topic, [(data, attributes, "")])

    def _announce(self, given: Input) -> None:
        attributes = {
            "eventType": "OBJECT_FINALIZE",
            "payloadFormat": "NONE",
            "bucketId": self.trigger,
            "objectId": given.name,
            "objectGeneration": str(given.generation),
        }
        if given.rule.success:
            with self.undisturbed():
                generation = self.storage.stat(self.trigger, _sign(given.name)).generation
            attributes |= {"objectId": _sign(given.name), "objectGeneration": str(generation)}
        self._publish(self.names.topic(self.names.notifications_topic), b"", attributes)

    def latency(self) -> "asyncio.Future[None]":
        """Every call takes a little, never the same: replicas interleave differently with every seed."""
        return self.loop.sleeping(0.001 + 0.099 * self.chance.random())

    def refusal(self, service: str, method: str) -> Fault | None:
        mischief = self.mischief
        if method.startswith("job."):
            if mischief.jobs_failing and self.chance.random() < mischief.jobs_failing:
                reason = self.chance.choice(_TRANSIENT_REASONS)
                self.trace("fault", f"{method} fails: {reason}")
                self.faults["job fails for a moment"] += 1
                return Fault(service, method, FaultKind.FAIL, reason=reason)
            return None
        if mischief.outage is not None:
            down, start, end = mischief.outage
            if down == service and start <= self.loop.time() < end:
                self.faults[f"call during an outage: {service}"] += 1
                return Fault(service, method, FaultKind.FAIL, status=503)
        share = mischief.refused.get(service, 0.0)
        if share and self.chance.random() < share:
            self.faults[f"call refused: {service}"] += 1
            if self.chance.random() < mischief.throttled:
                return Fault(service, method, FaultKind.FAIL, status=429, reason="rateLimitExceeded")
            return Fault(service, method, FaultKind.FAIL, status=503)
        return None

    def mishap(self) -> bool:
        """Whether a preparer's session dies now."""
        share = 0.0 if self.healed or self.calm else self.mischief.preparing_failing
        struck = bool(share) and self.chance.random() < share
        self.faults["preparing attempt dies"] += struck
        return struck

    async def before(self, life: Life) -> None:
        await self._maybe_pause(life, before=True)
        if seconds := self.surroundings.hang(life.slot, life.effects):
            self.trace(life.name, f"one request HANGS for {seconds} s")
            self.faults[f"request hangs, {self._against_lease(seconds)}"] += 1
            self.last_fault = max(self.last_fault, self.loop.time() + seconds)
            await asyncio.sleep(seconds)
            life.check()

    async def looking(self, life: Life, what: str) -> float:
        """A replica is about to look at something: that may hang, or (in seconds) its answer may."""
        life.reads += 1
        if not self.surroundings.hung_reads or (hung := self.surroundings.hung_read(life.slot, life.reads)) is None:
            return 0.0
        how = "the answer HANGS" if hung.stale else "HANGS"
        self.trace(life.name, f"{what}: {how} for {hung.seconds} s")
        kind = "answer of a read hangs" if hung.stale else "read hangs"
        self.faults[f"{kind}, {self._against_lease(hung.seconds)}"] += 1
        self.last_fault = max(self.last_fault, self.loop.time() + hung.seconds)
        if hung.stale:
            return hung.seconds
        await asyncio.sleep(hung.seconds)
        life.check()
        return 0.0

    def after(self, life: Life, site: str, what: str) -> None:
        """An effect took place: count it, and see whether it was the replica's last."""
        life.check()
        life.effects += 1
        self.effects[site] += 1
        self.trace(life.name, f"{site} {what}")
        self._check_caps(life)
        for crash in self._crashes:
            hit = self.effects[site] == crash.nth if crash.site == site else False
            if not crash.site:
                hit = crash.replica == life.slot and life.effects >= crash.nth
            if hit:
                self._crashes.remove(crash)
                self._crash(life, site, crash)
        for pause in self._pauses:
            if not pause.before and pause.replica == life.slot and life.effects >= pause.nth:
                self._pauses.remove(pause)
                self._hang(life, pause)
                break

    def _crash(self, life: Life, site: str, crash: Crash) -> None:
        self.crashed_at[site] += 1
        self.faults["replica dies"] += 1
        self.trace(life.name, f"CRASHES after {site}")
        life.kill()
        self.last_fault = max(self.last_fault, self.loop.time() + crash.back_after)
        self.loop.call_later(crash.back_after, self._start, life.slot)
        raise Died

    async def _maybe_pause(self, life: Life, *, before: bool) -> None:
        for pause in self._pauses:
            if pause.before is before and pause.replica == life.slot and life.effects + 1 >= pause.nth:
                self._pauses.remove(pause)
                self._hang(life, pause)
                await life.open.wait()
                life.check()
                return

    def _hang(self, life: Life, pause: Pause) -> None:
        self.trace(life.name, f"HANGS for {pause.seconds} s")
        self.faults[f"replica pauses, {self._against_lease(pause.seconds)}"] += 1
        life.open.clear()
        self.last_fault = max(self.last_fault, self.loop.time() + pause.seconds)

        def wake() -> None:
            if not life.dead:
                self.trace(life.name, "wakes up")
            life.open.set()

        self.loop.call_later(pause.seconds, wake)

    def _against_lease(self, seconds: float) -> str:
        lease = self.settings.recovery.lease.total_seconds()
        return "longer than its lease" if seconds > lease else "within its lease"

    def _check_caps(self, life: Life) -> None:
        assert life.app is not None
        cap = self.settings.intake.max_messages
        for puller in life.app.pullers:
            if puller.desk.in_flight > cap:
                self.broken.append(f"G7: {life.name} has {puller.desk.in_flight} messages in flight, the cap is {cap}")

    # What is there in the end.

    def _evidence(self, settled_after: float) -> Evidence:
        objects: dict[str, bytes] = {}
        with self.undisturbed():
            for name in self._listing("", None):
                if name.startswith(("archive/", "corrupted/", "errors/", "journal/Done/")):
                    objects[name] = self.storage.read(self.ops, name)
            sources = {
                (one.name, int(one.generation)) for one in self.storage.objects.list(self.trigger, ListQuery()).items
            }
        evidence = Evidence(tuple(self.inputs), self._rows(), objects, sources, self.deletions.early)
        with self.undisturbed():
            # A replica that others take for dead may create a table after its batch ended; that is what expiry is for.
            alone = not self.scenario.pauses and not any(self.scenario.skews)
            own = {f"{DATASET}.{table}" for rule in self.scenario.rules for table in rule.tables}
            found = {name: kept for name, kept in self.bigquery.expiring().items() if name not in own}
            evidence.stray = [name for name, kept in found.items() if alone or not kept]
        if self._keeps_load_state:
            evidence.load_state = cast("PlainBigQuery", self.bigquery).load_state() + self._put_away()
        evidence.litter = self._littered
        left_out = {_below(given): given for given in self.inputs if given.rule.success}
        self.faults["batch of an ordered table left out"] += len(self.order.left_out)
        evidence.left_out = {(left_out[one].name, left_out[one].generation) for one in self.order.left_out}
        evidence.replaced = self._replaced
        evidence.ends = [(at, data) for at, name, data in self._ends if name not in self._littered]
        evidence.settled_after = settled_after
        evidence.effects, evidence.crashed_at, evidence.faults = self.effects, self.crashed_at, self.faults
        return evidence

    def _put_away(self) -> list[dict[str, Any]]:
        """Rows of the load state that wait until BigQuery takes rows again."""
        with self.undisturbed():
            names = self._left_in("journal/LoadState/", None)
            return [row for name in names for row in orjson.loads(self.storage.read(self.ops, name))["rows"]]

    def _rows(self) -> dict[str, Counter[int]]:
        with self.undisturbed():
            return self.bigquery.rows()

    def _exists(self, name: str) -> bool:
        with self.undisturbed():
            return bool(self._listing(name, 1))

    def _left_in(self, folder: str, some: int | None = 5) -> list[str]:
        """What lies there and is not junk; all of it, or some."""
        litter = self._littered
        return [name for name in self._listing(folder, some and len(litter) + some) if name not in litter]

    def _listing(self, prefix: str, limit: int | None) -> list[str]:
        query = ListQuery(prefix=prefix, max_results=limit) if limit else ListQuery(prefix=prefix)
        return [one.name for one in self.storage.objects.list(self.ops, query).items]

    def _create_tables(self, tables: tuple[str, ...]) -> None:
        for table in tables:
            resource = {"tableReference": {"datasetId": DATASET, "tableId": table}, "schema": SCHEMA}
            with self.undisturbed():
                self.bigquery.metadata.insert_table(PROJECT, DATASET, resource)

    def _settings(self) -> dict[str, Any]:
        given = {key: dict(value) for key, value in self.scenario.settings.items()}
        given["jobs"] |= {
            "poll_every": "30s",
            "max_attempts": 1000,  # a good file must be loaded however often its job failed for a moment
            "retry_pause": "2s",
            "throttle_pause": "5s",
        }
        return {
            "project": PROJECT,
            "rules": {"url": f"gs://{CONFIG}/rules", "check_every": "10s" if self._rules_change() else "6h"},
            "load_state": {"enabled": self._keeps_load_state},
            "recovery": {"lease": "30s", "sweep_every": "15s", "retry_first": "5s", "retry_longest": "60s"},
            "subscriptions": {
                "notifications": self.names.subscription(self.names.notifications_subscription),
                "completions": self.names.subscription(self.names.completions_subscription),
            },
            **({"success": self._success()} if self.scenario.ordered else {}),
            **given,
        }

    def _rules_change(self) -> bool:
        return bool(self.scenario.changes) or any(junk.bucket == CONFIG for _, junk in self.surroundings.junk)

    def _success(self) -> dict[str, Any]:
        grace = random.Random(f"grace {self.scenario.seed}").choice(("0s", "3s"))
        return {"order_grace": grace, "conventions": [self._convention()]}

    def _convention(self) -> dict[str, Any]:
        return {"bucket": self.trigger, "order_per_table": True}


def _noted(change: Callable[[], Any], note: Callable[[], None]) -> Any:
    """A call whose answer gets lost has had its effect."""
    try:
        result = change()
    except ResponseLost:
        note()
        raise
    note()
    return result


class _Undisturbed:
    def __init__(self, universe: Universe) -> None:
        self._universe = universe

    def __enter__(self) -> None:
        self._universe.calm += 1

    def __exit__(self, *_: object) -> None:
        self._universe.calm -= 1


def _sign(name: str) -> str:
    """The success file of its directory."""
    return f"{name.rpartition('/')[0]}/_SUCCESS"


def _below(given: Input) -> str:
    """The same, as the queue of its table names it."""
    table = given.rule.prefix
    return f"{table.replace('/', '.')}{_sign(given.name).removeprefix(table)}"


def _short(args: tuple[Any, ...]) -> str:
    if not args:
        return ""
    first = args[0]
    return str(getattr(first, "name", None) or getattr(first, "ref", first))[-100:]


def simulate(
    scenario: Scenario,
    folder: Path,
    trace: Trace | None = None,
    bigquery: type[PlainBigQuery | RealBigQuery] = PlainBigQuery,
) -> Evidence:
    """Run the scenario and hold its outcome to the guarantees; raises `AssertionError` with what is wrong."""
    loop = VirtualLoop()
    unseen: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unseen.append(context))
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        universe = Universe(scenario, folder, loop, trace, bigquery)
        try:
            evidence = runner.run(universe.run())
        finally:
            universe.close()
    assert not unseen, unseen
    check(evidence)
    return evidence
