"""What happens around a simulated run, drawn beside its scenario: junk, people, single requests that hang.

Apart from the scenario's own draws, so that adding to these changes nothing about those.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.sim.junk import Junk, drawn
from tests.sim.newer import draw_newer
from tests.sim.operators import Gesture, Replay, draw_gestures


@dataclass(frozen=True, slots=True)
class Hang:
    """One request of a replica takes very long, while its others go through: its lease may be kept, or be over."""

    replica: int
    nth: int  # effect from which on
    seconds: float


@dataclass(slots=True)
class Surroundings:
    junk: tuple[tuple[float, Junk], ...] = ()
    gestures: tuple[Gesture, ...] = ()
    gibberish: tuple[tuple[float, bytes], ...] = ()  # messages that nobody can read
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
    found = Surroundings(newer=draw_newer(seed, until), gibberish=_gibberish(seed, until))
    if "store.delete done" in sites:
        found.gestures = tuple(Replay(until * part, 90.0) for part in (0.4, 0.7, 0.9))
        return found
    if chance.random() < 0.3:
        found.junk = tuple((chance.uniform(0, until), one) for one in drawn(chance, chance.randint(1, 12)))
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
    return found


def _gibberish(seed: int, until: float) -> tuple[tuple[float, bytes], ...]:
    chance = random.Random(f"gibberish {seed}")
    if chance.random() < 0.8:
        return ()
    texts = (b"{", b"[1, 2]", b"\xff\x00", b'{"bucket": 7}', b'{"name": "data/r0/x", "generation": "nine"}')
    return tuple((chance.uniform(0, until), chance.choice(texts)) for _ in range(chance.choice((1, 3))))
