"""What users of gcs_ocn_bq_ingest are used to do, and what comes of it here."""

import orjson
from tests.support.sim.directories import batch, convention, idle, rows, waiting
from tests.support.sim.names import DATASET, PROJECT, TRIGGER
from tests.support.sim.stories import Simulate
from tests.support.sim.world import World

from ingestd.localcloud.faults import Fault, FaultKind


def test_a_message_with_nothing_but_names_loads_the_directory_as_it_is_now(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy")
        quiet = f"{PROJECT}-config"  # a bucket that notifies nobody
        world.storage.write(quiet, f"{DATASET}/dummy/b/f.json", b'{"id": 1, "name": "x"}', "application/json")
        world.storage.write(quiet, f"{DATASET}/dummy/b/_SUCCESS", b"", "text/plain")
        attributes = {"bucketId": quiet, "objectId": f"{DATASET}/dummy/b/_SUCCESS", "_metaInfo": "backfill"}
        with world.daemon(**convention() | {"success": {"conventions": [{"bucket": quiet}]}}):
            world.pubsub.publish(world.names.topic(world.names.notifications_topic), [(b"", attributes, "")])
            await world.until(lambda: bool(world.record()) and idle(world))
        assert rows(world) == [1]

    simulate(story, plain=True)


def test_a_lock_put_there_by_hand_holds_no_table(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy")
        lock = orjson.dumps({"job_id": "manual", "table": {}})
        world.storage.write(TRIGGER, f"{DATASET}/dummy/_bqlock", lock, "application/json")
        with world.daemon(**convention(order_per_table=True)):
            batch(world, "dummy/b1", 1)
            batch(world, "dummy/b2", 2)
            await world.until(lambda: idle(world))
        assert rows(world) == [1, 2]

    simulate(story, plain=True)


def test_a_query_that_fails_for_a_moment_is_run_again(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy")
        sql = b"INSERT {dest_dataset}.{dest_table} SELECT id, name FROM temp_ext"
        external = orjson.dumps({"sourceFormat": "NEWLINE_DELIMITED_JSON", "autodetect": True})
        world.storage.write(TRIGGER, f"{DATASET}/dummy/_config/x.sql", sql, "text/plain")
        world.storage.write(TRIGGER, f"{DATASET}/dummy/_config/external.json", external, "application/json")
        world.faults.add(Fault("bigquery", "job.query", FaultKind.FAIL, reason="backendError", times=1))
        with world.daemon(**convention()):
            batch(world, "dummy/b", 1, 2)
            await world.until(lambda: idle(world))
        assert rows(world) == [1, 2]
        (record,) = world.record()
        assert (record["Status"], record["Attempt"]) == ("done", 2)
        assert record["JobID"].endswith("_query_try2--tail")

    simulate(story)


def test_a_directory_without_permission_waits_and_goes_on_when_it_is_granted(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.create_table("dummy")
        denied = Fault("bigquery", "jobs.insert", FaultKind.FAIL, status=403, reason="accessDenied")
        world.faults.add(denied)
        with world.daemon(**convention()):
            batch(world, "dummy/b", 1)
            await world.until(lambda: bool(waiting(world)))
            assert "no permission" in waiting(world)[0]["Error"]
            world.faults.clear()
            await world.until(lambda: idle(world))
        assert rows(world) == [1]

    simulate(story, plain=True)
