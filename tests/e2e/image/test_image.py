"""The image, built from the Dockerfile and run as the pods of each overlay would run it, against a local cloud.

Runs as root where buildah, debootstrap and kubectl are installed (`make image-test`); tools/image says what the base
images are there. What these tests cannot show (a registry, an API server, seccomp, Google itself) is listed in
docs/deployment-proof.md.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.e2e.image.node import Node, cloud, node
from tests.e2e.image.pod import Manifests, Pod, quantity, running
from tests.support.places import ROOT
from tests.support.waiting import STILL, eventually

pytestmark = [pytest.mark.xdist_group("image"), pytest.mark.timeout(2400)]

TAG = "localhost/ingestd:test"
SAMPLES = yaml.safe_load((ROOT / "config/samples/samples.yaml").read_text())
CONFIG = "/etc/ingestd/ingestd.yaml"


@pytest.fixture(scope="module")
def image() -> str:
    needed = ("buildah", "debootstrap", "ip", "nsenter", "unshare", "mkfs.ext4")
    missing = [name for name in needed if shutil.which(name) is None]
    if missing or os.getuid() != 0:
        pytest.skip(f"building the image needs root and {', '.join(missing) or 'nothing else'}: make image-test")
    built = subprocess.run([sys.executable, ROOT / "tools/image", TAG], capture_output=True, text=True, check=False)
    if built.returncode == os.EX_TEMPFAIL:
        pytest.skip(built.stderr.strip().splitlines()[0])
    assert built.returncode == 0, built.stderr
    return TAG


@pytest.fixture(scope="module")
def root(image: str) -> Iterator[Path]:
    """The image's files."""
    working = subprocess.run(["buildah", "from", "--pull-never", image], capture_output=True, text=True, check=True)
    name = working.stdout.strip()
    try:
        yield Path(
            subprocess.run(["buildah", "mount", name], capture_output=True, text=True, check=True).stdout.strip()
        )
    finally:
        subprocess.run(["buildah", "umount", name], capture_output=True, check=False)
        subprocess.run(["buildah", "rm", name], capture_output=True, check=False)


def test_nothing_of_the_machine_that_built_it_is_in_the_image(image: str, root: Path) -> None:
    """How package indexes are reached is the machine's business: settings, certificates, caches."""
    for name in ("etc/pip.conf", "etc/mavenrc", "root/.m2/settings.xml", "run/machine/ca-certificates.crt"):
        file = root / name
        assert not file.exists() or file.stat().st_size == 0, f"/{name}"
    for cache in ("root/.cache", "root/.m2/repository", "var/lib/apt/lists/auxfiles"):
        assert not (root / cache).exists(), f"/{cache}"
    told = json.loads(
        subprocess.run(
            ["buildah", "inspect", "--type", "image", image], capture_output=True, text=True, check=True
        ).stdout
    )["OCIv1"]["config"]
    own = {"PATH", "JAVA_HOME", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
    base = {"LANG", "GPG_KEY", "PYTHON_VERSION", "PYTHON_SHA256"}  # of the original, where it was fetched
    assert {one.partition("=")[0] for one in told["Env"]} <= own | base
    assert told["User"] == "10001"


def test_the_image_holds_the_connector_that_the_tests_use(root: Path) -> None:
    [jar] = root.glob("opt/ingestd/lib/python3.11/site-packages/pyspark/jars/gcs-connector*.jar")
    assert jar.stat().st_size > 10_000_000, "the shaded one brings what it needs"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Node]:
    with node(tmp_path / "node") as made:
        yield made


@pytest.fixture
def manifests(request: pytest.FixtureRequest) -> Manifests:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed; it renders the kustomizations")
    return Manifests.render(ROOT / "k8s/overlays" / request.param)


def ingestd(here: Node, environ: dict[str, str], *arguments: str | Path) -> str:
    """The command of the development environment, against the node's cloud."""
    done = here.run(sys.executable, "-m", "ingestd", *arguments, environ=environ)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def provide(here: Node, environ: dict[str, str], manifests: Manifests) -> None:
    """What docs/deployment.md tells an engineer to provide: tables, and rules in their bucket."""
    ingestd(here, environ, "query", SAMPLES["Setup"])
    rules = sorted((ROOT / "config/rules").glob("*.yaml"))
    ingestd(here, environ, "cp", *rules, f"{manifests.settings['rules']['url']}/")


def upload(here: Node, environ: dict[str, str], *names: str) -> None:
    bucket = f"gs://{environ['GOOGLE_CLOUD_PROJECT']}-trigger"
    for folder, files in itertools.groupby(names, lambda name: name.partition("/")[0]):
        ingestd(here, environ, "cp", *(ROOT / "config/samples" / file for file in files), f"{bucket}/{folder}/")


def rows(here: Node, environ: dict[str, str]) -> dict[str, int]:
    """Of every sample table. Clicks by their id: one that is in two files may fall into two windows."""
    counted = {table: "DISTINCT click_id" if table == "shop.clicks" else "*" for table in SAMPLES["Rows"]}
    asked = ", ".join(f"(SELECT COUNT({what}) FROM {table}) AS {table[5:]}" for table, what in counted.items())
    found = json.loads(ingestd(here, environ, "query", "--json", f"SELECT {asked}"))
    return {f"shop.{name}": int(count) for name, count in found.items()}


def started(pod: Pod) -> None:
    """Live and ready by the pod's own probes, as the kubelet asks them, within what they allow."""
    probe = pod.container["startupProbe"]
    allowed = max(STILL, probe["periodSeconds"] * probe["failureThreshold"])
    for kind in ("startupProbe", "readinessProbe"):
        path = pod.container[kind]["httpGet"]["path"]

        def passes(path: str = path) -> bool:
            assert not pod.ended, pod.said()[-6000:]
            answer = pod.get(path)
            return answer is not None and answer.status_code == 200

        eventually(
            passes, lambda path=path: (path, getattr(pod.get(path), "text", ""), pod.said()[-4000:]), still=allowed
        )


@pytest.mark.parametrize("manifests", ["dev", "prod"], indirect=True)
def test_a_pod_of_the_overlay_loads_the_samples_answers_its_commands_and_drains(
    manifests: Manifests, image: str, here: Node
) -> None:
    project = manifests.settings["project"]
    trigger = f"gs://{project}-trigger"
    with cloud(here, project) as environ:
        provide(here, environ, manifests)
        with running(manifests, image, here, environ) as pod:
            started(pod)
            upload(here, environ, *SAMPLES["Files"])
            # Spark takes longest, and each question is a process that would take from it.
            eventually(lambda: pod.ended or '"prepare.done"' in pod.said(), lambda: pod.said()[-4000:])
            complete = eventually(
                lambda: sum((found := rows(here, environ)).values()) >= sum(SAMPLES["Rows"].values()) and found,
                lambda: (rows(here, environ), pod.said()[-4000:]),
            )
            assert complete == SAMPLES["Rows"]
            assert '"prepare.done"' in pod.said(), "nothing was prepared on Spark"

            scraped = pod.get("/metrics")
            assert scraped is not None and "ingestd_spark_up 1.0" in scraped.text
            page = pod.get("/status")
            assert page is not None and page.status_code == 403, "the console is open to the cluster"

            for command in (
                ("doctor", "--config", CONFIG),
                ("status", "--config", CONFIG),
                ("explain", f"{trigger}/clicks/part-1.json", "--config", CONFIG),
                ("version",),
            ):
                done = pod.execute("ingestd", *command)
                assert done.returncode == 0, (command, done.stdout, done.stderr)
            upload(here, environ, "orders/2024-05-01.json")
            done = pod.execute("ingestd", "publish", f"{trigger}/orders/2024-05-01.json")
            assert done.returncode == 0, (done.stdout, done.stderr)

            assert here.kills() == 0
            limit = quantity(pod.container["resources"]["limits"]["memory"])
            print(f"peak {here.peak() / 1024**2:.0f} MiB of {limit / 1024**2:.0f}")
            code, seconds = pod.stop()
            assert code == 0, pod.said()[-4000:]
            assert seconds < pod.spec["terminationGracePeriodSeconds"]
            assert pod.complaints() == []


@pytest.mark.parametrize("manifests", ["spark-cluster"], indirect=True)
def test_a_pod_that_waits_for_executors_says_so_and_loads_what_needs_none(
    manifests: Manifests, image: str, here: Node
) -> None:
    """There is no API server here to ask for executors: `make cluster-test` has one."""
    project = manifests.settings["project"]
    with cloud(here, project) as environ:
        provide(here, environ, manifests)
        with running(manifests, image, here, environ) as pod:
            eventually(lambda: pod.ended or pod.get("/healthz") is not None, lambda: pod.said()[-4000:])
            assert not pod.ended, pod.said()[-6000:]
            upload(here, environ, "orders/2024-05-01.json", "orders/2024-05-02.json")
            eventually(
                lambda: rows(here, environ)["shop.orders"] >= SAMPLES["Rows"]["shop.orders"],
                lambda: pod.said()[-4000:],
            )
            ready = pod.get("/readyz")
            assert ready is not None and ready.status_code == 503 and "spark" in ready.text
            code, _ = pod.stop()
            assert code == 0, pod.said()[-4000:]
            assert pod.complaints() == []
