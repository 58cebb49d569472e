"""A rendered Deployment as one running pod of the built image, the way a kubelet and its runtime would start it.

Taken from the manifests: user, groups, environment with the downward API, arguments, the read-only root, every volume
(a ConfigMap with its `..data` links), limits. Added as a kubelet adds them: the variables of every Service of the
namespace (even where the manifest asks for none of them), the service account's files. What differs from a node: no
seccomp profile, no user or IPC namespace of its own, and emulators' addresses in the environment.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from tests.e2e.image.node import ADDRESS, Node

PORT = 9090
_UNITS = {"": 1, "Ki": 1024, "Mi": 1024**2, "Gi": 1024**3, "m": 0.001}


def quantity(text: str) -> float:
    """A number as Kubernetes writes it: 6Gi, 500m, 4."""
    number, unit = re.fullmatch(r"([\d.]+)(\w*)", text).groups()  # type: ignore[union-attr]
    return float(number) * _UNITS[unit]


@dataclass(frozen=True)
class Manifests:
    """What `kubectl apply -k` would send."""

    documents: tuple[dict[str, Any], ...]

    @classmethod
    def render(cls, folder: Path) -> "Manifests":
        rendered = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True).stdout
        return cls(tuple(yaml.safe_load_all(rendered)))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in self.documents if one["kind"] == kind]

    @property
    def spec(self) -> dict[str, Any]:
        [deployment] = self.of("Deployment")
        found: dict[str, Any] = deployment["spec"]["template"]["spec"]
        return found

    @property
    def settings(self) -> dict[str, Any]:
        [text] = [one["data"]["ingestd.yaml"] for one in self.of("ConfigMap") if "ingestd.yaml" in one["data"]]
        found: dict[str, Any] = yaml.safe_load(text)
        return found


class Pod:
    """One container; `close` ends it whatever happens."""

    def __init__(self, manifests: Manifests, image: str, here: Node, environ: Mapping[str, str]) -> None:
        self._manifests, self._here = manifests, here
        self.spec = manifests.spec
        [self.container] = self.spec["containers"]
        self.log = here.folder / "pod.log"
        self._working = subprocess.run(
            ["buildah", "from", "--pull-never", image], capture_output=True, text=True, check=True
        ).stdout.strip()
        told = json.loads(_said("buildah", "inspect", "--type", "image", image))["OCIv1"]["config"]
        self.environ = dict(one.split("=", 1) for one in told["Env"])
        self.environ |= self._injected() | self._declared() | environ
        security = self.spec["securityContext"]
        self._user, self._group = security["runAsUser"], security["runAsGroup"]
        limits = self.container["resources"]["limits"]
        here.limit(int(quantity(limits["memory"])), quantity(limits["cpu"]))
        plan = {
            "root": _said("buildah", "mount", self._working),
            "read_only": self.container["securityContext"]["readOnlyRootFilesystem"],
            "mounts": [*self._etc(), *self._volumes()],
            "cgroups": [(str(group), f"/sys/fs/cgroup/{name}", False) for name, group in here.cgroups.items()],
            "user": self._user,
            "group": self._group,
            "groups": [security["fsGroup"]],
            "folder": told.get("WorkingDir") or "/",
            "command": [*self.container.get("command", told["Entrypoint"]), *self.container["args"]],
            "environ": self.environ,
        }
        (here.folder / "plan.json").write_text(json.dumps(plan))
        launcher = [sys.executable, "-I", Path(__file__).with_name("enter.py"), here.folder / "plan.json"]
        apart = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child"]
        named = ["sh", "-c", 'hostname "$1"; shift; exec "$@"', "sh", "ingestd-0"]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*_in_groups(here), *here.network, *apart, *named, *launcher],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _injected(self) -> dict[str, str]:
        """What every container is told of the Services around it."""
        services = [("kubernetes", 443), *((one["metadata"]["name"], PORT) for one in self._manifests.of("Service"))]
        found = {}
        for name, port in services:
            prefix, address = name.upper().replace("-", "_"), "10.96.0.1"
            found |= {
                f"{prefix}_SERVICE_HOST": address,
                f"{prefix}_SERVICE_PORT": str(port),
                f"{prefix}_SERVICE_PORT_HTTP": str(port),
                f"{prefix}_PORT": f"tcp://{address}:{port}",
                f"{prefix}_PORT_{port}_TCP": f"tcp://{address}:{port}",
                f"{prefix}_PORT_{port}_TCP_PROTO": "tcp",
                f"{prefix}_PORT_{port}_TCP_PORT": str(port),
                f"{prefix}_PORT_{port}_TCP_ADDR": address,
            }
        return {**found, "HOSTNAME": "ingestd-0"}

    def _declared(self) -> dict[str, str]:
        downward = {"metadata.name": "ingestd-0", "status.podIP": ADDRESS}
        return {
            one["name"]: one["value"] if "value" in one else downward[one["valueFrom"]["fieldRef"]["fieldPath"]]
            for one in self.container.get("env", [])
        }

    def _etc(self) -> Iterator[tuple[str, str, bool]]:
        """Files that the kubelet writes for every pod."""
        texts = {"hosts": f"127.0.0.1 localhost\n{ADDRESS} ingestd-0\n", "resolv.conf": "", "hostname": "ingestd-0\n"}
        for name, text in texts.items():
            (self._here.folder / name).write_text(text)
            yield str(self._here.folder / name), f"/etc/{name}", True
        if self.spec.get("automountServiceAccountToken"):
            [namespace] = self._manifests.of("Namespace")
            held = {"namespace": namespace["metadata"]["name"], "token": "nobody", "ca.crt": ""}
            folder = _projected(self._here.folder / "account", held)
            yield str(folder), "/var/run/secrets/kubernetes.io/serviceaccount", False

    def _volumes(self) -> Iterator[tuple[str, str, bool]]:
        maps = {one["metadata"]["name"]: one["data"] for one in self._manifests.of("ConfigMap")}
        volumes = {one["name"]: one for one in self.spec["volumes"]}
        for mount in self.container["volumeMounts"]:
            volume, folder = volumes[mount["name"]], self._here.folder / mount["name"]
            if "configMap" in volume:
                _projected(folder, maps[volume["configMap"]["name"]])
            elif "ephemeral" in volume:
                claim = volume["ephemeral"]["volumeClaimTemplate"]["spec"]
                folder = self._here.disk(mount["name"], int(quantity(claim["resources"]["requests"]["storage"])))
            else:
                assert "emptyDir" in volume, volume
                folder.mkdir()
            if "configMap" not in volume:
                os.chown(folder, 0, self.spec["securityContext"]["fsGroup"])
                folder.chmod(0o2777 if "emptyDir" in volume else 0o2775)
            yield str(folder), mount["mountPath"], not mount.get("readOnly", False)

    # While it runs

    @property
    def first(self) -> int:
        """The container's first process, by its number on this machine."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return int(children[0]) if children else self._process.pid  # before it has one

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def get(self, path: str, **headers: str) -> httpx.Response | None:
        """As a kubelet or a scraper asks: from outside. None while nobody listens."""
        url = f"http://{ADDRESS}:{PORT}{path}"
        try:
            return self._here.on_network(lambda: httpx.get(url, timeout=10, trust_env=False, headers=headers))
        except httpx.TransportError:
            return None

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """`kubectl exec`: in the container's namespaces, as its user, with its environment."""
        into = ["nsenter", "--target", str(self.first), "--mount", "--net", "--pid", "--uts", "--root", "--wd"]
        who = ["--setuid", str(self._user), "--setgid", str(self._group)]
        return subprocess.run(
            [*_in_groups(self._here), *into, *who, *command],
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def stop(self) -> tuple[int, float]:
        """SIGTERM, as when a pod is deleted: its exit code, and how long it took."""
        began = time.monotonic()
        os.kill(self.first, signal.SIGTERM)
        code = self._process.wait(self.spec["terminationGracePeriodSeconds"])
        return code, time.monotonic() - began

    def close(self) -> None:
        if not self.ended:
            # The first process of its namespace: everything in there ends with it. Once it has changed its user, the
            # kernel no longer ends it with its parent.
            for process in (self.first, self._process.pid):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        self._process.wait()
        for what in ("umount", "rm"):
            subprocess.run(["buildah", what, self._working], capture_output=True, check=False)

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def complaints(self) -> list[str]:
        """What no daemon may ever say: lines that are no events, and exceptions nobody expected."""
        return [line for line in self.said().splitlines() if not line.startswith("{") or '"exception":' in line]


@contextmanager
def running(manifests: Manifests, image: str, here: Node, environ: Mapping[str, str]) -> Iterator[Pod]:
    pod = Pod(manifests, image, here, environ)
    try:
        yield pod
    finally:
        pod.close()


def _projected(folder: Path, data: Mapping[str, str]) -> Path:
    """A ConfigMap as it is mounted: links to the newest version, so that all its files change at once."""
    version = folder / "..2026_11_17_00_00_00.1"
    version.mkdir(parents=True)
    for name, text in data.items():
        (version / name).write_text(text)
        (version / name).chmod(0o644)
        (folder / name).symlink_to(f"..data/{name}")
    (folder / "..data").symlink_to(version.name)
    return folder


def _in_groups(here: Node) -> Sequence[str]:
    """Start what follows under the pod's limits."""
    groups = " ".join(f"{group}/cgroup.procs" for group in here.cgroups.values())
    return ["sh", "-c", f'for group in {groups}; do echo $$ >"$group"; done; exec "$@"', "sh"]


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
