"""`ingestd doctor` and the other commands' JSON, against a local cloud."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.cloud import bigquery
from google.cloud.storage.notification import BucketNotification
from tests.support.google import PROJECT
from typer.testing import CliRunner, Result

from ingestd.cli.main import app
from ingestd.localcloud.faults import Fault, FaultKind, FaultPlan

pytestmark = pytest.mark.usefixtures("emulators")


@pytest.fixture
def config(
    tmp_path: Path, unique: str, bucket: str, dataset: str, storage_client: Any, publisher: Any, subscriber: Any
) -> Path:
    """Settings whose surroundings are complete: everything the daemon needs is there."""
    for name in ("notifications", "completions"):
        topic = publisher.create_topic(name=f"projects/{PROJECT}/topics/{unique}-{name}").name
        subscriber.create_subscription(
            request={
                "name": f"projects/{PROJECT}/subscriptions/{unique}-{name}",
                "topic": topic,
                "expiration_policy": {},
            }
        )
    watched = storage_client.bucket(bucket)
    BucketNotification(watched, f"{unique}-notifications", topic_project=PROJECT, payload_format="JSON_API_V1").create()
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "one.yaml").write_text(
        f"When: {{Prefix: /in/}}\nDest: {{Table: {dataset}.t}}\nOnFailure: [{{Action: delete}}]\n"
    )
    settings = {
        "project": PROJECT,
        "rules": {"url": str(tmp_path / "rules")},
        "journal_url": f"gs://{bucket}/journal",
        "error_url": f"gs://{bucket}/errors",
        "defer_task_url": f"gs://{bucket}/tasks",
        "batch_url": f"gs://{bucket}/batch",
        "load_state": {"table": f"{dataset}.loads"},
        "subscriptions": {"notifications": f"{unique}-notifications", "completions": f"{unique}-completions"},
    }
    file = tmp_path / "ingestd.json.yaml"
    file.write_text(json.dumps(settings))
    return file


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(app, list(arguments))


def marks(result: Result) -> dict[str, str]:
    return {one["what"]: one["mark"] for one in json.loads(result.stdout)}


def test_everything_in_place_is_said_so(config: Path, bucket: str, dataset: str) -> None:
    result = run("doctor", "--config", str(config), "--bucket", bucket, "--json")
    assert result.exit_code == 0, result.output
    found = marks(result)
    assert set(found.values()) <= {"ok", "skipped"}, result.stdout
    assert found[f"notifications of gs://{bucket}"] == "ok"
    assert found[f"dataset {dataset}"] == "ok"
    assert found[f"load state in {PROJECT}.{dataset}.loads"] == "ok"
    assert found["log sink for job completions"] == "skipped"


def test_what_is_missing_is_named_with_its_remedy_and_fails(config: Path, unique: str) -> None:
    document = json.loads(config.read_text())
    document["subscriptions"]["completions"] = "nobody-made-this"
    document["corrupted_file_url"] = "gs://no-such-bucket-anywhere/bad"
    config.write_text(json.dumps(document))
    (Path(document["rules"]["url"]) / "two.yaml").write_text(f"When: {{Prefix: /x/}}\nDest: {{Table: {unique}_no.t}}\n")
    result = run("doctor", "--config", str(config), "--bucket", f"{unique}-not-there", "--json")
    assert result.exit_code == 1
    found = {one["what"]: one for one in json.loads(result.stdout)}
    for what, fix in {
        f"files arrive in gs://{unique}-not-there": f"buckets create gs://{unique}-not-there",
        "bad files go to gs://no-such-bucket-anywhere": "buckets create gs://no-such-bucket-anywhere",
        "completions subscription nobody-made-this": "subscriptions create nobody-made-this",
        f"dataset {unique}_no": f"bq mk --dataset --location=US {PROJECT}:{unique}_no",
    }.items():
        assert found[what]["mark"] == "failed"
        assert fix in found[what]["fix"]
    shown = run("doctor", "--config", str(config), "--bucket", f"{unique}-not-there")
    assert f"✗ dataset {unique}_no  there is no such dataset" in shown.stdout
    assert "to mend" in shown.stdout.splitlines()[-1]


def test_a_load_state_without_a_dataset_is_a_warning_with_its_remedy(config: Path, bucket: str, unique: str) -> None:
    document = json.loads(config.read_text())
    document["load_state"]["table"] = f"{unique}_no.loads"
    config.write_text(json.dumps(document))
    result = run("doctor", "--config", str(config), "--bucket", bucket, "--json")
    assert result.exit_code == 0, result.output
    (found,) = [one for one in json.loads(result.stdout) if one["what"].startswith("load state")]
    assert found["mark"] == "warning"
    assert found["fix"] == f"bq mk --dataset --location=US {PROJECT}:{unique}_no"


def test_reads_that_the_documented_roles_do_not_permit_are_warnings_with_their_remedy(
    config: Path, bucket: str, unique: str, faults: FaultPlan
) -> None:
    """With `pubsub.subscriber` and `storage.objectUser` messages are pulled and files read: no more may be asked."""
    document = json.loads(config.read_text())
    document["subscriptions"]["dead_letter_topic"] = f"{unique}-completions"
    config.write_text(json.dumps(document))
    for service, method in (
        ("pubsub", "GetSubscription"),
        ("pubsub", "GetTopic"),
        ("storage", "notifications.list"),
        ("storage", "buckets.get"),
    ):
        faults.add(Fault(service, method, FaultKind.FAIL, status=403, reason="forbidden"))
    result = run("doctor", "--config", str(config), "--bucket", bucket, "--json")
    assert result.exit_code == 0, result.output
    found = [(one["what"], one["mark"], one["fix"]) for one in json.loads(result.stdout)]
    for name in (f"{unique}-notifications", f"{unique}-completions"):
        told = {mark: fix for what, mark, fix in found if what.endswith(f"subscription {name}")}
        assert set(told) == {"ok", "warning"}
        assert f"subscriptions add-iam-policy-binding {name} " in told["warning"]
        assert told["warning"].endswith("--role=roles/pubsub.viewer")
    [notified] = [fix for what, mark, fix in found if what == f"notifications of gs://{bucket}" and mark == "warning"]
    assert notified.endswith("--role=roles/storage.legacyBucketReader")
    assert (f"files arrive in gs://{bucket}", "ok", "") in found
    assert (f"dead-letter topic {unique}-completions", "ok", "") in found


def test_deletions_that_a_convention_waits_for_in_vain_are_a_warning(
    config: Path, bucket: str, unique: str, storage_client: Any
) -> None:
    arguments = ("doctor", "--config", str(config), "--bucket", bucket, "--json")
    title = f"deletions in gs://{bucket}"
    watched = storage_client.bucket(bucket)

    def notify(event: str) -> None:
        own = {"topic_project": PROJECT, "payload_format": "JSON_API_V1", "event_types": [event]}
        BucketNotification(watched, f"{unique}-notifications", **own).create()

    assert title not in marks(run(*arguments)), "rules do not care"
    document = json.loads(config.read_text())
    document["success"] = {"conventions": [{"bucket": bucket}]}
    config.write_text(json.dumps(document))
    assert marks(run(*arguments))[title] == "ok", "without event types it carries all of them"
    for everything in watched.list_notifications():
        everything.delete()
    notify("OBJECT_FINALIZE")
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    (found,) = [one for one in json.loads(result.stdout) if one["what"] == title]
    assert found["mark"] == "warning"
    assert f"--topic=projects/{PROJECT}/topics/{unique}-notifications " in found["fix"]
    notify("OBJECT_DELETE")  # as the remedy says
    found = marks(run(*arguments))
    assert (found[title], found[f"notifications of gs://{bucket}"]) == ("ok", "ok")


def test_what_spark_lacks_is_said_and_only_fails_where_a_rule_needs_spark(
    config: Path, bucket: str, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ingestd.spark.session.packages.missing_packages", lambda _: "pandas >= 2.2.0 must be installed"
    )
    arguments = ("doctor", "--config", str(config), "--bucket", bucket, "--json")
    result = run(*arguments)
    assert (result.exit_code, marks(result)["Python packages for Spark"]) == (0, "warning"), result.output
    rules = Path(json.loads(config.read_text())["rules"]["url"])
    (rules / "two.yaml").write_text(f"When: {{Prefix: /b/}}\nDest: {{Table: {dataset}.u, UniqueColumns: [id]}}\n")
    result = run(*arguments)
    assert (result.exit_code, marks(result)["Python packages for Spark"]) == (1, "failed"), result.output


def test_commands_that_print_data_print_json(bucket: str, topic: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    copied = json.loads(run("cp", str(tmp_path / "a.json"), f"gs://{bucket}/x/", "--json").stdout)
    assert copied == [{"source": str(tmp_path / "a.json"), "target": f"gs://{bucket}/x/a.json"}]
    (sent,) = json.loads(run("publish", f"gs://{bucket}/x/a.json", "--topic", topic, "--json").stdout)
    assert (sent["topic"], sent["exists"]) == (topic, True)
    assert json.loads(run("version", "--json").stdout)["version"]
    settings = {one["setting"]: one for one in json.loads(run("settings", "--json").stdout)}
    assert settings["project"]["required"] and settings["http.port"]["default"] == "9090"


def test_a_backfill_is_announced_to_the_daemon_and_to_none_of_the_buckets_other_listeners(
    config: Path, bucket: str, unique: str, storage_client: Any, publisher: Any, subscriber: Any, faults: FaultPlan
) -> None:
    topic = publisher.create_topic(name=f"projects/{PROJECT}/topics/{unique}-another").name
    listener = subscriber.create_subscription(
        request={"name": f"projects/{PROJECT}/subscriptions/{unique}-another", "topic": topic}
    ).name
    watched = storage_client.bucket(bucket)
    own = f"{unique}-notifications"
    for notification in watched.list_notifications():
        notification.delete()
    watched.blob("in/a.json").upload_from_string("{}")
    for name in (f"{unique}-another", own):
        BucketNotification(watched, name, topic_project=PROJECT, payload_format="JSON_API_V1").create()
    arguments = ("backfill", f"gs://{bucket}/in", "--config", str(config))
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    publisher.publish(topic=topic, messages=[{"data": b"the first and only one"}])
    told = subscriber.pull(subscription=listener, max_messages=9).received_messages
    assert [one.message.data for one in told] == [b"the first and only one"]
    (heard,) = subscriber.pull(subscription=f"projects/{PROJECT}/subscriptions/{own}", max_messages=9).received_messages
    assert heard.message.attributes["objectId"] == "in/a.json"

    faults.add(Fault("pubsub", "GetSubscription", FaultKind.FAIL, status=403, reason="forbidden"))
    unsure = run(*arguments)
    assert unsure.exit_code == 1
    assert "say with --topic which of them the daemon hears" in " ".join(unsure.stderr.split())


def test_a_query_runs_where_its_tables_are(unique: str, bigquery_client: Any) -> None:
    dataset = bigquery.DatasetReference(PROJECT, unique.replace("-", "_"))
    made = bigquery.Dataset(dataset)
    made.location = "europe-west3"
    bigquery_client.create_dataset(made)
    bigquery_client.create_table(bigquery.Table(dataset.table("t"), [bigquery.SchemaField("x", "INT64")]))
    sql = f"SELECT x FROM {dataset.dataset_id}.t"
    result = run("query", sql)
    assert result.exit_code == 0, result.output
    (job,) = [one for one in bigquery_client.list_jobs() if one.job_type == "query" and one.query == sql]
    assert job.location == "europe-west3"
