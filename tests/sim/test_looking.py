"""What is found by looking, and by whom it is told: sweeps that meet half a state, strangers' objects, wrong clocks."""

import asyncio
from typing import Any

import orjson
from prometheus_client import REGISTRY
from tests.support.bindings import CoreStore
from tests.support.sim.directories import TABLE, batch, convention, idle, interventions, rows, state
from tests.support.sim.journal import replay
from tests.support.sim.names import DATASET, OPS, PROJECT, SCHEMA
from tests.support.sim.stories import Simulate
from tests.support.sim.world import World

from ingestd.collect.success.queue import Hold, Queues
from ingestd.ledger.replay import Selection


def gauge(name: str) -> float:
    return REGISTRY.get_sample_value(f"ingestd_{name}") or 0.0


def test_the_age_of_the_oldest_batch_grows_however_often_it_is_tried(simulate: Simulate) -> None:
    """The alert on late data is about this: a batch whose table is missing is tried every few minutes."""

    async def story(world: World) -> None:
        began = world.clock.now()
        with world.daemon(**convention(), recovery={"lease": "20s", "sweep_every": "60s"}):
            batch(world, "dummy/b1", 1)
            await asyncio.sleep(2_400)
            (waiting,) = world.record("Running")
            assert waiting["Waits"] > 3
            assert abs(gauge("oldest_pending_timestamp_seconds") - began.timestamp()) < 60
            world.create_table("dummy")
            await world.until(lambda: idle(world), 3_600)

    simulate(story, plain=True)


def test_a_table_that_waits_for_validation_counts_as_held_though_nothing_waits_behind_it(simulate: Simulate) -> None:
    some = convention(order_per_table=True, wait_for_validation=True)

    async def story(world: World) -> None:
        world.create_table("dummy")
        with world.daemon(**some) as first:
            batch(world, "dummy/b1", 1)
            while (await state(world)).hold is not Hold.VALIDATION:
                await asyncio.sleep(1)
            await asyncio.sleep(120)
            assert gauge("ordered_tables_held") == 1
            first.kill()
        with world.daemon(**some):
            await asyncio.sleep(120)
            assert gauge("ordered_tables_held") == 1, "a new replica does not know"
            assert await interventions(world).retry(TABLE) == "goes on"
            await asyncio.sleep(120)
            assert gauge("ordered_tables_held") == 0

    simulate(story, plain=True)


def test_strangers_objects_in_the_journal_stop_nobody(simulate: Simulate) -> None:
    """Tools that mount buckets leave folder markers, and copies of a journal may lack their metadata."""

    async def story(world: World) -> None:
        world.create_table("dummy")
        for name in ("ordered/t-1/queue/", "ordered/t-1/queue/b1/_SUCCESS@1", "ordered/t-2/state.json", "LoadState/"):
            world.storage.write(OPS, f"journal/{name}", b"", "text/plain")
        some = {**convention(order_per_table=True), "load_state": {"enabled": True}}
        with world.daemon(**some) as daemon:
            await asyncio.sleep(600)
            batch(world, "dummy/b1", 1)
            await world.until(lambda: world.rows() != [])
            await asyncio.sleep(60)
            daemon.raise_if_broken()
            assert daemon.alive
        assert rows(world) == [1]
        queues = Queues(CoreStore(world.storage, world.clock), world.settings().journal / "ordered")
        assert [one.table async for one in queues.states()] == [TABLE], "`ingestd ordered show` shows what can be read"

    simulate(story)


def copying(target: str) -> dict[str, Any]:
    when = {"Dest": rf".+:{DATASET}\.theirs", "Type": "LOAD"}
    return {"When": when, "OnSuccess": [{"Action": "copy", "Request": {"Dest": target}}]}


def their_load(world: World, job_id: str) -> None:
    """Somebody else's job, which a route follows."""
    load = {
        "sourceUris": [f"gs://{PROJECT}-trigger/theirs/f.json"],
        "sourceFormat": "NEWLINE_DELIMITED_JSON",
        "destinationTable": {"projectId": PROJECT, "datasetId": DATASET, "tableId": "theirs"},
    }
    reference = {"projectId": PROJECT, "jobId": job_id, "location": "US"}
    assert world.plain is not None
    world.plain.insert_job(PROJECT, {"jobReference": reference, "configuration": {"load": load, "jobType": "LOAD"}})


def test_a_route_follows_its_job_even_if_that_is_announced_before_it_is_seen_to_be_done(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.create_table("theirs")
        world.create_table("copied")
        world.upload("theirs/f.json", {"id": 7, "name": "x"})
        with world.daemon(routes=[copying(f"{DATASET}.copied")]):
            their_load(world, "theirs_1")
            name = f"projects/{PROJECT}/jobs/theirs_1"
            early = {"metadata": {"jobChange": {"after": "DONE", "job": {"jobName": name}}}}
            entry = {"protoPayload": early, "resource": {"labels": {"location": "US"}}}
            topic = world.names.topic(world.names.completions_topic)
            world.pubsub.publish(topic, [(orjson.dumps(entry), {}, "")])
            await world.until(lambda: [record["Status"] for record in world.record()] == ["done"], 300)
            await world.settled()
        assert rows(world, "copied") == [7]

    simulate(story, plain=True, job_latency=60.0)


def test_a_route_whose_action_failed_for_good_runs_again_when_it_is_replayed(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.create_table("theirs")
        world.upload("theirs/f.json", {"id": 7, "name": "x"})
        some = {"lease": "20s", "sweep_every": "5s", "give_up_after": "10m"}
        with world.daemon(routes=[copying("absent.copied")], recovery=some):
            their_load(world, "theirs_1")
            await world.until(lambda: bool(world.record()), 7_200)
            (failed,) = world.record()
            assert (failed["Kind"], failed["Status"]) == ("route", "failed")
            assert world.plain is not None
            world.plain.datasets.add("absent")
            resource = {"tableReference": {"datasetId": "absent", "tableId": "copied"}, "schema": SCHEMA}
            world.plain.metadata.insert_table(PROJECT, "absent", resource)
            await replay(world, Selection(event_ids=[failed["EventID"]]))
            await world.until(lambda: bool(world.record()) and world.quiet(), 7_200)
        (record,) = world.record()
        assert record["Status"] == "done", record["Error"]
        assert world.plain.tables["absent.copied"].rows.total() == 1

    simulate(story, plain=True)


def test_a_backlog_is_worked_off_without_replicas_taking_it_from_one_another(simulate: Simulate) -> None:
    """Far more batches are due than may run: those whose turn is later are left free until then."""

    async def story(world: World) -> None:
        some = {**convention(), "jobs": {"max_running": 2, "poll_every": "30s"}}
        lost = REGISTRY.get_sample_value("ingestd_leases_lost_total") or 0.0
        with world.daemon(**some), world.daemon(**some):
            for number in range(24):
                batch(world, f"dummy/b{number}", number)
            await world.until(lambda: len([one for one in world.record("Running") if one["RetryAt"]]) == 24)
            world.create_table("dummy")
            await asyncio.sleep(45)
            running = world.record("Running")
            assert len(running) > 8
            assert len([one for one in running if one["Owner"]]) <= 4
            await world.until(lambda: idle(world), 3_600)
        assert rows(world) == list(range(24))
        assert (REGISTRY.get_sample_value("ingestd_leases_lost_total") or 0.0) == lost

    simulate(story, plain=True, job_latency=15.0)
