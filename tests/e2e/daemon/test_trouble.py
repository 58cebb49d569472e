"""Services that refuse, stumble or lose answers: what waits goes on by itself once the trouble is over."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.e2e.foreign_jobs import audit_entry
from tests.support.e2e.world import LOADED, World
from tests.support.rule_documents import FILE, ROWS, alone, modes

from ingestd.localcloud.faults import Fault, FaultKind, FaultPlan


def blocked(world: World) -> list[dict[str, Any]]:
    return [record for record in world.records("Running") if record["RetryAt"]]


@modes
def test_a_missing_table_holds_up_its_own_files_only_and_they_load_once_it_is_there(
    world: World, asynchronous: bool
) -> None:
    world.table("bqtail.other")
    world.rule(alone(asynchronous), "waits.json")
    world.rule(alone(asynchronous, When={"Prefix": "/other/"}, Dest={"Table": "bqtail.other"}), "fine.json")
    daemon = world.start()
    world.upload()
    (record,) = world.until(lambda: blocked(world))
    assert "does not exist; create it" in record["Error"]
    world.upload("other/fine.json", *ROWS)
    world.loaded(table="bqtail.other")
    assert world.exists(), "the waiting file is kept"
    world.until(lambda: daemon.metric("ingestd_batches_blocked_now") == 1)
    world.table()
    world.ended("done", "done")
    assert world.rows() == LOADED
    assert not world.exists()
    world.until(lambda: daemon.metric("ingestd_batches_blocked_now") == 0)


@modes
@pytest.mark.parametrize("method", ["jobs.insert", "tables.get"])
def test_a_permission_denied_for_a_while_resumes_when_it_is_granted(
    world: World, faults: FaultPlan, asynchronous: bool, method: str
) -> None:
    world.prepared(alone(asynchronous))
    denied = Fault("bigquery", method, FaultKind.FAIL, status=403, reason="accessDenied", resource=f"{world.project}/*")
    faults.add(denied)
    daemon = world.start()
    world.upload()
    (record,) = world.until(lambda: blocked(world))
    assert "no permission" in record["Error"]
    assert daemon.heard("batch.blocked")[0]["severity"] == "ERROR"
    assert world.exists()
    faults.clear()
    world.ended("done")
    assert world.rows() == LOADED
    assert not world.exists()


@modes
@pytest.mark.parametrize("kind", [FaultKind.FAIL, FaultKind.DROP_RESPONSE], ids=["refused", "answer lost"])
def test_a_job_whose_submission_failed_or_was_not_answered_runs_once(
    world: World, faults: FaultPlan, asynchronous: bool, kind: FaultKind
) -> None:
    """After a lost answer the job exists: submitting again meets 409, and the job is adopted."""
    world.prepared(alone(asynchronous))
    faults.add(Fault("bigquery", "jobs.insert", kind, times=2, resource=f"{world.project}/*"))
    world.start()
    world.upload()
    world.ended("done")
    assert world.rows() == LOADED
    assert len(world.jobs("load")) == 1
    assert world.records()[0]["Attempt"] == 1
    assert not world.exists()


@modes
@pytest.mark.parametrize("reason", ["rateLimitExceeded", "quotaExceeded"])
def test_throttling_waits_and_never_fails_the_batch(
    world: World, faults: FaultPlan, asynchronous: bool, reason: str
) -> None:
    world.prepared(alone(asynchronous))
    faults.add(
        Fault("bigquery", "job.load", FaultKind.FAIL, status=403, reason=reason, times=3, resource=f"{world.project}/*")
    )
    world.start()
    world.upload()
    world.ended("done")
    assert world.rows() == LOADED


@modes
def test_storage_answers_that_get_lost_leave_one_record_and_one_load(
    world: World, faults: FaultPlan, asynchronous: bool
) -> None:
    """Each write is done and its answer dropped, once per object: the repetition finds its own work."""
    world.prepared(alone(asynchronous))
    for method in ("objects.insert", "objects.delete"):
        for place in ("journal/Running", "journal/Done", "tasks"):
            lost = Fault("storage", method, FaultKind.DROP_RESPONSE, resource=f"{world.ops}/{place}/*", times=1)
            faults.add(lost)
    faults.add(Fault("storage", "objects.delete", FaultKind.DROP_RESPONSE, resource=f"{world.trigger}/*", times=1))
    world.start()
    world.upload()
    world.ended("done")
    assert world.rows() == LOADED
    assert len(world.jobs("load")) == 1
    assert not world.exists()


def test_pubsub_that_fails_for_a_while_is_pulled_again(world: World, faults: FaultPlan) -> None:
    world.prepared(alone())
    daemon = world.start()
    faults.add(Fault("pubsub", "Pull", FaultKind.FAIL, resource=world.notifications))
    faults.add(Fault("pubsub", "Acknowledge", FaultKind.FAIL, resource=world.notifications))
    world.upload()
    world.until(lambda: daemon.said("call.retried") or daemon.said("intake.pull_failed"))
    faults.clear()
    world.ended("done")
    assert world.rows() == LOADED


def test_a_lost_audit_event_is_made_up_for_by_the_poll(world: World, faults: FaultPlan) -> None:
    world.prepared(alone())
    faults.add(Fault("pubsub", "deliver", FaultKind.WITHHOLD, resource=world.completions))
    world.start()
    world.upload()
    world.until(lambda: world.statuses() == ["done"])
    assert world.rows() == LOADED
    assert not world.exists()
    assert world.delivered(world.completions) == 0
    faults.clear()
    world.settled()
    assert world.rows() == LOADED


@modes
def test_audit_events_that_are_early_or_repeated_change_nothing(
    world: World, faults: FaultPlan, asynchronous: bool
) -> None:
    """Announced as done while it still runs, and then twenty times: the job itself tells the truth."""
    topic, heard = world.listening()
    world.table()
    world.rule(
        alone(
            asynchronous,
            OnSuccess=[
                {"Action": "push", "Request": {"Topic": topic, "Message": "done"}},
                {"Action": "delete"},
            ],
        )
    )
    faults.add(Fault("bigquery", "job.load", FaultKind.DELAY, seconds=5.0, resource=f"{world.project}/*"))
    world.start()
    world.upload()
    (job,) = world.until(lambda: world.jobs("load"))
    entry = audit_entry(world.project, job.job_id)
    delivered = world.delivered(world.completions)
    world.publisher.publish(topic=world.audit_topic, messages=[{"data": entry}] * 20)
    world.until(lambda: world.delivered(world.completions) >= delivered + 20)
    assert world.exists(), "an announcement alone proves nothing"
    assert world.rows() == []
    world.until(lambda: world.statuses() == ["done"])
    world.publisher.publish(topic=world.audit_topic, messages=[{"data": entry}] * 20)
    world.settled()
    assert world.rows() == LOADED
    assert len(world.pulled(heard)) == 1
    assert len(world.jobs("load")) == 1


def test_a_legacy_audit_entry_completes_a_load_too(world: World, faults: FaultPlan) -> None:
    """The v1 shape, on its own: the new one is withheld, and the next poll is far away."""
    world.prepared(alone())
    faults.add(Fault("bigquery", "job.load", FaultKind.DELAY, seconds=0.5, resource=f"{world.project}/*"))
    faults.add(Fault("pubsub", "deliver", FaultKind.WITHHOLD, resource=world.completions))
    world.start(jobs={"poll_every": "1h"}, recovery={"lease": "1h"})
    world.upload()
    world.loaded()
    (job,) = world.jobs("load")
    # What was published so far is never delivered; what comes from here on is.
    world.subscriber.seek(request={"subscription": world.completions, "time": datetime.now(UTC)})
    faults.clear()
    name = {"projectId": world.project, "jobId": job.job_id, "location": job.location}
    entry = {"protoPayload": {"serviceData": {"jobCompletedEvent": {"job": {"jobName": name}}}}}
    assert world.exists()
    world.publisher.publish(topic=world.audit_topic, messages=[{"data": json.dumps(entry).encode()}])
    world.until(lambda: world.statuses() == ["done"])
    assert not world.exists()
    assert FILE in world.records()[0]["Files"][0]["URL"]


@modes
def test_a_batch_nobody_mends_is_given_up_in_the_end_and_says_so(world: World, asynchronous: bool) -> None:
    topic, heard = world.listening()
    told = {"Action": "push", "Request": {"Topic": topic, "Message": "$Error"}}
    world.rule(alone(asynchronous, OnFailure=[told]))
    world.start(recovery={"give_up_after": "1s"})
    world.upload()
    world.ended("failed")
    assert b"does not exist" in world.pulled(heard)[0].data
    assert world.exists()
