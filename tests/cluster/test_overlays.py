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

import pytest
import yaml
from tests.cluster.control_plane import NODE, ControlPlane, missing
from tests.cluster.overlay import ROOT, google_kinds, volumes, write_overlay

pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not os.environ.get("CLUSTER"), reason="takes minutes: make cluster-test"),
]
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    if lacking := missing():
        pytest.fail(f"for a cluster of its own this machine lacks: {', '.join(lacking)} (docs/deployment-proof.md)")
    with (
        tempfile.TemporaryDirectory(prefix="cluster-", dir="/var/tmp", ignore_cleanup_errors=True) as folder,
        ControlPlane(Path(folder)) as running,
    ):
        running.kubectl("apply", "-f", "-", stdin=google_kinds())
        running.kubectl("apply", "-f", "-", stdin=volumes(running.folder, 8))
        yield running


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image, as it is built from the Dockerfile."""
    subprocess.run([ROOT / "tools/image", "localhost/ingestd:cluster"], check=True)
    return tmp_path_factory.mktemp("image")


def _import(cluster: ControlPlane, folder: Path, name: str) -> None:
    file = folder / f"{name.replace('/', '_').replace(':', '_')}.tar"
    if not file.exists():
        command = ["buildah", "push", "-q", "localhost/ingestd:cluster", f"docker-archive:{file}:{name}"]
        subprocess.run(command, check=True)
        cluster.import_image(file)


class Cloud:
    """The local cloud on the cluster's node, reached by pods under the node's address."""

    def __init__(self, cluster: ControlPlane, project: str) -> None:
        self._cluster = cluster
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

    def count(self, counted: str, table: str) -> int:
        row = json.loads(self.ingestd("query", "--json", f"SELECT {counted} AS n FROM {table}"))
        return int(row["n"])


@pytest.mark.parametrize("overlay", ["dev", "prod", "spark-cluster"])
def test_an_overlay_is_admitted_becomes_ready_and_loads_what_is_announced(
    cluster: ControlPlane, archive: Path, overlay: str, tmp_path: Path
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
    _import(cluster, archive, deployment["spec"]["template"]["spec"]["containers"][0]["image"])
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
            cluster.await_(
                f"{wanted} rows in {table}", lambda c=counted, t=table, n=wanted: cloud.count(c, t) == n, 600
            )

        pod = cluster.objects("pods", "-n", namespace, "-l", "app.kubernetes.io/name=ingestd")[0]["metadata"]["name"]
        cloud.silence(f"{project}-trigger")
        cloud.ingestd("cp", ROOT / "config/samples/orders/2024-05-01.json", f"{bucket}/orders/again.json")
        publish = ["ingestd", "publish", "--config", "/etc/ingestd/ingestd.yaml", "--topic", "storage-notifications"]
        cluster.kubectl("exec", "-n", namespace, pod, "--", *publish, f"{bucket}/orders/again.json")
        wanted = samples["Rows"]["shop.orders"] + 4
        cluster.await_("the announced file has its rows", lambda: cloud.count("COUNT(*)", "shop.orders") == wanted, 300)
        if overlay == "spark-cluster":
            executors = cluster.objects("pods", "-n", namespace, "-l", "app.kubernetes.io/name=ingestd-executor")
            assert executors and all(one["status"]["phase"] == "Running" for one in executors)
        restarts = [
            status["restartCount"]
            for one in cluster.objects("pods", "-n", namespace, "-l", "app.kubernetes.io/name=ingestd")
            for status in one["status"]["containerStatuses"]
        ]
        assert set(restarts) == {0}
    finally:
        cluster.kubectl("delete", "namespace", namespace, "--timeout=120s", check=False)


def _rollout(cluster: ControlPlane, namespace: str) -> None:
    told = cluster.kubectl(
        "-n", namespace, "rollout", "status", "deployment/ingestd", "--timeout=600s", check=False
    )  # fmt: skip
    if "successfully rolled out" not in told:
        described = cluster.kubectl("-n", namespace, "describe", "pods", check=False)
        logs = cluster.kubectl("-n", namespace, "logs", "deployment/ingestd", "--tail=40", check=False)
        raise AssertionError(f"{told}\n{described[-6000:]}\n{logs}")
