"""bqtail's configuration files become settings that load, and nothing of them is passed over in silence."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ingestd.cli.bqtail_settings import KEYS, Converted, Kept, convert
from ingestd.cli.main import app
from ingestd.documents import DocumentError
from ingestd.settings import Settings
from ingestd.settings_loader import load_settings

TAIL = {
    "Async": True,
    "ProjectID": "p",
    "AsyncTaskURL": "gs://dispatch/BqDispatch/Tasks/",
    "SyncTaskURL": "gs://ops/BqTail/Tasks/",
    "ErrorURL": "gs://ops/BqTail/errors/",
    "JournalURL": "gs://ops/BqTail/Journal/",
    "CorruptedFileURL": "gs://ops/BqTail/corrupted/",
    "RulesURL": "gs://config/BqTail/Rules/",
    "BqJobInfoPath": "/sys/bqjob/",
    "TriggerBucket": "trigger",
    "CheckInMs": 15000,
    "SlackCredentials": {"URL": "gs://config/slack.json.enc", "Key": "ring/key"},
}
DISPATCH = {
    "AsyncTaskURL": "gs://dispatch/BqDispatch/Tasks/",
    "ErrorURL": "gs://ops/BqDispatch/errors/",
    "JournalURL": "gs://ops/BqTail/Journal/",
    "RulesURL": "gs://config/BqDispatch/Rules/",
    "TimeToLiveInMin": 1,
    "MaxConcurrentSQL": 80,
    "MaxConcurrentLoad": 150,
}


def converted(*documents: dict[str, Any], **environ: str) -> Converted:
    return convert([(f"{number}.json", json.dumps(one).encode()) for number, one in enumerate(documents)], environ)


def loaded(found: Converted, folder: Path) -> Settings:
    file = folder / "ingestd.yaml"
    file.write_text(found.yaml("x.json"))
    return load_settings(Settings, file, {})


def test_both_configurations_become_one_settings_file(tmp_path: Path) -> None:
    found = converted(TAIL, DISPATCH)
    settings = loaded(found, tmp_path)
    assert settings.project == "p"
    assert (settings.rules.url, settings.rules.check_every) == ("gs://config/BqTail/Rules/", timedelta(seconds=15))
    assert settings.journal_url == "gs://ops/BqTail/Journal/ingestd"
    assert settings.defer_task_url == "gs://dispatch/BqDispatch/Tasks/ingestd"
    assert settings.batch_url == "gs://ops/BqTail/Tasks/ingestd"
    assert settings.error_url == "gs://ops/BqTail/errors"
    assert settings.corrupted_file_url == "gs://ops/BqTail/corrupted"
    assert settings.invalid_schema_url == "gs://ops/BqTail/Journal/invalid_schema", "bqtail's default"
    assert (settings.max_concurrent_sql, settings.max_concurrent_load) == (80, 150)
    text = found.yaml("x.json")
    assert "# TriggerBucket: let the bucket notify" in text
    assert "# TimeToLiveInMin: a daemon does not end" in text
    assert any("copy its rules and routes there" in line for line in found.warnings)
    assert len([line for line in found.warnings if "slack_token_file" in line]) == 1


VALUES: dict[str, Any] = {
    "CheckInMs": 2500,
    "MaxRetries": 3,
    "MaxConcurrentSQL": 5,
    "MaxConcurrentLoad": 6,
    "MaxConcurrentJobs": 7,
    "ProjectID": "p",
    "RulesURL": "gs://b/rules",
    "Routes": [{"When": {"Dest": "d"}, "OnSuccess": [{"Action": "copy", "Request": {"Dest": "a.b"}}]}],
    "Disabled": True,
    "Async": True,
}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("spelled", [str, str.lower])
def test_every_key_is_a_setting_that_loads_or_a_comment_with_the_reason(tmp_path: Path, key: str, spelled: Any) -> None:
    found = converted({spelled(key): VALUES.get(key, "gs://bucket/folder/")}, GCP_PROJECT="p")
    settings = loaded(found, tmp_path)
    meaning = KEYS[key]
    if isinstance(meaning, Kept):
        value: Any = settings
        for part in meaning.setting.split("."):
            value = getattr(value, part)
        assert value
        assert value != getattr(Settings(project="q"), meaning.setting, None)
    else:
        assert f"# {key}: {meaning.why}" in found.yaml("x.json")


def test_unknown_keys_are_named_with_a_suggestion(tmp_path: Path) -> None:
    found = converted({**TAIL, "CorruptFileURL": "gs://b/c"})
    assert found.warnings[-1] == (
        "0.json:1:457: CorruptFileURL is no key of bqtail's, which passes over it; did you mean 'CorruptedFileURL'?"
    )
    assert "did you mean 'CorruptedFileURL'?" in found.yaml("x.json")
    loaded(found, tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("CheckInMs", "soon", "must be a whole number"),
        ("JournalURL", "mem://localhost/j", r"is no gs:// URL"),
        ("ProjectID", 5, "must be text"),
    ],
)
def test_what_cannot_be_taken_over_is_refused_with_its_place(key: str, value: Any, message: str) -> None:
    with pytest.raises(DocumentError, match=rf"0\.json:1:2: {key}: {message}"):
        converted({key: value})


def test_a_check_every_few_milliseconds_is_one_every_second() -> None:
    assert converted({"CheckInMs": 2}).settings == {"rules.check_every": "1s"}
    assert converted({"CheckInMs": 0, "MaxRetries": 0}).settings == {}


def test_rules_inside_the_dispatchers_configuration_are_routes() -> None:
    route = VALUES["Routes"][0]
    assert converted({"Rules": [route]}).settings == {"routes": [route]}
    inline = converted({"Rules": [{"When": {"Prefix": "/x/"}, "Dest": {"Table": "d.t"}}]})
    assert inline.settings == {}
    assert inline.warnings == ["Rules: put each of them into a file of its own under rules.url"]


def test_the_project_is_looked_for_where_bqtail_looks() -> None:
    assert converted({}, GOOGLE_CLOUD_PROJECT="two", GCLOUD_PROJECT="one").settings == {"project": "one"}
    assert "# project: which one?" in converted({}).yaml("x.json")


def test_the_command_writes_settings_and_says_the_rest_beside(tmp_path: Path) -> None:
    file = tmp_path / "tail.json"
    file.write_text(json.dumps({**TAIL, "Disabled": True}))
    run = CliRunner().invoke(app, ["settings", "--from-bqtail", str(file)])
    assert run.exit_code == 0, run.output
    assert run.stdout.startswith(f"# Made from {file} by")
    assert "Disabled: true into the rules" in run.stderr.replace("\n", " ")
    read = CliRunner().invoke(app, ["settings", "--from-bqtail", "-"], input=json.dumps({"ProjectID": "p"}))
    assert read.stdout.splitlines()[1:] == ["project: p"]
