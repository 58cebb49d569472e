"""A table whose daily budget runs short gets wider windows; nothing is lost or doubled by the change."""

import asyncio
from datetime import timedelta
from typing import Any

import orjson
import pytest
from tests.support.bindings import CoreStore
from tests.support.rule_documents import together
from tests.support.sim.names import OPS, PROJECT, TRIGGER
from tests.support.sim.stories import Simulate, expected, load_jobs, upload
from tests.support.sim.world import World

from ingestd.batch.register import Register
from ingestd.collect.windows.pacing import Pacing
from ingestd.model.errors import Transient
from ingestd.model.tables import parse_table
from ingestd.rules.rule import Rule
from ingestd.rules.schema import RuleSpec
from ingestd.warehouse.governor import QuotaGovernor, QuotaLimits

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
                name, generation = upload(world, number)
                world.announce(name, generation, times=2)
                await asyncio.sleep(10 if number < 60 else 30)
            await world.settled(limit=4 * 3600)
        assert world.rows() == expected(*range(120))
        assert world.objects("data/", TRIGGER) == []
        assert world.objects("journal/pace/") != []
        assert load_jobs(world) < 110, "later files must have been coalesced"

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
    return Rule.of(RuleSpec.model_validate(together()), "rule.json")


def test_a_duplicate_of_a_file_around_a_change_of_pace_is_known(simulate: Simulate) -> None:
    """Two windows of different length end in the same second: the lock has the same name, and one of them has it."""

    async def story(world: World) -> None:
        world.prepared(together(Batch={"Window": {"DurationInSec": 60}}, OnSuccess=[]))
        write_pace(world, since=1_704_110_490, pace=120)  # 90 seconds after the world begins, on the hour
        with world.daemon() as daemon:
            await world.until(lambda: daemon.app.pacing.fresh)
            files = []
            for number in range(12):  # the second minute's first half is of a window of its own
                files.append(upload(world, number))
                await asyncio.sleep(10)
            await world.settled(limit=3600)
            await asyncio.sleep(120)  # until nobody has the window in memory any more
            for again in (files[9:], files):
                for name, generation in again:
                    world.announce(name, generation)
                await asyncio.sleep(1)
                await world.settled(limit=3600)
        assert world.rows() == expected(*range(12))

    simulate(story)


@pytest.mark.parametrize("registered", [True, False], ids=["registered", "unregistered"])
def test_a_file_loaded_alone_while_paces_could_not_be_read_is_known_to_its_window(
    simulate: Simulate, monkeypatch: pytest.MonkeyPatch, registered: bool
) -> None:
    """Without the register the duplicate is loaded again, in a window: this is the way that it is to guard."""
    if not registered:

        async def nobody(*asked: Any) -> dict[str, str]:
            return {}

        monkeypatch.setattr(Register, "_ask", nobody)

    readable: list[bool] = []
    refresh = Pacing.refresh

    async def refreshed(self: Pacing) -> None:
        if not readable:
            raise Transient("the notes cannot be listed")
        await refresh(self)

    monkeypatch.setattr(Pacing, "refresh", refreshed)

    async def story(world: World) -> None:
        world.prepared({"When": {"Prefix": "/data/case003"}, "Dest": {"Table": "bqtail.dummy"}})
        write_pace(world, since=int(world.clock.now().timestamp()) - 3600, pace=120)
        with world.daemon() as daemon:
            name, generation = upload(world, 0)
            await world.until(lambda: world.rows() == expected(0))
            assert not daemon.app.pacing.fresh, "it was loaded while the notes could not be read"
            readable.append(True)
            await world.until(lambda: daemon.app.pacing.fresh and world.record() != [])
            assert [record["Window"] for record in world.record()] == [None]
            world.announce(name, generation)
            await asyncio.sleep(1)
            await world.settled(limit=3600)
        if registered:
            assert world.rows() == expected(0)
        else:
            assert world.rows() == expected(0) * 2
            assert {bool(record["Window"]) for record in world.record()} == {True, False}

    simulate(story)


def write_pace(world: World, *, since: int, pace: int) -> None:
    """As another replica would have written it down."""
    table = f"{PROJECT}.bqtail.dummy"
    note = {"schema_version": 1, "Table": table, "Entries": [[since, pace, "another-replica"]]}
    world.storage.write(OPS, f"journal/pace/{table}.json", orjson.dumps(note), "application/json")
