"""What a container runtime does last: the mounts of one container, its user without any rights, its first process.

Run as root in namespaces of its own, with a plan as JSON (see `pod.py`); becomes the container's first process.
"""

import ctypes
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _LAST_CAPABILITY = 24, 38, 40


def main(plan: dict) -> None:
    root = Path(plan["root"])
    mount("--make-rprivate", "/")
    mount("--bind", root, root)
    inside = [(root / target.lstrip("/"), source, writable) for source, target, writable in plan["mounts"]]
    for target, source, _ in inside:  # the runtime makes missing ones before the root is closed
        if Path(source).is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
    for name in ("proc", "sys", "dev"):
        (root / name).mkdir(exist_ok=True)
    if plan["read_only"]:
        mount("-o", "remount,bind,ro", root)
    mount("-t", "proc", "proc", root / "proc")
    mount("-t", "sysfs", "-o", "ro", "sysfs", root / "sys")
    devices(root / "dev")
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", root / "sys/fs/cgroup")
    for source, target, _ in plan["cgroups"]:
        (root / target.lstrip("/")).mkdir(parents=True, exist_ok=True)
        mount("--bind", source, root / target.lstrip("/"))
    for target, source, writable in inside:
        mount("--bind", source, target)
        if not writable:
            mount("-o", "remount,bind,ro", target)
    os.chroot(root)
    os.chdir(plan["folder"])
    unprivileged(plan["user"], plan["group"], plan["groups"])
    os.execvpe(plan["command"][0], plan["command"], plan["environ"])


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *arguments], check=True)


def devices(folder: Path) -> None:
    mount("-t", "tmpfs", "-o", "mode=755,size=64k", "tmpfs", folder)
    for name, (major, minor) in _DEVICES.items():
        os.mknod(folder / name, stat.S_IFCHR | 0o666, os.makedev(major, minor))
        (folder / name).chmod(0o666)
    (folder / "fd").symlink_to("/proc/self/fd")
    (folder / "shm").mkdir()
    mount("-t", "tmpfs", "-o", "mode=1777,size=64m", "tmpfs", folder / "shm")


def unprivileged(user: int, group: int, groups: list[int]) -> None:
    kernel = ctypes.CDLL(None, use_errno=True)
    for capability in range(_LAST_CAPABILITY + 1):
        kernel.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.setgroups(groups)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    if kernel.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
