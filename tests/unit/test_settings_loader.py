"""Settings come from a file and the environment; whatever is unknown or unfit is refused with its place."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SecretStr
from tests.support.service_links import SERVICE_LINKS

from ingestd.documents import DocumentError
from ingestd.model.quantities import ByteSize, Duration
from ingestd.settings_loader import load_settings, service_links


class Pull(BaseModel):
    model_config = ConfigDict(extra="forbid")
    max_messages: int = Field(10, ge=1)
    max_bytes: ByteSize = 0
    lease: Duration = timedelta(seconds=60)


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    project: str
    journal_url: str = Field("", validation_alias=AliasChoices("journal_url", "JournalURL"))
    pull: Pull = Pull()
    hosts: tuple[str, ...] = ()
    token: SecretStr | None = None
    routes: tuple[dict[str, Any], ...] = ()
    pulls: dict[str, Pull] = {}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ingestd.yaml"


def refused(file: Path | None, environ: dict[str, str]) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        load_settings(Settings, file, environ)
    return [str(problem).replace(f"{file}", "FILE") for problem in caught.value.problems]


def test_the_environment_wins_over_the_file(file: Path) -> None:
    file.write_text("project: from-file\npull: {max_messages: 5, max_bytes: 64MiB}\n")
    settings = load_settings(
        Settings, file, {"INGESTD_PROJECT": "from-env", "INGESTD_PULL__MAX_MESSAGES": "7", "HOME": "/x"}
    )
    assert settings.project == "from-env"
    assert (settings.pull.max_messages, settings.pull.max_bytes) == (7, 64 * 1024**2)


def test_keys_may_be_spelled_in_camel_case_or_by_their_alias(file: Path) -> None:
    file.write_text("Project: p\nJournalURL: gs://b/j\nPull: {maxMessages: 3}\n")
    settings = load_settings(Settings, file, {})
    assert (settings.journal_url, settings.pull.max_messages) == ("gs://b/j", 3)


def test_durations_sizes_lists_and_nested_mappings_are_read(file: Path) -> None:
    file.write_text("project: p\npull: {lease: 1h30m}\nhosts: one\nroutes: [{When: {n: 1}}]\npulls: {a: {lease: 5m}}\n")
    settings = load_settings(Settings, file, {"INGESTD_HOSTS": "[a, b]"})
    assert settings.pull.lease == timedelta(minutes=90)
    assert settings.hosts == ("a", "b")
    assert settings.routes == ({"When": {"n": 1}},)
    assert settings.pulls["a"].lease == timedelta(minutes=5)


def test_unknown_keys_are_refused_with_line_and_suggestion(file: Path) -> None:
    file.write_text("project: p\npull:\n  max_mesages: 3\nhots: [a]\npulls: {a: {leas: 1s}}\n")
    assert refused(file, {}) == [
        "FILE:3:3: pull.max_mesages: unknown key 'max_mesages'; did you mean 'max_messages'?",
        "FILE:4:1: hots: unknown key 'hots'; did you mean 'hosts'?",
        "FILE:5:13: pulls.a.leas: unknown key 'leas'; did you mean 'lease'?",
    ]


def test_unknown_variables_are_refused_by_their_name(file: Path) -> None:
    file.write_text("project: p\n")
    assert refused(file, {"INGESTD_PUL__LEASE": "1s", "INGESTD_": "x"}) == [
        "INGESTD_: write it INGESTD_SECTION__KEY",
        "INGESTD_PUL__LEASE: pul: unknown key 'pul'; did you mean 'pull'?",
    ]
    load_settings(Settings, file, {"INGESTD_CONFIG": "x"}, ignore={"INGESTD_CONFIG"})


def test_unfit_values_name_the_place_and_never_repeat_the_value(file: Path) -> None:
    file.write_text("project: p\npull:\n  max_messages: s3cret\n")
    assert refused(file, {"INGESTD_PULL__LEASE": "90", "INGESTD_TOKEN": "[s3cret]"}) == [
        "FILE:3:3: pull.max_messages: must be a whole number",
        "INGESTD_PULL__LEASE: pull.lease: '90' is not a duration; write it with units, like 90s, 5m or 1h30m",
        "INGESTD_TOKEN: token: must be text",
    ]


def test_variables_that_contradict_each_other_are_refused(file: Path) -> None:
    file.write_text("project: p\n")
    assert refused(file, {"INGESTD_PULL": "{}", "INGESTD_PULL__LEASE": "1s"}) == [
        "INGESTD_PULL__LEASE: contradicts INGESTD_PULL; set one of them"
    ]


def test_no_file_is_needed() -> None:
    assert load_settings(Settings, None, {"INGESTD_PROJECT": "p"}).project == "p"
    assert refused(None, {}) == ["environment: project: required key 'project' is missing"]


def test_a_missing_file_and_a_list_are_refused(file: Path) -> None:
    assert refused(file, {}) == ["FILE: cannot be read: No such file or directory"]
    file.write_text("- a\n")
    assert refused(file, {}) == ["FILE:1:1: settings must be one mapping of keys to values"]


def test_what_kubernetes_injects_for_a_service_is_no_setting() -> None:
    environ = {"INGESTD_PROJECT": "p", "INGESTD_PULL__LEASE": "5s", **SERVICE_LINKS}
    assert load_settings(Settings, None, environ).pull.lease == timedelta(seconds=5)
    assert service_links(environ) == sorted(SERVICE_LINKS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("INGESTD_PORT", "9090"),
        ("INGESTD_PORT", "tcp://ingestd:9090"),
        ("INGESTD_PORT", "tcp://10.96.0.17:99999"),
        ("INGESTD_SERVICE_HOST", "ingestd.prod.svc"),
        ("INGESTD_SERVICE_PORT", "tcp://10.96.0.17:9090"),
        ("INGESTD_PORT_9090_TCP_PROTO", "http"),
        ("INGESTD_PORT_9090_TCP_NAME", "http"),
        ("INGESTD_HTTP__SERVICE_PORT", "9090"),
    ],
)
def test_a_mistake_that_looks_like_a_service_link_is_still_refused(name: str, value: str) -> None:
    assert service_links({name: value}) == []
    [problem] = refused(None, {"INGESTD_PROJECT": "p", name: value})
    assert problem.startswith(f"{name}: ")
    assert "unknown key" in problem
