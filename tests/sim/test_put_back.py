"""A file that a rule has moved, and that somebody copies elsewhere: copies keep the marks of the move."""

from dataclasses import replace
from typing import Any

import pytest
from tests.sim.test_ledger import explain
from tests.support.rule_documents import FILE, ROWS, alone, modes, together
from tests.support.sim.names import OPS, TRIGGER
from tests.support.sim.stories import LOADED, Simulate, die_everywhere
from tests.support.sim.world import Fate, World

from ingestd.actions.objects import RULES_MARK, TARGET_MARK

ARCHIVED = f"archive/{FILE}"
OTHER = "data/case002/other.json"


def moving(url: str = f"gs://{OPS}/archive") -> list[dict[str, Any]]:
    return [{"Action": "move", "Request": {"DestURL": url}}]


def marks(world: World, name: str, bucket: str = OPS) -> dict[str, str]:
    return dict(world.storage.stat(bucket, name).metadata.custom)


def copy(world: World, source: tuple[str, str], target: str, *, without: str = "") -> None:
    """As `gsutil cp` copies inside the cloud: metadata goes along. `without` a mark, as a version before moved it."""
    found = world.storage.stat(*source).metadata
    kept = {key: value for key, value in found.custom.items() if key != without}
    world.storage.objects.copy(source, (TRIGGER, target), metadata=replace(found, custom=kept))


async def loaded_and_moved(world: World, document: dict[str, Any]) -> None:
    world.prepared(document)
    with world.daemon():
        world.upload(FILE, *ROWS)
        await world.settled()
    assert world.rows() == LOADED
    assert RULES_MARK in marks(world, ARCHIVED)


@modes
@pytest.mark.parametrize("target", [FILE, OTHER], ids=["where it was", "elsewhere"])
def test_a_moved_file_that_is_put_back_is_loaded_once_more(simulate: Simulate, asynchronous: bool, target: str) -> None:
    async def story(world: World) -> None:
        await loaded_and_moved(world, alone(asynchronous, OnSuccess=moving()))
        copy(world, (OPS, ARCHIVED), target)
        assert RULES_MARK in marks(world, target, TRIGGER), "the copy has to bear the marks"
        with world.daemon():
            await world.settled()
        assert world.rows() == sorted(LOADED * 2)
        assert not world.exists(target)
        assert world.exists(f"archive/{target}", OPS)
        assert [record["Status"] for record in world.record()] == ["done", "done"]

    simulate(story)


def test_a_file_of_a_window_that_is_put_back_is_loaded_once_more(simulate: Simulate) -> None:
    name = "data/case003/f.json"

    async def story(world: World) -> None:
        world.prepared(together(OnSuccess=moving()))
        with world.daemon():
            world.upload(name, *ROWS)
            await world.settled()
            copy(world, (OPS, f"archive/{name}"), name)
            await world.settled()
        assert world.rows() == sorted(LOADED * 2)

    simulate(story)


@modes
def test_a_crash_around_a_file_that_is_put_back_neither_loses_nor_doubles(
    simulate: Simulate, asynchronous: bool
) -> None:
    async def story(world: World, fate: Fate) -> None:
        await loaded_and_moved(world, alone(asynchronous, OnSuccess=moving()))
        copy(world, (OPS, ARCHIVED), FILE)
        with world.daemon(fate) as first:
            await world.until(lambda: not first.alive or world.quiet())
        with world.daemon():
            await world.settled()
        assert world.rows() == sorted(LOADED * 2), fate.log
        assert not world.exists(FILE)
        assert world.exists(ARCHIVED, OPS)

    assert die_everywhere(simulate, story) >= 5, "the crash points were not reached"


def test_what_an_earlier_version_has_moved_is_loaded_where_it_came_from_and_nowhere_else(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        await loaded_and_moved(world, alone(OnSuccess=moving()))
        copy(world, (OPS, ARCHIVED), OTHER, without=TARGET_MARK)
        with world.daemon():
            await world.settled()
            assert world.rows() == LOADED, "it may be the move of the rule itself: its marks do not tell"
            copy(world, (OPS, ARCHIVED), FILE, without=TARGET_MARK)
            await world.settled()
        assert world.rows() == sorted(LOADED * 2)

    simulate(story)


@modes
def test_two_rules_that_move_files_to_each_other_do_not_go_round_in_circles(
    simulate: Simulate, asynchronous: bool
) -> None:
    there, back = moving(f"gs://{TRIGGER}/data/case003"), moving(f"gs://{TRIGGER}/data/case002")
    second = {"When": {"Prefix": "/data/case003", "Suffix": ".json"}}

    async def story(world: World) -> None:
        world.prepared(alone(asynchronous, OnSuccess=there))
        world.rule("second.json", alone(asynchronous, OnSuccess=back, **second))
        with world.daemon():
            world.upload(FILE, *ROWS)
            await world.settled()
        assert world.rows() == sorted(LOADED * 2), "each rule loads it once"
        assert world.objects("data/", TRIGGER) == [f"data/case002/data/case003/{FILE}"]
        assert sorted(record["Status"] for record in world.record()) == ["done", "done", "ignored"]

    simulate(story)


def test_what_explain_advises_for_a_failed_file_that_its_rule_has_moved_works(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.rule("rule.json", alone(OnFailure=moving(f"gs://{OPS}/failed")))
        with world.daemon(recovery={"lease": "20s", "sweep_every": "5s", "give_up_after": "30s"}):
            world.upload(FILE, *ROWS)
            await world.settled()
            (told,) = (await explain(world, FILE)).history
            assert told.unloaded is not None
            kept = f"gs://{OPS}/failed/{FILE}"
            assert told.unloaded.remedy == f"once the cause is gone: copy {kept} back to gs://{TRIGGER}/{FILE}"
            world.create_table("dummy")
            copy(world, (OPS, f"failed/{FILE}"), FILE)
            await world.settled()
        assert world.rows() == LOADED
        assert not world.exists(FILE)

    simulate(story)


def test_what_explain_advises_for_a_file_that_its_rule_has_moved_to_itself_works(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(OnSuccess=moving(f"gs://{TRIGGER}/data/case002/done")))
        moved = f"data/case002/done/{FILE}"
        with world.daemon():
            world.upload(FILE, *ROWS)
            await world.settled()
            (told,) = (await explain(world, moved)).history
            assert told.unloaded is not None
            assert told.unloaded.remedy.endswith(
                "to have it loaded once more, copy it to where it was before, or upload it again"
            )
            copy(world, (TRIGGER, moved), FILE)
            await world.settled()
        assert world.rows() == sorted(LOADED * 2)

    simulate(story)
