"""gcloud and bq against `ingestd cloud`, with nothing but `env.sh` sourced."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.e2e.cloud_process import cloud_command
from tests.support.e2e.environment import newcomers_environment

pytestmark = [pytest.mark.sdk, pytest.mark.xdist_group("cloud-command")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a running cloud in `state`."""
    for command in ("gcloud", "bq"):
        if shutil.which(command) is None:
            pytest.skip(f"{command} is not installed; it comes with the Google Cloud SDK")
    where = tmp_path_factory.mktemp("sdk")
    with cloud_command(where / "state", "--provision"):
        yield where


def shell(folder: Path, script: str) -> str:
    """What a fresh user sees: no account, no configuration."""
    environ = {**newcomers_environment(), "CLOUDSDK_CONFIG": str(folder / "gcloud"), "HOME": str(folder)}
    ended = subprocess.run(
        ["bash", "-euc", f". state/env.sh\n{script}"],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_gcloud_storage_and_pubsub_meet_in_the_middle(folder: Path) -> None:
    (folder / "a.json").write_text('{"n": 1}\n')
    shell(folder, "gcloud storage cp a.json gs://play-trigger/in/")
    pulled = shell(folder, "gcloud pubsub subscriptions pull ingestd-notifications --limit=1 --auto-ack --format=json")
    [received] = json.loads(pulled)
    assert received["message"]["attributes"]["objectId"] == "in/a.json"


def test_bq_creates_and_lists(folder: Path) -> None:
    shell(folder, "bq --oauth_access_token=local mk --dataset from_bq")
    listed = json.loads(shell(folder, "bq --oauth_access_token=local ls --format=json"))
    assert [one["datasetReference"]["datasetId"] for one in listed] == ["from_bq"]
