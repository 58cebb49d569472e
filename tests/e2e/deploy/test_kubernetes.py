"""The Kubernetes manifests: every overlay renders, is valid, asks for as little as it can, and says what is true."""

import os
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from ingestd.settings import Settings

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
OVERLAYS = sorted(folder.name for folder in (ROOT / "k8s/overlays").iterdir())
SETTINGS = sorted((ROOT / "k8s").rglob("ingestd.yaml"))

pytestmark = pytest.mark.sdk
overlays = pytest.mark.parametrize("overlay", OVERLAYS)


@lru_cache
def render(folder: str) -> str:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed; it renders the kustomizations")
    command = ["kubectl", "kustomize", str(ROOT / "k8s" / folder)]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def manifests(overlay: str, kind: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(render(f"overlays/{overlay}")) if one["kind"] == kind]


def pod(overlay: str) -> dict[str, Any]:
    [deployment] = manifests(overlay, "Deployment")
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


@overlays
def test_an_overlay_is_valid(overlay: str, tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(render(f"overlays/{overlay}"))
    command = [BIN / "kubernetes-validate", "-k", "1.32", "--strict", file]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("component", ["prometheus-operator", "google-managed-prometheus", "autoscale-keda"])
def test_a_component_can_be_taken_by_an_overlay(component: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "k8s", tmp_path / "k8s")
    mine = tmp_path / "k8s/overlays/mine"
    mine.mkdir()
    chosen = {"resources": ["../../base"], "components": [f"../../components/{component}"]}
    (mine / "kustomization.yaml").write_text(yaml.safe_dump(chosen))
    assert "ingestd" in render(str(mine))


@overlays
def test_the_pod_runs_with_as_few_rights_as_it_can(overlay: str) -> None:
    spec = pod(overlay)
    [container] = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    [namespace] = manifests(overlay, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


@overlays
def test_only_spark_on_kubernetes_talks_to_the_api_server(overlay: str) -> None:
    assert pod(overlay)["automountServiceAccountToken"] is (overlay == "spark-cluster")
    assert bool(manifests(overlay, "RoleBinding")) is (overlay == "spark-cluster")


@overlays
def test_the_pod_is_given_longer_to_stop_than_the_daemon_takes(overlay: str) -> None:
    drain = settings_of(overlay).drain
    assert pod(overlay)["terminationGracePeriodSeconds"] > drain.total_seconds() + 5


@overlays
def test_probes_and_service_meet_the_port_that_the_daemon_serves(overlay: str) -> None:
    [container] = pod(overlay)["containers"]
    [port] = [one["containerPort"] for one in container["ports"] if one["name"] == "http"]
    assert port == settings_of(overlay).http.port
    assert {container[f"{kind}Probe"]["httpGet"]["port"] for kind in ("startup", "liveness", "readiness")} == {"http"}
    [service] = manifests(overlay, "Service")
    assert [one["targetPort"] for one in service["spec"]["ports"]] == ["http"]


@overlays
def test_changed_settings_restart_the_pods(overlay: str) -> None:
    """The names of generated ConfigMaps carry a hash, and the pod mounts them by it."""
    names = {one["metadata"]["name"] for one in manifests(overlay, "ConfigMap")}
    mounted = {volume["configMap"]["name"] for volume in pod(overlay)["volumes"] if "configMap" in volume}
    assert mounted == names
    assert all(len(name.rsplit("-", 1)[1]) == 10 for name in names)


def settings_of(overlay: str) -> Settings:
    [text] = [one["data"]["ingestd.yaml"] for one in manifests(overlay, "ConfigMap") if "ingestd.yaml" in one["data"]]
    return Settings.model_validate(yaml.safe_load(text))


@overlays
def test_fetched_files_leave_room_on_the_volume_for_prepared_ones_and_for_spill(overlay: str) -> None:
    """A pod whose volume is over its size is evicted, with every batch it has begun."""
    [size] = [one["emptyDir"]["sizeLimit"] for one in pod(overlay)["volumes"] if one["name"] == "scratch"]
    assert 2 * settings_of(overlay).spark.scratch_size < int(size.removesuffix("Gi")) * 1024**3


@pytest.mark.parametrize("file", SETTINGS, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_setting_named_in_a_manifest_exists(file: Path) -> None:
    Settings.model_validate(yaml.safe_load(file.read_text()))


@overlays
def test_every_environment_variable_of_the_pod_is_a_setting(overlay: str) -> None:
    [container] = pod(overlay)["containers"]
    for variable in container.get("env", []):
        name = variable["name"]
        if not name.startswith("INGESTD_"):
            assert name == "SPARK_LOCAL_IP"
            continue
        section: Any = Settings
        for part in name.removeprefix("INGESTD_").lower().split("__"):
            assert part in section.model_fields, name
            section = section.model_fields[part].annotation


def test_production_keeps_two_replicas_when_a_node_goes() -> None:
    [budget] = manifests("prod", "PodDisruptionBudget")
    [scaler] = manifests("prod", "HorizontalPodAutoscaler")
    assert budget["spec"]["maxUnavailable"] == 1
    assert scaler["spec"]["minReplicas"] >= 2
    [deployment] = manifests("prod", "Deployment")
    assert "replicas" not in deployment["spec"]


def test_the_rules_that_production_mounts_are_valid() -> None:
    folder = ROOT / "k8s/overlays/prod/rules"
    checked = subprocess.run(
        [BIN / "ingestd", "rules", "lint", folder], capture_output=True, text=True, check=False, env={**os.environ}
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
