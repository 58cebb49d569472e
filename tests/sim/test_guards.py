"""The simulation can fail: with any one guard of the protocol taken out, some seed shows the damage.

Where another guard (the net) makes good what a missing one breaks, both are taken out, and only a seed counts that
holds without the net alone: there it is the guard that was missed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.sim.scenario import Features, Way
from tests.sim.scheduler import REPLICA
from tests.sim.seeds import FEATURES, run_seeds
from tests.support.bindings import CoreStore, CoreWarehouse

from ingestd.batch.journal import Journal
from ingestd.batch.pinned import HOME
from ingestd.batch.record import Record
from ingestd.batch.stages import land, publish
from ingestd.collect.windows.manager import Windows
from ingestd.collect.windows.store import WindowStore
from ingestd.collect.windows.sweep import WindowSweep
from ingestd.intake.receipts import Receipt

SEEDS = 300

Remove = Callable[[pytest.MonkeyPatch], None]


def create_without_precondition(patch: pytest.MonkeyPatch) -> None:
    create = CoreStore.create

    async def careless(self: CoreStore, *args: Any, if_generation: Any = None, **kwargs: Any) -> Any:
        return await create(self, *args, **kwargs)

    patch.setattr(CoreStore, "create", careless)


def delete_without_precondition(patch: pytest.MonkeyPatch) -> None:
    delete = CoreStore.delete

    async def careless(self: CoreStore, *args: Any, if_generation: Any = None) -> bool:
        return await delete(self, *args)

    patch.setattr(CoreStore, "delete", careless)


def list_then_close(patch: pytest.MonkeyPatch) -> None:
    """The owner lists the shards before it says that the window is closed."""
    close, shards = WindowStore.close, WindowStore.shards

    async def later(self: WindowStore, name: str) -> None: ...

    async def too_early(self: WindowStore, name: str) -> Any:
        found = await shards(self, name)
        await close(self, name)
        return found

    patch.setattr(WindowStore, "close", later)
    patch.setattr(WindowStore, "shards", too_early)


def no_look_for_closed(patch: pytest.MonkeyPatch) -> None:
    """Whoever adds a shard does not look whether the window was closed meanwhile."""

    async def never(self: WindowStore, name: str) -> bool:
        return False

    patch.setattr(WindowStore, "is_closed", never)


def no_rescue(patch: pytest.MonkeyPatch) -> None:
    """Shards that no record took are tidied away unread."""

    async def drop(self: WindowSweep, window: str, shard: Any, known: Any) -> None:
        await self._store.remove_shards(window, [shard.name])

    patch.setattr(WindowSweep, "_rescue", drop)


def ack_at_delivery(patch: pytest.MonkeyPatch) -> None:
    deliver = Windows.deliver

    def hasty(self: Windows, event: Any, rule: Any, receipt: Receipt) -> Any:
        work = deliver(self, event, rule, receipt)
        receipt.ack()
        return work

    patch.setattr(Windows, "deliver", hasty)


def resubmit_instead_of_adopting(patch: pytest.MonkeyPatch) -> None:
    """A job whose id is taken is submitted again under another one."""
    insert = CoreWarehouse.insert_job

    async def again(self: CoreWarehouse, request: Any) -> Any:
        ref, known = request.ref, self._core.known  # type: ignore[attr-defined]
        while ref.job_id in known:
            ref = replace(ref, job_id=f"{ref.job_id}_again")
        return await insert(self, replace(request, ref=ref))

    patch.setattr(CoreWarehouse, "insert_job", again)


def delete_without_proof(patch: pytest.MonkeyPatch) -> None:
    """A job that has ended counts as loaded, whatever became of it."""
    patch.setattr(land, "job_failure", lambda job: None)
    patch.setattr(land, "prove", lambda job, files: None)
    patch.setattr(publish, "job_failure", lambda job: None)
    patch.setattr(publish, "prove_published", lambda job, rows: rows)


def forget_what_is_done(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Journal, record: Any) -> None: ...

    patch.setattr(Journal, "finished", nothing)


def publish_under_ids_of_ones_own(patch: pytest.MonkeyPatch) -> None:
    """A replica that continues a batch does not find the publishing job that another one has submitted."""
    publish_job = Record.publish_job

    def own(self: Record, branch: int = HOME, attempt: int | None = None) -> Any:
        job = publish_job(self, branch, attempt)
        return replace(job, job_id=f"{REPLICA.get()}_{job.job_id}")

    patch.setattr(Record, "publish_job", own)


@dataclass(frozen=True, slots=True)
class Damage:
    guard: Remove
    shows: str  # the guarantee that breaks
    net: Remove | None = None
    features: Features = FEATURES
    near: int = 0  # the seed to look at first: the search goes round all of them


DAMAGES = {
    "create without a generation": Damage(create_without_precondition, "G", near=8),
    "delete without a generation": Damage(
        delete_without_precondition, "G3", features=replace(FEATURES, overwrites=0.8), near=1
    ),
    "list, then close": Damage(list_then_close, "G1", net=no_rescue, near=224),
    "add a shard, and do not look for closed": Damage(no_look_for_closed, "G1", net=no_rescue, near=10),
    "leave stranded shards alone": Damage(no_rescue, "G1", near=4),
    "acknowledge at delivery": Damage(ack_at_delivery, "G1", near=25),
    "resubmit instead of adopting": Damage(resubmit_instead_of_adopting, "G2", near=3),
    "delete without proof": Damage(delete_without_proof, "G3", near=1),
    "forget what is done": Damage(forget_what_is_done, "G", near=129),
    "publish under ids of one's own": Damage(
        publish_under_ids_of_ones_own, "G2", features=replace(FEATURES, way=Way.COPY), near=5
    ),
}


def outcome(seed: int, features: Features, *removed: Remove) -> str:
    """What the checker says about the seed with these guards taken out; empty when it holds."""
    with pytest.MonkeyPatch.context() as patch:
        for remove in removed:
            remove(patch)
        return run_seeds((seed,), features).failures.get(seed, "")


# A search through seeds, as long as the machine makes it; only a hopeless one is stopped.
pytestmark = pytest.mark.timeout(1800)


def noticed(damage: Damage) -> bool:
    without = (damage.guard, damage.net) if damage.net else (damage.guard,)
    for seed in (*range(damage.near, SEEDS), *range(damage.near)):
        if damage.shows in outcome(seed, damage.features, *without) and (
            damage.net is None or not outcome(seed, damage.features, damage.net)
        ):
            return True
    return False


@pytest.mark.parametrize("name", DAMAGES)
def test_taking_out_a_guard_is_noticed(name: str) -> None:
    assert noticed(DAMAGES[name])


def test_stranded_shards_are_rescued_even_if_windows_are_listed_before_they_are_closed() -> None:
    assert [seed for seed in range(12) if outcome(seed, FEATURES, list_then_close)] == []
