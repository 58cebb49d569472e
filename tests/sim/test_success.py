"""Directories with success files: exactly once through a crash after any effect, and few calls per batch."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from tests.support.sim.directories import batch, convention, idle, rows, waiting
from tests.support.sim.names import DATASET, OPS, PROJECT, SCHEMA, TRIGGER
from tests.support.sim.stories import SMALL, Simulate, die_everywhere
from tests.support.sim.world import Fate, World

from ingestd.batch.content import Progress
from ingestd.localcloud.faults import Fault, FaultKind, Hooks


def crash_everywhere(
    simulate: Simulate,
    prepare: Callable[[World], None],
    check: Callable[[World], None],
    *,
    plain: bool = True,
    **settings: Any,
) -> int:
    """Let a daemon die after its first effect, its second …, and another one finish; how many there are."""

    async def story(world: World, fate: Fate) -> None:
        world.create_table("dummy")
        prepare(world)
        with world.daemon(fate, **settings) as first:
            await world.until(lambda: not first.alive or idle(world))
        with world.daemon(**settings):
            await world.until(lambda: idle(world), 900)
        check(world)

    return die_everywhere(simulate, story, plain=plain)


def test_w03_a_crash_after_any_effect_neither_loses_nor_doubles_a_directory(simulate: Simulate) -> None:
    def check(world: World) -> None:
        assert rows(world) == [1, 2, 3]
        assert [record["Status"] for record in world.record()] == ["done"]

    assert (
        crash_everywhere(simulate, lambda world: batch(world, "dummy/b", 1, 2, 3) and None, check, **convention()) >= 5
    )


def test_a_directory_that_goes_after_its_load_was_submitted_was_loaded_all_the_same(simulate: Simulate) -> None:
    """The daemon dies with the job under way; then the producer clears the directory, or uploads it again."""

    async def story(world: World) -> None:
        world.create_table("dummy")
        fate = Fate(dies_after=None)
        batch(world, "dummy/gone", 1, 2)
        batch(world, "dummy/again", 3)
        with world.daemon(fate, **convention()) as first:
            await world.until(lambda: sum("insert_job" in one for one in fate.log) == 2)
            first.kill()
        await world.until(lambda: rows(world) == [1, 2, 3])
        for name in world.objects(f"{DATASET}/dummy/gone/", TRIGGER):
            world.storage.objects.delete(TRIGGER, name)
        batch(world, "dummy/again", 4)
        with world.daemon(**convention()):
            await world.until(lambda: idle(world))
        assert [record["Status"] for record in world.record()] == ["done"] * 3
        assert rows(world) == [1, 2, 3, 3, 4]  # a success file that is uploaded again loads again, on purpose

    simulate(story, plain=True)


def test_w12_a_crash_after_any_effect_leaves_a_staged_directory_one_commit(simulate: Simulate) -> None:
    def check(world: World) -> None:
        assert rows(world) == [1, 2, 3, 4, 5]
        assert list(world.plain.tables) == [f"{DATASET}.dummy"]  # type: ignore[union-attr]

    some = {**convention(), "jobs": {"max_files": 2}}
    assert crash_everywhere(simulate, lambda world: batch(world, "dummy/b", 1, 2, 3, 4, 5) and None, check, **some) >= 9


def loads(world: World) -> list[str]:
    """The load jobs that were run, by the end of their ids."""
    assert world.plain is not None
    return sorted(name.rpartition("_00001_")[2] for name in world.plain.known if "_00001_load" in name)


def test_w12_parts_of_a_split_load_are_called_parts(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy")
        world.faults.add(Fault("bigquery", "job.load", FaultKind.FAIL, times=1))
        with world.daemon(**convention(), jobs={"max_files": 2, "poll_every": "30s"}):
            batch(world, "dummy/b", 1, 2, 3)
            await world.until(lambda: idle(world), 60_000)
        assert rows(world) == [1, 2, 3]
        assert loads(world) == [
            "load_part1of2--tail", "load_part1of2_try2--tail", "load_part2of2--tail",
        ]  # fmt: skip

    simulate(story, plain=True)


def test_parts_that_the_version_before_submitted_are_adopted_and_not_loaded_again(
    simulate: Simulate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy")
        some = {**convention(), "jobs": {"max_files": 2, "poll_every": "30s"}}
        batch(world, "dummy/b", 1, 2, 3, 4, 5)
        with monkeypatch.context() as before:
            before.setattr(Progress, "give_out", lambda self, parts: replace(self, jobs=self.jobs + len([*parts])))
            with world.daemon(**some) as older:
                await world.until(lambda: len(loads(world)) == 3)
                older.kill()
        (record,) = world.record("Running")
        assert record["schema_version"] == 3
        assert "Parts" not in record["Progress"]
        with world.daemon(**some):
            await world.until(lambda: idle(world), 900)
        assert rows(world) == [1, 2, 3, 4, 5]
        assert loads(world) == ["load--tail", "load_try2--tail", "load_try3--tail"]

    simulate(story, plain=True, job_latency=60.0)


def configure(world: World, **load: Any) -> None:
    world.storage.write(TRIGGER, f"{DATASET}/dummy/_config/load.json", orjson.dumps(load), "application/json")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (
            {"writeDisposition": "WRITE_TRUNCATE", "schemaUpdateOptions": ["ALLOW_FIELD_ADDITION"]},
            f"{DATASET}/dummy/_config/load.json: BigQuery takes schemaUpdateOptions with WRITE_APPEND",
        ),
        ({"sourceFormat": "CSV", "fieldDelimiter": '"'}, "BigQuery takes no such job: "),  # its own words follow
    ],
)
def test_a_wrong_configuration_waits_visibly_and_goes_on_when_it_is_mended(
    simulate: Simulate, wrong: dict[str, Any], told: str
) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy")
        configure(world, **wrong)
        with world.daemon(**convention()):
            batch(world, "dummy/b", 1, 2)
            await world.until(lambda: bool(waiting(world)))
            assert told in waiting(world)[0]["Error"]
            assert "_config/load.json" in waiting(world)[0]["Error"]
            assert rows(world) == []
            configure(world, sourceFormat="NEWLINE_DELIMITED_JSON", writeDisposition="WRITE_TRUNCATE")
            await world.until(lambda: idle(world), 30)  # at once, and not after a pause
        assert rows(world) == [1, 2]
        (record,) = world.record()
        assert (record["Status"], record["Attempt"]) == ("done", 1)

    simulate(story)


def test_a_table_made_for_a_refused_configuration_is_dropped(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy")
        configure(world, sourceFormat="CSV", fieldDelimiter='"')
        with world.daemon(**convention(), **SMALL):
            batch(world, "dummy/b", 1, 2, 3)
            await world.until(lambda: bool(waiting(world)))
            assert "BigQuery takes no such job" in waiting(world)[0]["Error"]
            world.storage.objects.delete(TRIGGER, f"{DATASET}/dummy/b/f003.json")  # what is left goes into one job
            configure(world, sourceFormat="NEWLINE_DELIMITED_JSON")
            await world.until(lambda: idle(world), 900)
        assert rows(world) == [1, 2]
        assert world.tables() == ["dummy"]

    simulate(story)


def test_schema_updates_go_with_an_overwritten_partition(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.bigquery.metadata.insert_table(
            PROJECT, DATASET, {
                "tableReference": {"datasetId": DATASET, "tableId": "daily"}, "schema": SCHEMA,
                "timePartitioning": {"type": "DAY"},
            },
        )  # fmt: skip
        update = {"writeDisposition": "WRITE_TRUNCATE", "schemaUpdateOptions": ["ALLOW_FIELD_ADDITION"]}
        world.storage.write(TRIGGER, "_config/load.json", orjson.dumps(update), "application/json")
        with world.daemon(**convention()):
            batch(world, "daily/20240501", 1)
            await world.until(lambda: idle(world))
        assert rows(world, "daily") == [1]

    simulate(story)


def test_a_missing_table_is_answered_in_the_words_of_the_convention(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        with world.daemon(**convention()):
            batch(world, "dummy/b", 1)
            await world.until(lambda: bool(waiting(world)))
            error = waiting(world)[0]["Error"]
            assert "dummy does not exist; create it, or let the load do so: with schema or autodetect in a" in error
            assert "rule" not in error
            configure(world, createDisposition="CREATE_NEVER")
            await world.until(lambda: "CREATE_NEVER" in waiting(world)[0]["Error"])
            world.create_table("dummy")
            await world.until(lambda: idle(world))

    simulate(story, plain=True)


def test_w06_a_crash_after_any_effect_of_an_ordered_table_loses_no_batch(simulate: Simulate) -> None:
    def prepare(world: World) -> None:
        for number in (3, 1, 2):
            batch(world, f"dummy/b{number}", number)

    def check(world: World) -> None:
        assert rows(world) == [1, 2, 3]
        assert [record["Status"] for record in world.record()] == ["done"] * 3

    assert crash_everywhere(simulate, prepare, check, **convention(order_per_table=True)) >= 15


def test_w18_a_crash_after_any_effect_runs_a_transformation_once(simulate: Simulate) -> None:
    def prepare(world: World) -> None:
        sql = b"INSERT {dest_dataset}.{dest_table} SELECT id * 10, name FROM temp_ext"
        external = orjson.dumps({"sourceFormat": "NEWLINE_DELIMITED_JSON", "autodetect": True})
        world.storage.write(TRIGGER, f"{DATASET}/dummy/_config/bq_transform.sql", sql, "text/plain")
        world.storage.write(TRIGGER, f"{DATASET}/dummy/_config/external.json", external, "application/json")
        batch(world, "dummy/b", 1, 2)

    def check(world: World) -> None:
        assert rows(world) == [10, 20]
        assert [record["Status"] for record in world.record()] == ["done"]

    assert crash_everywhere(simulate, prepare, check, plain=False, **convention()) >= 5


@pytest.mark.parametrize("seed", range(3))
def test_w14_replicas_that_interleave_load_each_directory_once(simulate: Simulate, seed: int) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy")
        for number in range(6):
            name = f"{DATASET}/dummy/b{number}/_SUCCESS"
            world.announce(name, batch(world, f"dummy/b{number}", number), times=3)
        some = convention()
        with (
            world.daemon(Fate(dies_after=6 + seed * 4), **some),
            world.daemon(Fate(dies_after=15), **some),
            world.daemon(**some),
        ):
            await world.until(lambda: idle(world))
        assert rows(world) == list(range(6))

    simulate(story, seed=seed, plain=True)


def test_w10_a_load_that_fails_after_a_while_is_seen_and_repeated(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy")
        world.faults.add(Fault("bigquery", "job.load", FaultKind.FAIL, times=2))
        with world.daemon(**convention()):
            batch(world, "dummy/b", 1)
            await world.until(lambda: idle(world), 60_000)
        assert rows(world) == [1]
        (record,) = world.record()
        assert record["Attempt"] == 3

    simulate(story, plain=True, job_latency=900.0)


def test_files_that_go_or_change_before_the_load_are_looked_at_again(simulate: Simulate) -> None:
    """The table comes late: until then the directory changes, and what is there at the load is the batch."""

    async def story(world: World) -> None:
        with world.daemon(**convention()):
            batch(world, "dummy/b", 1, 2)
            await world.until(lambda: bool(world.record("Running")) and bool(world.record("Running")[0]["RetryAt"]))
            world.storage.objects.delete(TRIGGER, f"{DATASET}/dummy/b/f002.json")
            batch(world, "dummy/b", 3, success=False)
            world.create_table("dummy")
            await world.until(lambda: idle(world))
        assert rows(world) == [1, 3]

    simulate(story, plain=True)


def test_w16_a_batch_five_levels_deep_costs_six_calls_one_of_them_for_its_configuration(
    simulate: Simulate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy")
        load = orjson.dumps({"labels": {"a": "b"}})
        world.storage.write(TRIGGER, f"{DATASET}/_config/load.json", load, "application/json")
        world.storage.write(TRIGGER, f"{DATASET}/dummy/_config/load.json", load, "application/json")
        calls: Counter[str] = Counter()
        with world.daemon(**convention(), recovery={"sweep_every": "1h", "lease": "1h"}):
            for number in range(4):
                if number == 1:  # the first one has read the configuration
                    _count(monkeypatch, calls)
                batch(world, f"dummy/incremental/x/y/b{number}", *range(number * 20, number * 20 + 20))
                await world.until(
                    lambda number=number: len(world.record()) == number + 1 and not world.record("Running")
                )
        assert len(rows(world)) == 80
        assert calls == Counter(
            {
                f"objects.list {TRIGGER}": 6,  # the configuration above, and the directory
                f"objects.insert {OPS}": 6,  # the record when it is accepted, and when it is done
                f"objects.get {OPS}": 3,  # was it done before?
                f"objects.delete {OPS}": 3,
            }
        )

    simulate(story, plain=True)


def _count(monkeypatch: pytest.MonkeyPatch, calls: Counter[str]) -> None:
    """Count what the daemon asks of Cloud Storage from now on (heartbeats of replicas aside)."""
    delay = Hooks.delay

    def counting(self: Hooks, method: str, resource: str = "") -> float:
        if self.service == "storage" and "/replicas/" not in resource:
            calls[f"{method} {resource.partition('/')[0]}"] += 1
        return delay(self, method, resource)

    monkeypatch.setattr(Hooks, "delay", counting)  # every call asks first whether it shall be delayed
