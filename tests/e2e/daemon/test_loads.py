"""Ordinary loads in both modes, and files that cannot be loaded."""

import gzip

from google.cloud import bigquery
from tests.support.e2e.world import LOADED, World
from tests.support.rule_documents import FILE, ROWS, alone, modes

from ingestd.localcloud.faults import Fault, FaultKind, FaultPlan


def test_a_synchronous_load_keeps_its_message_until_everything_is_done(world: World, faults: FaultPlan) -> None:
    world.prepared(alone(asynchronous=False))
    faults.add(Fault("bigquery", "job.load", FaultKind.DELAY, seconds=4.0, resource=f"{world.project}/*"))
    world.start()
    world.upload()
    world.until(lambda: world.jobs("load"))
    assert world.backlog(world.notifications) == 1
    assert world.objects("tasks/") == []
    (record,) = world.records("Running")
    assert record["LeaseUntil"] is not None
    assert record["JobID"].endswith("--tail")
    world.settled()
    assert world.rows() == LOADED
    assert not world.exists()
    assert world.statuses() == ["done"]


@modes
def test_a_bad_file_runs_on_failure_once_while_its_neighbour_loads(world: World, asynchronous: bool) -> None:
    topic, heard = world.listening()
    failed = [
        {"Action": "push", "Request": {"Topic": topic, "Message": "$Error", "Attributes": {"source": "$SourceURI"}}},
        {"Action": "move", "Request": {"DestURL": f"gs://{world.ops}/failed"}},
    ]
    world.prepared(alone(asynchronous, OnFailure=failed))
    daemon = world.start()
    generation = world.upload(FILE, {"id": "not a number", "name": "a"})
    world.upload("data/case002/good.json")
    world.until(lambda: world.statuses() == ["done", "failed"])
    world.announce(FILE, generation, times=5)
    world.settled()
    assert world.rows() == LOADED
    (message,) = world.pulled(heard)
    assert message.attributes["source"] == f"gs://{world.trigger}/{FILE}"
    assert b"not a number" in message.data or b"JSON" in message.data
    assert world.objects("failed/") == [f"failed/{FILE}"]
    (error,) = world.objects("errors/bqtail.dummy/")
    assert world.read(error) == next(one["Error"] for one in world.records() if one["Status"] == "failed").encode()
    assert not world.exists()
    (line,) = daemon.heard("batch.failed")
    assert line["severity"] == "ERROR"


@modes
def test_a_job_done_with_an_error_result_is_a_failure_whatever_announced_it(
    world: World, faults: FaultPlan, asynchronous: bool
) -> None:
    """`DONE` alone proves nothing: the error of the job decides, and nothing is deleted."""
    world.prepared(alone(asynchronous))
    invalid = Fault("bigquery", "job.load", FaultKind.FAIL, reason="invalid", status=400, resource=f"{world.project}/*")
    faults.add(invalid)
    world.start()
    world.upload()
    world.ended("failed")
    (job,) = world.jobs("load")
    assert job.state == "DONE"
    assert job.error_result["reason"] == "invalid"
    assert world.exists()
    assert world.rows() == []


@modes
def test_an_attempt_that_failed_for_a_moment_is_followed_by_another(
    world: World, faults: FaultPlan, asynchronous: bool
) -> None:
    world.prepared(alone(asynchronous))
    faults.add(Fault("bigquery", "job.load", FaultKind.FAIL, times=2, resource=f"{world.project}/*"))
    world.start()
    world.upload()
    world.ended("done")
    assert world.rows() == LOADED
    assert [job.job_id.rpartition("_")[2] for job in world.jobs("load")[1:]] == [
        f"try{attempt}--{'dispatch' if asynchronous else 'tail'}" for attempt in (2, 3)
    ]
    assert world.records()[0]["Attempt"] == 3
    assert world.objects("tasks/") == []


@modes
def test_a_table_is_made_from_the_template_the_rule_names(world: World, asynchronous: bool) -> None:
    world.table("bqtail.template")
    dest = {"Table": "bqtail.dummy_$Date", "Schema": {"Template": "bqtail.template"}}
    world.rule(alone(asynchronous, Dest=dest))
    world.start()
    world.upload()
    world.until(lambda: world.statuses() == ["done"])
    (table,) = {table.table_id for table in world.bigquery.list_tables("bqtail")} - {"template"}
    assert table.startswith("dummy_20")
    assert world.rows(f"bqtail.{table}") == LOADED


def test_formats_and_load_options_reach_bigquery(world: World) -> None:
    """CSV and gzip by extension, options passed through, and a schema found by BigQuery itself."""
    world.rule(
        [
            alone(
                When={"Prefix": "/csv/", "Suffix": ".csv.gz"},
                Dest={
                    "Table": "bqtail.csv",
                    "Schema": {"Autodetect": True},
                    "SkipLeadingRows": 1,
                    "FieldDelimiter": ";",
                },
            ),
        ]
    )
    world.start()
    blob = world.storage.bucket(world.trigger).blob("csv/a.csv.gz")
    blob.upload_from_string(gzip.compress(b"id;name\n1;a\n2;b\n"), content_type="application/gzip")
    world.until(lambda: world.statuses() == ["done"])
    assert world.rows("bqtail.csv") == LOADED
    (job,) = world.jobs("load")
    assert isinstance(job, bigquery.LoadJob)
    assert (job.source_format, job.field_delimiter, job.skip_leading_rows) == ("CSV", ";", 1)


def test_several_buckets_on_one_topic_and_payloads_of_either_kind(world: World) -> None:
    world.prepared(alone())
    other = f"{world.project}-other"
    world.storage.create_bucket(other, project=world.project)
    world.notify(other, "NONE")
    world.start()
    world.upload("data/case002/same.json", {"id": 1, "name": "first bucket"})
    world.upload("data/case002/same.json", {"id": 2, "name": "second bucket"}, bucket=other)
    world.ended("done", "done")
    assert world.rows() == [(1, "first bucket"), (2, "second bucket")]
    assert not world.exists("data/case002/same.json")
    assert not world.exists("data/case002/same.json", bucket=other)


@modes
def test_a_file_overwritten_between_notification_and_load_gives_way_to_the_newer_one(
    world: World, asynchronous: bool
) -> None:
    world.prepared(alone(asynchronous))
    world.upload(FILE, {"id": 7, "name": "old"})
    world.upload(FILE, *ROWS)
    world.start()
    world.ended("done", "superseded")
    assert world.rows() == LOADED
    assert not world.exists()


@modes
def test_a_file_overwritten_while_its_job_runs_is_counted_once_and_the_newer_one_survives_its_predecessors_delete(
    world: World, faults: FaultPlan, asynchronous: bool
) -> None:
    world.prepared(alone(asynchronous))
    faults.add(Fault("bigquery", "job.load", FaultKind.DELAY, seconds=1.0, times=1, resource=f"{world.project}/*"))
    world.start()
    world.upload(FILE, {"id": 7, "name": "old"})
    world.until(lambda: world.jobs("load"))
    world.upload(FILE, *ROWS)
    world.until(lambda: len(world.records()) == 2)
    world.settled()
    rows = world.rows()
    assert [row for row in rows if row[0] != 7] == LOADED
    assert rows.count((7, "old")) <= 1
    assert not world.exists()


@modes
def test_a_file_deleted_before_its_load_is_missing_not_stuck(world: World, asynchronous: bool) -> None:
    world.prepared(alone(asynchronous))
    world.upload()
    world.storage.bucket(world.trigger).blob(FILE).delete()
    world.start()
    world.ended("missing")
    assert world.rows() == []
    assert world.jobs("load") == []


def test_an_edited_rule_changes_the_next_file_not_the_one_under_way(world: World, faults: FaultPlan) -> None:
    world.prepared(alone())
    faults.add(Fault("bigquery", "job.load", FaultKind.DELAY, seconds=3.0, times=1, resource=f"{world.project}/*"))
    daemon = world.start(rules={"check_every": "100ms"})
    world.upload("data/case002/before.json", {"id": 1, "name": "a"})
    world.until(lambda: world.objects("tasks/"))
    (before,) = daemon.status()["rules"]
    world.rule(alone(OnSuccess=[]))
    world.until(lambda: daemon.status()["rules"] != [before])
    world.upload("data/case002/after.json", {"id": 2, "name": "b"})
    world.ended("done", "done")
    assert not world.exists("data/case002/before.json")
    assert world.exists("data/case002/after.json")
    assert world.rows() == LOADED
