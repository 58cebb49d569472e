"""Waiting in real time: for what takes as long as it takes, and for the right moment.

Waits follow progress. Whoever waits is patient for so long after the last change of what it sees; a state that was
there before is no change. Time in which the processes of the test could not run does not count (see `processor`): how
busy the machine is decides nothing. One far limit stops what moves and never arrives.
"""

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tests.support.processor import Usable

STILL = 150.0  # seconds without any change, on a machine that has nothing else to do
HOPELESS = 900.0  # seconds by the clock, whatever changes
_LOOK_EVERY = 1.0  # describing costs more than asking whether it is done

T = TypeVar("T")
What = str | Callable[[], Any]


class Patience:
    """Lasts as long as something changes; `look` says when there is none left."""

    def __init__(
        self,
        still: float = STILL,
        *,
        hopeless: float = HOPELESS,
        now: Callable[[], float] = time.monotonic,
        usable: Usable | None = None,
    ) -> None:
        self._allowed = still
        self._hopeless = hopeless
        self._now = now
        self._usable = usable or Usable(now)
        self._began = now()
        self._changed = self._began
        self._still = 0.0
        self._seen: set[str] = set()

    def look(self, state: object) -> str:
        """What ended the patience, when something did."""
        shown, now = repr(state), self._now()
        passed = self._usable.passed()
        if shown in self._seen:
            self._still += passed
        else:
            self._seen.add(shown)
            self._still, self._changed = 0.0, now
        if self._still > self._allowed:
            return f"nothing changed for {now - self._changed:.0f} s ({self._still:.0f} s of them usable)"
        if now - self._began > self._hopeless:
            return f"not after {now - self._began:.0f} s, though something changed {now - self._changed:.0f} s ago"
        return ""


def eventually(done: Callable[[], Any], what: What, *, signs: Callable[[], Any] | None = None, **limits: float) -> Any:
    """Look until it is so, and answer what was found.

    `what` says what is missing, or what there is. Progress is seen in that, or in `signs` where those cost less.
    """
    patience = Patience(**limits)
    pause, due = 0.02, 0.0
    while True:
        began = time.monotonic()
        if found := done():
            return found
        took = time.monotonic() - began
        if time.monotonic() >= due:
            if why := patience.look(_shown(signs or what)):
                raise AssertionError(f"{why}: {_shown(what)}")
            due = time.monotonic() + _LOOK_EVERY
        time.sleep(max(pause, min(took, _LOOK_EVERY)))  # who looks is not to be what keeps the machine busy
        pause = min(pause * 1.5, 0.2)


async def patiently(work: Awaitable[T], what: What, **limits: float) -> T:
    """What the work comes to; it is called off when nothing changes any more."""
    task = asyncio.ensure_future(work)
    patience = Patience(**limits)
    try:
        while not (await asyncio.wait((task,), timeout=_LOOK_EVERY))[0]:
            if why := patience.look(_shown(what)):
                raise AssertionError(f"{why}: {_shown(what)}")
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,), timeout=_LOOK_EVERY)


def ended(process: "subprocess.Popen[Any]", what: What = "", **limits: float) -> int:
    """The exit code of a process that is about to end."""
    eventually(lambda: process.poll() is not None, what or f"{process.args} has not ended", **limits)
    return int(process.returncode)


def _shown(what: What) -> Any:
    if not callable(what):
        return what
    try:
        return what()
    except Exception as error:  # noqa: BLE001 - what cannot be described now may be there in a moment
        return error


def early_in_a_window(seconds: int, room: float) -> None:
    """Wait until a window has begun that leaves this much time."""
    left = seconds - time.time() % seconds
    if left < room:
        time.sleep(left + 0.05)
