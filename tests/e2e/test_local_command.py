"""`ingestd local`: cloud and daemon in one command, the samples, and the commands the README shows."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.e2e.environment import newcomers_environment
from tests.support.e2e.local_process import BIN, Local, ingestd, local_command
from tests.support.places import ROOT
from tests.support.waiting import HOPELESS, ended, eventually

pytestmark = pytest.mark.xdist_group("local-command")

# The newcomer's test has Spark prepare the clicks; here a JVM for each daemon would only take time.
ENVIRON = {**newcomers_environment(), "COLUMNS": "200", "INGESTD_SPARK__START": "never"}


@contextmanager
def running_local(folder: Path, *options: str) -> Iterator[Local]:
    """`ingestd local` in a folder with the repository's config."""
    if not (folder / "config").exists():
        shutil.copytree(ROOT / "config", folder / "config")
        samples = folder / "config/samples/samples.yaml"
        samples.write_text(re.sub(r"^  (- clicks/|shop.clicks: ).*\n", "", samples.read_text(), flags=re.MULTILINE))
    with local_command(folder, "--rules", "config/rules", *options, environ=ENVIRON) as local:
        yield local


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    with running_local(tmp_path_factory.mktemp("local"), "--samples", "config/samples") as running:
        yield running


def test_the_samples_are_rows_when_it_says_so(local: Local) -> None:
    assert "shop.orders has 7 rows" in local.said
    assert "shop.customers has 4 rows" in local.said
    assert local.rows("SELECT COUNT(*) AS n FROM shop.orders") == [{"n": 7}]


def test_it_shows_where_everything_is_and_what_to_do_next(local: Local) -> None:
    endpoints = json.loads((local.folder / ".state" / "endpoints.json").read_text())
    for service in ("storage", "pubsub", "bigquery"):
        assert endpoints[service] in local.said
    for command in (
        "cp FILE gs://local-dev-trigger",
        "query 'SELECT",
        "publish gs://local-dev-trigger",
        "source .state/env.sh",
    ):
        assert command in local.said


def test_an_uploaded_file_becomes_rows_and_is_deleted(local: Local, tmp_path: Path) -> None:
    order = {"order_id": 200, "customer": "Ada", "ordered_at": "2024-07-01T00:00:00Z", "total": "1.5", "items": []}
    (tmp_path / "july.json").write_text(json.dumps(order) + "\n")
    shown = local.ingestd("cp", str(tmp_path / "july.json"), "gs://local-dev-trigger/orders/")
    assert "gs://local-dev-trigger/orders/july.json" in shown
    local.wait_for(
        "SELECT customer, total FROM shop.orders WHERE order_id = 200", [{"customer": "Ada", "total": "1.5"}]
    )

    def gone() -> bool:
        try:
            local.ingestd("cp", "gs://local-dev-trigger/orders/july.json", str(tmp_path / "back"), fails=True)
        except AssertionError:
            return False
        return True

    eventually(gone, lambda: f"the source of a loaded file is still there: {local.log.read_text()[-4000:]}")


def test_a_published_notification_loads_the_object_it_names(local: Local, tmp_path: Path) -> None:
    """The object is in a bucket nobody watches, so only the test notification can have brought it in."""
    order = {"order_id": 201, "customer": "Grace", "ordered_at": "2024-07-02T00:00:00Z", "total": "2", "items": []}
    (tmp_path / "quiet.json").write_text(json.dumps(order) + "\n")
    local.ingestd("cp", str(tmp_path / "quiet.json"), "gs://local-dev-ops/orders/quiet.json")
    complaint = local.ingestd("publish", "gs://local-dev-ops/orders/quiet.json", fails=True)
    assert "give one with --topic" in complaint
    shown = local.ingestd("publish", "--topic", "storage-notifications", "gs://local-dev-ops/orders/quiet.json")
    assert "storage-notifications" in shown
    local.wait_for("SELECT customer FROM shop.orders WHERE order_id = 201", [{"customer": "Grace"}])


def test_publishing_what_is_loaded_already_says_so(local: Local) -> None:
    url = "gs://local-dev-trigger/customers/customers.csv"
    said = local.ingestd("publish", url)
    assert re.search(r"\(loaded before, in batch \S+ for \S*shop\.customers: the daemon drops it", said), said
    [sent] = json.loads(local.ingestd("publish", url, "--json"))
    assert (sent["exists"], sent["known"]) == (True, "loaded")
    [made_up] = json.loads(local.ingestd("publish", f"{url}.not", "--json"))
    assert (made_up["exists"], made_up["known"]) == (False, None)


def test_status_finds_the_daemon_beside_it(local: Local) -> None:
    shown = local.ingestd("status")
    assert "no quotas" not in shown
    assert json.loads(local.ingestd("status", "--json"))["daemon"]["project"] == "local-dev"


def test_a_failing_query_is_one_line(local: Local) -> None:
    complaint = local.ingestd("query", "SELECT * FROM nowhere.nothing", fails=True)
    assert complaint.startswith("error: ")
    assert "nowhere" in complaint
    assert len(complaint.splitlines()) == 1


def test_faults_are_added_shown_and_cleared(local: Local) -> None:
    assert "no faults" in local.ingestd("faults", "list")
    local.ingestd("faults", "add", "storage", "buckets.list", "fail", "--status", "429", "--times", "2")
    assert re.search(r"storage.*buckets\.list.*fail.*429", local.ingestd("faults", "list"))
    refused = local.ingestd("faults", "add", "storage", "x", "explode", fails=True)
    assert "unknown kind 'explode'" in refused
    local.ingestd("faults", "clear")
    assert "no faults" in local.ingestd("faults", "list")


def runnable_blocks() -> list[str]:
    """Every code block of README and docs that promises to run, in reading order."""
    found = []
    for file in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        found += re.findall(r"^```sh runnable\n(.*?)^```", file.read_text(), re.MULTILINE | re.DOTALL)
    return found


def test_the_documented_commands_work(local: Local) -> None:
    blocks = runnable_blocks()
    assert len(blocks) >= 3
    environ = {**ENVIRON, "PATH": f"{BIN}{os.pathsep}{ENVIRON['PATH']}"}
    for block in blocks:
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=local.folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert ended.returncode == 0, f"{block}\n{ended.stdout}{ended.stderr}"


def test_the_second_run_continues_where_the_first_ended(tmp_path: Path) -> None:
    with running_local(tmp_path, "--samples", "config/samples") as first:
        endpoints = (tmp_path / ".state" / "endpoints.json").read_text()
        first.stop(signal.SIGINT)
    with running_local(tmp_path, "--samples", "config/samples") as second:
        assert "nothing new" in second.said
        assert (tmp_path / ".state" / "endpoints.json").read_text() == endpoints
        time.sleep(1)  # a sample dropped again would be loaded by now
        assert second.rows("SELECT COUNT(*) AS n FROM shop.orders") == [{"n": 7}]
        assert second.rows("SELECT COUNT(*) AS n FROM shop.customers") == [{"n": 4}]
        second.stop()


def test_the_cloud_goes_when_the_daemon_is_killed(tmp_path: Path) -> None:
    with running_local(tmp_path) as local:
        local.process.kill()
        ended(local.process)
    with running_local(tmp_path) as again:  # the folder is free, and so are the ports
        again.stop()


def test_ctrl_c_before_it_is_up_ends_it_quietly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ingestd", "local", "--state", ".state"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=ENVIRON, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        while not (tmp_path / ".state").exists():  # its cloud has begun to start
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=HOPELESS)
    assert (process.returncode, said) == (130, "")
    with running_local(tmp_path) as again:  # nobody holds the folder
        again.process.kill()


def test_a_demo_whose_rows_do_not_come_fails_and_says_so(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "config", tmp_path / "config")
    (tmp_path / "config" / "rules" / "orders.yaml").unlink()
    complaint = ingestd("demo", "--patience", "3s", cwd=tmp_path, environ=ENVIRON, fails=True)
    assert "shop.orders has 0 of 7 rows" in complaint
    assert "Traceback" not in complaint


def test_the_convention_snippet_of_the_documentation_can_be_tried(tmp_path: Path) -> None:
    """No rule, no bucket, no notification has to be made first."""
    page = (ROOT / "docs/success-convention.md").read_text()
    snippet = page.partition("```yaml")[2].partition("```")[0]
    (tmp_path / "settings.yaml").write_text(f"project: play\n{snippet}")
    (tmp_path / "part.csv").write_text("1,a\n2,b\n")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "load.json").write_text('{"fieldDelimiter": ","}')
    folder = "gs://my-landing/sales/orders"
    with local_command(tmp_path, "--config", "settings.yaml", environ=ENVIRON) as local:
        local.ingestd("query", "CREATE SCHEMA sales; CREATE TABLE sales.orders (id INT64, n STRING)")
        for name, place in (
            ("load.json", f"{folder}/_config/"),
            ("part.csv", f"{folder}/b1/"),
            ("_SUCCESS", f"{folder}/b1/"),
        ):
            local.ingestd("cp", name, place)
        local.wait_for("SELECT COUNT(*) AS n FROM sales.orders", [{"n": 2}])
        local.stop()
