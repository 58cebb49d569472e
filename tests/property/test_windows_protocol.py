"""The window protocol, one call at a time: replicas share a store, and every call to it waits until it is its turn.

The replicas are the real ones; only what follows a recorded batch is cut short. Hypothesis chooses whose call goes
through next, when time passes, who dies (before or after the call it is in), which messages are delivered again, and
when the rule is edited or its file renamed.

Always: a file that was acknowledged is in a shard or in a record. In the end: exactly one record has loaded each file.
"""

import asyncio
import gc
import logging
import warnings
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, cast

import orjson
import structlog
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.memory_store import MemoryStore
from tests.support.virtual_time import START, VirtualClock, VirtualLoop

from ingestd.batch.content import Fate, Progress, SetAside
from ingestd.batch.journal import Held, Journal, LeaseLost
from ingestd.batch.landing import destination
from ingestd.batch.news import News
from ingestd.batch.parts import Parts
from ingestd.batch.phases import Phase
from ingestd.batch.register import Register, batch_name
from ingestd.batch.runner import BatchRunner
from ingestd.collect.windows.groups import Groups
from ingestd.collect.windows.manager import Windows
from ingestd.collect.windows.pacing import Pacing
from ingestd.collect.windows.replicas import Replicas
from ingestd.collect.windows.store import WindowStore
from ingestd.collect.windows.sweep import WindowSweep
from ingestd.collect.windows.tender import Tender, WindowLimits
from ingestd.intake.notifications import FINALIZE, ObjectEvent
from ingestd.intake.receipts import Receipt
from ingestd.intake.refusals import Refusals
from ingestd.model.errors import IngestError
from ingestd.model.objects import FileVersion, Generation, ObjectInfo, ObjectRef
from ingestd.rules.rule import Rule
from ingestd.rules.schema import RuleSpec
from ingestd.settings import Settings

BATCH, JOURNAL = ObjectRef("ops", "batch"), ObjectRef("ops", "journal")
LEASE = timedelta(seconds=20)
FILES = 8
SKEWS = (0.0, 200.0, -200.0)


class Gone(BaseException):
    """The replica is dead."""


@dataclass(slots=True)
class Call:
    """A call to the store that waits for its turn."""

    actor: "Actor"
    turn: "asyncio.Future[None]"


class Turns:
    """The store as one replica sees it."""

    def __init__(self, actor: "Actor") -> None:
        self._actor = actor

    def __getattr__(self, method: str) -> Any:
        target = getattr(self._actor.machine.store, method)

        async def call(*args: Any, **kwargs: Any) -> Any:
            await self._actor.turn()
            result = await target(*args, **kwargs)
            self._actor.dead |= self._actor.dying
            self._actor.check()
            return result

        return call

    async def list(self, *args: Any, **kwargs: Any) -> AsyncIterator[ObjectInfo]:
        await self._actor.turn()
        async for info in self._actor.machine.store.list(*args, **kwargs):
            yield info


class Steady(Pacing):
    @property
    def fresh(self) -> bool:
        return True


class Quick(BatchRunner):
    """Accepts batches as the real one does; loading them takes no time."""

    async def drive(self, held: Held, *, fresh: bool = False, its_turn: bool = False) -> None:
        record, parts = held.record, self._parts
        try:
            name = batch_name(parts.journal.place(record), record.stamp.born)
            others = await parts.register.enter(destination(record), name, record.files)
            known = [index for index, file in enumerate(record.files) if file.key in others]
            progress = Progress(
                aside={index: SetAside(Fate.IGNORED, others[record.files[index].key]) for index in known}
            )
            loaded = replace(record, progress=progress).enter(Phase.LOADED, rows=len(record.files) - len(known))
            held.record = loaded.enter(Phase.DONE)
            await self._parts.journal.finish(held)
            await self._tell(held.record)
        except LeaseLost:
            return


@dataclass(slots=True)
class Message:
    """A delivered notification: `machine.acked` learns of its acknowledgement."""

    machine: "Protocol"
    number: int

    def ack(self) -> None:
        self.machine.acked.add(self.number)

    def retry_later(self, delay: timedelta) -> None: ...

    def forget_payload(self) -> None: ...


@dataclass(slots=True)
class Actor:
    machine: "Protocol"
    name: str
    skew: float
    dead: bool = False
    dying: bool = False  # in the next call: it is done, but its answer never arrives
    tasks: list["asyncio.Task[Any]"] = field(default_factory=list)
    windows: Windows = field(init=False)
    sweeper: WindowSweep = field(init=False)
    runner: BatchRunner = field(init=False)

    def __post_init__(self) -> None:
        machine = self.machine
        clock = VirtualClock(machine.loop, timedelta(seconds=self.skew))
        store = cast("Any", Turns(self))
        journal = Journal(store, JOURNAL, clock, owner=self.name, lease=LEASE)
        given = Settings.model_validate({"project": "p"})
        nothing = cast("Any", None)
        register = Register(store, JOURNAL / "register")
        unused = ("warehouse", "tasks", "jobs", "governor", "underway", "trails", "destinations", "actions")
        parts = Parts(
            store=store,
            journal=journal,
            register=register,
            clock=clock,
            settings=given,
            **dict.fromkeys(unused, nothing),
        )
        news = News()
        self.runner = Quick(parts, news)
        tender = Tender(
            store=WindowStore(store, BATCH),
            journal=journal,
            register=register,
            runner=self.runner,
            clock=clock,
            project="p",
            replica=self.name,
            limits=WindowLimits(2, timedelta(seconds=3), timedelta(seconds=1), timedelta(seconds=10), LEASE),
        )
        pacing = Steady(store, JOURNAL / "pace", None, clock)
        self.windows = Windows(tender, Refusals(store, ObjectRef("ops", "errors")), pacing, news)
        groups = Groups(WindowStore(store, BATCH), journal, self.runner, clock, news, patience=LEASE)
        replicas = Replicas(store, JOURNAL / "replicas", clock, name=self.name, lease=LEASE)
        self.sweeper = WindowSweep(
            WindowStore(store, BATCH), self.windows, groups, replicas, clock, every=LEASE, lease=LEASE
        )
        self.spawn(self.windows.run())

    def spawn(self, work: Any) -> None:
        self.tasks.append(self.machine.loop.create_task(self._live(work)))

    async def _live(self, work: Any) -> None:
        try:
            await work
        except* (Gone, asyncio.CancelledError, IngestError):
            pass  # the next sweep tries again

    def check(self) -> None:
        if self.dead:
            raise Gone

    async def turn(self) -> None:
        self.check()
        if not self.machine.free:
            call = Call(self, self.machine.loop.create_future())
            self.machine.calls.append(call)
            await call.turn
        self.check()

    def die(self) -> None:
        self.dead = True
        for task in self.tasks:
            task.cancel()


class Protocol(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._logging = structlog.get_config()
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        self.loop = VirtualLoop()
        self.store = MemoryStore(VirtualClock(self.loop))
        self.calls: list[Call] = []
        self.acked: set[int] = set()
        self.delivered: set[int] = set()
        self.free = False  # every call goes through at once
        self.actors: list[Actor] = []
        self.max_files: int | None = None
        self.born = 0
        self.rule = Rule.of(RuleSpec.model_validate({"When": {"Prefix": "/"}, "Dest": {"Table": "d.t"}}), "r.json")

    @initialize(
        replicas=st.integers(2, 3),
        max_files=st.sampled_from([None, 2, 4]),
        skews=st.lists(st.sampled_from(SKEWS), min_size=3, max_size=3),
    )
    def begin(self, replicas: int, max_files: int | None, skews: list[float]) -> None:
        self.max_files = max_files
        self.write_rule("r", 10)
        for skew in skews[:replicas]:
            self.start(skew)

    def write_rule(self, name: str, seconds: int) -> None:
        batch = {"Window": {"DurationInSec": seconds}} | ({"MaxFiles": self.max_files} if self.max_files else {})
        document = {"When": {"Prefix": "/"}, "Dest": {"Table": "d.t"}, "Batch": batch}
        self.rule = Rule.of(RuleSpec.model_validate(document), f"rules/{name}.json")

    def start(self, skew: float) -> Actor:
        self.born += 1
        actor = Actor(self, f"replica{self.born}", skew)
        self.actors.append(actor)
        self.run(0)
        return actor

    def run(self, seconds: float) -> None:
        """Let everybody do what needs no turn, for so long."""

        async def passing() -> None:
            await asyncio.sleep(seconds)
            for _ in range(12):
                await asyncio.sleep(0)

        self.loop.run_until_complete(passing())

    def deliver(self, actor: Actor, number: int) -> None:
        """The notification of a file; all files are of the same ten seconds."""
        generation = Generation(int(START.timestamp() * 1_000_000) + number)
        file = FileVersion(ObjectRef("b", f"f{number}.json"), generation, 10, START + timedelta(seconds=number % 10))
        self.delivered.add(number)
        event = ObjectEvent(FINALIZE, file)
        work = actor.windows.deliver(event, self.rule, cast("Receipt", Message(self, number)))
        assert work is None
        self.run(0)

    @rule(which=st.integers(0, 2), number=st.integers(0, FILES - 1))
    def a_message_is_delivered(self, which: int, number: int) -> None:
        self.deliver(self.actors[which % len(self.actors)], number)

    @rule(name=st.sampled_from("rs"), seconds=st.sampled_from([5, 10, 20]))
    def the_rule_is_edited_or_its_file_renamed(self, name: str, seconds: int) -> None:
        self.write_rule(name, seconds)

    @precondition(lambda self: self.calls)
    @rule(which=st.integers(0, 50))
    def a_call_goes_through(self, which: int) -> None:
        self._let(self.calls.pop(which % len(self.calls)))

    @precondition(lambda self: self.calls)
    @rule(count=st.integers(2, 30))
    def calls_go_through_in_order(self, count: int) -> None:
        for _ in range(count):
            if self.calls:
                self._let(self.calls.pop(0))

    @rule(seconds=st.sampled_from([1.0, 4.0, 12.0, 30.0, 300.0]))
    def time_passes(self, seconds: float) -> None:
        self.run(seconds)

    @rule(which=st.integers(0, 2))
    def somebody_looks_for_windows_that_nobody_tends(self, which: int) -> None:
        actor = self.actors[which % len(self.actors)]
        actor.spawn(actor.sweeper.sweep())
        self.run(0)

    @rule(which=st.integers(0, 2), moment=st.sampled_from(["before", "in", "after"]))
    def somebody_dies(self, which: int, moment: str) -> None:
        """Before the call it is in goes through, in it (done, but the answer is lost), or right after its answer."""
        actor = self.actors.pop(which % len(self.actors))
        call = next((call for call in self.calls if call.actor is actor), None)
        if moment != "before" and call is not None:
            actor.dying = moment == "in"
            self._let(call)
        actor.die()
        self.run(0)
        self.calls = [call for call in self.calls if call.actor is not actor]
        self.start(actor.skew)

    @invariant()
    def nothing_acknowledged_is_forgotten(self) -> None:
        shards, records = self.durable()
        forgotten = self.acked - shards - set(records)
        assert not forgotten, f"acknowledged, but in no shard and no record: {forgotten}"

    def durable(self) -> tuple[set[int], Counter[int]]:
        """The files in shards, and by how many records each file is loaded."""
        shards: set[int] = set()
        for name in self.store.names("ops", "batch/"):
            if name.count("/") == 2 and not name.endswith("/closed"):
                document = orjson.loads(self.store.content(ObjectRef("ops", name)))
                shards |= {_number(item[1]) for item in document["Files"]}
        records: dict[str, set[int]] = {}
        for folder in ("Running", "Done"):  # what is done is done: somebody may be about to notice
            for name in self.store.names("ops", f"journal/{folder}/"):
                document = orjson.loads(self.store.content(ObjectRef("ops", name)))
                aside = document["Progress"]["Aside"]
                files = [_number(one["URL"]) for at, one in enumerate(document["Files"]) if str(at) not in aside]
                records[document["EventID"]] = set(files)
        return shards, Counter(number for files in records.values() for number in files)

    def _let(self, call: Call) -> None:
        if not call.turn.done():  # whoever made it may have been cancelled meanwhile
            call.turn.set_result(None)
        self.run(0)

    def teardown(self) -> None:
        try:
            if self.actors:
                self._settle()
        finally:
            for actor in self.actors:
                actor.die()
            self.free = True
            for call in self.calls:
                call.turn.cancel()
            self.run(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # the dead leave work behind that nobody awaits
                self.loop.close()
                self.actors.clear()
                gc.collect(0)
            structlog.configure(**self._logging)

    def _settle(self) -> None:
        """No more trouble: every call goes through, unacknowledged messages come back, everybody keeps looking."""
        self.free = True
        for call in self.calls:
            self._let(call)
        self.calls.clear()
        for _ in range(60):
            for actor in self.actors:
                actor.spawn(actor.sweeper.sweep())
                for name in self.store.names("ops", "journal/Running/"):
                    actor.spawn(actor.runner.resume(ObjectRef("ops", name)))
            for number in sorted(self.delivered - self.acked):
                self.deliver(self.actors[0], number)
            self.run(30)
            if self.delivered <= self.acked and not self.store.names("ops", "batch/"):
                break
        self.nothing_acknowledged_is_forgotten()
        left = [*self.store.names("ops", "batch/"), *self.store.names("ops", "journal/Running/")]
        assert self.delivered <= self.acked, f"never acknowledged: {self.delivered - self.acked}"
        assert not left, f"left behind: {left}"
        _, records = self.durable()
        twice = {number: times for number, times in records.items() if times > 1}
        assert not twice, f"in several records: {twice}"
        assert set(records) == self.delivered, f"in no record: {self.delivered - set(records)}"


def _number(name: str) -> int:
    return int(name.rpartition("/")[2].removeprefix("f").removesuffix(".json"))


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(
    max_examples=250, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_the_machine_notices_a_lost_file() -> None:
    """What it watches over can be seen to break: a shard that vanishes takes acknowledged files with it."""
    machine = Protocol()
    machine.begin(2, None, [0.0, 0.0, 0.0])
    try:
        machine.free = True
        machine.deliver(machine.actors[0], 1)
        machine.run(5)
        assert machine.acked == {1}
        machine.nothing_acknowledged_is_forgotten()
        (shard,) = [name for name in machine.store.names("ops", "batch/") if "replica" in name]
        machine.loop.run_until_complete(machine.store.delete(ObjectRef("ops", shard)))
        try:
            machine.nothing_acknowledged_is_forgotten()
        except AssertionError:
            machine.acked.clear()
        else:
            raise AssertionError("the loss went unnoticed")
    finally:
        machine.teardown()
