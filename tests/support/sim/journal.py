"""The journal of a simulated world, as an operator's commands reach it."""

from datetime import timedelta

from tests.support.bindings import CoreStore
from tests.support.sim.world import World

from ingestd.batch.journal import Journal
from ingestd.ledger.replay import Asked, Replayed, Replayer, Selection


def journal(world: World) -> Journal:
    store = CoreStore(world.storage, world.clock)
    return Journal(store, world.settings().journal, world.clock, owner="test", lease=timedelta(seconds=20))


async def replay(world: World, selection: Selection, *, dry_run: bool = False) -> list[Replayed]:
    store = CoreStore(world.storage, world.clock)
    replayer = Replayer(store, journal(world), world.clock, notes=world.settings().journal / "Replays")
    return [one async for one in replayer.batches(selection, Asked("ann", "the table is there now", dry_run))]
