"""What this process may use of its machine: cores and memory, by the limits of its container where it has some.

Kubernetes sets a pod's limits as cgroup limits, of either version. Inside a container the mounted tree usually begins
at the container's own group; elsewhere (systemd, a test) the process's group is below the root, and each of its
ancestors may hold a limit. So every level between is read, and the smallest counts. One that cannot be read is none.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def usable_cores(cgroups: Path = _CGROUPS, own: Path = _OWN) -> int:
    """Whole cores, at least one. A part of a core is rounded up: it can be used, if not all of the time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder in _levels(cgroups, own, "cpu"):
        quota, period = _read(folder / "cpu.max").partition(" ")[::2]  # version 2: "400000 100000", or "max 100000"
        if not quota:
            quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")  # -1: no limit
        if quota.isdigit() and period.isdigit() and int(period):
            cores = min(cores, math.ceil(int(quota) / int(period)))
    return max(cores, 1)


def usable_memory(cgroups: Path = _CGROUPS, own: Path = _OWN) -> int:
    """Bytes: of the container where it has a limit, else of the machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for folder in _levels(cgroups, own, "memory"):
        limit = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes")
        if limit.isdigit():  # "max": no limit; version 1 says so with a number larger than any machine
            memory = min(memory, int(limit))
    return memory


def _levels(cgroups: Path, own: Path, controller: str) -> Iterator[Path]:
    """The folders whose limits hold for this process, as far as they are mounted here."""
    for line in _read(own).splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not controllers:
            root = cgroups
        elif controller in controllers.split(","):
            root = cgroups / controller
        else:
            continue
        folder = root / path.strip("/")
        yield from (level for level in (folder, *folder.parents) if level == root or root in level.parents)
    yield from (cgroups, cgroups / controller)


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
