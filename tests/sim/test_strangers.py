"""Whatever lies in the daemon's own folders: it is left alone, counted and told, and stops nothing else."""

import asyncio
from typing import Any

import orjson
import pytest
from prometheus_client import REGISTRY
from tests.sim.junk import FOLDERS, Junk, everything
from tests.support.sim.journal import replay
from tests.support.sim.names import OPS
from tests.support.sim.stories import Simulate
from tests.support.sim.world import Daemon, World

from ingestd.ledger.replay import Selection
from ingestd.localcloud.faults import Fault, FaultKind

TABLE = {"Dest": {"Table": "bqtail.dummy"}}
WINDOW: dict[str, Any] = {"Window": {"DurationInSec": 10}}
SUCCESS = {"conventions": [{"bucket": "somewhere", "order_per_table": True}]}


def left_alone(place: str, why: str) -> float:
    return REGISTRY.get_sample_value("ingestd_objects_left_alone_total", {"place": place, "why": why}) or 0.0


def prepared(world: World, **batch: Any) -> None:
    world.create_table("dummy")
    world.rule("window.json", {"When": {"Prefix": "/data/"}, **TABLE, "Batch": WINDOW | batch})
    world.rule("single.json", {"When": {"Prefix": "/single/"}, **TABLE})
    world.rule("later.json", {"When": {"Prefix": "/later/"}, **TABLE, "Async": True})


def upload(world: World, *ids: int) -> None:
    for number, folder in zip(ids, ("data", "single", "later"), strict=True):
        world.upload(f"{folder}/{number}.json", {"id": number, "name": "x"})


async def loaded(world: World, *ids: int) -> None:
    await world.until(lambda: [row[0] for row in world.rows()] == sorted(map(str, ids)), limit=1200)


def test_junk_in_every_folder_stops_nothing(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        prepared(world)
        for junk in everything():
            junk.put(world.storage)
        names = {junk.name for junk in everything()}
        seen = left_alone("journal", "unreadable"), left_alone("windows", "unreadable")
        with world.daemon(success=SUCCESS) as daemon:
            upload(world, 1, 2, 3)
            await loaded(world, 1, 2, 3)
            await asyncio.sleep(3600)
            upload(world, 4, 5, 6)
            await loaded(world, 1, 2, 3, 4, 5, 6)
            assert (await daemon.app.status())["left_alone"]
            await daemon.stopped()
        assert left_alone("journal", "unreadable") > seen[0]
        assert left_alone("windows", "unreadable") > seen[1]
        gone = names - {name for folder in FOLDERS for name in world.objects(folder)}
        # A task that cannot be read is set aside; a heartbeat that nobody renews goes after an hour, as any does.
        assert {name for name in gone if not name.startswith(("tasks/", "journal/replicas/"))} == set()

    simulate(story)


def test_junk_where_a_lock_belongs_does_not_stop_its_window(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        prepared(world)
        with world.daemon() as first:
            upload(world, 1, 2, 3)
            await world.until(lambda: any(name.endswith(".win") for name in world.objects("batch/")))
            (lock,) = (name for name in world.objects("batch/") if name.endswith(".win"))
            first.kill()
        Junk(lock, b"junk").put(world.storage)
        with world.daemon() as daemon:
            await loaded(world, 1, 2, 3)
            await world.settled()
            await daemon.stopped()

    simulate(story)


def newer(world: World, name: str) -> None:
    """As a newer version would have written it."""
    document = orjson.loads(world.storage.read(OPS, name))
    world.storage.write(OPS, name, orjson.dumps(document | {"schema_version": 99}), "application/json")


async def an_hour(world: World, daemon: Daemon) -> None:
    for _ in range(120):
        await asyncio.sleep(30)
        world.bigquery.run_pending()
        world.pubsub.tick()
        daemon.raise_if_broken()


def test_what_a_newer_version_recorded_is_left_alone_and_the_rest_goes_on(simulate: Simulate) -> None:
    """A rollback: messages about files that the newer version loaded come again, and its windows are open."""

    async def story(world: World) -> None:
        prepared(world)
        generations = {}
        with world.daemon() as daemon:
            for number, folder in enumerate(("data", "single", "later"), 1):
                generations[f"{folder}/{number}.json"] = world.upload(
                    f"{folder}/{number}.json", {"id": number, "name": "x"}
                )
            await loaded(world, 1, 2, 3)
            await world.settled()
            await daemon.stopped()
        for name in world.objects("journal/Done/"):
            newer(world, name)
        before = {name: world.storage.read(OPS, name) for name in world.objects("journal/Done/")}
        seen = left_alone("journal", "newer_version")
        with world.daemon() as daemon:
            for name, generation in generations.items():
                world.announce(name, generation)
            upload(world, 4, 5, 6)
            await loaded(world, 1, 2, 3, 4, 5, 6)
            await an_hour(world, daemon)
            assert left_alone("journal", "newer_version") > seen
            assert {one["why"] for one in (await daemon.app.status())["left_alone"]} == {"newer_version"}
            assert await replay(world, Selection(rule="single"), dry_run=True) is not None
            assert world.rows() == [(str(number), "x") for number in range(1, 7)], "loaded twice"
            # The register knows the windowed file; whether the others are duplicates only the newer version knows.
            assert world.backlog() == 2, "they wait"
            await daemon.stopped()
        assert {name: world.storage.read(OPS, name) for name in before} == before

    simulate(story)


def test_batches_under_way_of_a_newer_version_wait_for_it(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        prepared(world)
        world.bigquery.metadata.delete_table("sim-project", "bqtail", "dummy")
        world.create_table("other")
        world.rule("other.json", {"When": {"Prefix": "/other/"}, "Dest": {"Table": "bqtail.other"}, "Batch": WINDOW})
        with world.daemon() as daemon:
            world.upload("single/1.json", {"id": 1, "name": "x"})
            await world.until(lambda: bool(world.record("Running")))
            daemon.kill()
        (name,) = (one for one in world.objects("journal/Running/") if one.endswith(".run"))
        newer(world, name)
        kept = world.storage.read(OPS, name)
        with world.daemon() as daemon:
            world.upload("other/2.json", {"id": 2, "name": "x"})
            await an_hour(world, daemon)
            assert world.rows("other") == [("2", "x")]
            assert world.storage.read(OPS, name) == kept
            await daemon.stopped()

    simulate(story)


@pytest.mark.parametrize("part", [".win", "shard", "pace"])
def test_an_open_window_of_a_newer_version_waits_for_it(simulate: Simulate, part: str) -> None:
    async def story(world: World) -> None:
        prepared(world)
        world.create_table("other")
        world.rule("other.json", {"When": {"Prefix": "/other/"}, "Dest": {"Table": "bqtail.other"}, "Batch": WINDOW})
        if part == "pace":
            content = {"schema_version": 99, "Table": "sim-project.bqtail.dummy"}
            Junk("journal/pace/sim-project.bqtail.dummy.json", orjson.dumps(content)).put(world.storage)
            world.upload("data/1.json", {"id": 1, "name": "x"})
        else:
            with world.daemon() as first:
                world.upload("data/1.json", {"id": 1, "name": "x"})
                await world.until(lambda: any("/data" not in n and _is(part, n) for n in world.objects("batch/")))
                first.kill()
            (name,) = (one for one in world.objects("batch/") if _is(part, one))
            newer(world, name)
        with world.daemon() as daemon:
            world.upload("other/2.json", {"id": 2, "name": "x"})
            await an_hour(world, daemon)
            assert world.rows("other") == [("2", "x")]
            assert world.rows() == []
            await daemon.stopped()
        assert world.backlog() or any(_is(part, name) for name in world.objects("batch/")), "it is pending somewhere"

    simulate(story)


def _is(part: str, name: str) -> bool:
    return name.endswith(".win") if part == ".win" else "/" in name.removeprefix("batch/") and "closed" not in name


def test_a_store_that_stumbles_while_a_group_ends_takes_nobody_down(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        topic = world.names.topic(world.names.dead_letter_topic)
        done = [{"Action": "push", "Request": {"Topic": topic, "Message": "over"}}]
        prepared(world, Group={"OnDone": done})
        with world.daemon() as daemon:
            upload(world, 1, 2, 3)
            await loaded(world, 1, 2, 3)
            world.faults.add(Fault("storage", "objects.insert", FaultKind.FAIL, resource="*Done*", status=503))
            for _ in range(20):
                await asyncio.sleep(10)
                world.bigquery.run_pending()
                world.pubsub.tick()
            world.faults.clear()
            await world.settled()
            await daemon.stopped()

    simulate(story)
