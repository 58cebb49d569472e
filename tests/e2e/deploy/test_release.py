"""What a release needs: one version everywhere, a changelog that tells of it, workflows that are well formed."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from tests.support.places import ROOT

import ingestd

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yaml"))


def released(version: str, root: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, root / "tools/released", version]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_this_version_could_be_released() -> None:
    checked = released(ingestd.__version__)
    assert checked.returncode == 0, checked.stderr
    assert "### Added" in checked.stdout


def test_a_version_that_one_place_does_not_name_cannot(tmp_path: Path) -> None:
    for name in ("tools", "k8s", "docs", "src/ingestd/__init__.py", "pyproject.toml", "Dockerfile", "CHANGELOG.md"):
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    values = tmp_path / "k8s/helm/ingestd/values.yaml"
    values.write_text(values.read_text().replace(f"tag: {ingestd.__version__}", "tag: 0.0.9"))
    assert released(ingestd.__version__, tmp_path).stderr.strip() == (
        f"k8s/helm/ingestd/values.yaml names 0.0.9, not {ingestd.__version__}"
    )
    refused = released("9.9.9", tmp_path)
    assert refused.returncode == 1
    assert "CHANGELOG.md has no section" in refused.stderr


def test_the_addresses_of_the_project_are_one() -> None:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    home = urls["Repository"]
    assert all(one.startswith(home) for one in urls.values())
    alerts = (ROOT / "k8s/monitoring/alerts/alerts.yaml").read_text()
    assert {one.partition("/blob/")[0] for one in re.findall(r"https://\S+operations\.md", alerts)} == {home}


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_may_do_little_and_takes_strangers_actions_by_commit(file: Path) -> None:
    workflow = yaml.safe_load(file.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 90
        for action in (step["uses"] for step in job["steps"] if "uses" in step):
            assert action.startswith("actions/") or re.search(r"@[0-9a-f]{40}$", action), action
    steps = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    assert "make test" in steps, "CI runs what a newcomer runs"
    scanned = [step for job in workflow["jobs"].values() for step in job["steps"] if "trivy" in step.get("uses", "")]
    assert [one["with"]["exit-code"] for one in scanned] == ["1"], "a hole fails the build"


def test_workflows_are_well_formed() -> None:
    if shutil.which("actionlint") is None:
        pytest.skip("actionlint is not installed")
    checked = subprocess.run(["actionlint", *WORKFLOWS], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
