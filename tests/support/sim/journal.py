"""The journal of a simulated world, as an operator's commands reach it."""

from datetime import timedelta

from tests.support.bindings import CoreStore, CoreWarehouse
from tests.support.sim.world import World

from ingestd.batch.journal import Journal
from ingestd.ledger.explain import Explanation
from ingestd.ledger.parts import explainer
from ingestd.ledger.replay import Asked, Replayed, Replayer, Selection
from ingestd.model.objects import ObjectRef
from ingestd.rules.bucket import rule_source
from ingestd.rules.loading import RuleLoader


def journal(world: World) -> Journal:
    store = CoreStore(world.storage, world.clock)
    return Journal(store, world.settings().journal, world.clock, owner="test", lease=timedelta(seconds=20))


async def replay(world: World, selection: Selection, *, dry_run: bool = False) -> list[Replayed]:
    asked = Asked("ann", "the table is there now", dry_run)
    return [one async for one in _replayer(world).batches(selection, asked)]


async def put_back(world: World, folder: ObjectRef) -> list[Replayed]:
    """`replay --quarantine`, of all that lies in the folder."""
    return [one async for one in _replayer(world).quarantined(folder, Selection(), Asked("ann", "mended"))]


def _replayer(world: World) -> Replayer:
    store = CoreStore(world.storage, world.clock)
    return Replayer(store, journal(world), world.clock, notes=world.settings().journal / "Replays")


async def explain(world: World, ref: ObjectRef) -> Explanation:
    """What the rules of the world, as they are now, and its journal have to say of an object."""
    settings, store = world.settings(), CoreStore(world.storage, world.clock)
    book = await RuleLoader(rule_source(settings.rules.url, store), world.clock).refresh()
    asked = explainer(settings, store, CoreWarehouse(world.bigquery, world.clock), world.clock, load_state=False)
    return await asked.explain(ref, book.route(ref.name))
