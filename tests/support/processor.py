"""How much of the time that passed a test's processes could use: a busy machine is slow, not wrong.

Linux tells of every thread how long it ran and how long it wanted to run and waited for a processor. Elsewhere all of
the time counts.
"""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Use(NamedTuple):
    ran: float  # seconds
    waited: float  # for a processor


def threads(pid: int) -> dict[int, Use]:
    """The threads of a process and of all it started, those included that have begun since the last look."""
    found: dict[int, Use] = {}
    left = [pid]
    while left:
        tasks: list[Path] = []
        with suppress(OSError):  # the process ended before we looked
            tasks = list(Path(f"/proc/{left.pop()}/task").iterdir())
        for task in tasks:
            with suppress(OSError):  # it ended while we looked
                ran, waited, _ = (task / "schedstat").read_text().split()
                found[int(task.name)] = Use(int(ran) / 1e9, int(waited) / 1e9)
                left += map(int, (task / "children").read_text().split())
    return found


class Usable:
    """A clock that runs slower the less the processes get of what they ask for; idle, they have all the time."""

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        look: Callable[[], Mapping[int, Use]] = lambda: threads(os.getpid()),
    ) -> None:
        self._now = now
        self._look = look
        self._at = now()
        self._uses = look()

    def passed(self) -> float:
        """Seconds since the last call, less those in which they waited for a processor."""
        at, uses = self._now(), self._look()
        ran = waited = 0.0
        for thread, use in uses.items():
            before = self._uses.get(thread, Use(0.0, 0.0))
            ran += max(0.0, use.ran - before.ran)
            waited += max(0.0, use.waited - before.waited)
        wall, self._at, self._uses = at - self._at, at, uses
        # Many threads wait at the same time: then what counts is the share of the wanted time that they got.
        return wall * (1 - waited / max(wall, ran + waited)) if wall > 0 else 0.0
