"""Files that are called what nobody expected, and what others have to do with it: nothing."""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from tests.support.rule_documents import FOLDER, ROWS, alone, modes, together
from tests.support.sim.journal import explain, replay
from tests.support.sim.names import OPS, TRIGGER
from tests.support.sim.stories import LOADED, Simulate, expected, upload
from tests.support.sim.world import World

from ingestd.ledger.replay import Selection
from ingestd.localcloud.faults import Fault, FaultKind
from ingestd.model.objects import ObjectRef


@pytest.mark.parametrize("rule", [alone, together], ids=["alone", "window"])
def test_a_file_whose_name_bigquery_reads_as_another_is_refused_and_stays(
    simulate: Simulate, rule: Callable[..., dict[str, Any]]
) -> None:
    """BigQuery makes one slash of several: it would load the first file twice, and the second would be deleted."""

    async def story(world: World) -> None:
        world.prepared({**rule(False), "When": {"Prefix": "/data/"}})
        with world.daemon():
            world.upload("data/a.json", *ROWS)
            world.upload("data//a.json", {"id": 3, "name": "c"})
            world.upload("/data/a.json", {"id": 4, "name": "d"})
            await world.settled()
        assert world.rows() == LOADED
        assert [one["Status"] for one in world.record()] == ["done"]
        assert not world.exists("data/a.json")
        refusals = [orjson.loads(world.storage.read(OPS, one)) for one in world.objects("errors/unrouted/")]
        assert sorted(one["Source"] for one in refusals) == [
            f"gs://{TRIGGER}//data/a.json",
            f"gs://{TRIGGER}/data//a.json",
        ]
        assert all("slashes in a row" in one["Reason"] for one in refusals)
        assert world.exists("data//a.json")
        assert world.exists("/data/a.json")

    simulate(story)


def announce_elsewhere(world: World, bucket: str, name: str) -> None:
    """A notification about a file that nobody can read."""
    attributes = {"eventType": "OBJECT_FINALIZE", "payloadFormat": "NONE", "bucketId": bucket, "objectId": name}
    attributes["objectGeneration"] = str(int(world.clock.now().timestamp() * 1_000_000))
    world.pubsub.publish(world.names.topic(world.names.notifications_topic), [(b"", attributes, "")])


@modes
def test_a_file_of_a_bucket_that_is_not_there_fails_alone(simulate: Simulate, asynchronous: bool) -> None:
    async def story(world: World) -> None:
        world.prepared(together(asynchronous, Batch={"MultiPath": True}))
        with world.daemon():
            for number in range(5):
                upload(world, number, f"{FOLDER}/{number}")
            announce_elsewhere(world, "my-bukcet", f"{FOLDER}/9/f9.json")
            await world.settled(limit=120)
        (told,) = (await explain(world, ObjectRef("my-bukcet", f"{FOLDER}/9/f9.json"))).history
        assert told.unloaded is not None
        assert "The specified bucket does not exist" in told.unloaded.why
        assert "ingestd replay" in told.unloaded.remedy
        assert world.rows() == expected(0, 1, 2, 3, 4)
        assert world.objects("data/", TRIGGER) == [], "its actions ran for the others"
        (record,) = world.record()
        assert record["Status"] == "failed"
        assert record["Error"].startswith("1 of 6 files: ")
        assert "my-bukcet" in record["Error"]
        assert [one["Fate"] for one in record["Progress"]["Aside"].values()] == ["failed"]
        assert any(one.endswith(".files.json") for one in world.objects("errors/"))

    simulate(story, plain=True)


def test_files_that_may_not_be_read_for_now_are_loaded_with_the_others(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.prepared(together(Batch={"MultiPath": True}))
        denied = Fault("storage", "objects.get", FaultKind.FAIL, resource="*f3.json", status=403, reason="forbidden")
        world.faults.add(denied)
        with world.daemon():
            for number in range(5):
                upload(world, number, f"{FOLDER}/{number}")
            await world.until(lambda: any(one.get("RetryAt") for one in world.record("Running")))
            await asyncio.sleep(300)
            assert world.rows() == []
            world.faults.clear()
            await world.settled()
        assert world.rows() == expected(0, 1, 2, 3, 4)
        assert [one["Status"] for one in world.record()] == ["done"]

    simulate(story, plain=True)


def test_files_that_may_not_be_read_do_not_keep_the_others_for_long(simulate: Simulate) -> None:
    """They are loaded when somebody mends it, and asks for it."""

    async def story(world: World) -> None:
        world.prepared(together(Batch={"MultiPath": True}, OnSuccess=[]))
        denied = Fault("storage", "objects.get", FaultKind.FAIL, resource="*f3.json", status=403, reason="forbidden")
        world.faults.add(denied)
        with world.daemon():
            for number in range(5):
                upload(world, number, f"{FOLDER}/{number}")
            await world.settled(limit=1200)
            assert world.rows() == expected(0, 1, 2, 4)
            (record,) = world.record()
            assert record["Status"] == "failed"
            assert record["Error"].startswith("1 of 5 files: ")
            world.faults.clear()
            await replay(world, Selection(event_ids=[record["EventID"]]))
            await world.settled()
        assert world.rows() == expected(0, 1, 2, 3, 4)

    simulate(story, plain=True)


BY_FOLDER = {"Table": "bqtail.$1", "Pattern": "/data/([^/]+)/.+"}


@modes
@pytest.mark.parametrize("rule", [alone, together], ids=["alone", "window"])
@pytest.mark.parametrize("table", ["表" * 300, "t" * 480], ids=["letters of three bytes", "ascii"])
def test_tables_with_long_names_are_loaded_as_others_are(
    simulate: Simulate, asynchronous: bool, rule: Callable[..., dict[str, Any]], table: str
) -> None:
    """They are taken from the names of files, and become parts of the names of our own objects."""

    async def story(world: World) -> None:
        world.prepared({**rule(asynchronous), "When": {"Prefix": "/data/"}, "Dest": BY_FOLDER})
        world.create_table(table)
        with world.daemon():
            world.upload(f"data/{table}/1.json", {"id": 1, "name": "x"})
            world.upload(f"data/{table}/2.json", {"id": "surprise", "name": "x"})
            await world.settled()
            (told,) = (await explain(world, ObjectRef(TRIGGER, f"data/{table}/1.json"))).history
        assert world.rows(table) == expected(1)
        assert told.fate == "loaded"
        assert world.objects("data/", TRIGGER) == [f"data/{table}/2.json"]
        assert {one["Status"] for one in world.record()} == ({"done"} if rule is together else {"done", "failed"})
        assert world.objects("errors/bqtail.") != []

    simulate(story, plain=True)


@pytest.mark.parametrize("rule", [alone, together], ids=["alone", "window"])
def test_a_file_that_cannot_have_a_record_is_refused_and_blocks_nobody(
    simulate: Simulate, rule: Callable[..., dict[str, Any]]
) -> None:
    folder = "x" * 400
    places = {"journal_url": f"gs://{OPS}/{folder}/journal", "batch_url": f"gs://{OPS}/{folder}/batch"}

    async def story(world: World) -> None:
        world.prepared({**rule(False), "When": {"Prefix": "/data/"}, "Dest": BY_FOLDER})
        world.rule("good.json", alone(When={"Prefix": "/good/"}))
        world.create_table("t" * 900)
        with world.daemon(intake={"max_messages": 5}, **places):
            for number in range(10):
                world.upload(f"data/{'t' * 900}/{number}.json", {"id": number, "name": "x"})
            await world.until(lambda: len(world.objects("errors/unrouted/")) == 10)
            world.upload("good/1.json", {"id": 1, "name": "x"})
            await world.until(lambda: world.rows() == expected(1))
            await world.until(lambda: not world.backlog())
        refusal = orjson.loads(world.storage.read(OPS, world.objects("errors/unrouted/")[0]))
        assert "1024" in refusal["Reason"]
        assert len(world.objects("data/", TRIGGER)) == 10

    simulate(story, plain=True)
