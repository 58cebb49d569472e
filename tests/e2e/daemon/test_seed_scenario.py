"""The first scenario, as a user writes it: two files, one asynchronous rule, sources gone when the job is done."""

import json

from tests.support.e2e.world import World

from ingestd.localcloud.faults import Fault, FaultKind, FaultPlan

RULE = """{"When": {"Prefix": "/data/case002", "Suffix": ".json"}, "Async": true, "Dest": {"Table": "bqtail.dummy"},
 "OnSuccess": [{"Action": "delete"}]}"""


def test_two_files_become_rows_and_are_deleted_when_their_jobs_are_done(world: World, faults: FaultPlan) -> None:
    world.prepared(RULE)
    daemon = world.command()
    faults.add(Fault("bigquery", "job.load", FaultKind.DELAY, seconds=6.0, resource=f"{world.project}/*"))
    names = ["data/case002/dummy1.json", "data/case002/dummy2.json"]
    for number, name in enumerate(names):
        world.upload(name, {"id": number, "name": "x"})

    tasks = world.until(lambda: len(found := world.objects("tasks/")) == 2 and found)
    world.until(lambda: len(world.jobs("load")) == 2)
    for task in tasks:
        document = world.document(task)
        assert task == f"tasks/{document['JobID']}.json"
        assert document["JobID"].endswith("--dispatch")
        assert document["DeferTaskURL"] == f"gs://{world.ops}/tasks"
        assert document["Async"] is True
        assert document["OnSuccess"] == [{"Action": "delete", "Request": {"URLs": ["$LoadURIs"]}}]
        assert document["OnFailure"] == []
        assert world.bigquery.get_job(document["JobID"]).state != "DONE"

    # Not waited for: the messages are acknowledged while the jobs still run, and the sources are untouched.
    world.until(lambda: world.backlog(world.notifications) == 0)
    running = world.records("Running")
    assert sorted(record["Files"][0]["URL"] for record in running) == [f"gs://{world.trigger}/{name}" for name in names]
    assert all(world.exists(name) for name in names)
    assert world.rows() == []
    for name in world.objects("journal/Running/"):
        folder, _, event = name.removesuffix(".run").rpartition("/")
        assert folder.startswith("journal/Running/bqtail.dummy/20")
        assert event.isdigit()

    world.settled()
    assert world.rows() == [(0, "x"), (1, "x")]
    assert not any(world.exists(name) for name in names)
    assert world.statuses() == ["done", "done"]
    running_names = {f"{record['EventID']}.run" for record in running}
    assert {name.rpartition("/")[2] for name in world.objects("journal/Done/bqtail.dummy/")} == running_names
    assert daemon.alive


def test_the_journal_keeps_what_each_job_was_and_did(world: World) -> None:
    world.prepared(RULE)
    world.start()
    generation = world.upload()
    world.settled()
    (record,) = world.records()
    assert record["Rows"] == 2
    assert record["Files"][0]["Generation"] == str(generation)
    assert record["Rule"]["When"] == json.loads(RULE)["When"]
    day = record["Created"][:10]
    beside = {name: world.document(name) for name in world.objects(f"journal/bqtail.dummy/{day}/{record['JobID']}/")}
    documents = {name.rpartition("/")[2]: content for name, content in beside.items()}
    assert sorted(documents) == ["dispatch-job.json", "dispatch.json", "tail-job.json"]
    assert documents["tail-job.json"]["jobReference"]["jobId"] == record["JobID"]
    assert documents["tail-job.json"]["configuration"]["load"]["sourceUris"] == [record["Files"][0]["URL"]]
    assert documents["dispatch-job.json"]["status"] == {"state": "DONE", "errorResult": None}
    assert documents["dispatch-job.json"]["statistics"]["load"]["outputRows"] == "2"
    assert [action["Action"] for action in documents["dispatch.json"]["OnSuccess"]] == ["delete"]
