"""What happens around a simulated run, drawn beside its scenario: junk, operators, single requests that hang.

Apart from the scenario's own draws, so that adding to these changes nothing about those.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.sim.junk import Junk, drawn
from tests.sim.newer import draw_newer

from ingestd.batch.journal import Journal
from ingestd.ledger.replay import Asked, Replayer, Selection
from ingestd.localcloud.bindings import CoreStore
from ingestd.localcloud.one_by_one import OneByOne
from ingestd.model.clock import Clock
from ingestd.model.errors import IngestError
from ingestd.model.objects import EPOCH, ObjectRef
from ingestd.settings import Settings


@dataclass(frozen=True, slots=True)
class Hang:
    """One request of a replica takes very long, while its others go through: its lease may be kept, or be over."""

    replica: int
    nth: int  # effect from which on
    seconds: float


@dataclass(frozen=True, slots=True)
class Replay:
    """Somebody runs `ingestd replay` on everything that failed or waits; its deletions may take very long."""

    at: float
    stands_still: float


@dataclass(slots=True)
class Surroundings:
    junk: tuple[tuple[float, Junk], ...] = ()
    replays: tuple[Replay, ...] = ()
    hangs: list[Hang] = field(default_factory=list)
    newer: tuple[float, ...] = ()  # a replica of a newer version writes something then

    @property
    def litter(self) -> set[str]:
        return {junk.name for _, junk in self.junk}

    def hang(self, replica: int, effects: int) -> float:
        """How long the request before this effect hangs; each of them strikes once."""
        for one in self.hangs:
            if one.replica == replica and effects + 1 >= one.nth:
                self.hangs.remove(one)
                return one.seconds
        return 0.0


def draw_surroundings(seed: int, replicas: int, until: float, sites: Sequence[str] = ()) -> Surroundings:
    """`sites`: where replicas are to die; one of them is reached only after somebody who replays stands still."""
    chance = random.Random(f"surroundings {seed}")
    found = Surroundings(newer=draw_newer(seed, until))
    if "store.delete done" in sites:
        found.replays = tuple(Replay(until * part, 90.0) for part in (0.4, 0.7, 0.9))
        return found
    if chance.random() < 0.3:
        found.junk = tuple((chance.uniform(0, until), one) for one in drawn(chance, chance.randint(1, 12)))
    if chance.random() < 0.3:
        found.replays = tuple(
            Replay(chance.uniform(5, until), chance.choice((0.0, 0.0, 40.0, 90.0)))
            for _ in range(chance.choice((1, 2, 3)))
        )
    if chance.random() < 0.3:
        found.hangs = [
            Hang(chance.randrange(replicas), chance.randint(1, 80), chance.choice((10.0, 40.0, 90.0)))
            for _ in range(chance.choice((1, 2, 3)))
        ]
    return found


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


async def replay_everything(replay: Replay, store: CoreStore, settings: Settings, clock: Clock) -> None:
    """As the command does it; what the cloud refuses ends it, and everything is as if it had not been run."""
    slow: Any = _StandingStill(store, replay.stands_still)
    journal = Journal(slow, settings.journal, clock, owner="operator", lease=settings.recovery.lease)
    replayer = Replayer(slow, journal, clock, notes=settings.journal / "Replays")
    try:
        async for _ in replayer.batches(Selection(since=EPOCH), Asked("somebody", "drawn")):
            pass
    except IngestError:
        return
