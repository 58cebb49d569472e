"""What people do to a running deployment, drawn from a chance of its own: replay, backfill, roll out, skip, go on.

Nothing that they may do at a bad moment loses or doubles rows; what the cloud refuses them is as if it was not done.
"""

import asyncio
import random
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.support.bindings import CorePublisher, CoreStore, CoreWarehouse
from tests.support.one_by_one import OneByOne

from ingestd.batch.journal import Journal
from ingestd.collect.success.interventions import Interventions
from ingestd.collect.success.queue import OrderedTable, Queues
from ingestd.ledger.announcing import Publishing
from ingestd.ledger.backfill import Backfill
from ingestd.ledger.parts import known_files, wanted
from ingestd.ledger.replay import Asked, Replayer, Selection
from ingestd.model.clock import Clock
from ingestd.model.errors import IngestError
from ingestd.model.objects import EPOCH, ObjectRef
from ingestd.rules.bucket import rule_source
from ingestd.rules.loading import RuleLoader
from ingestd.settings import LoadState, Settings


@dataclass(frozen=True, slots=True)
class Replay:
    """Somebody runs `ingestd replay` on everything that failed or waits; its deletions may take very long."""

    at: float
    stands_still: float = 0.0

    def __str__(self) -> str:
        return "replays, standing still" if self.stands_still else "replays"


@dataclass(frozen=True, slots=True)
class Announce:
    """Somebody runs `ingestd backfill` on the whole bucket, while everything is under way."""

    at: float

    def __str__(self) -> str:
        return "backfills"


@dataclass(frozen=True, slots=True)
class GoOn:
    """Somebody runs `ingestd ordered retry` on every ordered table."""

    at: float

    def __str__(self) -> str:
        return "tells ordered tables to go on"


@dataclass(frozen=True, slots=True)
class Skip:
    """Somebody runs `ingestd ordered skip` on every ordered table: the batch under way is left out for good.

    They insist: it is refused while the batch is worked on, and a table may have none under way. Whoever does that
    looks at the tables from then on: should one be held, it is told to go on.
    """

    at: float
    tries: int = 1

    def __str__(self) -> str:
        return "leaves batches of ordered tables out"


@dataclass(frozen=True, slots=True)
class Roll:
    """A replica gets SIGTERM, has a while to drain, and another takes its place."""

    at: float
    replica: int
    grace: float
    back_after: float

    def __str__(self) -> str:
        return "rolls out a replica"


Gesture = Replay | Announce | GoOn | Skip | Roll


def draw_gestures(seed: int, replicas: int, until: float) -> tuple[Gesture, ...]:
    """Few or none; those of `replay` are drawn with the surroundings."""
    chance = random.Random(f"operators {seed}")
    if chance.random() < 0.65:
        return ()
    found: list[Gesture] = []
    for _ in range(chance.choice((1, 1, 2, 4))):
        at, kind = chance.uniform(2, until), chance.choice(("roll", "roll", "announce", "go on"))
        if kind == "roll":
            found.append(Roll(at, chance.randrange(replicas), chance.choice((1.0, 30.0)), chance.choice((0.5, 20.0))))
        else:
            found.append(Announce(at) if kind == "announce" else GoOn(at))
    return tuple(found)


def draw_skips(seed: int, until: float) -> tuple[Gesture, ...]:
    """In worlds with ordered tables."""
    chance = random.Random(f"skips {seed}")
    if chance.random() < 0.5:
        return ()
    return tuple(Skip(chance.uniform(2, until), chance.choice((1, 20))) for _ in range(chance.choice((1, 2, 4))))


@dataclass(slots=True)
class Operator:
    """A person with the commands, on a machine of their own."""

    store: CoreStore
    warehouse: CoreWarehouse
    publisher: CorePublisher
    settings: Settings
    clock: Clock

    async def make(self, gesture: Replay | Announce | GoOn | Skip, bucket: str, topic: str, tables: list[str]) -> None:
        try:
            match gesture:
                case Replay():
                    await self._replay(gesture.stands_still)
                case Announce():
                    await self._announce(ObjectRef(bucket, ""), topic)
                case GoOn():
                    await self._go_on([OrderedTable(bucket, table) for table in tables])
                case Skip():
                    await self._skip([OrderedTable(bucket, table) for table in tables], gesture.tries)
        except IngestError:
            return

    async def _replay(self, stands_still: float) -> None:
        slow: Any = _StandingStill(self.store, stands_still)
        replayer = Replayer(slow, self._journal(slow), self.clock, notes=self.settings.journal / "Replays")
        async for _ in replayer.batches(Selection(since=EPOCH), Asked("somebody", "drawn")):
            pass

    async def _announce(self, prefix: ObjectRef, topic: str) -> None:
        # Without the load state, so that the journal and the register have to know everything.
        settings = self.settings.model_copy(update={"load_state": LoadState(enabled=False)})
        book = await RuleLoader(rule_source(settings.rules.url, self.store), self.clock).refresh()
        known = known_files(settings, self.store, self.warehouse, self.clock, "backfill")
        search = Backfill(self.store, known, wanted(settings, book.index.route))
        await search.run(prefix, Publishing(self.publisher, topic, self.clock.now))

    async def _go_on(self, tables: list[OrderedTable]) -> None:
        for table in tables:
            await self._person().retry(table)

    async def _skip(self, tables: list[OrderedTable], tries: int) -> None:
        for table in tables:
            for _ in range(tries):
                if (await self._person().skip(table, "somebody")).endswith("is left out"):
                    break
                await asyncio.sleep(2)

    def _person(self) -> Interventions:
        queues = Queues(self.store, self.settings.journal / "ordered")
        journal, project, staging = self._journal(self.store), self.settings.project, self.settings.staging
        return Interventions(queues, journal, self.store, self.warehouse, self.clock, project=project, staging=staging)

    def _journal(self, store: Any) -> Journal:
        settings = self.settings
        return Journal(store, settings.journal, self.clock, owner="operator", lease=settings.recovery.lease)


class _StandingStill:
    """An operator's store: what it deletes, it deletes late."""

    def __init__(self, store: CoreStore, seconds: float) -> None:
        self._store = store
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        return partial(many, self) if (many := getattr(OneByOne, name, None)) else getattr(self._store, name)

    async def delete(self, ref: ObjectRef, **options: Any) -> bool:
        await asyncio.sleep(self._seconds)
        return await self._store.delete(ref, **options)
