"""Every overlay on a real Kubernetes: admitted, ready, and a test notification through it becomes rows.

`make cluster-test` runs this; it takes minutes, root, and programs that few machines have. What is missing is said.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.control_plane import NODE, ControlPlane, missing
from tests.cluster.overlay import google_kinds, volumes, write_overlay
from tests.support.places import ROOT

pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not os.environ.get("CLUSTER"), reason="takes minutes: make cluster-test"),
]
BIN = Path(sys.executable).parent
# What is uploaded before pods are replaced: files of each kind, and rows of each file.
_FILES, _ROWS = 6, 50
_DELETED = ("delete", "pods", "-l", "app.kubernetes.io/name=ingestd", "--wait=false")
_REPLACED = {
    "dev": _DELETED,
    "prod": ("rollout", "restart", "deployment/ingestd"),
    "spark-cluster": (*_DELETED, "--force", "--grace-period=0"),  # no time to drain
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    if lacking := missing():
        pytest.fail(f"for a cluster of its own this machine lacks: {', '.join(lacking)} (docs/deployment-proof.md)")
    with (
        tempfile.TemporaryDirectory(prefix="cluster-", dir="/var/tmp", ignore_cleanup_errors=True) as folder,
        ControlPlane(Path(folder)) as running,
    ):
        running.kubectl("apply", "-f", "-", stdin=google_kinds())
        running.kubectl("apply", "-f", "-", stdin=volumes(running.folder, 24))
        yield running


@pytest.fixture(scope="module")
def image(cluster: ControlPlane) -> str:
    """The image, as it is built from the Dockerfile, on the node under this name."""
    name = "localhost/ingestd:cluster"
    subprocess.run([ROOT / "tools/image", name], check=True)
    archive = cluster.folder / "ingestd.tar"
    subprocess.run(["buildah", "push", "-q", name, f"docker-archive:{archive}:{name}"], check=True)
    cluster.import_image(archive)
    archive.unlink()
    return name


class Cloud:
    """The local cloud on the cluster's node, reached by pods under the node's address."""

    def __init__(self, cluster: ControlPlane, project: str) -> None:
        self._cluster = cluster
        self.project = project
        self._state = cluster.folder / f"cloud-{project}-{len(list(cluster.folder.glob('cloud-*')))}"
        name = self._state.name
        command = [BIN / "ingestd", "cloud", "--state", self._state, "--project", project, "--provision"]
        self.process = cluster.run(name, command)
        cluster.await_("the cloud answers", (self._state / "endpoints.json").exists)
        text = (self._state / "env.sh").read_text()
        lines = [line.removeprefix("export ") for line in text.splitlines() if line.startswith("export ")]
        self._here = {key: value.strip("'\"") for key, _, value in (line.partition("=") for line in lines)}
        for variable in ("STORAGE_EMULATOR_HOST", "PUBSUB_EMULATOR_HOST", "BIGQUERY_EMULATOR_HOST"):
            port = self._here[variable].rpartition(":")[2].rstrip("/")
            listen = f"TCP-LISTEN:{port},bind={NODE},fork,reuseaddr"
            cluster.run(f"{name}-{port}", ["socat", listen, f"TCP:127.0.0.1:{port}"])

    @property
    def environment(self) -> dict[str, str]:
        """What a pod is told."""
        names = ("STORAGE_EMULATOR_HOST", "PUBSUB_EMULATOR_HOST", "BIGQUERY_EMULATOR_HOST")
        return {name: self._here[name].replace("127.0.0.1", NODE) for name in names}

    def ingestd(self, *arguments: str | Path) -> str:
        command = self._cluster.inside(BIN / "ingestd", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **self._here})
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def silence(self, bucket: str) -> None:
        """From now on nobody announces the bucket's objects but who publishes a notification."""
        configs = f"{self._here['STORAGE_EMULATOR_HOST']}/storage/v1/b/{bucket}/notificationConfigs"
        listed = subprocess.run(self._cluster.inside("curl", "-sf", configs), check=True, capture_output=True)
        for one in json.loads(listed.stdout)["items"]:
            subprocess.run(self._cluster.inside("curl", "-sf", "-X", "DELETE", f"{configs}/{one['id']}"), check=True)

    def objects(self, bucket: str, prefix: str) -> list[str]:
        listing = f"{self._here['STORAGE_EMULATOR_HOST']}/storage/v1/b/{bucket}/o?prefix={prefix}"
        listed = subprocess.run(self._cluster.inside("curl", "-sf", listing), check=True, capture_output=True)
        return [one["name"] for one in json.loads(listed.stdout).get("items", [])]

    def count(self, counted: str, table: str) -> int:
        row = json.loads(self.ingestd("query", "--json", f"SELECT {counted} AS n FROM {table}"))
        return int(row["n"])


@pytest.mark.parametrize("overlay", ["dev", "prod", "spark-cluster"])
def test_an_overlay_is_admitted_becomes_ready_and_loads_what_is_announced(
    cluster: ControlPlane, image: str, overlay: str, tmp_path: Path
) -> None:
    settings = yaml.safe_load((ROOT / f"k8s/overlays/{overlay}/ingestd.yaml").read_text())
    project = settings["project"]
    cloud = Cloud(cluster, project)
    samples = yaml.safe_load((ROOT / "config/samples/samples.yaml").read_text())
    cloud.ingestd("query", samples["Setup"])
    if settings["rules"]["url"].startswith("gs://"):
        for rule in sorted((ROOT / "config/rules").glob("*.yaml")):
            cloud.ingestd("cp", rule, f"{settings['rules']['url']}/{rule.name}")

    mine = write_overlay(tmp_path, overlay, cloud.environment)
    rendered = list(yaml.safe_load_all(cluster.kubectl("kustomize", mine)))
    [deployment] = [one for one in rendered if one["kind"] == "Deployment"]
    namespace = deployment["metadata"]["namespace"]
    cluster.tag_image(image, deployment["spec"]["template"]["spec"]["containers"][0]["image"])
    try:
        applied = cluster.kubectl("apply", "-k", mine)
        assert "violate" not in applied
        _rollout(cluster, namespace)

        bucket = f"gs://{project}-trigger"
        for file in samples["Files"]:
            if file.startswith(("orders/", "clicks/")):
                cloud.ingestd("cp", ROOT / "config/samples" / file, f"{bucket}/{file}")
        # Clicks are deduplicated within a window, and uploads may fall into several.
        for column, table in (("order_id", "shop.orders"), ("click_id", "shop.clicks")):
            counted, wanted = f"COUNT(DISTINCT {column})", samples["Rows"][table]
            cluster.await_(f"{wanted} rows in {table}", lambda c=counted, t=table, n=wanted: cloud.count(c, t) == n)

        if overlay == "spark-cluster":
            executors = [one["metadata"]["name"] for one in _pods(cluster, namespace, "ingestd-executor")]
            logs = "".join(cluster.kubectl("-n", namespace, "logs", name) for name in executors)
            assert f"Reading File path: {bucket}/clicks/" in logs

        _replace_pods_under_way(cluster, namespace, cloud, overlay, tmp_path)

        pod = _pods(cluster, namespace)[0]["metadata"]["name"]
        cloud.silence(f"{project}-trigger")
        wanted = cloud.count("COUNT(*)", "shop.orders") + 4
        cloud.ingestd("cp", ROOT / "config/samples/orders/2024-05-01.json", f"{bucket}/orders/again.json")
        publish = ["ingestd", "publish", "--config", "/etc/ingestd/ingestd.yaml", "--topic", "storage-notifications"]
        cluster.kubectl("exec", "-n", namespace, pod, "--", *publish, f"{bucket}/orders/again.json")
        cluster.await_("the announced file has its rows", lambda: cloud.count("COUNT(*)", "shop.orders") == wanted)
        if overlay == "spark-cluster":
            executors = _pods(cluster, namespace, "ingestd-executor")
            assert executors and all(one["status"]["phase"] == "Running" for one in executors)
        restarts = [
            status["restartCount"] for one in _pods(cluster, namespace) for status in one["status"]["containerStatuses"]
        ]
        assert set(restarts) == {0}
    finally:
        cluster.kubectl("delete", "namespace", namespace, "--timeout=120s", check=False)


def _replace_pods_under_way(cluster: ControlPlane, namespace: str, cloud: Cloud, overlay: str, folder: Path) -> None:
    """Every pod is replaced while batches run, in the overlay's way; each row is in its table once."""
    project = cloud.project
    trigger = f"{project}-trigger"

    def running() -> list[str]:
        return cloud.objects(f"{project}-ops", "journal/Running/")

    earlier = {table: cloud.count("COUNT(*)", table) for table in ("shop.orders", "shop.clicks")}
    for kind, column in (("orders", "order_id"), ("clicks", "click_id")):
        files = [folder / f"{kind}-{number}.json" for number in range(_FILES)]
        for number, file in enumerate(files):
            first = 1000 + _ROWS * number
            file.write_text("".join(f'{{"{column}": {first + row}}}\n' for row in range(_ROWS)))
        cloud.ingestd("cp", *files, f"gs://{trigger}/{kind}/")
    cluster.await_("a batch of clicks is under way", lambda: any("clicks" in one for one in running()))
    cluster.kubectl("-n", namespace, *_REPLACED[overlay])
    _rollout(cluster, namespace)
    cluster.await_("every file is loaded and deleted", lambda: not cloud.objects(trigger, "") and not running())
    added = {table: cloud.count("COUNT(*)", table) - rows for table, rows in earlier.items()}
    assert set(added.values()) == {_FILES * _ROWS}, added


def _pods(cluster: ControlPlane, namespace: str, name: str = "ingestd") -> list[dict[str, Any]]:
    """The pods of this name that are there to stay."""
    found = cluster.objects("pods", "-n", namespace, "-l", f"app.kubernetes.io/name={name}")
    return [one for one in found if "deletionTimestamp" not in one["metadata"]]


def _rollout(cluster: ControlPlane, namespace: str) -> None:
    told = cluster.kubectl(
        "-n", namespace, "rollout", "status", "deployment/ingestd", "--timeout=600s", check=False
    )  # fmt: skip
    if "successfully rolled out" not in told:
        described = cluster.kubectl("-n", namespace, "describe", "pods", check=False)
        logs = cluster.kubectl("-n", namespace, "logs", "deployment/ingestd", "--tail=40", check=False)
        raise AssertionError(f"{told}\n{described[-6000:]}\n{logs}")
