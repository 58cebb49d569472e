"""The Kubernetes manifests: every overlay renders, is valid, asks for as little as it can, and says what is true."""

import re
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.deploy.pod_security import refusals
from tests.support.places import ROOT

from ingestd.settings import Settings
from ingestd.spark.session.sizes import share_out

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
    valid(render(f"overlays/{overlay}"), tmp_path)


def valid(text: str, folder: Path) -> None:
    file = folder / "all.yaml"
    file.write_text(text)
    command = [BIN / "kubernetes-validate", "-k", "1.32", "--strict", file]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("component", sorted(folder.name for folder in (ROOT / "k8s/components").iterdir()))
def test_a_component_can_be_taken_by_an_overlay(component: str, tmp_path: Path) -> None:
    assert "ingestd" in with_component(component, tmp_path)


def with_component(component: str, folder: Path) -> str:
    shutil.copytree(ROOT / "k8s", folder / "k8s")
    mine = folder / "k8s/overlays/mine"
    mine.mkdir()
    chosen = {"resources": ["../../base"], "components": [f"../../components/{component}"]}
    (mine / "kustomization.yaml").write_text(yaml.safe_dump(chosen))
    return render(str(mine))


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
    """A pod whose node's disk is over its share is evicted; a volume of its own the daemon measures by itself."""
    [scratch] = [one for one in pod(overlay)["volumes"] if one["name"] == "scratch"]
    [container] = pod(overlay)["containers"]
    told = {one["name"]: one.get("value") for one in container["env"]}.get("INGESTD_SPARK__SCRATCH_SIZE")
    if "ephemeral" in scratch:
        assert told is None and settings_of(overlay).spark.scratch_size is None
        return
    room, most = gib(scratch["emptyDir"]["sizeLimit"]), container["resources"]["limits"]["ephemeral-storage"]
    assert told is not None and 2 * gib(told) < room
    assert room < gib(most) <= AUTOPILOT_EPHEMERAL


AUTOPILOT_EPHEMERAL = 10  # GiB: Autopilot refuses a pod that asks for more


def gib(text: str) -> float:
    return float(text.removesuffix("iB").removesuffix("g").removesuffix("G").removesuffix("Gi"))


@overlays
def test_limits_are_what_the_pod_asks_for_where_too_little_would_end_it(overlay: str) -> None:
    """Cores without a limit would be the node's, and Spark would start as many workers; Autopilot lowers limits to
    requests, save for cores."""
    [container] = pod(overlay)["containers"]
    asked, most = container["resources"]["requests"], container["resources"]["limits"]
    assert asked["memory"] == most["memory"] and asked["ephemeral-storage"] == most["ephemeral-storage"]
    assert not share_out(int(most["cpu"]), int(gib(most["memory"])) * 1024**3, tasks=int(most["cpu"])).problem


@overlays
def test_kubernetes_adds_no_variables_that_look_like_settings(overlay: str) -> None:
    """The Service is called as the settings' prefix is: INGESTD_PORT=tcp://…"""
    assert pod(overlay)["enableServiceLinks"] is False


@overlays
def test_the_namespace_admits_every_pod_under_the_restricted_profile(overlay: str) -> None:
    assert refusals(pod(overlay)) == []


def executor() -> dict[str, Any]:
    """The pod that Spark makes its executors from."""
    held = [one["data"] for one in manifests("spark-cluster", "ConfigMap")]
    [text] = [files["executor.yaml"] for files in held if "executor.yaml" in files]
    template: dict[str, Any] = yaml.safe_load(text)
    return template


def test_the_namespace_admits_sparks_executors() -> None:
    """As Spark makes them: from the template, with an image and its settings."""
    template = executor()
    spec = template["spec"]
    assert refusals(spec) == []
    spec["volumes"] += [{"name": "conf", "configMap": {"name": "x"}}]
    assert refusals(spec) == []
    assert spec["enableServiceLinks"] is False and spec["automountServiceAccountToken"] is False
    [policy] = [one for one in manifests("spark-cluster", "NetworkPolicy") if one["metadata"]["name"] == "spark"]
    [selected] = policy["spec"]["podSelector"]["matchExpressions"]
    assert template["metadata"]["labels"]["app.kubernetes.io/name"] in selected["values"]


def test_the_driver_names_the_template_that_the_pod_mounts_and_an_address_that_executors_reach() -> None:
    conf = settings_of("spark-cluster").spark.conf
    [container] = pod("spark-cluster")["containers"]
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    file = Path(conf["spark.kubernetes.executor.podTemplateFile"])
    [volume] = [one for one in pod("spark-cluster")["volumes"] if one["name"] == mounts[str(file.parent)]]
    held = {one["metadata"]["name"]: one["data"] for one in manifests("spark-cluster", "ConfigMap")}
    assert file.name in held[volume["configMap"]["name"]]
    addresses = {one["name"]: one for one in container["env"]}
    for name in ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME"):
        assert addresses[name]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"


def test_a_node_of_the_documented_cluster_has_room_for_an_executor() -> None:
    """What does not fit into any node stays pending for ever, and nothing but the pod's own status says so."""
    page = (ROOT / "docs/deployment.md").read_text()
    [cores] = map(int, re.findall(r"--machine-type=e2-standard-(\d+)", page))
    conf = settings_of("spark-cluster").spark.conf
    asked = conf.get("spark.kubernetes.executor.request.cores", conf["spark.executor.cores"])
    reserved = 60 + 10 + 5 * (cores - 2)  # by GKE: 6 % of the first core, 1 % of the second, 0.5 % of the next two
    assert cores == 4, "the sum above is that of four cores"
    assert millicores(asked) <= 1000 * cores - reserved - SYSTEM_PODS
    memory = gib(conf["spark.executor.memory"]) + gib(conf["spark.executor.memoryOverhead"])
    assert memory <= 4 * cores - (1 + 0.8 + 0.8) - 0.1 - 1  # GKE's reserve of 16 GiB, for evictions, and for its pods


SYSTEM_PODS = (
    600  # millicores that GKE's own pods ask for: logs, metrics, metadata, network, on some nodes name resolution
)


def millicores(text: str) -> int:
    return int(text.removesuffix("m")) if text.endswith("m") else int(1000 * float(text))


def test_what_executors_shuffle_fits_into_what_their_pod_may_keep_on_the_nodes_disk() -> None:
    """Autopilot gives 1 GiB to a pod that names nothing, and evicts it when Spark spills more."""
    spec = executor()["spec"]
    [container] = spec["containers"]
    asked, most = (container["resources"][part]["ephemeral-storage"] for part in ("requests", "limits"))
    assert asked == most, "Autopilot lowers limits to requests"
    assert gib(most) <= AUTOPILOT_EPHEMERAL
    sizes = {one["name"]: gib(one["emptyDir"]["sizeLimit"]) for one in spec["volumes"] if "emptyDir" in one}
    assert sum(sizes.values()) < gib(most), "logs are on the same disk"
    mounted = {one["name"] for one in container["volumeMounts"]}
    spill = [name for name in sizes if name.startswith("spark-local-dir-")]  # else Spark adds one, of any size
    assert spill and mounted.issuperset(spill)
    assert sizes[spill[0]] > sum(sizes.values()) / 2


@pytest.mark.parametrize("tag", ["0.1.0", "7.7.7"])
def test_executors_run_the_image_of_the_daemon_which_is_named_once(tag: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "k8s", tmp_path / "k8s")
    chosen = tmp_path / "k8s/overlays/prod/kustomization.yaml"
    chosen.write_text(chosen.read_text().replace("newTag: 0.1.0", f"newTag: {tag}"))
    rendered = yaml.safe_load_all(render(str(tmp_path / "k8s/overlays/spark-cluster")))
    [deployment] = [one for one in rendered if one["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    [told] = [one["value"] for one in container["env"] if one["name"] == "INGESTD_SPARK__IMAGE"]
    assert told == container["image"]
    assert told.endswith(f":{tag}")


def egress(policy: dict[str, Any]) -> set[tuple[str, int]]:
    """What may be reached outside the namespace: blocks of addresses (all: "") and ports."""
    return {
        (block.get("ipBlock", {}).get("cidr", ""), port["port"])
        for one in policy["spec"]["egress"]
        for block in one.get("to", [{}])
        for port in one.get("ports", [])
        if "podSelector" not in block
    }


def test_executors_reach_what_the_daemon_reaches() -> None:
    """The metadata server, above all: without it they have no token."""
    policies = {one["metadata"]["name"]: one for one in manifests("spark-cluster", "NetworkPolicy")}
    assert egress(policies["ingestd"]) <= egress(policies["spark"])


def outward(rendered: str) -> list[dict[str, Any]]:
    """All that the daemon's pods may reach: policies add up."""
    policies = [one["spec"] for one in yaml.safe_load_all(rendered) if one and one["kind"] == "NetworkPolicy"]
    daemon = {"matchLabels": {"app.kubernetes.io/name": "ingestd"}}
    return [way for one in policies if one["podSelector"] == daemon for way in one.get("egress", [])]


def test_namespaces_that_carry_a_label_are_reached_on_every_port_once_the_component_is_taken(tmp_path: Path) -> None:
    """An OpenTelemetry collector's 4318, a Spark master's 7077 and 15002: the base lets none of them through."""
    before, after = outward(render("base")), outward(with_component("egress", tmp_path))
    assert {port["port"] for one in before for port in one["ports"]} == {53, 80, 443, 987, 988}
    assert [one for one in after if one not in before] == [
        {"to": [{"namespaceSelector": {"matchLabels": {"ingestd-egress": "allowed"}}}]}
    ]


def test_the_page_shows_a_policy_for_a_host_outside_the_cluster(tmp_path: Path) -> None:
    section = (
        (ROOT / "docs/deployment.md").read_text().partition("\n### What pods may reach\n")[2].partition("\n## ")[0]
    )
    [shown] = re.findall(r"^```yaml\n(.*?)^```$", section, re.M | re.S)
    valid(shown, tmp_path)
    assert outward(shown) == [{"to": [{"ipBlock": {"cidr": "10.20.0.7/32"}}], "ports": [{"port": 15002}]}]


def test_the_chart_adds_what_its_values_show_to_what_pods_may_reach(tmp_path: Path) -> None:
    """Without helm: the example is valid, and the template has it where egress ends. `test_helm.py` renders it."""
    values = (ROOT / "k8s/helm/ingestd/values.yaml").read_text()
    assert yaml.safe_load(values)["extraEgress"] == []
    [shown] = re.findall(r"^#   (extraEgress:\n(?:#   .*\n)+)", values, re.M)
    added = yaml.safe_load(shown.replace("\n#   ", "\n"))["extraEgress"]
    assert {port["port"] for one in added for port in one["ports"]} == {4318, 15002}
    template = (ROOT / "k8s/helm/ingestd/templates/network.yaml").read_text()
    head, addition, rest = template.partition("    {{- with .Values.extraEgress }}\n    {{- toYaml . | nindent 4 }}\n")
    assert addition and rest == "    {{- end }}\n"
    policy = yaml.safe_load(head.replace("{{ .Release.Namespace }}", "ingestd"))
    assert list(policy["spec"])[-1] == "egress", "what follows is more of it"
    policy["spec"]["egress"] += added
    valid(yaml.safe_dump(policy), tmp_path)


@pytest.mark.parametrize(
    ("page", "about"),
    [
        ("operations.md", "`tracing.endpoint`"),
        ("operations.md", "| `actions.allowed_hosts` |"),
        ("rules.md", "`actions.allowed_hosts`"),
        ("settings.md", "| `actions.allowed_hosts` |"),
        ("spark.md", "`sc://host:15002`"),
    ],
)
def test_where_a_setting_names_another_port_the_reader_learns_that_pods_do_not_reach_it(page: str, about: str) -> None:
    assert "\n### What pods may reach\n" in (ROOT / "docs/deployment.md").read_text()
    paragraphs = re.split(r"\n\n|\n(?=\|)", (ROOT / "docs" / page).read_text())
    told = [one for one in paragraphs if about in one and "deployment.md#what-pods-may-reach" in one]
    assert told, f"docs/{page} promises {about} and does not say what it takes on Kubernetes"


@overlays
def test_whoever_may_scrape_is_named_and_nobody_else_comes_in(overlay: str) -> None:
    for policy in manifests(overlay, "NetworkPolicy"):
        for way_in in policy["spec"]["ingress"]:
            assert way_in.get("from"), f"{policy['metadata']['name']} lets everybody in"
    assert settings_of(overlay).http.protect_metrics is False, (
        "the policy is what protects them; scrapers have no token"
    )
    names = {one["metadata"]["name"] for one in manifests(overlay, "NetworkPolicy")}
    assert ("ingestd-metrics" in names) is bool(manifests(overlay, "PodMonitoring"))


def test_the_console_is_opened_by_a_token_from_a_secret(tmp_path: Path) -> None:
    rendered = list(yaml.safe_load_all(with_component("console-token", tmp_path)))
    [deployment] = [one for one in rendered if one["kind"] == "Deployment"]
    spec = deployment["spec"]["template"]["spec"]
    [container] = spec["containers"]
    [file] = [Path(one["value"]) for one in container["env"] if one["name"] == "INGESTD_HTTP__TOKEN_FILE"]
    [mount] = [one for one in container["volumeMounts"] if one["mountPath"] == str(file.parent)]
    [volume] = [one for one in spec["volumes"] if one["name"] == mount["name"]]
    assert volume["secret"]["secretName"] == "ingestd-console"
    assert not [one for one in rendered if one["kind"] == "Secret"], "no token is in the repository"


def test_a_burst_of_spark_is_no_reason_for_more_replicas() -> None:
    [scaler] = manifests("prod", "HorizontalPodAutoscaler")
    assert [one["type"] for one in scaler["spec"]["metrics"]] == ["External"]


@pytest.mark.parametrize("file", SETTINGS, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_setting_named_in_a_manifest_exists(file: Path) -> None:
    Settings.model_validate(yaml.safe_load(file.read_text()))


@overlays
def test_every_environment_variable_of_the_pod_is_a_setting(overlay: str) -> None:
    [container] = pod(overlay)["containers"]
    for variable in container.get("env", []):
        name = variable["name"]
        if not name.startswith("INGESTD_"):
            assert name in ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME")
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


@overlays
def test_rules_live_in_one_place_which_the_google_side_names(overlay: str) -> None:
    """A bucket: what is put there counts within a minute, without a change of the deployment."""
    files = [one["data"].get("ingestd.yaml") for one in manifests(overlay, "ConfigMap")]
    [settings] = [yaml.safe_load(one) for one in files if one]
    assert settings["rules"]["url"] == f"gs://{settings['project']}-config/rules"
    assert not [one for one in pod(overlay)["volumes"] if "rules" in one["name"]]


def test_every_service_account_that_acts_as_the_daemon_is_bound_by_terraform() -> None:
    annotated = {
        f"{one['metadata']['namespace']}/{one['metadata']['name']}"
        for overlay in OVERLAYS
        for one in manifests(overlay, "ServiceAccount")
        if "iam.gke.io/gcp-service-account" in one["metadata"].get("annotations", {})
    }
    variables = (ROOT / "k8s/terraform/variables.tf").read_text()
    block = variables.partition('variable "kubernetes_service_accounts"')[2].partition("\n}")[0]
    assert annotated == {"ingestd/ingestd", "ingestd-dev/ingestd", "ingestd/spark-executor"}
    assert set(re.findall(r'"([\w-]+/[\w-]+)"', block)) == annotated
