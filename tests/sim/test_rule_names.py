"""Rules that were copied with their `Info.Workflow`: each keeps its own files, whatever it is called meanwhile."""

import asyncio
from typing import Any

import pytest
from tests.support.rule_documents import ROWS, together
from tests.support.sim.names import OPS, PROJECT, TRIGGER
from tests.support.sim.stories import LOADED, Simulate
from tests.support.sim.world import World

QUICK = {"rules": {"url": f"gs://{PROJECT}-config/rules", "check_every": "1s"}}
ONE, TWO = "data/one/f.json", "data/two/f.json"


def copied(folder: str, **more: Any) -> dict[str, Any]:
    """One of several rules of one workflow and one table, whose folders do not tell their windows apart."""
    when = {"Prefix": f"/data/{folder}", "Suffix": ".json"}
    return together(When=when, Batch={"MultiPath": True}, Info={"Workflow": "daily"}, **more)


def archive(folder: str) -> list[dict[str, Any]]:
    return [{"Action": "move", "Request": {"DestURL": f"gs://{OPS}/{folder}"}}]


@pytest.mark.parametrize("seed", range(4))
def test_rules_that_share_a_workflow_do_with_their_files_what_they_say(simulate: Simulate, seed: int) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy")
        world.rule("one.json", copied("one", OnSuccess=archive("first")))
        world.rule("two.json", copied("two", OnSuccess=archive("second")))
        with world.daemon(), world.daemon():
            world.upload(ONE, *ROWS)
            world.upload(TWO, *ROWS)
            await world.settled()
        assert world.rows() == sorted(LOADED * 2)
        assert world.objects("first/") == [f"first/{ONE}"]
        assert world.objects("second/") == [f"second/{TWO}"]
        assert {record["RuleName"] for record in world.record()} == {"one", "two"}

    simulate(story, seed=seed)


@pytest.mark.parametrize("after", [0, 3, 8, 14])
def test_a_rule_whose_name_others_claim_meanwhile_loads_nothing_twice_and_loses_nothing(
    simulate: Simulate, after: int
) -> None:
    """Replicas learn of the other file at different times; files are announced again before, between and after."""

    async def story(world: World) -> None:
        world.create_table("dummy")
        world.rule("one.json", copied("one", OnSuccess=[]))
        slow = {"rules": {**QUICK["rules"], "check_every": "6s"}}
        with world.daemon(**QUICK), world.daemon(**slow):
            generation = world.upload(ONE, *ROWS)
            await asyncio.sleep(after)
            world.rule("two.json", copied("two", OnSuccess=archive("second")))
            for _ in range(10):
                await asyncio.sleep(1)
                world.announce(ONE, generation)
            world.upload(TWO, *ROWS)
            await world.settled()
            world.storage.objects.delete(f"{PROJECT}-config", "rules/two.json")
            await asyncio.sleep(7)
            world.announce(ONE, generation)
            await world.settled()
        assert world.rows() == sorted(LOADED * 2)
        assert world.objects("second/") == [f"second/{TWO}"]

    simulate(story)


@pytest.mark.parametrize("renamed", ["by another file", "by an edit"])
def test_what_a_rule_moved_under_its_own_prefix_is_not_loaded_by_it_under_another_name(
    simulate: Simulate, renamed: str
) -> None:
    async def story(world: World) -> None:
        kept = [{"Action": "move", "Request": {"DestURL": f"gs://{TRIGGER}/data/one/kept"}}]
        world.prepared(copied("one", OnSuccess=kept))
        with world.daemon(**QUICK):
            world.upload(ONE, *ROWS)
            await world.settled()
        moved = f"data/one/kept/{ONE}"
        if renamed == "by an edit":
            world.rule("rule.json", {**copied("one", OnSuccess=kept), "Info": {"Workflow": "hourly"}})
        else:
            world.rule("two.json", copied("two"))
        # As if nobody had heard of the moved file before the rule had another name.
        world.storage.objects.copy((TRIGGER, moved), (TRIGGER, moved))
        with world.daemon(**QUICK):
            await world.settled()
        assert world.rows() == LOADED
        assert {record["RuleName"] for record in world.record()} == {
            "daily",
            "hourly" if renamed == "by an edit" else "rule",
        }

    simulate(story)
