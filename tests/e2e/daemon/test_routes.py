"""What follows jobs that are not ours: routes from the settings, and deferred tasks written by hand."""

import gzip
import json
from typing import Any

from tests.support.e2e.foreign_jobs import audit_entry, load, query, task
from tests.support.e2e.world import LOADED, SCHEMA, World

from ingestd.localcloud.faults import Fault, FaultKind, FaultPlan


def seed_routes(world: World) -> list[dict[str, Any]]:
    """The dispatcher's own example: an export after a query, a copy after a load."""
    return [
        {
            "When": {"Dest": r".+:mydataset\.my_table_v2", "Type": "QUERY"},
            "OnSuccess": [
                {"Action": "export", "Request": {"DestURL": f"gs://{world.ops}/export/my_table.json.gz"}},
            ],
        },
        {
            "When": {"Dest": r".+:mydataset\.my_table_v3", "Type": "LOAD"},
            "OnSuccess": [{"Action": "copy", "Request": {"Dest": "mydataset.my_table_v4"}}],
        },
    ]


def test_routes_export_after_a_query_and_copy_after_a_load(world: World) -> None:
    world.bigquery.create_dataset("mydataset")
    daemon = world.start(Routes=seed_routes(world))
    query(world, "mydataset.my_table_v2")
    load(world, "mydataset.my_table_v3").result()
    query(world, "mydataset.my_table_v5")
    world.until(lambda: world.rows("mydataset.my_table_v4") == LOADED)
    world.ended("done", "done")
    assert json.loads(gzip.decompress(world.read("export/my_table.json.gz"))) == {"id": "1", "name": "a"}
    assert {record["Kind"] for record in world.records()} == {"route"}
    assert daemon.metric("ingestd_completions_total", led_to="route") == 2


def test_a_route_runs_once_per_job_however_often_it_is_announced_and_by_whom(world: World) -> None:
    world.bigquery.create_dataset("mydataset")
    topic, heard = world.listening()
    route = {
        "When": {"Dest": r":mydataset\.t$"},
        "OnSuccess": [{"Action": "push", "Request": {"Topic": topic, "Message": "$JobID"}}],
    }
    for _ in range(2):
        world.start(Routes=[route])
    job = query(world, "mydataset.t")
    entry = audit_entry(job.project, job.job_id)
    world.publisher.publish(topic=world.audit_topic, messages=[{"data": entry}] * 20)
    world.ended("done")
    assert [message.data.decode() for message in world.pulled(heard)] == [job.job_id]


def test_a_failed_job_runs_the_routes_on_failure_with_its_error(world: World, faults: FaultPlan) -> None:
    world.bigquery.create_dataset("mydataset")
    topic, heard = world.listening()
    told = {"Action": "push", "Request": {"Topic": topic, "Message": "$Error"}}
    world.start(Routes=[{"When": {"Dest": r":mydataset\.t$"}, "OnFailure": [told]}])
    faults.add(
        Fault(
            "bigquery", "job.load", FaultKind.FAIL, reason="invalid", message="bad rows", resource=f"{world.project}/*"
        )
    )
    load(world, "mydataset.t").exception()
    world.until(lambda: world.statuses() == ["done"])
    assert world.pulled(heard)[0].data == b"bad rows"


def test_a_route_after_an_extract_may_query(world: World) -> None:
    world.table("bqtail.log", [SCHEMA[1]])
    world.table()
    sql = "INSERT INTO bqtail.log (name) VALUES ('$JobID')"
    route = {
        "When": {"Dest": f"gs://{world.ops}/out/", "Type": "EXTRACT"},
        "OnSuccess": [{"Action": "query", "Request": {"SQL": sql}}],
    }
    world.start(Routes=[route])
    job = world.bigquery.extract_table(f"{world.project}.bqtail.dummy", f"gs://{world.ops}/out/a.csv")
    job.result()
    world.until(lambda: world.records())
    assert world.records()[0]["Error"] == ""
    assert world.rows("bqtail.log") == [(job.job_id,)]


def test_two_routes_for_one_job_are_an_error_and_neither_runs(world: World) -> None:
    world.bigquery.create_dataset("mydataset")
    topic, _ = world.listening()
    push = {"Action": "push", "Request": {"Topic": topic, "Message": "x"}}
    routes = [{"When": {"Dest": pattern}, "OnSuccess": [push]} for pattern in (r":mydataset\.", r"\.t$")]
    daemon = world.start(Routes=routes)
    query(world, "mydataset.t")
    world.until(lambda: daemon.said("route.ambiguous"))
    world.settled()
    assert daemon.said("route.ambiguous")[0]["routes"] == ["settings#0", "settings#1"]
    assert daemon.metric("ingestd_routes_ambiguous_total") == 1
    assert world.records() == []


def test_a_task_written_by_hand_follows_the_users_own_job(world: World) -> None:
    world.upload("elsewhere/extra.json")
    remove = {"Action": "delete", "Request": {"SourceURL": f"gs://{world.trigger}/elsewhere/extra.json"}}
    aside = {
        "Action": "move",
        "Request": {
            "SourceURL": f"gs://{world.trigger}/elsewhere/mine.json",
            "DestURL": f"gs://{world.ops}/aside",
        },
    }
    world.start()
    task(world, "my_own_job_dispatch", OnSuccess=[remove], OnFailure=[aside])
    load(world, "bqtail.mine", "my_own_job_dispatch").result()
    world.ended("done")
    assert not world.exists("elsewhere/extra.json")
    assert world.exists("elsewhere/mine.json")


def test_a_task_written_by_hand_runs_its_on_failure_when_the_job_fails(world: World, faults: FaultPlan) -> None:
    url = f"gs://{world.trigger}/elsewhere/mine.json"
    aside = {"Action": "move", "Request": {"SourceURL": url, "DestURL": f"gs://{world.ops}/aside"}}
    world.start()
    faults.add(Fault("bigquery", "job.load", FaultKind.FAIL, reason="invalid", resource=f"{world.project}/*"))
    task(world, "another_dispatch", OnSuccess=[{"Action": "delete", "Request": {"SourceURL": url}}], OnFailure=[aside])
    load(world, "bqtail.mine", "another_dispatch").exception()
    world.ended("done")
    assert world.objects("aside/") == ["aside/elsewhere/mine.json"]


def test_a_task_nobody_can_read_is_set_aside_and_said(world: World) -> None:
    daemon = world.start()
    blob = world.storage.bucket(world.ops).blob("tasks/broken_dispatch.json")
    blob.upload_from_string("{not json")
    load(world, "bqtail.mine", "broken_dispatch").result()
    world.until(lambda: world.objects("errors/tasks/"))
    world.settled()
    assert world.read("errors/tasks/broken_dispatch.json") == b"{not json"
    (line,) = daemon.heard("task.unreadable")
    assert line["job"] == "broken_dispatch"
    assert "not JSON" in line["error"]
