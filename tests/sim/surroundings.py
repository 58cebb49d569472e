"""What happens around a simulated run, drawn beside its scenario: junk, people, single requests that hang.

Apart from the scenario's own draws, so that adding to these changes nothing about those.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.sim.junk import Junk, drawn, drawn_elsewhere
from tests.sim.newer import draw_newer
from tests.sim.operators import Gesture, Replay, draw_gestures, draw_skips
from tests.support.sim.names import OPS


@dataclass(frozen=True, slots=True)
class Hang:
    """One request of a replica takes very long, while its others go through: its lease may be kept, or be over."""

    replica: int
    nth: int  # effect from which on, or which look
    seconds: float


@dataclass(frozen=True, slots=True)
class HungRead(Hang):
    """The same of a look: at an object, a folder, a job, a table."""

    stale: bool = False  # it was answered at once, and the answer took long: things have moved on since


@dataclass(slots=True)
class Surroundings:
    junk: tuple[tuple[float, Junk], ...] = ()
    gestures: tuple[Gesture, ...] = ()
    gibberish: tuple[tuple[float, bytes], ...] = ()  # messages that nobody can read
    hangs: list[Hang] = field(default_factory=list)
    hung_reads: list[HungRead] = field(default_factory=list)
    newer: tuple[float, ...] = ()  # a replica of a newer version writes something then

    @property
    def litter(self) -> set[str]:
        """What lies in the daemon's own folders and is not its own."""
        return {junk.name for _, junk in self.junk if junk.bucket == OPS}

    def hang(self, replica: int, effects: int) -> float:
        """How long the request before this effect hangs; each of them strikes once."""
        for one in self.hangs:
            if one.replica == replica and effects + 1 >= one.nth:
                self.hangs.remove(one)
                return one.seconds
        return 0.0

    def hung_read(self, replica: int, reads: int) -> HungRead | None:
        for one in self.hung_reads:
            if one.replica == replica and reads >= one.nth:
                self.hung_reads.remove(one)
                return one
        return None


def draw_surroundings(
    seed: int, replicas: int, until: float, sites: Sequence[str] = (), ordered: Sequence[str] = ()
) -> Surroundings:
    """`sites`: where replicas are to die; one of them is reached only after somebody who replays stands still.

    `ordered`: the folders of tables that are loaded by success files.
    """
    chance = random.Random(f"surroundings {seed}")
    found = Surroundings(newer=draw_newer(seed, until), gibberish=_gibberish(seed, until))
    found.hung_reads = _hung_reads(seed, replicas)
    if "store.delete done" in sites:
        found.gestures = tuple(Replay(until * part, 90.0) for part in (0.4, 0.7, 0.9))
        return found
    if chance.random() < 0.3:
        found.junk = tuple((chance.uniform(0, until), one) for one in drawn(chance, chance.randint(1, 12)))
    found.junk += tuple(drawn_elsewhere(seed, until, ordered))
    if chance.random() < 0.3:
        found.gestures = tuple(
            Replay(chance.uniform(5, until), chance.choice((0.0, 0.0, 40.0, 90.0)))
            for _ in range(chance.choice((1, 2, 3)))
        )
    if chance.random() < 0.3:
        found.hangs = [
            Hang(chance.randrange(replicas), chance.randint(1, 80), chance.choice((10.0, 40.0, 90.0)))
            for _ in range(chance.choice((1, 2, 3)))
        ]
    found.gestures += draw_gestures(seed, replicas, until)
    if ordered:
        found.gestures += draw_skips(seed, until)
    return found


def _hung_reads(seed: int, replicas: int) -> list[HungRead]:
    chance = random.Random(f"hung reads {seed}")
    if chance.random() < 0.75:
        return []
    return [
        HungRead(
            chance.randrange(replicas),
            chance.randint(1, 200),
            chance.choice((10.0, 40.0, 90.0)),
            stale=chance.random() < 0.5,
        )
        for _ in range(chance.choice((1, 2, 3)))
    ]


def _gibberish(seed: int, until: float) -> tuple[tuple[float, bytes], ...]:
    chance = random.Random(f"gibberish {seed}")
    if chance.random() < 0.8:
        return ()
    texts = (b"{", b"[1, 2]", b"\xff\x00", b'{"bucket": 7}', b'{"name": "data/r0/x", "generation": "nine"}')
    return tuple((chance.uniform(0, until), chance.choice(texts)) for _ in range(chance.choice((1, 3))))
