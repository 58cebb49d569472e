"""Directories with success files in simulations: the convention, what is uploaded, and who orders their batches."""

from datetime import timedelta
from typing import Any

from tests.support.bindings import CoreStore, CoreWarehouse
from tests.support.sim.names import DATASET, TRIGGER
from tests.support.sim.world import World

from ingestd.batch.journal import Journal
from ingestd.collect.success.interventions import Interventions
from ingestd.collect.success.queue import OrderedTable, Queues, TableState
from ingestd.ledger.explain import Explanation
from ingestd.ledger.parts import explainer
from ingestd.model.objects import ObjectRef
from ingestd.rules.bucket import rule_source
from ingestd.rules.loading import RuleLoader

TABLE = OrderedTable(TRIGGER, f"{DATASET}/dummy")


def convention(**more: Any) -> dict[str, Any]:
    return {
        "success": {"order_grace": "0s", "conventions": [{"bucket": TRIGGER, **more}]},
        "load_state": {"enabled": False},
    }


def batch(world: World, folder: str, *numbers: int, success: bool = True) -> int:
    """A directory of one-row files, and its success file; the generation of that."""
    for number in numbers:
        world.upload(f"{DATASET}/{folder}/f{number:03d}.json", {"id": number, "name": "x"})
    if not success:
        return 0
    return int(world.storage.write(TRIGGER, f"{DATASET}/{folder}/_SUCCESS", b"", "text/plain").generation)


def rows(world: World, table: str = "dummy") -> list[int]:
    return sorted(int(row[0]) for row in world.rows(table))


def idle(world: World) -> bool:
    return world.quiet() and not any("/queue/" in name for name in world.objects("journal/ordered/"))


def waiting(world: World) -> list[dict[str, Any]]:
    return [one for one in world.record("Running") if one["RetryAt"]]


def interventions(world: World) -> Interventions:
    store, settings = CoreStore(world.storage, world.clock), world.settings()
    journal = Journal(store, settings.journal, world.clock, owner="ordered", lease=timedelta(seconds=20))
    queues = Queues(store, settings.journal / "ordered")
    warehouse = CoreWarehouse(world.bigquery, world.clock)
    project, staging = settings.project, settings.staging
    return Interventions(queues, journal, store, warehouse, world.clock, project=project, staging=staging)


async def state(world: World) -> TableState:
    store = CoreStore(world.storage, world.clock)
    return (await Queues(store, world.settings().journal / "ordered").state(TABLE))[0]


async def explain(world: World, name: str, **more: Any) -> Explanation:
    settings, store = world.settings(**{**convention(), **more}), CoreStore(world.storage, world.clock)
    book = await RuleLoader(rule_source(settings.rules.url, store, optional=True), world.clock).refresh()
    asked = explainer(settings, store, CoreWarehouse(world.bigquery, world.clock), world.clock, load_state=False)
    return await asked.explain(ObjectRef(TRIGGER, name), book.route(name))
