"""A batch that waits for a missing table: somebody is told soon and once, and it goes on trying."""

import asyncio
from typing import Any

import pytest
from tests.support.rule_documents import FILE, ROWS, alone, modes
from tests.support.sim.names import DATASET, OPS, PROJECT, SCHEMA
from tests.support.sim.stories import LOADED, Simulate
from tests.support.sim.world import Fate, World

QUICK = {"lease": "20s", "sweep_every": "5s", "retry_first": "5s", "retry_longest": "20s", "give_up_after": "10m"}


def told(world: World) -> list[bytes]:
    """Every message that arrived, by its idempotency key: a repetition under the same one is no second message."""
    return [data for data, _ in {key: (data, key) for data, key in world.pushed()}.values()]


def blocked(world: World, asynchronous: bool, *lists: str, message: str = "cannot load: $Error") -> None:
    topic = world.names.topic(world.names.dead_letter_topic)
    away = {"Action": "move", "Request": {"DestURL": f"gs://{OPS}/failed"}}
    push = {"Action": "push", "Request": {"Topic": topic, "Message": message}}
    more: dict[str, Any] = {"OnFailure": [away, push] if "OnFailure" in lists else [away]}
    if "OnBlocked" in lists:
        more["OnBlocked"] = [push]
    world.rule("rule.json", alone(asynchronous, **more))


@modes
@pytest.mark.parametrize("where", ["OnFailure", "OnBlocked"])
def test_a_missing_table_is_told_within_minutes_and_loads_when_it_comes(
    simulate: Simulate, asynchronous: bool, where: str
) -> None:
    async def story(world: World) -> None:
        blocked(world, asynchronous, where)
        with world.daemon(recovery=QUICK):
            world.upload(FILE, *ROWS)
            await world.until(lambda: told(world) != [], limit=120)
            assert b"dummy" in told(world)[0]
            assert world.exists(FILE), "what takes files away waits for the end"
            await asyncio.sleep(200)
            world.create_table("dummy")
            await world.settled()
        assert world.rows() == LOADED
        assert len(told(world)) == 1
        assert [one["Status"] for one in world.record()] == ["done"]

    simulate(story)


@modes
def test_the_end_runs_what_is_left_of_on_failure_and_tells_nothing_twice(
    simulate: Simulate, asynchronous: bool
) -> None:
    async def story(world: World) -> None:
        blocked(world, asynchronous, "OnFailure")
        with world.daemon(recovery=QUICK):
            world.upload(FILE, *ROWS)
            await world.settled(limit=3600)
        assert [one["Status"] for one in world.record()] == ["failed"]
        assert not world.exists(FILE) and len(world.objects("failed/")) == 1
        assert len(told(world)) == 1

    simulate(story)


@modes
def test_on_blocked_and_on_failure_each_run_once(simulate: Simulate, asynchronous: bool) -> None:
    async def story(world: World) -> None:
        blocked(world, asynchronous, "OnFailure", "OnBlocked")
        with world.daemon(recovery=QUICK):
            world.upload(FILE, *ROWS)
            await world.settled(limit=3600)
        assert len(told(world)) == 2

    simulate(story)


@pytest.mark.parametrize("effects", range(4, 60, 4))
def test_a_crash_around_the_telling_neither_forgets_nor_repeats_it(simulate: Simulate, effects: int) -> None:
    async def story(world: World) -> None:
        blocked(world, True, "OnFailure")
        with world.daemon(Fate(dies_after=effects), recovery=QUICK), world.daemon(recovery=QUICK):
            world.upload(FILE, *ROWS)
            await world.until(lambda: told(world) != [], limit=600)
            world.create_table("dummy")
            await world.settled()
        assert world.rows() == LOADED
        assert len(told(world)) == 1

    simulate(story)


ENGINES: dict[str, dict[str, Any]] = {
    "copied": {},
    "by BigQuery": {"Engine": "bigquery", "Dest": {"UniqueColumns": ["id"]}},
    "by Spark": {"Engine": "spark", "Dest": {"UniqueColumns": ["id"]}},
}
WIDE = {"fields": [*SCHEMA["fields"], {"name": "more", "type": "STRING"}]}


@modes
@pytest.mark.parametrize("way", ENGINES)
def test_a_column_that_the_destination_lacks_is_told_and_waited_for(
    simulate: Simulate, asynchronous: bool, way: str
) -> None:
    """Where bqtail's copy fails, nothing is dropped in silence; the same words from either engine."""

    async def story(world: World) -> None:
        world.create_table("dummy")
        world.create_table("wide", WIDE)
        transient = {"Dataset": "temp", "Template": f"{DATASET}.wide"}
        dest = {"Table": f"{DATASET}.dummy", "Transient": transient, **ENGINES[way].get("Dest", {})}
        topic = world.names.topic(world.names.dead_letter_topic)
        push = {"Action": "push", "Request": {"Topic": topic, "Message": "$Error"}}
        world.rule("rule.json", {**alone(asynchronous, OnFailure=[push]), **ENGINES[way], "Dest": dest})
        with world.daemon(recovery=QUICK):
            world.upload(FILE, {"id": 1, "name": "a", "more": "m"})
            await world.until(lambda: told(world) != [], limit=120)
            said = told(world)[0].decode()
            assert "dummy has no column more, which Transient.Template" in said
            assert "wide has: add it to the table, or say what becomes of it: Schema.Drift: evolve" in said
            assert world.exists(FILE) and world.rows() == []
            world.bigquery.metadata.update_table(PROJECT, DATASET, "dummy", {"schema": WIDE}, patch=True, etag=None)
            await world.settled()
        assert world.rows() == [("1", "a", "m")]
        assert [one["Status"] for one in world.record()] == ["done"]
        assert not world.exists(FILE)

    simulate(story)
