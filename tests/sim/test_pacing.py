"""A table whose daily budget runs short gets wider windows; nothing is lost or doubled by the change."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.sim import test_windows as windowed
from tests.sim.world import PROJECT, TRIGGER, World

from ingestd.localcloud.bindings import CoreStore
from ingestd.model.tables import parse_table
from ingestd.rules.rule import Rule
from ingestd.rules.schema import RuleSpec
from ingestd.warehouse.governor import QuotaGovernor, QuotaLimits
from ingestd.windows.pacing import Pacing

Simulate = Callable[..., None]
SHORT = {"table_daily": 200}


@pytest.mark.parametrize("batch", [{"Batch": {"Window": {"DurationInSec": 10}}}, {}], ids=["windowed", "individual"])
def test_a_short_budget_widens_windows_and_every_file_still_loads_once(
    simulate: Simulate, batch: dict[str, object]
) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy")
        rule = {"When": {"Prefix": "/data/case003"}, "Dest": {"Table": "bqtail.dummy"}, **batch}
        world.rule("rule.json", {**rule, "OnSuccess": [{"Action": "delete"}]})
        with world.daemon(quotas=SHORT), world.daemon(quotas=SHORT):
            for number in range(120):
                name, generation = windowed.upload(world, number)
                world.announce(name, generation, times=2)
                await asyncio.sleep(10 if number < 60 else 30)
            await world.settled(limit=4 * 3600)
        assert world.rows() == windowed.expected(120)
        assert world.objects("data/", TRIGGER) == []
        assert world.objects("journal/pace/") != []
        assert windowed.load_jobs(world) < 110, "later files must have been coalesced"

    simulate(story)


def test_a_change_of_pace_applies_to_later_files_only_and_the_same_for_all_replicas(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        store, root = CoreStore(world.storage, world.clock), world.settings().journal / "pace"
        governor = QuotaGovernor(world.clock, QuotaLimits(table_day=10))
        table = parse_table(f"{PROJECT}.bqtail.dummy")
        mine, other = Pacing(store, root, governor, world.clock), Pacing(store, root, None, world.clock)
        rule = windowed_rule()
        moment = world.clock.now().timestamp()
        assert not mine.fresh
        await mine.look()
        assert mine.fresh
        assert mine.seconds(rule, table, moment) == 10
        for _ in range(8):
            await governor.admit(table)
        await mine.look()
        await other.look()
        for pacing in (mine, other):
            assert pacing.seconds(rule, table, moment) == 10
            later = pacing.seconds(rule, table, moment + 3600)
            assert later is not None
            assert later > 60
        assert mine.seconds(rule, table, moment + 3600) == other.seconds(rule, table, moment + 3600)
        await asyncio.sleep(timedelta(minutes=5).total_seconds())
        assert not mine.fresh, "notes that were not read lately must not be relied on"

    simulate(story)


def windowed_rule() -> Rule:
    return Rule.of(RuleSpec.model_validate(windowed.rule()), "rule.json")
