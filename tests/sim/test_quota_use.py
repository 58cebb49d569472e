"""Replicas share BigQuery's quotas by how many are alive, and what was used is not forgotten by a restart."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from tests.support.memory_store import MemoryStore
from tests.support.sim.stories import upload
from tests.support.sim.world import World
from tests.support.virtual_time import VirtualClock, VirtualLoop, run

from ingestd.collect.windows.quota_use import QuotaUse
from ingestd.collect.windows.replicas import Replicas
from ingestd.model.errors import Throttled
from ingestd.model.objects import ObjectRef
from ingestd.model.tables import parse_table
from ingestd.warehouse.governor import QuotaGovernor, QuotaLimits

TABLE = parse_table("p.d.t")
JOURNAL = ObjectRef("ops", "journal")
LEASE = timedelta(seconds=60)


class Place:
    """A store that replicas come to and leave."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock, self.store = clock, MemoryStore(clock)
        self.tasks: list[asyncio.Task[None]] = []

    async def replica(self, name: str, **limits: Any) -> "Replica":
        one = Replica(self, name, **limits)
        await one.use.start()
        one.tasks = [asyncio.create_task(one.replicas.beat_forever()), asyncio.create_task(one.run())]
        self.tasks += one.tasks
        await asyncio.sleep(1)
        return one


class Replica:
    def __init__(self, place: Place, name: str, **limits: Any) -> None:
        self.governor = QuotaGovernor(place.clock, QuotaLimits(**{"patience": timedelta(days=3), **limits}))
        self.replicas = Replicas(place.store, JOURNAL / "replicas", place.clock, name=name, lease=LEASE)
        self.use = QuotaUse(place.store, JOURNAL / "quota", self.governor, self.replicas, place.clock)
        self.clock = place.clock
        self.tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.use.run())
            while True:
                await self.clock.sleep(timedelta(seconds=30))
                await self.replicas.observe()

    async def load(self) -> None:
        while True:
            try:
                return await self.governor.admit(TABLE)
            except Throttled as wait:
                assert wait.until is not None
                await self.clock.sleep(wait.until - self.clock.now())

    def crash(self) -> None:
        for task in self.tasks:
            task.cancel()

    @property
    def used(self) -> int:
        return sum(one["used_today"] for one in self.governor.status()["tables"])


def live(story: Callable[[Place], Coroutine[Any, Any, None]]) -> None:
    loop = VirtualLoop()
    place = Place(VirtualClock(loop))

    async def main() -> None:
        try:
            await story(place)
        finally:
            for task in place.tasks:
                task.cancel()

    run(main(), loop)


async def minutes(number: float) -> None:
    await asyncio.sleep(60 * number)


def test_rates_are_divided_among_the_replicas_that_are_alive() -> None:
    async def story(place: Place) -> None:
        a = await place.replica("a")
        assert a.governor.share == 1
        b = await place.replica("b")
        assert b.governor.share == 0.5, "whoever comes knows at once that it is not alone"
        await minutes(2)
        assert a.governor.share == 0.5
        b.crash()
        await minutes(4)
        assert a.governor.share == 1, "what the dead one had is used by the others"

    live(story)


def test_a_share_that_somebody_has_set_stays_as_it_is() -> None:
    async def story(place: Place) -> None:
        a = await place.replica("a", share=0.25, table_day=100)
        await place.replica("b")
        await minutes(3)
        await a.governor.admit(TABLE)
        assert a.governor.share == 0.25
        assert a.governor.status()["tables"][0]["limit"] == 25

    live(story)


@pytest.mark.parametrize("name", ["a", "another"])
def test_a_replica_that_is_started_again_knows_what_was_used_before(name: str) -> None:
    async def story(place: Place) -> None:
        a = await place.replica("a")
        for _ in range(20):
            await a.governor.admit(TABLE)
        await minutes(2)
        a.crash()
        again = await place.replica(name)
        assert again.used == 20
        await again.governor.admit(TABLE)
        await minutes(3)
        assert again.used == 21, "and it counts once, whatever is read and written how often"
        await asyncio.sleep(timedelta(hours=26).total_seconds())
        assert again.used == 0, "after a day it is over"
        assert place.store.names("ops", "journal/quota/") == [f"journal/quota/{name}.json"], "the gone one's is removed"

    live(story)


def test_a_replica_that_ends_in_order_has_noted_everything() -> None:
    async def story(place: Place) -> None:
        a = await place.replica("a")
        await a.governor.admit(TABLE)
        await a.use.close()
        a.crash()
        assert (await place.replica("b")).used == 1

    live(story)


def test_the_budget_of_the_day_is_everybodys_and_an_idle_replica_keeps_none_of_it() -> None:
    async def story(place: Place) -> None:
        a, idle = await place.replica("a", table_day=100), await place.replica("b", table_day=100)
        for _ in range(97):
            await a.load()
        assert place.clock.monotonic() < 7200, "not half of it, but nearly all, within the hour"
        await minutes(2)
        assert idle.used == 97
        loads = [asyncio.create_task(one.load()) for one in (a, idle) for _ in range(4)]
        place.tasks += loads
        await minutes(60)
        done = [load for load in loads if load.done()]
        assert len(done) in (3, 4), "a minute's blindness may cost one more, never each replica's own hundred"
        await minutes(26 * 60)
        assert all(load.done() for load in loads)

    live(story)


def test_notes_are_written_once_a_minute_at_most_and_never_for_nothing() -> None:
    async def story(place: Place) -> None:
        a = await place.replica("a")
        for _ in range(30):
            await a.governor.admit(TABLE)
            await asyncio.sleep(10)
        assert len(place.store.names("ops", "journal/quota/")) == 1
        before = place.store.operations["insert"]
        await minutes(10)
        quiet = place.store.operations["insert"] - before
        assert quiet <= 10 * 3 + 2, "heartbeats alone, and the note of the last minute"

    live(story)


def test_a_note_that_nobody_can_read_harms_nobody() -> None:
    async def story(place: Place) -> None:
        place.store.put(JOURNAL / "quota/broken.json", b"{")
        a = await place.replica("a")
        await a.governor.admit(TABLE)
        await minutes(2)
        assert a.used == 1

    live(story)


def test_a_daemon_that_was_killed_counts_on_where_it_was(simulate: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy")
        rule = {"When": {"Prefix": "/data/case003"}, "Dest": {"Table": "bqtail.dummy"}}
        world.rule("rule.json", rule)
        with world.daemon(quotas={"enabled": True}) as first:
            for number in range(6):
                name, generation = upload(world, number)
                world.announce(name, generation)
            await world.settled()
            await minutes(2)
            used = first.app.governor.status()["project_used"]
            assert used >= 6
        with world.daemon(quotas={"enabled": True}) as second:
            await minutes(1)
            assert second.app.governor.status()["project_used"] == used

    simulate(story)
