"""The acceptance kit itself: the very run that a user has on Google's cloud, here on the local one."""

import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.children import alive
from tests.support.google import PROJECT
from tests.support.spark.processes import children
from tests.support.waiting import ended, eventually
from typer.testing import CliRunner, Result

from ingestd.cli.acceptance.scenarios import SCENARIOS
from ingestd.cli.main import app
from ingestd.localcloud.cloud import LocalCloud
from ingestd.localcloud.faults import Fault, FaultKind, FaultPlan

pytestmark = [pytest.mark.usefixtures("emulators"), pytest.mark.timeout(1800)]


@pytest.fixture(autouse=True)
def _logs_go_with_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that fails keeps its daemon's log in a temporary folder: here, in the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def acceptance(bucket: str, dataset: str, *options: str) -> Result:
    chosen = ["acceptance", "--project", PROJECT, "--bucket", bucket, "--dataset", dataset, *options]
    return CliRunner().invoke(app, chosen)


def answer(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result.stdout)
    return document


class Left:
    """What there is of any run in the cloud."""

    def __init__(self, cloud: LocalCloud, bucket: str, bigquery: Any, dataset: str) -> None:
        self._cloud = cloud
        self._bucket = bucket
        self._bigquery = bigquery
        self._dataset = dataset

    def __call__(self) -> list[str]:
        stats = self._cloud.pubsub.stats()
        names = [one.name for one in (*stats.topics, *stats.subscriptions)]
        found = [name for name in names if "/ingestd-acc-" in name]
        found += [one.name for one in self._cloud.storage.glob(self._bucket, "**")]
        found += [one.topic for one in self._cloud.storage.buckets.list_notifications(self._bucket)]
        if self._dataset in [one.dataset_id for one in self._bigquery.list_datasets()]:
            found += [self._dataset, *(one.table_id for one in self._bigquery.list_tables(self._dataset))]
        return found


@pytest.fixture
def left(cloud: LocalCloud, bucket: str, bigquery_client: Any, unique: str) -> Left:
    return Left(cloud, bucket, bigquery_client, unique)


@pytest.mark.xdist_group("spark")
def test_every_promise_holds_on_the_local_cloud_and_nothing_is_left_behind(
    bucket: str, unique: str, left: Left
) -> None:
    ended = acceptance(bucket, unique, "--json", "--timeout", "5m")
    report = answer(ended)
    failures = [one for one in report["scenarios"] if not one["passed"]]
    assert not failures, failures
    assert [one["name"] for one in report["scenarios"]] == [*(one.name for one in SCENARIOS), "once", "drain"]
    assert report["passed"] and ended.exit_code == 0
    assert report["left"] == []
    assert left() == []


def test_a_promise_that_does_not_hold_is_named_with_what_was_seen(
    bucket: str, dataset: str, bigquery_client: Any, faults: FaultPlan, left: Left
) -> None:
    kept = bigquery_client.create_table(f"{PROJECT}.{dataset}.not_ours")
    lost = Fault("bigquery", "job.load", FaultKind.FAIL, reason="backendError", message="no", resource="*")
    faults.add(lost)
    ended = acceptance(bucket, dataset, "--only", "async", "--only", "transform", "--timeout", "15s", "--json")
    verdicts = {one["name"]: one for one in answer(ended)["scenarios"]}
    assert ended.exit_code == 1
    assert verdicts["transform"]["passed"]
    assert not verdicts["async"]["passed"]
    assert "seen: []" in verdicts["async"]["seen"]
    assert "once" not in verdicts
    assert left() == [dataset, kept.table_id], "somebody else's dataset and tables stay"


def test_a_run_that_is_kept_is_removed_by_its_name(bucket: str, unique: str, left: Left) -> None:
    report = answer(acceptance(bucket, unique, "--only", "transform", "--keep", "--json"))
    assert report["passed"]
    run = report["run"]
    there = left()
    assert f"acc_{run}_transform" in there
    assert f"ingestd-acceptance/{run}/in/success/_config/load.json" not in there  # another scenario's
    assert any(name.startswith(f"ingestd-acceptance/{run}/ops/journal/") for name in there)
    assert Path(report["log"]).is_file()
    assert acceptance(bucket, unique, "--clean", "everything").exit_code == 1
    assert left() == there
    ended = acceptance(bucket, unique, "--clean", run)
    assert (ended.exit_code, left()) == (0, [])
    assert acceptance(bucket, unique, "--clean", run).exit_code == 0, "what is gone is fine"


@contextmanager
def under_way(bucket: str, dataset: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A run as a process of its own, and its name, as soon as the scenarios play."""
    command = [sys.executable, "-m", "ingestd", "acceptance", "--project", PROJECT, "--bucket", bucket]
    command += ["--dataset", dataset, "--only", "window"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        run, said = "", ""
        for line in process.stderr:
            said += line
            run = run or "".join(re.findall(r"^run (\w+)", line))
            if line.startswith("playing"):
                break
        assert run, said
        try:
            yield process, run
        finally:
            process.kill()


def test_a_run_that_is_stopped_removes_what_it_made(bucket: str, unique: str, left: Left) -> None:
    with under_way(bucket, unique) as (process, _):
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=500)
        assert process.returncode == 130
    assert left() == []


def test_the_daemon_of_a_run_that_is_killed_ends_too_and_the_rest_is_removed_by_name(
    bucket: str, unique: str, left: Left
) -> None:
    with under_way(bucket, unique) as (process, run):
        (daemon,) = children(process.pid, "ingestd")
        process.kill()
        ended(process)
    eventually(lambda: not alive(int(daemon)), lambda: f"{daemon} is still there")
    assert left() != []
    assert acceptance(bucket, unique, "--clean", run).exit_code == 0
    assert left() == []


def test_what_is_missing_is_said_before_anything_is_made(unique: str, bucket: str, left: Left) -> None:
    ended = acceptance("there-is-no-such-bucket", unique, "--check", "--json")
    (missing,) = [one for one in answer(ended)["preflight"] if one["mark"] == "failed"]
    assert ended.exit_code == 1
    assert missing["found"] == "there is no such bucket"
    assert "gcloud storage buckets create gs://there-is-no-such-bucket" in missing["fix"]
    assert acceptance(bucket, unique, "--check").exit_code == 0
    assert left() == []


def test_an_unknown_scenario_is_refused_with_the_known_ones(unique: str, bucket: str) -> None:
    ended = acceptance(bucket, unique, "--only", "windows")
    assert ended.exit_code == 1
    assert "there is no scenario windows; there are async, window," in ended.output
