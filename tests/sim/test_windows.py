"""Files of one window load together, once, through crashes, replicas, duplicates and late messages."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.support.rule_documents import modes, together
from tests.support.sim.names import TRIGGER
from tests.support.sim.stories import Simulate, die_everywhere, expected, load_jobs, upload
from tests.support.sim.world import Fate, World

from ingestd.localcloud.faults import Fault, FaultKind


@modes
def test_files_within_a_window_load_in_one_job(simulate: Simulate, asynchronous: bool) -> None:
    async def story(world: World) -> None:
        world.prepared(together(asynchronous))
        with world.daemon():
            for number in range(5):
                upload(world, number)
                await asyncio.sleep(1)
            await world.settled()
        assert world.rows() == expected(*range(5))
        (record,) = world.record()
        assert len(record["Files"]) == 5
        assert world.objects("data/", TRIGGER) == []
        assert world.objects("batch/") == []

    simulate(story)


def test_the_lock_is_named_after_table_source_and_due_time(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.prepared(together())
        with world.daemon():
            upload(world, 0)
            await world.until(lambda: world.objects("batch/") != [])
            (lock,) = [name for name in world.objects("batch/") if name.endswith(".win")]
            table, _, due = lock.removeprefix("batch/").removesuffix(".win").split("_")
            assert table == "bqtail.dummy"
            assert int(due) % 10 == 0
            await world.settled()

    simulate(story)


@modes
def test_a_crash_after_any_effect_neither_loses_nor_doubles(simulate: Simulate, asynchronous: bool) -> None:
    async def story(world: World, fate: Fate) -> None:
        world.prepared(together(asynchronous))
        for number in range(4):
            upload(world, number)
        with world.daemon(fate, windows={"flush_files": 2, "flush_after": "1s"}) as first:
            await world.until(lambda: not first.alive or world.quiet())
        with world.daemon():
            await world.settled()
        assert world.rows() == expected(*range(4)), fate.log
        assert world.objects("data/", TRIGGER) == []
        assert world.objects("batch/") == [], fate.log

    assert die_everywhere(simulate, story) >= 8, "the crash points were not reached"


@pytest.mark.parametrize("seed", range(8))
def test_replicas_that_interleave_die_and_disagree_on_time_load_each_file_once(simulate: Simulate, seed: int) -> None:
    async def story(world: World) -> None:
        world.prepared(together(asynchronous=seed % 2 == 0))
        small = {"flush_files": 3, "flush_after": "1s"}
        skew = timedelta(minutes=5)
        with (
            world.daemon(Fate(dies_after=9 + seed * 4), windows=small),
            world.daemon(windows=small, skew=skew if seed % 3 else -skew),
            world.daemon(windows=small),
        ):
            for number in range(30):
                name, generation = upload(world, number)
                world.announce(name, generation, times=2)
                await asyncio.sleep(0.7)
            await world.settled()
        assert world.rows() == expected(*range(30))
        assert world.objects("data/", TRIGGER) == []

    simulate(story, seed=seed)


def test_a_late_message_loads_in_a_late_window_and_a_duplicate_does_not(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.prepared(together())
        with world.daemon():
            name, generation = upload(world, 0)
            world.faults.add(Fault("storage", "notifications.publish", FaultKind.WITHHOLD))
            late_name, late_generation = upload(world, 1)
            await world.until(lambda: world.rows() == expected(0))
            await world.settled()
            world.announce(late_name, late_generation)
            world.announce(name, generation, times=3)
            await world.settled()
        assert world.rows() == expected(0, 1)
        assert [len(record["Files"]) for record in world.record()] == [1, 1]
        assert {record["Window"]["Name"].partition("-")[2] for record in world.record()} == {"", "1"}

    simulate(story)


@pytest.mark.parametrize("limit", [{"MaxFiles": 4}, {"MaxBytes": "50B"}])
def test_a_full_window_closes_early(simulate: Simulate, limit: dict[str, Any]) -> None:
    async def story(world: World) -> None:
        world.prepared(together(Batch={"Window": {"DurationInSec": 600}, **limit}))
        with world.daemon():
            for number in range(10):
                upload(world, number)
                await asyncio.sleep(0.3)
            await world.until(lambda: len(world.rows()) >= 8, limit=60)
            await world.settled(limit=1200)
        assert world.rows() == expected(*range(10))
        assert load_jobs(world) >= 3

    simulate(story)


def test_folders_and_extensions_do_not_mix_unless_asked(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.prepared(together())
        with world.daemon():
            upload(world, 0, "data/case003/a")
            upload(world, 1, "data/case003/b")
            await world.settled()
        assert load_jobs(world) == 2

    async def mixed(world: World) -> None:
        world.prepared(together(Batch={"MultiPath": True}))
        with world.daemon():
            upload(world, 0, "data/case003/a")
            upload(world, 1, "data/case003/b")
            await world.settled()
        assert load_jobs(world) == 1
        assert world.rows() == expected(0, 1)

    simulate(story)
    simulate(mixed)


def test_a_restart_in_mid_window_goes_on_with_it(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.prepared(together(Batch={"Window": {"DurationInSec": 60}}))
        with world.daemon(windows={"flush_after": "1s"}) as first:
            upload(world, 0)
            await asyncio.sleep(5)
            await first.stopped()
        with world.daemon():
            upload(world, 1)
            await world.settled()
        assert world.rows() == expected(0, 1)
        assert load_jobs(world) == 1

    simulate(story)


def test_no_object_is_written_per_file(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.prepared(together())
        with world.daemon():
            before = world.storage.hooks.operations["objects.insert"]
            for number in range(200):
                upload(world, number)
            await world.settled()
            written = world.storage.hooks.operations["objects.insert"] - before - 200
        assert world.rows() == expected(*range(200))
        assert written < 40, written

    simulate(story)


@pytest.mark.parametrize("dies_after", [None, 6, 14, 20, 26])
def test_on_done_of_a_group_runs_once_after_all_its_batches(simulate: Simulate, dies_after: int | None) -> None:
    """Two folders are two windows of one interval; one of them holds a bad file, and still counts as done."""

    async def story(world: World) -> None:
        topic = world.names.topic(world.names.dead_letter_topic)
        done = [{"Action": "push", "Request": {"Topic": topic, "Message": "group $GroupID of $DestTable"}}]
        world.prepared(together(Batch={"Group": {"OnDone": done}}))
        with world.daemon(Fate(dies_after=dies_after)), world.daemon():
            upload(world, 0, "data/case003/a")
            world.upload("data/case003/b/bad.json", {"id": "x", "name": "x"})
            await world.until(lambda: world.pushed() != [], limit=600)
            await world.settled()
            await asyncio.sleep(300)
        assert world.rows() == expected(0)
        assert len(set(world.pushed())) == 1
        assert world.pushed()[0][0] == b"group 1704110400 of bqtail.dummy"

    simulate(story)


def test_a_table_is_named_after_its_group(simulate: Simulate) -> None:
    """Windows of two folders, ten seconds apart, in a group of twenty: one table, which `OnDone` copies from."""

    async def story(world: World) -> None:
        world.create_table("dummy")
        copied = {"Append": True, "Source": "bqtail.dummy_$GroupID", "Dest": "bqtail.dummy"}
        grouped = together(Batch={"Group": {"DurationInSec": 20, "OnDone": [{"Action": "copy", "Request": copied}]}})
        grouped["Dest"] = {"Table": "bqtail.dummy_$GroupID", "Schema": {"Template": "bqtail.dummy"}}
        world.rule("rule.json", grouped)
        with world.daemon():
            upload(world, 0, "data/case003/a")
            await asyncio.sleep(11)
            upload(world, 1, "data/case003/b")
            await world.until(lambda: world.rows() == expected(0, 1), limit=600)
            await world.settled()
        tables = {record["DestTable"] for record in world.record() if record["Kind"] == "load"}
        assert tables == {"bqtail.dummy_1704110400"}

    simulate(story)


RENAMED = {"name": "other.json"}
EDITS: dict[str, dict[str, Any]] = {
    "its file is renamed": RENAMED,
    "its windows get longer": {"Batch": {"Window": {"DurationInSec": 20}}},
    "its windows get shorter": {"Batch": {"Window": {"DurationInSec": 3}}},
    "it collects no windows any more": {"Batch": None},
    "it collects over folders": {"Batch": {"Window": {"DurationInSec": 10}, "MultiPath": True}},
    "it spells its table in full": {"Dest": {"Table": "sim-project.bqtail.dummy"}},
}


@pytest.mark.parametrize("patience", [3, 150 * 86_400], ids=["at once", "months later"])
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_duplicate_is_known_whatever_became_of_the_rule_and_however_late_it_comes(
    simulate: Simulate, edit: dict[str, Any], patience: int
) -> None:
    """What a file is, and where it goes, is all that counts: not where its rule is kept, nor how it collects files."""

    async def story(world: World) -> None:
        world.create_table("dummy")
        first = together(OnSuccess=[])
        world.rule("rule.json", first)
        with world.daemon() as daemon:
            files = [upload(world, number) for number in range(3)]
            await world.until(lambda: world.rows() == expected(*range(3)))
            await world.settled()
            await daemon.stopped()
        world.storage.objects.delete("sim-project-config", "rules/rule.json")
        changed = {key: value for key, value in {**first, **edit}.items() if value is not None and key != "name"}
        world.rule(edit.get("name", "rule.json"), changed)
        await asyncio.sleep(patience)
        with world.daemon():
            for name, generation in files:
                world.announce(name, generation)
            await asyncio.sleep(1)
            await world.settled(limit=600)
        assert world.rows() == expected(*range(3))

    simulate(story)


@modes
def test_a_file_that_is_alone_and_in_a_window_at_once_is_loaded_once(simulate: Simulate, asynchronous: bool) -> None:
    """Two replicas read the rules at different times, and each has a message about the file."""

    async def story(world: World) -> None:
        world.create_table("dummy")
        document = together(asynchronous, OnSuccess=[])
        world.rule("rule.json", document)
        with world.daemon(rules={"url": "gs://sim-project-config/rules", "check_every": "6h"}):
            await asyncio.sleep(2)
            del document["Batch"]
            world.rule("rule.json", document)
            with world.daemon():
                for number in range(12):
                    name, generation = upload(world, number)
                    for _ in range(4):
                        await asyncio.sleep(0.3)
                        world.announce(name, generation)
                await world.settled()
        assert world.rows() == expected(*range(12))
        kinds = {bool(record["Window"]) for record in world.record()}
        assert kinds == {True, False}, "both ways must have been taken"

    simulate(story)
