"""`ingestd doctor` and the other commands' JSON, against a local cloud."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.cloud.storage.notification import BucketNotification
from tests.conftest import PROJECT
from typer.testing import CliRunner, Result

from ingestd.cli.main import app

pytestmark = pytest.mark.usefixtures("emulators")


@pytest.fixture
def config(
    tmp_path: Path, unique: str, bucket: str, dataset: str, storage_client: Any, publisher: Any, subscriber: Any
) -> Path:
    """Settings whose surroundings are complete: everything the daemon needs is there."""
    for name in ("notifications", "completions"):
        topic = publisher.create_topic(name=f"projects/{PROJECT}/topics/{unique}-{name}").name
        dead = {"dead_letter_topic": topic}
        subscriber.create_subscription(
            request={
                "name": f"projects/{PROJECT}/subscriptions/{unique}-{name}",
                "topic": topic,
                "expiration_policy": {},
                "dead_letter_policy": dead,
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


def test_commands_that_print_data_print_json(bucket: str, topic: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    copied = json.loads(run("cp", str(tmp_path / "a.json"), f"gs://{bucket}/x/", "--json").stdout)
    assert copied == [{"source": str(tmp_path / "a.json"), "target": f"gs://{bucket}/x/a.json"}]
    (sent,) = json.loads(run("publish", f"gs://{bucket}/x/a.json", "--topic", topic, "--json").stdout)
    assert (sent["topic"], sent["exists"]) == (topic, True)
    assert json.loads(run("version", "--json").stdout)["version"]
    settings = {one["setting"]: one for one in json.loads(run("settings", "--json").stdout)}
    assert settings["project"]["required"] and settings["http.port"]["default"] == "9090"
