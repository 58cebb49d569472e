"""A node for one pod: a network of its own with the local cloud in it, limits by cgroup, volumes on its disk.

Needs root. The pod's address is no loopback address, so that whoever asks for `/metrics` or a probe there comes from
outside, as a kubelet and a scraper do.
"""

import contextlib
import ctypes
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tests.support.e2e.cloud_process import Command
from tests.support.places import ROOT
from tests.support.waiting import eventually

ADDRESS = "10.77.0.2"
_CGROUPS = Path("/sys/fs/cgroup")
_CLONE_NEWNET = 0x40000000

T = TypeVar("T")


@dataclass
class Node:
    folder: Path
    name: str = field(default_factory=lambda: f"ingestd-{uuid.uuid4().hex[:8]}")
    cgroups: dict[str, Path] = field(default_factory=dict)

    @property
    def network(self) -> list[str]:
        """What a command is started with to be on this node's network."""
        return ["nsenter", f"--net=/run/netns/{self.name}"]  # `ip netns exec` would hide the cgroups

    def run(self, *command: str | Path, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """A command of the development environment, on this node's network."""
        return subprocess.run(
            [*self.network, *command],
            cwd=self.folder,
            env={**os.environ, **(environ or {})},
            capture_output=True,
            text=True,
            check=False,
        )

    def on_network(self, ask: Callable[[], T]) -> T:
        """`ask` in a thread that is on this node's network."""

        def join() -> None:
            with Path(f"/run/netns/{self.name}").open() as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")

        with ThreadPoolExecutor(1, initializer=join) as there:
            return there.submit(ask).result()

    def limit(self, memory: int, cores: float) -> None:
        """Make the groups that the pod will be in; nothing where cgroups are not this process's to change."""
        with contextlib.suppress(OSError):
            if (_CGROUPS / "cgroup.controllers").exists():
                group = self._group("", _CGROUPS)
                (group / "memory.max").write_text(str(memory))
                (group / "cpu.max").write_text(f"{int(cores * 100_000)} 100000")
                return
            (self._group("memory", _CGROUPS / "memory") / "memory.limit_in_bytes").write_text(str(memory))
            cpu = self._group("cpu", _CGROUPS / "cpu")
            (cpu / "cpu.cfs_period_us").write_text("100000")
            (cpu / "cpu.cfs_quota_us").write_text(str(int(cores * 100_000)))

    def _group(self, controller: str, parent: Path) -> Path:
        group = parent / self.name
        group.mkdir()
        self.cgroups[controller] = group
        return group

    def peak(self) -> int:
        """Bytes that the pod used at most, page cache included; 0 where that is not known."""
        for name in ("memory.peak", "memory.max_usage_in_bytes"):
            for group in self.cgroups.values():
                if (group / name).exists():
                    return int((group / name).read_text())
        return 0

    def kills(self) -> int:
        """How often the kernel ended something of the pod for its memory."""
        found = 0
        for group in self.cgroups.values():
            for name in ("memory.events", "memory.oom_control"):
                if (group / name).exists():
                    told = dict(line.split() for line in (group / name).read_text().splitlines())
                    found += int(told.get("oom_kill", 0))
        return found

    def disk(self, name: str, size: int) -> Path:
        """A volume of that size, with a file system of its own."""
        image, folder = self.folder / f"{name}.img", self.folder / name
        with image.open("wb") as file:
            file.truncate(size)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True, capture_output=True)
        folder.mkdir()
        subprocess.run(["mount", "-o", "loop", image, folder], check=True, capture_output=True)
        return folder


@contextlib.contextmanager
def node(folder: Path) -> Iterator[Node]:
    here = Node(folder)
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["ip", "netns", "add", here.name], check=True)
    try:
        for command in (["link", "set", "lo", "up"], ["addr", "add", f"{ADDRESS}/32", "dev", "lo"]):
            subprocess.run([*here.network, "ip", *command], check=True)
        yield here
    finally:
        for mounted in [one for one in folder.iterdir() if one.is_mount()]:
            subprocess.run(["umount", "--lazy", mounted], check=False)
        for group in here.cgroups.values():
            eventually(lambda group=group: not (group / "cgroup.procs").read_text(), f"{group} is still in use")
            group.rmdir()
        subprocess.run(["ip", "netns", "del", here.name], check=False)


@contextlib.contextmanager
def cloud(here: Node, project: str) -> Iterator[dict[str, str]]:
    """`ingestd cloud` of the development environment on the node's loopback; what its clients are told."""
    state = here.folder / "cloud"
    options = ["--state", str(state), "--project", project, "--provision"]
    command = [*here.network, sys.executable, "-m", "ingestd", "cloud", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            running: Any = Command(process, state, 0.0)
            running.wait_until_ready()
            found = running.endpoints
            yield {
                "STORAGE_EMULATOR_HOST": found["storage"],
                "PUBSUB_EMULATOR_HOST": found["pubsub"],
                "BIGQUERY_EMULATOR_HOST": found["bigquery"],
                "GOOGLE_CLOUD_PROJECT": project,
            }
        finally:
            process.terminate()
