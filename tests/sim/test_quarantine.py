"""What lies in quarantine is all that is left of a file: it stays until somebody takes it out."""

from typing import Any

import orjson
from tests.support.rule_documents import FILE, FOLDER, alone, modes, together
from tests.support.sim.journal import explain, put_back
from tests.support.sim.names import OPS, TRIGGER
from tests.support.sim.stories import PLACES, Simulate, crash_everywhere, expected, name, upload_all
from tests.support.sim.world import World

from ingestd.model.objects import ObjectRef

BAD = [b'{"id": 1, "na', b'{"id": 2, "na', b'{"id": 3, "na']


def corrupted(world: World) -> dict[str, Any]:
    """What lies in quarantine, and the source that the reason beside it names."""
    names = [one for one in world.objects("corrupted/") if not one.endswith(".reason.json")]
    reasons = [orjson.loads(world.storage.read(OPS, f"{one}.reason.json")) for one in names]
    assert len(world.objects("corrupted/")) == 2 * len(names)
    return {one: (world.storage.read(OPS, one), reason["Source"]) for one, reason in zip(names, reasons, strict=True)}


def test_a_bad_file_leaves_earlier_ones_of_its_name_where_they_are(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(**PLACES))
        generations = []
        with world.daemon():
            for data in BAD:
                generations.append(world.storage.write(TRIGGER, FILE, data, "application/json").generation)
                await world.settled()
            source = f"gs://{TRIGGER}/{FILE}"
            assert corrupted(world) == {
                f"corrupted/{FILE}": (BAD[0], source),
                f"corrupted/data/case002/dummy1~{generations[1]}.json": (BAD[1], source),
                f"corrupted/data/case002/dummy1~{generations[2]}.json": (BAD[2], source),
            }
            told = (await explain(world, ObjectRef(TRIGGER, FILE))).history
            kept = [one.unloaded.kept_url for one in told if one.unloaded]
            assert sorted(kept) == [f"gs://{OPS}/{one}" for one in corrupted(world)]
            assert all(one.unloaded and "replay --quarantine" in one.unloaded.remedy for one in told)

            put = await put_back(world, ObjectRef(OPS, "corrupted/"))
            assert sorted(one.skipped for one in put) == [False, True, True], "one at a time, by the same name"
            await world.settled()
            assert sorted(data for data, _ in corrupted(world).values()) == BAD, "bad as they are, they are all there"

    simulate(story)


def test_a_bad_file_with_a_long_name_finds_its_place(simulate: Simulate) -> None:
    long = f"{FOLDER}/{'x' * 1000}.json"

    async def story(world: World) -> None:
        world.prepared(together(**PLACES))
        with world.daemon():
            upload_all(world, 2)
            world.storage.write(TRIGGER, long, BAD[0], "application/json")
            await world.settled()
            (told,) = (await explain(world, ObjectRef(TRIGGER, long))).history
        assert world.rows() == expected(0, 1)
        assert world.objects("data/", TRIGGER) == []
        assert [one["Status"] for one in world.record()] == ["done"]
        ((kept, found),) = corrupted(world).items()
        assert found == (BAD[0], f"gs://{TRIGGER}/{long}")
        assert told.unloaded is not None
        assert told.unloaded.kept_url == f"gs://{OPS}/{kept}"

    simulate(story)


def test_bad_files_of_one_name_and_several_buckets_are_all_kept(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.prepared(together(Batch={"MultiPath": True}, **PLACES))
        world.storage.buckets.insert({"name": "other"})
        topic = world.names.topic(world.names.notifications_topic)
        world.storage.buckets.insert_notification("other", {"topic": topic, "payload_format": "JSON_API_V1"})
        with world.daemon():
            for bucket, data in zip((TRIGGER, "other"), BAD, strict=False):
                world.storage.write(bucket, name(1), data, "application/json")
            await world.settled()
        kept = corrupted(world)
        assert sorted(kept.values()) == [(BAD[0], f"gs://{TRIGGER}/{name(1)}"), (BAD[1], f"gs://other/{name(1)}")]
        (listing,) = [one for one in world.objects("errors/") if one.endswith(".files.json")]
        listed = orjson.loads(world.storage.read(OPS, listing))["Files"]
        assert sorted(one["Kept"] for one in listed) == [f"gs://{OPS}/{one}" for one in kept]

    simulate(story)


@modes
def test_a_crash_after_any_effect_of_a_file_that_goes_beside_another_changes_nothing(
    simulate: Simulate, asynchronous: bool
) -> None:
    def prepare(world: World) -> None:
        world.prepared(together(asynchronous, **PLACES))
        world.storage.write(OPS, f"corrupted/{name(1)}", b"somebody else's", "text/plain")
        upload_all(world, 2, corrupted=(1,))

    def check(world: World) -> None:
        assert world.rows() == expected(0, 2)
        assert world.objects("data/", TRIGGER) == []
        assert world.storage.read(OPS, f"corrupted/{name(1)}") == b"somebody else's"
        beside = [one for one in world.objects("corrupted/") if "~" in one]
        assert [one.endswith(".reason.json") for one in beside] == [False, True]
        assert len(world.objects("corrupted/")) == 3

    assert crash_everywhere(simulate, prepare, check) >= 10
