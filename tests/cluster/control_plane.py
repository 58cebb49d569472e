"""A real Kubernetes of one node, for as long as a test needs it, in a network namespace of its own.

Everything is the real thing: etcd, the API server with its admission (PodSecurity among it), controller manager,
scheduler, kubelet, kube-proxy, containerd and runc. What is missing on the machine is named by `missing()`; nothing is
downloaded. The namespace keeps its addresses from the machine's, and goes with everything in it.

What such a node does not have: nobody enforces NetworkPolicies (the bridge plugin does not), and there is no cloud
provider, so that Services of type LoadBalancer or volumes of a storage class stay pending.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml
from tests.cluster.certificates import Authority, Paper
from tests.support.waiting import eventually

NODE = "10.89.0.1"
_PODS = "10.88.0.0/16"
_SERVICES = "10.96.0.0/16"
_API = "10.96.0.1"
_SOCKET = "containerd.sock"
_COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "coredns")
_TOOLS = (
    "etcd",
    "containerd",
    "ctr",
    "runc",
    "kubectl",
    "ip",
    "nsenter",
    "iptables",
    "conntrack",
    "socat",
    "buildah",
    "gcc",
)
_PLUGINS = Path("/usr/lib/cni")


def binaries() -> Path:
    """Where Kubernetes' own programs are: `KUBERNETES_BIN`, else whatever PATH finds beside the kubelet."""
    if named := os.environ.get("KUBERNETES_BIN"):
        return Path(named)
    return Path(shutil.which("kubelet") or "/usr/local/bin/kubelet").parent


def missing() -> list[str]:
    """What this machine lacks for a cluster of its own."""
    folder = binaries()
    lacking = [name for name in _COMPONENTS if not (folder / name).exists()]
    lacking += [name for name in _TOOLS if shutil.which(name) is None]
    if not (_PLUGINS / "bridge").exists():
        lacking.append("containernetworking-plugins")
    if os.geteuid() != 0:
        lacking.append("root")
    return lacking


@dataclass
class ControlPlane:
    """The cluster. `with ControlPlane(folder) as cluster: cluster.kubectl("get", "nodes")`."""

    folder: Path
    name: str = field(default_factory=lambda: f"ingestd-{os.getpid()}")
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _ending: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._start()
        except BaseException:
            self._ending.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def inside(self, *command: str | Path) -> list[str]:
        """The command as one of the cluster's node (`ip netns exec` would hide the cgroups as well)."""
        return ["nsenter", f"--net=/run/netns/{self.name}", *map(str, command)]

    def kubectl(self, *arguments: str | Path, stdin: str | None = None, check: bool = True) -> str:
        done = subprocess.run(
            self.inside("kubectl", "--kubeconfig", self.folder / "admin.kubeconfig", *arguments),
            input=stdin, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(map(str, arguments))}: {done.stderr or done.stdout}")
        return done.stdout if not done.returncode else done.stderr

    def objects(self, *arguments: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", *arguments, "-o", "json"))["items"]
        return items

    def import_image(self, archive: Path) -> None:
        self._images("import", archive)

    def tag_image(self, name: str, other: str) -> None:
        self._images("tag", "--force", name, other)

    def _images(self, *arguments: str | Path) -> None:
        command = ["ctr", "--address", self.folder / _SOCKET, "-n", "k8s.io", "images", *arguments]
        subprocess.run(command, check=True, capture_output=True)

    def run(self, name: str, command: Sequence[str | Path], **environment: str) -> subprocess.Popen[bytes]:
        """Start a program on the node; it ends with the cluster, and its words are in `<name>.log`."""
        log = self._ending.enter_context((self.folder / f"{name}.log").open("wb"))
        process = subprocess.Popen(
            self.inside(*command), stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, **environment}, cwd=self.folder,
        )  # fmt: skip
        self._processes[name] = process
        self._ending.callback(_end, process)
        return process

    def await_(self, what: str, done: Callable[[], Any]) -> Any:
        """Look until it is so; a program of the cluster that ended is said at once, with its last words."""

        def looked() -> Any:
            if found := done():
                return found
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise AssertionError(f"{name} ended: {self.said(name)}")
            return None

        return eventually(looked, what, signs=lambda: {name: self.said(name) for name in self._processes})

    def said(self, name: str, most: int = 3000) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-most:]

    def _start(self) -> None:
        self._network()
        authority = Authority(self.folder / "papers")
        server = authority.issue("server", "kube-apiserver", hosts=(NODE, "127.0.0.1", _API, "kubernetes.default.svc"))
        tokens = authority.token_key()
        kubelet = authority.issue("kubelet", "system:node:node", "system:nodes", (NODE, "node"))
        users = {
            "admin": authority.issue("admin", "admin", "system:masters"),
            "kubelet": kubelet,
            "controller": authority.issue("controller", "system:kube-controller-manager"),
            "scheduler": authority.issue("scheduler", "system:kube-scheduler"),
            "proxy": authority.issue("proxy", "system:kube-proxy"),
        }
        for user, paper in users.items():
            self._kubeconfig(user, paper, authority)
        folder = binaries()
        self.run("etcd", ["etcd", "--data-dir", self.folder / "etcd", "--log-level", "warn"])
        self.run(
            "apiserver",
            [
                folder / "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--secure-port=6443",
                f"--advertise-address={NODE}", f"--service-cluster-ip-range={_SERVICES}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={tokens}", f"--service-account-signing-key-file={tokens}",
                "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
                "--kubelet-preferred-address-types=InternalIP",
                f"--client-ca-file={authority.certificate}",
                f"--tls-cert-file={server.certificate}", f"--tls-private-key-file={server.key}",
                f"--kubelet-client-certificate={users['admin'].certificate}",
                f"--kubelet-client-key={users['admin'].key}",
                f"--kubelet-certificate-authority={authority.certificate}",
            ],
        )  # fmt: skip
        self.await_("the API server is ready", lambda: self.kubectl("get", "--raw", "/readyz", check=False) == "ok")
        self.run(
            "controller-manager",
            [
                folder / "kube-controller-manager", f"--kubeconfig={self.folder / 'controller.kubeconfig'}",
                f"--service-account-private-key-file={tokens}", f"--root-ca-file={authority.certificate}",
                "--use-service-account-credentials=true", "--leader-elect=false",
            ],
        )  # fmt: skip
        self.run(
            "scheduler",
            [
                folder / "kube-scheduler", f"--kubeconfig={self.folder / 'scheduler.kubeconfig'}",
                "--leader-elect=false",
            ],
        )  # fmt: skip
        self._containers()
        self._kubelet(folder, kubelet, authority)
        self.run(
            "proxy",
            [
                folder / "kube-proxy", f"--kubeconfig={self.folder / 'proxy.kubeconfig'}", f"--cluster-cidr={_PODS}",
                "--hostname-override=node", "--conntrack-max-per-core=0",
            ],
        )  # fmt: skip
        (self.folder / "Corefile").write_text(
            f"cluster.local:53 {{\n  bind {NODE}\n  errors\n  kubernetes cluster.local {{\n"
            f"    kubeconfig {self.folder / 'admin.kubeconfig'}\n  }}\n}}\n"
        )
        self.run("dns", [folder / "coredns", "-conf", self.folder / "Corefile"])
        self.await_("the node is ready", self._node_is_ready)
        self._ending.callback(self._delete_pods)

    def _network(self) -> None:
        subprocess.run(["ip", "netns", "add", self.name], check=True)
        self._ending.callback(subprocess.run, ["ip", "netns", "delete", self.name], check=False)
        for line in (
            "ip link set lo up",
            "ip link add node0 type bridge",
            f"ip address add {NODE}/24 dev node0",
            "ip link set node0 up",
            # Services are found by rules that the kernel applies to routable destinations only.
            f"ip route add default via {NODE} dev node0",
            "sysctl -qw net.ipv4.ip_forward=1",
        ):
            subprocess.run(self.inside(*line.split()), check=True)

    def _kubeconfig(self, user: str, paper: Paper, authority: Authority) -> None:
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "here",
                    "cluster": {
                        "server": f"https://{NODE}:6443",
                        "certificate-authority": str(authority.certificate),
                    },
                }
            ],
            "users": [
                {
                    "name": user,
                    "user": {"client-certificate": str(paper.certificate), "client-key": str(paper.key)},
                }
            ],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": user}}],
            "current-context": "here",
        }
        (self.folder / f"{user}.kubeconfig").write_text(yaml.safe_dump(content))

    def _containers(self) -> None:
        networks = self.folder / "cni"
        networks.mkdir()
        bridge = {
            "cniVersion": "1.0.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "bridge", "bridge": "pods0", "isGateway": True, "ipMasq": True, "hairpinMode": True,
                    "ipam": {"type": "host-local", "ranges": [[{"subnet": _PODS}]],
                             "routes": [{"dst": "0.0.0.0/0"}], "dataDir": str(self.folder / "addresses")},
                },
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        }  # fmt: skip
        (networks / "10-pods.conflist").write_text(json.dumps(bridge))
        config = self.folder / "containerd.toml"
        config.write_text(
            f"""version = 2
root = "{self.folder / "containers"}"
state = "{self.folder / "containers-state"}"
[grpc]
  address = "{self.folder / _SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  # A pod may not raise its out-of-memory score on every machine that plays a node.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{_PLUGINS}"
    conf_dir = "{networks}"
"""
        )
        self.run("containerd", ["containerd", "--config", config])
        self._ending.callback(self._end_containers)
        self.await_("containerd answers", (self.folder / _SOCKET).exists)
        self.import_image(pause_archive(self.folder))

    def _kubelet(self, folder: Path, paper: Paper, authority: Authority) -> None:
        resolver = self.folder / "resolv.conf"
        resolver.write_text(f"nameserver {NODE}\n")
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": NODE,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(authority.certificate)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(paper.certificate),
            "tlsPrivateKeyFile": str(paper.key),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.name}",
            "containerRuntimeEndpoint": f"unix://{self.folder / _SOCKET}",
            "clusterDNS": [NODE],
            "clusterDomain": "cluster.local",
            "resolvConf": str(resolver),
            "failSwapOn": False,
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "evictionHard": {"memory.available": "200Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        }
        file = self.folder / "kubelet.yaml"
        file.write_text(yaml.safe_dump(config))
        for controller in Path("/sys/fs/cgroup").iterdir():
            if controller.name != "unified" and controller.is_dir():
                (controller / self.name).mkdir(exist_ok=True)
                self._ending.callback(_remove_groups, controller / self.name)
        self.run(
            "kubelet",
            [
                folder / "kubelet", f"--config={file}", f"--kubeconfig={self.folder / 'kubelet.kubeconfig'}",
                f"--root-dir={self.folder / 'kubelet'}", "--hostname-override=node", f"--node-ip={NODE}",
            ],
        )  # fmt: skip

    def _node_is_ready(self) -> bool:
        conditions = [one for node in self.objects("nodes") for one in node["status"].get("conditions", [])]
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def _delete_pods(self) -> None:
        self.kubectl("delete", "deployments,pods", "--all", "-A", "--grace-period=1", "--timeout=60s", check=False)

    def _end_containers(self) -> None:
        """Containers outlive containerd by design; here they must not."""
        found = subprocess.run(["pgrep", "-f", str(self.folder / _SOCKET)], capture_output=True, text=True, check=False)
        for pid in map(int, found.stdout.split()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            target = line.split()[1]
            if target.startswith(str(self.folder)):
                subprocess.run(["umount", "-l", target], check=False)


PAUSE = "registry.invalid/pause:local"
_PAUSE_SOURCE = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"


def pause_archive(folder: Path) -> Path:
    """The container that holds a pod's network together: a program that sleeps, in an image of its own."""
    source = folder / "pause.c"
    source.write_text(_PAUSE_SOURCE)
    root = folder / "pause"
    root.mkdir()
    subprocess.run(["gcc", "-static", "-o", root / "pause", source], check=True)
    archive = folder / "pause.tar"
    container = subprocess.run(["buildah", "from", "scratch"], check=True, capture_output=True, text=True)
    name = container.stdout.strip()
    subprocess.run(["buildah", "copy", "-q", name, root / "pause", "/pause"], check=True, capture_output=True)
    subprocess.run(["buildah", "config", "--entrypoint", '["/pause"]', "--user", "65535", name], check=True)
    command = ["buildah", "commit", "-q", "--rm", name, f"docker-archive:{archive}:{PAUSE}"]
    subprocess.run(command, check=True, capture_output=True)
    return archive


def _remove_groups(group: Path) -> None:
    """The cgroups that the kubelet made, the innermost first; one that somebody is in stays."""
    for folder in sorted((one for one in group.rglob("*") if one.is_dir()), reverse=True):
        with suppress(OSError):
            folder.rmdir()
    with suppress(OSError):
        group.rmdir()


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(15)
            return
