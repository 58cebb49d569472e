"""The Helm chart: the same objects as the kustomize base, and every value does what it says."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.places import ROOT

from ingestd.settings import Settings

CHART = ROOT / "k8s/helm/ingestd"

pytestmark = [
    pytest.mark.sdk,
    pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed"),
    pytest.mark.skipif(
        shutil.which("kubectl") is None, reason="kubectl is not installed; it renders the kustomization"
    ),
]

Objects = dict[tuple[str, str], dict[str, Any]]


def chart(*options: str) -> Objects:
    command = ["helm", "template", "ingestd", CHART, "--namespace", "ingestd", "--kube-version", "1.32.0", *options]
    return by_name(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def base() -> Objects:
    command = ["kubectl", "kustomize", ROOT / "k8s/base"]
    rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return by_name(re.sub(r"\bingestd-[a-z0-9]{10}\b", "ingestd", rendered))  # the hash of a generated ConfigMap


def by_name(text: str) -> Objects:
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text) if one}


def comparable(objects: Objects) -> Objects:
    """Settings as they are read, and without the checksum that stands for kustomize's hash."""
    for (kind, _), one in objects.items():
        if kind == "ConfigMap":
            one["data"] = {name: yaml.safe_load(text) for name, text in one["data"].items()}
        if kind == "Deployment":
            one["spec"]["template"]["metadata"]["annotations"].pop("checksum/config", None)
    return objects


def pod(objects: Objects) -> dict[str, Any]:
    spec: dict[str, Any] = objects["Deployment", "ingestd"]["spec"]["template"]["spec"]
    return spec


def settings(objects: Objects) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(objects["ConfigMap", "ingestd"]["data"]["ingestd.yaml"])
    return document


def test_the_chart_renders_what_the_base_has() -> None:
    helm, kustomize = comparable(chart()), comparable(base())
    assert sorted(helm) == sorted(kustomize)
    for name, wanted in kustomize.items():
        assert helm[name] == wanted, name


def test_values_reach_the_objects(tmp_path: Path) -> None:
    values = {
        "image": {"repository": "registry/ingestd", "tag": "1.2.3"},
        "replicas": 5,
        "settings": {"project": "p", "http": {"port": 8080}, "logging": {"level": "debug"}},
        "serviceAccount": {"annotations": {"iam.gke.io/gcp-service-account": "me@p"}},
        "resources": {"limits": {"memory": "9Gi"}},
        "scratch": "50Gi",
        "env": [{"name": "TZ", "value": "UTC"}],
    }
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    made = chart("--values", str(tmp_path / "values.yaml"))
    [container] = pod(made)["containers"]
    assert container["image"] == "registry/ingestd:1.2.3"
    assert container["resources"]["limits"]["memory"] == "9Gi"
    assert container["ports"][0]["containerPort"] == made["Service", "ingestd"]["spec"]["ports"][0]["port"] == 8080
    assert {"name": "TZ", "value": "UTC"} in container["env"]
    assert made["Deployment", "ingestd"]["spec"]["replicas"] == 5
    assert settings(made)["project"] == "p"
    assert settings(made)["logging"] == {"level": "debug"}
    annotations = made["ServiceAccount", "ingestd"]["metadata"]["annotations"]
    assert annotations["iam.gke.io/gcp-service-account"] == "me@p"
    claim = pod(made)["volumes"][1]["ephemeral"]["volumeClaimTemplate"]["spec"]
    assert claim["resources"]["requests"]["storage"] == "50Gi"


def test_an_autoscaler_may_own_the_replicas_and_somebody_else_the_namespace() -> None:
    made = chart("--set", "replicas=null", "--set", "createNamespace=false")
    assert "replicas" not in made["Deployment", "ingestd"]["spec"]
    assert ("Namespace", "ingestd") not in made


def test_rules_given_as_values_are_mounted_read_and_restart_the_pods(tmp_path: Path) -> None:
    sample = (ROOT / "config/rules/orders.yaml").read_text()
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({"rules": {"orders.yaml": sample}}))
    made = chart("--values", str(tmp_path / "values.yaml"))
    assert yaml.safe_load(made["ConfigMap", "ingestd-rules"]["data"]["orders.yaml"]) == yaml.safe_load(sample)
    [mount] = [one for one in pod(made)["containers"][0]["volumeMounts"] if one["name"] == "rules"]
    assert settings(made)["rules"]["url"] == mount["mountPath"]
    assert settings(made)["project"] == "my-project"
    assert checksum(made) != checksum(chart())


def test_pods_reach_what_the_values_name_besides_what_the_base_lets_out(tmp_path: Path) -> None:
    shown = re.findall(r"^#   (extraEgress:\n(?:#   .*\n)+)", (CHART / "values.yaml").read_text(), re.M)[0]
    values = yaml.safe_load(shown.replace("\n#   ", "\n"))
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    made = chart("--values", str(tmp_path / "values.yaml"))
    usual = chart()["NetworkPolicy", "ingestd"]["spec"]["egress"]
    assert made["NetworkPolicy", "ingestd"]["spec"]["egress"] == [*usual, *values["extraEgress"]]


def checksum(objects: Objects) -> str:
    annotations = objects["Deployment", "ingestd"]["spec"]["template"]["metadata"]["annotations"]
    return str(annotations["checksum/config"])


def test_the_chart_lints_and_has_the_programs_version() -> None:
    linted = subprocess.run(["helm", "lint", "--strict", CHART], capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout
    import ingestd

    described = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert described["version"] == described["appVersion"] == values["image"]["tag"] == ingestd.__version__


def test_the_command_that_the_readme_shows_renders_the_users_own() -> None:
    [shown] = re.findall(r"^```sh\n(.*?)^```$", (CHART / "README.md").read_text(), re.M | re.S)
    command = shown.replace("helm install", "helm template").replace("--create-namespace", "--kube-version 1.32.0")
    yours = {"IMAGE": "registry/ingestd", "PROJECT": "yours", "LOCATION": "EU", "PATH": os.environ["PATH"]}
    typed = ["bash", "-euo", "pipefail", "-c", command]
    made = by_name(subprocess.run(typed, cwd=ROOT, env=yours, capture_output=True, text=True, check=True).stdout)
    assert pod(made)["containers"][0]["image"] == "registry/ingestd:0.1.0"
    read = settings(made)
    assert (read["project"], read["rules"]["url"], read["jobs"]) == (
        "yours",
        "gs://yours-config/rules",
        {"location": "EU"},
    )
    assert Settings.model_validate(read).subscriptions.dead_letter_topic == "ingestd-dead-letter"
    annotations = made["ServiceAccount", "ingestd"]["metadata"]["annotations"]
    assert annotations == {"iam.gke.io/gcp-service-account": "ingestd@yours.iam.gserviceaccount.com"}
