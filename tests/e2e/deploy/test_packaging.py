"""What is deployed around the manifests: the image's recipe, the wheel in it, pinned versions, the Google side."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.support.places import ROOT

BIN = Path(sys.executable).parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_the_dockerfile_follows_good_practice() -> None:
    if not (BIN / "hadolint").exists():
        pytest.skip("hadolint is not installed for this platform")
    checked = subprocess.run([BIN / "hadolint", ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_the_health_check_tells_a_healthy_daemon_from_a_sick_one(status: int, healthy: bool) -> None:
    found = re.search(r"^HEALTHCHECK .*CMD (\[.*\])$", DOCKERFILE, re.M)
    assert found is not None
    _, *arguments = json.loads(found.group(1))

    class Daemon(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Daemon) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [one.replace("9090", str(server.server_port)) for one in arguments]
        checked = subprocess.run([sys.executable, *command], check=False)
        server.shutdown()
    assert (checked.returncode == 0) is healthy


def test_the_image_is_a_spark_executor_where_kubernetes_asks_for_one(tmp_path: Path) -> None:
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    environment = {
        "PATH": f"{BIN}:/usr/bin:/bin",
        "JAVA_HOME": str(tmp_path),
        "SPARK_EXECUTOR_MEMORY": "8g",
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
        "SPARK_EXECUTOR_ID": "3",
        "SPARK_EXECUTOR_CORES": "4",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "exec-3",
        **{f"SPARK_JAVA_OPT_{number}": f"-Dnumber={number} and more" for number in range(11)},
    }
    command = [ROOT / "k8s/entrypoint", "executor"]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert told[:11] == [f"-Dnumber={number} and more" for number in range(11)]
    assert told[11:13] == ["-Xms8g", "-Xmx8g"]
    assert told[told.index("--driver-url") + 1] == environment["SPARK_DRIVER_URL"]
    classes = told[told.index("-cp") + 1].rpartition(":")[2].removesuffix("/*")
    assert any("kubernetes" in jar.name for jar in Path(classes).glob("spark-*.jar"))
    refused = subprocess.run(command, env={**environment, "SPARK_DRIVER_URL": ""}, capture_output=True, check=False)
    assert refused.returncode != 0


@pytest.mark.sdk
def test_the_google_side_is_well_formed_terraform() -> None:
    if shutil.which("terraform") is None:
        pytest.skip("terraform is not installed")
    command = ["terraform", "fmt", "-check", "-diff", ROOT / "k8s/terraform"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_google_side_names_what_the_settings_default_to() -> None:
    from ingestd.settings import Settings

    module = "\n".join(file.read_text() for file in sorted((ROOT / "k8s/terraform").glob("*.tf")))
    declared = set(re.findall(r'^resource "(\w+)" "(\w+)"', module, re.M))
    declared |= {(f"data.{kind}", name) for kind, name in re.findall(r'^data "(\w+)" "(\w+)"', module, re.M)}
    used = set(re.findall(r"(?<![\w.\"/])((?:data\.)?google_\w+)\.(\w+)", module))
    assert used <= declared
    assert set(re.findall(r"\bvar\.(\w+)", module)) == set(re.findall(r'^variable "(\w+)"', module, re.M))
    defaults = Settings(project="play").subscriptions
    assert {defaults.notifications, defaults.completions} == {"ingestd-notifications", "ingestd-completions"}
    assert 'name                       = "ingestd-${each.key}"' in module


@pytest.mark.parametrize(
    ("events", "right"),
    [(None, True), (["OBJECT_FINALIZE", "OBJECT_DELETE"], True), (["OBJECT_DELETE"], False), ([], False)],
)
@pytest.mark.sdk
def test_terraform_refuses_notifications_that_tell_of_no_new_files(
    events: list[str] | None, right: bool, tmp_path: Path
) -> None:
    """Variables alone are planned without a provider."""
    if shutil.which("terraform") is None:
        pytest.skip("terraform is not installed")
    shutil.copy(ROOT / "k8s/terraform/variables.tf", tmp_path)
    told = [] if events is None else [f"-var=event_types={json.dumps(events)}"]
    command = ["terraform", f"-chdir={tmp_path}", "plan", "-input=false", "-no-color", "-var=project=p", *told]
    environment = {**os.environ, "CHECKPOINT_DISABLE": "1"}
    planned = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (planned.returncode == 0) is right, planned.stdout + planned.stderr
    assert right or "Without OBJECT_FINALIZE nobody tells of new files" in planned.stderr


def test_notifications_are_the_same_by_hand_and_by_terraform_and_never_missing() -> None:
    module = (ROOT / "k8s/terraform/main.tf").read_text()
    resource = module.partition('resource "google_storage_notification" "trigger"')[2].partition("\n}")[0]
    assert re.search(r"event_types += var\.event_types$", resource, re.M)
    assert "create_before_destroy = true" in resource, "other event types replace it: nothing may be missed meanwhile"
    variables = (ROOT / "k8s/terraform/variables.tf").read_text()
    default = re.findall(r'variable "event_types" \{.*?default += \[(.*?)\]', variables, re.S)
    page = (ROOT / "docs/deployment.md").read_text()
    assert re.findall(r"--event-types=(\S+) --skip-topic-setup", page) == ["OBJECT_FINALIZE"]
    assert default == ['"OBJECT_FINALIZE"']


@pytest.mark.parametrize(
    ("page", "promise"),
    [
        ("success-convention.md", "deleting the `_bqlock`"),
        ("success-convention.md", "saving the mended file"),
        ("migration-from-gcs_ocn_bq_ingest.md", "`OBJECT_DELETE`"),
    ],
)
def test_where_a_deletion_is_promised_to_mean_something_it_says_that_it_must_be_told(page: str, promise: str) -> None:
    """The notification that the page for deployments makes carries no deletions."""
    assert "\n### Deletions\n" in (ROOT / "docs/deployment.md").read_text()
    paragraphs = (ROOT / "docs" / page).read_text().split("\n\n")
    assert [one for one in paragraphs if promise in one and "deployment.md#deletions" in one], f"docs/{page}"


def test_rights_are_given_only_on_what_terraform_makes_or_is_told_of() -> None:
    """A right on a dataset that nobody made fails the whole apply, in a new project."""
    module = "\n".join(file.read_text() for file in sorted((ROOT / "k8s/terraform").glob("*.tf")))
    granted = re.findall(r'^resource "google_\w+_iam_member" "(\w+)" \{\n(.*?)^\}', module, re.M | re.S)
    assert len(granted) > 10
    for name, body in granted:
        values = dict(re.findall(r"^  (\w+) += (.+)$", body, re.M))
        kinds = ("dataset_id", "bucket", "topic", "subscription", "service_account_id", "project")
        on = next(values[kind] for kind in kinds if kind in values)
        source = values["for_each"] if on.startswith("each.") else on
        known = ("local.editable", "var.side_input_datasets", "var.project")  # made, or said to be there
        assert "google_" in source or source in known, (name, source)


def test_no_package_index_is_named_anywhere() -> None:
    """Everybody installs from the index of their own machine."""
    for name in ("Makefile", "Dockerfile", "pyproject.toml", "constraints.txt", "tools/setup", ".ci/run"):
        text = (ROOT / name).read_text()
        assert "index-url" not in text, name
        own = re.sub(r'^\w+ = "https://github\.com/example/ingestd.*"$', "", text, flags=re.M)
        assert "://" not in re.sub(r"\b(gs|sc)://", "", own), name


def test_every_constraint_is_an_exact_version() -> None:
    lines = (ROOT / "constraints.txt").read_text().split()
    assert lines
    assert all(line.count("==") == 1 for line in lines)
    names = [line.partition("==")[0].lower() for line in lines]
    assert names == sorted(names)
