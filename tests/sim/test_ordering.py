"""G6: batches of an ordered table commit in order, through crashes, pauses, lost answers, duplicates and replicas."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.sim.checker import check
from tests.sim.ordered import OrderedUniverse, ordered_scenario
from tests.support.virtual_time import VirtualLoop

from ingestd.collect.success.queue import Entry, OrderedTable, Queues

SEEDS = 20


def simulate(seed: int, folder: Path, *, gated: bool, trace: Any = None) -> OrderedUniverse:
    loop = VirtualLoop()
    unseen: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unseen.append(context))
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        universe = OrderedUniverse(ordered_scenario(seed), folder, loop, gated=gated, trace=trace)
        try:
            evidence = runner.run(universe.run())
        finally:
            universe.close()
    assert not unseen, unseen
    check(evidence)
    universe.check_order()
    return universe


@pytest.mark.parametrize("gated", [True, False], ids=["gated", "live"])
def test_ordered_tables_commit_in_order_whatever_goes_wrong(tmp_path: Path, gated: bool) -> None:
    crashed = 0
    for seed in range(SEEDS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            universe = simulate(seed, folder, gated=gated)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, gated={gated}: {error}") from error
        crashed += universe.crashed_at.total()
    assert crashed > SEEDS / 4, "replicas hardly ever died"


def test_the_judge_notices_a_table_that_takes_the_last_batch_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def last(self: Queues, table: OrderedTable) -> Entry | None:
        entries = [entry async for entry in self.entries(table)]
        return entries[-1] if entries else None

    monkeypatch.setattr(Queues, "first", last)
    with pytest.raises(AssertionError, match=r"G6: (t0 was committed as|.* was chosen while .* was waiting)"):
        simulate(0, tmp_path, gated=True)
