"""One file, one load: exactly once through crashes at every effect, duplicates, and several replicas."""

import asyncio
from typing import Any

import pytest
from tests.support.rule_documents import FILE, ROWS, alone, modes
from tests.support.sim.names import OPS, TRIGGER
from tests.support.sim.stories import LOADED, Simulate, die_everywhere
from tests.support.sim.world import Fate, World


@modes
def test_a_file_is_loaded_and_its_source_deleted(simulate: Simulate, asynchronous: bool) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(asynchronous))
        with world.daemon():
            world.upload(FILE, *ROWS)
            await world.settled()
        assert world.rows() == LOADED
        assert not world.exists(FILE)
        (record,) = world.record()
        assert record["Status"] == "done"
        assert record["Rows"] == 2

    simulate(story)


@modes
def test_a_crash_after_any_effect_neither_loses_nor_doubles(simulate: Simulate, asynchronous: bool) -> None:
    async def story(world: World, fate: Fate) -> None:
        world.prepared(alone(asynchronous))
        world.upload(FILE, *ROWS)
        with world.daemon(fate) as first:
            await world.until(lambda: not first.alive or world.quiet())
        loaded_before_delete = world.rows() == LOADED
        assert world.exists(FILE) or loaded_before_delete
        with world.daemon():
            await world.settled()
        assert world.rows() == LOADED, fate.log
        assert not world.exists(FILE)
        assert [record["Status"] for record in world.record()] == ["done"]

    assert die_everywhere(simulate, story) >= 5, "the crash points were not reached"


@modes
def test_fifty_duplicates_load_once(simulate: Simulate, asynchronous: bool) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(asynchronous, OnSuccess=[]))
        with world.daemon(), world.daemon():
            generation = world.upload(FILE, *ROWS)
            world.announce(FILE, generation, times=50)
            await world.settled()
            world.announce(FILE, generation, times=50)
            await world.settled()
        assert world.rows() == LOADED

    simulate(story)


@pytest.mark.parametrize("seed", range(6))
@modes
def test_replicas_that_die_and_interleave_load_each_file_once(
    simulate: Simulate, asynchronous: bool, seed: int
) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(asynchronous))
        for number in range(8):
            name = f"data/case002/dummy{number}.json"
            generation = world.upload(name, {"id": number, "name": "x"})
            world.announce(name, generation, times=3)
        with world.daemon(Fate(dies_after=7 + seed * 5)), world.daemon(Fate(dies_after=23 - seed)), world.daemon():
            await world.settled()
        assert world.rows() == [(str(number), "x") for number in range(8)]
        assert world.objects("data/", TRIGGER) == []

    simulate(story, seed=seed)


@modes
@pytest.mark.parametrize("batch", [{}, {"Batch": {"Window": {"DurationInSec": 10}}}], ids=["alone", "windowed"])
def test_a_duplicate_is_known_when_its_record_has_expired_and_bigquery_has_forgotten_the_job(
    simulate: Simulate, asynchronous: bool, batch: dict[str, Any]
) -> None:
    """The horizon is the register's: neither the journal nor BigQuery's 180 days limit it."""

    async def story(world: World) -> None:
        world.create_table("dummy")
        rule = {"When": {"Prefix": "/data/"}, "Async": asynchronous, "Dest": {"Table": "bqtail.dummy"}}
        world.rule("rule.json", {**rule, **batch})
        with world.daemon() as daemon:
            generation = world.upload("data/a.json", {"id": 1, "name": "x"})
            await world.until(lambda: len(world.rows()) == 1)
            await world.settled()
            await daemon.stopped()
        for name in world.objects("journal/Done/"):
            world.storage.objects.delete(OPS, name)
        await asyncio.sleep(185 * 86_400)
        with world.daemon():
            world.announce("data/a.json", generation)
            await asyncio.sleep(1)
            await world.settled()
        assert len(world.rows()) == 1

    simulate(story)
