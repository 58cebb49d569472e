"""What staging has to carry over: partitions, new columns, tables that do not exist yet."""

from typing import Any

from tests.support.rule_documents import together
from tests.support.sim.names import DATASET, PROJECT, SCHEMA, TRIGGER
from tests.support.sim.stories import (
    SMALL,
    Simulate,
    die_everywhere,
    expected,
    fill_partition,
    name,
    partitioned,
    upload_all,
)
from tests.support.sim.world import Fate, World


def test_a_staged_batch_replaces_its_partition_and_no_other(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        partitioned(world)
        fill_partition(world, "20240101", 91)
        fill_partition(world, "20240102", 92)
        await world.until(lambda: len(world.rows()) == 2)
        world.rule("rule.json", together(False, Dest={"Override": True, "Partition": "20240101"}))
        with world.daemon(**SMALL):
            upload_all(world, 5)
            await world.settled()
        assert world.rows() == expected(*range(5), 92)
        (copy,) = world.jobs("copy")
        assert copy["configuration"]["copy"]["destinationTable"]["tableId"] == "dummy$20240101"
        assert world.tables() == ["dummy"]

    simulate(story)


def test_columns_that_loads_may_add_reach_the_table(simulate: Simulate) -> None:
    schema = {"fields": [*SCHEMA["fields"], {"name": "extra", "type": "STRING"}]}
    options: dict[str, Any] = {"SchemaUpdateOptions": ["ALLOW_FIELD_ADDITION"], "schema": schema}

    async def story(world: World) -> None:
        world.prepared(together(True, Dest=options))
        with world.daemon(**SMALL):
            for number in range(4):
                world.upload(name(number), {"id": number, "name": "x", "extra": "new"})
            await world.settled()
        assert world.rows() == sorted((str(number), "x", "new") for number in range(4))
        assert world.tables() == ["dummy"]

    simulate(story)


def test_a_staged_batch_creates_the_table_that_its_load_would_have_created(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        options = {"schema": SCHEMA, "TimePartitioning": {"type": "DAY"}}
        world.rule("rule.json", together(False, Dest=options))
        with world.daemon(**SMALL):
            upload_all(world, 5)
            await world.settled()
        assert world.rows() == expected(*range(5))
        made = world.bigquery.metadata.get_table(PROJECT, DATASET, "dummy")
        assert made["timePartitioning"]["type"] == "DAY"
        assert "expirationTime" not in made
        assert world.tables() == ["dummy"]

    simulate(story)


def test_a_replacing_batch_may_bring_another_schema(simulate: Simulate) -> None:
    schema = {"fields": [{"name": "id", "type": "INTEGER"}, {"name": "title", "type": "STRING"}]}

    async def story(world: World) -> None:
        world.prepared(together(False, Dest={"Override": True, "schema": schema}))
        with world.daemon(**SMALL):
            for number in range(4):
                world.upload(name(number), {"id": number, "title": "x"})
            await world.settled()
        assert world.rows() == expected(*range(4))

    simulate(story)


def test_a_table_of_its_own_is_dropped_by_whoever_finds_that_one_job_will_do(simulate: Simulate) -> None:
    async def story(world: World, fate: Fate) -> None:
        world.prepared(together(False))
        with world.daemon(fate, **SMALL) as first:
            upload_all(world, 3)
            await world.until(lambda: not first.alive or world.quiet())
        if world.exists(name(2)):
            world.storage.objects.delete(TRIGGER, name(2))
        with world.daemon(**SMALL):
            await world.settled(limit=3600)
        assert world.tables() == ["dummy"]
        assert {row[0] for row in world.rows()} >= {"0", "1"}

    assert die_everywhere(simulate, story, plain=True) > 10
