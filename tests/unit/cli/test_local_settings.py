"""Which settings `ingestd local` gives the daemon."""

from pathlib import Path

import pytest

from ingestd.cli.local import local_settings
from ingestd.documents import DocumentError


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "ingestd.yaml"
    file.write_text(
        "project: from-file\nhttp:\n  port: 8123\njournal_url: gs://elsewhere/journal\nspark:\n  warm_up: true\n"
    )
    return file


def test_nothing_given_is_enough() -> None:
    settings = local_settings(None, None, None)
    assert settings.project == "local-dev"
    assert settings.rules.url == "gs://local-dev-config/rules"
    assert (settings.http.host, settings.http.port) == ("127.0.0.1", 0)
    assert not settings.spark.warm_up  # takes longer than the few batches of a trial


def test_the_file_is_followed_but_for_what_it_leaves_open(config: Path) -> None:
    settings = local_settings(config, None, None)
    assert settings.project == "from-file"
    assert settings.journal.url == "gs://elsewhere/journal"
    assert (settings.http.host, settings.http.port) == ("127.0.0.1", 8123)
    assert settings.spark.warm_up


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INGESTD_PROJECT", "from-environment")
    assert local_settings(config, None, None).project == "from-environment"
    assert local_settings(config, "from-option", None).project == "from-option"
    assert local_settings(config, None, Path("my/rules")).rules.url == "my/rules"


def test_a_misspelt_setting_is_refused_with_a_suggestion(config: Path) -> None:
    config.write_text("projekt: x\n")
    with pytest.raises(DocumentError, match="did you mean 'project'"):
        local_settings(config, None, None)
