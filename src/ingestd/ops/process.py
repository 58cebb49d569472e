"""The process as its node sees it: build, memory with everything it started, room on the scratch disk, loop lag.

`process_resident_memory_bytes` leaves out Spark's JVM and its Python workers, and those are what a pod is killed for.
All of it is read from /proc when Prometheus asks, which takes a few small files per process.
"""

import asyncio
import os
import platform
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from prometheus_client import Gauge, Histogram, Info

from ingestd import __version__

BUILD = Info("ingestd_build", "What runs here: its version, and Python's.")
MEMORY = Gauge(
    "ingestd_memory_bytes", "Resident memory: of the daemon, of Spark's JVM, of all else it started.", ["process"]
)
MEMORY_LIMIT = Gauge("ingestd_memory_limit_bytes", "What the container may use; without a limit, the machine's memory.")
SCRATCH = Gauge("ingestd_scratch_bytes", "The disk under spark.scratch: in use (by anybody), and its size.", ["what"])
LAG = Histogram(
    "ingestd_event_loop_lag_seconds",
    "By how much the event loop was late for a timer, once a second.",
    buckets=(0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 10, 60),
)
PROCESSES = ("daemon", "java", "other")

_EVERY = 1.0
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def expose(scratch: Path) -> None:
    """Let the metrics tell about this process, whenever they are asked."""
    BUILD.info({"version": __version__, "python": platform.python_version()})
    look = _Look()
    for process in PROCESSES:
        MEMORY.labels(process).set_function(partial(look.memory, process))
    MEMORY_LIMIT.set_function(memory_limit)
    for place, what in enumerate(("size", "used")):
        SCRATCH.labels(what).set_function(partial(_disk, scratch, place))


class _Look:
    """One walk through /proc serves all series of a scrape."""

    def __init__(self) -> None:
        self._at = -1.0
        self._found: dict[str, int] = {}

    def memory(self, process: str) -> int:
        now = time.monotonic()
        if now - self._at > 0.5 or self._at < 0:
            self._found, self._at = memory(), now
        return self._found.get(process, 0)


async def watch_loop() -> None:
    """Root task: how late is a timer that should ring every second?"""
    while True:
        due = time.monotonic() + _EVERY
        await asyncio.sleep(_EVERY)
        LAG.observe(max(0.0, time.monotonic() - due))


def memory(pid: int | None = None) -> dict[str, int]:
    """Resident bytes of a process (this one) and of what it started, and those started in turn."""
    own = os.getpid() if pid is None else pid
    found = {"daemon": _resident(own)}
    for child in _descendants(own):
        kind = "java" if _name(child) == "java" else "other"
        found[kind] = found.get(kind, 0) + _resident(child)
    return found


def memory_limit() -> int:
    """Of the container where there is one, else of the machine."""
    whole = _PAGE * os.sysconf("SC_PHYS_PAGES")
    for file in _LIMITS:
        text = _text(Path(file))
        if text.isdigit():
            whole = min(whole, int(text))
    return whole


def _descendants(pid: int) -> Iterator[int]:
    for task in _tasks(pid):
        for child in _text(task / "children").split():
            yield int(child)
            yield from _descendants(int(child))


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []  # it has ended meanwhile, or this is no Linux


def _resident(pid: int) -> int:
    fields = _text(Path(f"/proc/{pid}/statm")).split()
    return int(fields[1]) * _PAGE if len(fields) > 1 else 0


def _name(pid: int) -> str:
    return _text(Path(f"/proc/{pid}/comm"))


def _disk(folder: Path, place: int) -> int:
    """Size and use of the disk that the folder is on, or will be on."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder)[place]
    except OSError:
        return 0


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
