"""docs/deployment.md, typed from the top: a file dropped in a bucket is in a table at its end.

The machine it is typed on is in `standins/machine.py`. Google's own command lines do what the local cloud can play; of
the rest, gcloud's table of commands and flags tells whether there is such a thing.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.deploy.standins.gcloud_tables import mistakes, table_file
from tests.support.e2e.cloud_process import cloud_command
from tests.support.google import gcloud_environment
from tests.support.places import ROOT
from tests.support.ports import free_port
from tests.support.waiting import eventually

from ingestd.cli.acceptance.estate import SINK_FILTER

STANDINS = Path(__file__).parent / "standins"
PAGE = (ROOT / "docs/deployment.md").read_text()
TERRAFORM = "\n".join(file.read_text() for file in sorted((ROOT / "k8s/terraform").glob("*.tf")))
PROJECT = "my-project"
COMMANDS = ("gcloud", "bq", "kubectl", "docker", "make", "terraform", "sleep")

pytestmark = [
    pytest.mark.sdk,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("deployment-page"),
    pytest.mark.skipif(table_file() is None, reason="the Google Cloud SDK (gcloud) is not installed"),
    pytest.mark.skipif(shutil.which("bq") is None, reason="the Cloud SDK's bq is not installed"),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]


class Typed:
    """What became of the page."""

    def __init__(self, ended: "subprocess.CompletedProcess[str]", desk: Path, environ: dict[str, str]) -> None:
        self.ended = ended
        self.desk = desk
        self.environ = environ
        notes = (desk / "typed.jsonl").read_text().splitlines()
        self.lines: list[list[str]] = [json.loads(line) for line in notes]

    def starting(self, *words: str) -> list[list[str]]:
        return [line for line in self.lines if tuple(line[: len(words)]) == words]

    def log(self) -> str:
        log = self.desk / "daemon.log"
        return log.read_text()[-3000:] if log.exists() else "no daemon"


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Typed]:
    desk = tmp_path_factory.mktemp("first-day")
    clone, tools = desk / "clone", desk / "bin"
    tools.mkdir()
    for name in ("k8s", "config"):
        shutil.copytree(ROOT / name, clone / name)
    for name in COMMANDS:
        (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable} {STANDINS / "machine.py"} {name} "$@"\n')
        (tools / name).chmod(0o755)
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S))
    with cloud_command(desk / "cloud", "--project", PROJECT) as cloud:
        environ = environment(desk, tools, cloud.endpoints)
        typing = ["bash", "-euo", "pipefail", "-c", script]
        ended = subprocess.run(typing, cwd=clone, env=environ, capture_output=True, text=True, check=False)
        try:
            yield Typed(ended, desk, environ)
        finally:
            if (desk / "daemon.pid").exists():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(int((desk / "daemon.pid").read_text()), signal.SIGKILL)


def environment(desk: Path, tools: Path, endpoints: dict[str, str]) -> dict[str, str]:
    """A terminal of a machine whose Google is the local cloud."""
    from ingestd.localcloud.statefolder import Endpoints

    port = free_port()
    here = str(Path(sys.executable).parent)
    usual = {name: value for name, value in os.environ.items() if not name.startswith(("CLOUDSDK_", "INGESTD_"))}
    return {
        **usual,
        **Endpoints(**endpoints).environ(),
        "PATH": f"{tools}:{here}:{usual['PATH']}",
        "STANDINS": str(tools),
        "DESK": str(desk),
        "BIGQUERYRC": str(desk / "cloud/bigqueryrc"),
        **gcloud_environment(desk / "gcloud"),
        "CLOUDSDK_STORAGE_PROCESS_COUNT": "1",
        "INGESTD_HTTP__HOST": "127.0.0.1",
        "INGESTD_HTTP__PORT": str(port),
    }


def rows(typed: Typed, sql: str) -> list[dict[str, Any]]:
    command = [Path(sys.executable).parent / "ingestd", "query", sql, "--json"]
    told = subprocess.run(command, env=typed.environ, capture_output=True, text=True, check=True, cwd=typed.desk)
    return [json.loads(line) for line in told.stdout.splitlines()]


def test_the_commands_of_the_page_put_a_file_into_a_table(typed: Typed) -> None:
    assert typed.ended.returncode == 0, f"{typed.ended.stdout[-3000:]}\n{typed.ended.stderr[-3000:]}\n{typed.log()}"
    sample = (ROOT / "config/samples/orders/2024-05-01.json").read_text().splitlines()
    orders = rows(typed, "SELECT order_id FROM shop.orders ORDER BY order_id")
    assert [one["order_id"] for one in orders] == sorted(json.loads(line)["order_id"] for line in sample)
    eventually(lambda: len(rows(typed, "SELECT * FROM shop.customers")) == 4, typed.log)
    assert "loaded" in typed.ended.stdout or "done" in typed.ended.stdout, "explain tells of the file"


def test_the_pods_are_the_users_own(typed: Typed) -> None:
    objects = list(yaml.safe_load_all((typed.desk / "rendered.yaml").read_text()))
    [deployment] = [one for one in objects if one["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    [pushed] = typed.starting("docker", "push")
    assert container["image"] == pushed[-1]
    [account] = [one for one in objects if one["kind"] == "ServiceAccount"]
    acts_as = account["metadata"]["annotations"]["iam.gke.io/gcp-service-account"]
    [made] = typed.starting("gcloud", "iam", "service-accounts", "create")
    assert acts_as == f"{made[4]}@{PROJECT}.iam.gserviceaccount.com"


def test_the_page_and_terraform_make_and_grant_the_same(typed: Typed) -> None:
    granted = re.findall(r"roles/\w+\.\w+", TERRAFORM)
    typed_roles = {word for line in typed.lines for word in re.findall(r"roles/\w+\.\w+", " ".join(line))}
    of_the_nodes = {"roles/container.defaultNodeServiceAccount", "roles/artifactregistry.reader"}
    only_with_side_inputs = {"roles/bigquery.dataViewer"}
    assert typed_roles - of_the_nodes == set(granted) - only_with_side_inputs
    pods = re.findall(r"\.svc\.id\.goog\[([\w/-]+)\]", " ".join(" ".join(line) for line in typed.lines))
    declared = TERRAFORM.partition('variable "kubernetes_service_accounts"')[2].partition("\n}")[0]
    assert set(pods) == set(re.findall(r'"([\w-]+/[\w-]+)"', declared))
    topics = {line[4] for line in typed.starting("gcloud", "pubsub", "topics", "create")}
    assert topics == set(re.findall(r'^resource "google_pubsub_topic" .*?name +?= "([\w-]+)"', TERRAFORM, re.M | re.S))


def test_subscriptions_are_the_same_by_hand_and_by_terraform(typed: Typed) -> None:
    feed = TERRAFORM.partition('resource "google_pubsub_subscription" "feed"')[2].partition("\n}")[0]
    expected = {
        "--ack-deadline": _number("ack_deadline_seconds", feed),
        "--min-retry-delay": _number("minimum_backoff", feed) + "s",
        "--max-retry-delay": _number("maximum_backoff", feed) + "s",
    }
    made = {line[4]: dict(word.split("=", 1) for word in line[5:]) for line in _subscriptions(typed)}
    for name in ("ingestd-notifications", "ingestd-completions"):
        assert {flag: made[name][flag] for flag in expected} == expected
        assert "--dead-letter-topic" not in made[name], "an outage would move good messages away"
    assert not re.search(r"^\s*dead_letter_policy", feed, re.M)


def _number(name: str, text: str) -> str:
    found = re.search(rf'\b{name} += "?(\d+)', text)
    assert found is not None, name
    return found[1]


def _subscriptions(typed: Typed) -> list[list[str]]:
    return typed.starting("gcloud", "pubsub", "subscriptions", "create")


def test_completions_pass_the_same_filter_everywhere(typed: Typed) -> None:
    [sink] = typed.starting("gcloud", "logging", "sinks", "create")
    [typed_filter] = [word.removeprefix("--log-filter=") for word in sink if word.startswith("--log-filter=")]
    assert typed_filter == SINK_FILTER
    assert SINK_FILTER.split() == TERRAFORM.partition("<<-EOT")[2].partition("EOT")[0].split()


def test_terraform_is_given_variables_that_it_has(typed: Typed) -> None:
    [applied] = [line for line in typed.starting("terraform") if "apply" in line]
    given = {word.split("=")[1] for word in applied if word.startswith("-var=")}
    assert given and given <= set(re.findall(r'^variable "(\w+)"', TERRAFORM, re.M))


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("pubsub topics create t --projct=p", "has no flag --projct"),
        ("pubsub topic create t", "has no command"),
        ("storage buckets create gs://b --location", "without its value"),
        ("container clusters create-auto c --region=r --workload-pool=p", "has no flag --workload-pool"),
    ],
)
def test_a_mistyped_command_is_noticed(line: str, wrong: str) -> None:
    tables = table_file()
    assert tables is not None
    assert any(wrong in one for one in mistakes(line.split(), tables))
