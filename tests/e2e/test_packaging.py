"""What is deployed: the image's recipe and the Kubernetes base."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed; it renders the kustomization")
    rendered = subprocess.run(["kubectl", "kustomize", str(ROOT / "k8s")], capture_output=True, check=True).stdout
    file = tmp_path_factory.mktemp("k8s") / "all.yaml"
    file.write_bytes(rendered)
    return file


def test_the_dockerfile_follows_good_practice() -> None:
    if not (BIN / "hadolint").exists():
        pytest.skip("hadolint is not installed for this platform")
    checked = subprocess.run([BIN / "hadolint", ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.sdk
def test_the_kubernetes_base_is_valid(manifests: Path) -> None:
    command = [BIN / "kubernetes-validate", "-k", "1.32", "--strict", manifests]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.sdk
def test_the_pod_runs_with_as_few_rights_as_it_can(manifests: Path) -> None:
    [deployment] = [one for one in yaml.safe_load_all(manifests.read_text()) if one["kind"] == "Deployment"]
    pod: dict[str, Any] = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]


@pytest.mark.sdk
def test_the_pod_is_given_longer_to_stop_than_the_daemon_takes(manifests: Path) -> None:
    from ingestd.settings import Settings

    [deployment] = [one for one in yaml.safe_load_all(manifests.read_text()) if one["kind"] == "Deployment"]
    grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > Settings(project="play").drain.total_seconds()


def test_no_package_index_is_named_anywhere() -> None:
    """Everybody installs from the index of their own machine."""
    for name in ("Makefile", "Dockerfile", "pyproject.toml", "constraints.txt", "tools/setup", ".ci/run"):
        text = (ROOT / name).read_text()
        assert "index-url" not in text, name
        assert "://" not in text.replace("gs://", ""), name


def test_every_constraint_is_an_exact_version() -> None:
    lines = (ROOT / "constraints.txt").read_text().split()
    assert lines
    assert all(line.count("==") == 1 for line in lines)
    assert lines == sorted(lines, key=str.lower)
