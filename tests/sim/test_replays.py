"""A batch that loaded in part, and later the rest: its actions run for both parts."""

from tests.support.bindings import CoreStore
from tests.support.rule_documents import together
from tests.support.sim.journal import replay
from tests.support.sim.names import DATASET, TRIGGER
from tests.support.sim.stories import PLACES, Simulate, expected, name, upload_all
from tests.support.sim.world import World

from ingestd.ledger.replay import Selection
from ingestd.model.objects import ObjectRef

COPY = {"Source": f"{DATASET}.dummy", "Dest": f"{DATASET}.copied"}


def test_actions_run_again_for_what_a_replay_has_loaded(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        assert world.plain is not None
        world.create_table("dummy")
        world.create_table("copied")
        world.rule("rule.json", together(False, MaxReload=2, OnSuccess=[{"Action": "copy", "Request": COPY}]))
        with world.daemon() as daemon:
            upload_all(world, 7, corrupted=(7,))
            await world.settled()
            (record,) = world.record()
            assert (record["Status"], len(world.jobs("copy"))) == ("failed", 1)
            await CoreStore(world.storage, world.clock).delete(ObjectRef(TRIGGER, name(7)))
            await replay(world, Selection(rule=record["RuleName"]))
            await world.settled()
            await daemon.stopped()
        assert world.rows() == expected(*range(7))
        assert [record["Status"] for record in world.record()] == ["done"]
        assert world.rows("copied") == expected(*range(7))

    simulate(story, plain=True, names_bad_files=False)


def test_actions_that_failed_are_made_up_for_though_some_files_were_bad(simulate: Simulate) -> None:
    """The load stood, a bad file was put away, and an action failed: a replay is about the action."""

    async def story(world: World) -> None:
        world.create_table("dummy")
        copy = {"Action": "copy", "Request": COPY}
        world.rule("rule.json", together(False, OnSuccess=[copy, {"Action": "delete"}], **PLACES))
        with world.daemon() as daemon:
            upload_all(world, 3, corrupted=(1,))
            await world.settled()
            (record,) = world.record()
            assert (record["Status"], record["Rows"]) == ("failed", 3)
            world.create_table("copied")
            await replay(world, Selection(rule=record["RuleName"]))
            await world.settled()
            await daemon.stopped()
        assert [record["Status"] for record in world.record()] == ["done"]
        assert world.rows("copied") == world.rows() == expected(0, 2, 3)
        assert world.objects("data/", TRIGGER) == []
        assert world.objects("corrupted/") == [f"corrupted/{name(1)}", f"corrupted/{name(1)}.reason.json"]

    simulate(story, plain=True)
