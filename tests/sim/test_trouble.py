"""What goes wrong around a load, and how each of it settles by itself."""

import asyncio

import orjson
import pytest
from tests.support.rule_documents import FILE, ROWS, alone, modes
from tests.support.sim.names import OPS, PROJECT, TRIGGER
from tests.support.sim.stories import LOADED, Simulate
from tests.support.sim.world import World

from ingestd.localcloud.faults import Fault, FaultKind
from ingestd.localcloud.storage.errors import StorageError

WHY_NOT_TOLD = {
    "nowhere.example": {"Action": "call", "Request": {"URL": "https://nowhere.example/x", "Body": "$Error"}},
    "no-such-topic": {"Action": "push", "Request": {"Topic": "no-such-topic", "Message": "$Error"}},
}
GIVEN_UP = {"recovery": {"lease": "20s", "sweep_every": "5s", "give_up_after": "120s"}}


def statuses(world: World) -> list[str]:
    return sorted(record["Status"] for record in world.record())


@modes
def test_a_file_overwritten_before_its_load_gives_way_to_the_newer_one(simulate: Simulate, asynchronous: bool) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(asynchronous))
        world.upload(FILE, {"id": 7, "name": "old"})
        world.upload(FILE, *ROWS)
        with world.daemon():
            await world.settled()
        assert world.rows() == LOADED
        assert statuses(world) == ["done", "superseded"]
        (older,) = [record for record in world.record() if record["Status"] == "superseded"]
        assert not older["Progress"]["Aside"]["0"].get("JobID"), "it gives way before its load, not after"
        assert not world.exists(FILE)

    simulate(story)


@pytest.mark.parametrize("after", [0.0, 0.2, 0.6, 1.0, 1.4, 2.0, 4.0])
@modes
def test_a_file_overwritten_around_its_load_is_counted_once(
    simulate: Simulate, asynchronous: bool, after: float
) -> None:
    """Whenever the second upload comes: its rows are there once, the first one's at most once, and it is deleted."""

    async def story(world: World) -> None:
        world.prepared(alone(asynchronous))
        with world.daemon(), world.daemon():
            world.upload(FILE, {"id": 7, "name": "old"})
            await asyncio.sleep(after)
            world.upload(FILE, *ROWS)
            await world.settled()
        rows = world.rows()
        assert [row for row in rows if row[0] != "7"] == LOADED
        assert rows.count(("7", "old")) <= 1
        assert not world.exists(FILE)

    simulate(story, job_latency=2.0)


@modes
def test_a_newer_upload_is_never_deleted_by_the_older_ones_actions(simulate: Simulate, asynchronous: bool) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(asynchronous))
        with world.daemon():
            world.upload(FILE, {"id": 7, "name": "old"})
            await world.until(lambda: world.rows() != [])
            world.rule("rule.json", {**alone(asynchronous), "Disabled": True})
            world.storage.write(TRIGGER, FILE, b'{"id": 8, "name": "newer"}', "application/json")
            await asyncio.sleep(120)
        assert world.exists(FILE) or ("8", "newer") in world.rows()

    simulate(story)


@modes
def test_a_file_deleted_before_its_load_is_missing_not_stuck(simulate: Simulate, asynchronous: bool) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(asynchronous))
        world.upload(FILE, *ROWS)
        world.storage.objects.delete(TRIGGER, FILE)
        with world.daemon():
            await world.settled()
        assert world.rows() == []
        assert statuses(world) == ["missing"]

    simulate(story)


@modes
def test_a_missing_table_blocks_its_batch_until_it_is_created(simulate: Simulate, asynchronous: bool) -> None:
    async def story(world: World) -> None:
        world.rule("rule.json", alone(asynchronous))
        world.rule("other.json", {"When": {"Prefix": "/other/"}, "Dest": {"Table": "bqtail.other"}})
        world.create_table("other")
        with world.daemon():
            world.upload(FILE, *ROWS)
            await world.until(lambda: any(record["RetryAt"] for record in world.record("Running")))
            world.upload("other/fine.json", *ROWS)
            await world.until(lambda: world.rows("other") == LOADED)
            assert world.exists(FILE)
            world.create_table("dummy")
            await world.settled(limit=3600)
        assert world.rows() == LOADED
        assert not world.exists(FILE)

    simulate(story)


@modes
def test_a_bad_file_runs_on_failure_once_and_is_set_aside(simulate: Simulate, asynchronous: bool) -> None:
    moved = [{"Action": "move", "Request": {"DestURL": f"gs://{OPS}/failed"}}]

    async def story(world: World) -> None:
        world.prepared(alone(asynchronous, OnFailure=moved))
        with world.daemon():
            world.upload(FILE, {"id": "not a number", "name": "a"})
            world.upload("data/case002/good.json", *ROWS)
            await world.settled()
        assert world.rows() == LOADED
        assert statuses(world) == ["done", "failed"]
        assert world.objects("failed/") == [f"failed/{FILE}"]
        (error,) = world.objects("errors/bqtail.dummy/")
        assert b"not a number" in world.storage.read(OPS, error) or b"JSON" in world.storage.read(OPS, error)

    simulate(story)


@pytest.mark.parametrize("reason", [*WHY_NOT_TOLD])
@modes
def test_why_a_batch_failed_is_not_hidden_by_who_could_not_be_told(
    simulate: Simulate, asynchronous: bool, reason: str
) -> None:
    """The notification fails for good, or is tried again until the batch is given up."""

    async def story(world: World) -> None:
        world.prepared(alone(asynchronous, OnFailure=[WHY_NOT_TOLD[reason]]))
        with world.daemon(**GIVEN_UP):
            world.upload(FILE, {"id": "not a number", "name": "a"})
            await world.until(lambda: statuses(world) == ["failed"], limit=7200)
            await world.settled()
        (record,) = world.record()
        cause, _, hint = record["Error"].partition("OnFailure")
        assert "id" in cause and reason not in cause
        assert reason in hint
        (error,) = world.objects("errors/bqtail.dummy/")
        assert world.storage.read(OPS, error).decode() == record["Error"]

    simulate(story)


@modes
def test_a_bad_file_goes_to_the_corrupted_place_when_one_is_named(simulate: Simulate, asynchronous: bool) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(asynchronous, CorruptedFileURL=f"gs://{OPS}/corrupted"))
        with world.daemon():
            world.upload(FILE, {"id": "x", "name": "a"})
            await world.settled()
        assert world.objects("corrupted/") == [f"corrupted/{FILE}", f"corrupted/{FILE}.reason.json"]
        reason = orjson.loads(world.storage.read(OPS, f"corrupted/{FILE}.reason.json"))
        assert (reason["Row"], reason["Position"], reason["Column"]) == (1, 0, "id")
        assert not world.exists(FILE)

    simulate(story)


@modes
@pytest.mark.parametrize("kind", [FaultKind.FAIL, FaultKind.DROP_RESPONSE])
def test_a_job_answer_lost_after_acceptance_does_not_load_twice(
    simulate: Simulate, asynchronous: bool, kind: FaultKind
) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(asynchronous))
        world.faults.add(Fault("bigquery", "jobs.insert", kind, times=3))
        with world.daemon():
            world.upload(FILE, *ROWS)
            await world.settled()
        assert world.rows() == LOADED
        assert not world.exists(FILE)

    simulate(story)


@modes
def test_a_job_that_fails_for_a_moment_is_tried_again_under_a_new_id(simulate: Simulate, asynchronous: bool) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(asynchronous))
        world.faults.add(Fault("bigquery", "job.load", FaultKind.FAIL, reason="backendError", times=2))
        with world.daemon():
            world.upload(FILE, *ROWS)
            await world.settled()
        assert world.rows() == LOADED
        assert world.record()[0]["Attempt"] == 3

    simulate(story)


@modes
@pytest.mark.parametrize("reason", ["rateLimitExceeded", "quotaExceeded"])
def test_throttling_waits_and_never_fails_the_batch(simulate: Simulate, asynchronous: bool, reason: str) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(asynchronous))
        world.faults.add(Fault("bigquery", "job.load", FaultKind.FAIL, reason=reason, status=403, times=8))
        with world.daemon():
            world.upload(FILE, *ROWS)
            await world.settled(limit=8 * 3600)
        assert world.rows() == LOADED
        assert statuses(world) == ["done"]

    simulate(story)


@modes
def test_a_permission_denied_for_a_while_resumes(simulate: Simulate, asynchronous: bool) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(asynchronous))
        denied = Fault("bigquery", "jobs.insert", FaultKind.FAIL, status=403, reason="accessDenied")
        world.faults.add(denied)
        with world.daemon():
            world.upload(FILE, *ROWS)
            await world.until(lambda: any(record["RetryAt"] for record in world.record("Running")))
            world.faults.clear()
            await world.settled(limit=3600)
        assert world.rows() == LOADED

    simulate(story)


def test_a_lost_audit_event_is_made_up_for_by_the_poll(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(True))
        completions = world.names.subscription(world.names.completions_subscription)
        world.faults.add(Fault("pubsub", "deliver", FaultKind.WITHHOLD, resource=completions))
        with world.daemon():
            world.upload(FILE, *ROWS)
            await world.until(lambda: not world.exists(FILE))
            world.faults.clear()
            await world.settled()
        assert world.rows() == LOADED

    simulate(story)


def test_duplicate_and_early_audit_events_change_nothing(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(True))
        with world.daemon(), world.daemon():
            world.upload(FILE, *ROWS)
            await world.until(lambda: world.objects("tasks/") != [])
            job = world.objects("tasks/")[0].removeprefix("tasks/").removesuffix(".json")
            entry = {
                "protoPayload": {
                    "metadata": {"jobChange": {"after": "DONE", "job": {"jobName": f"projects/{PROJECT}/jobs/{job}"}}}
                }
            }
            topic = world.names.topic(world.names.completions_topic)
            for _ in range(20):
                world.pubsub.publish(topic, [(orjson.dumps(entry), {}, "")])
            await world.settled()
            world.pubsub.publish(topic, [(orjson.dumps(entry), {}, "")])
            await world.settled()
        assert world.rows() == LOADED
        assert statuses(world) == ["done"]

    simulate(story)


def test_two_rules_for_one_file_are_an_error_that_names_both(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(True))
        world.rule("twin.json", alone(False))
        world.rule("disabled.json", {**alone(False), "Disabled": True})
        with world.daemon():
            world.upload(FILE, *ROWS)
            await world.until(lambda: world.objects("errors/unrouted/") != [])
            await world.settled()
        assert world.rows() == []
        refusal = orjson.loads(world.storage.read(OPS, world.objects("errors/unrouted/")[0]))
        assert len(refusal["Rules"]) == 2
        assert world.exists(FILE)

    simulate(story)


def test_an_unreadable_message_is_set_aside_with_its_reason(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(True))
        topic = world.names.topic(world.names.notifications_topic)
        world.pubsub.publish(topic, [(b"not json", {}, "")])
        with world.daemon():
            world.upload(FILE, *ROWS)
            await world.settled()
        (letter,) = world.objects("errors/messages/")
        assert "not JSON" in orjson.loads(world.storage.read(OPS, letter))["Reason"]
        assert world.rows() == LOADED

    simulate(story)


@modes
def test_a_move_into_the_watched_prefix_does_not_go_round_in_circles(simulate: Simulate, asynchronous: bool) -> None:
    done = [{"Action": "move", "Request": {"DestURL": f"gs://{TRIGGER}/data/case002/done"}}]

    async def story(world: World) -> None:
        world.prepared(alone(asynchronous, OnSuccess=done))
        with world.daemon():
            world.upload(FILE, *ROWS)
            await world.settled()
        assert world.rows() == LOADED
        assert world.objects("data/", TRIGGER) == [f"data/case002/done/{FILE}"]
        assert statuses(world) == ["done", "ignored"]

    simulate(story)


@modes
def test_an_edited_rule_does_not_change_a_batch_under_way(simulate: Simulate, asynchronous: bool) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(asynchronous))
        with world.daemon(rules={"url": f"gs://{PROJECT}-config/rules", "check_every": "1s"}):
            world.upload(FILE, *ROWS)
            await world.until(lambda: world.objects("journal/Running/") != [])
            world.rule("rule.json", {**alone(asynchronous), "OnSuccess": []})
            await world.settled()
        assert not world.exists(FILE), "the delete of the pinned rule must have run"

    simulate(story, job_latency=20.0)


def test_a_sigterm_in_the_middle_hands_the_batch_over(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(False))
        with world.daemon(drain="2s") as first:
            world.upload(FILE, *ROWS)
            await world.until(lambda: world.objects("journal/Running/") != [])
            await first.stopped()
        (record,) = world.record("Running")
        assert record["LeaseUntil"] is None
        with world.daemon():
            await world.settled()
        assert world.rows() == LOADED

    simulate(story, job_latency=60.0)


def test_storage_that_is_down_for_a_while_loses_nothing(simulate: Simulate) -> None:
    async def story(world: World) -> None:
        world.prepared(alone(True))
        world.upload(FILE, *ROWS)
        with world.daemon():
            await asyncio.sleep(0.2)
            world.faults.add(Fault("storage", "objects.*", FaultKind.FAIL, status=503))
            await asyncio.sleep(400)
            world.faults.clear()
            await world.settled(limit=3600)
        assert world.rows() == LOADED
        with pytest.raises(StorageError):
            world.storage.stat(TRIGGER, FILE)

    simulate(story)
