"""Waiting in real time: for what takes as long as it takes, and for the right moment."""

import time
from collections.abc import Callable
from typing import Any


def eventually(done: Callable[[], Any], what: str | Callable[[], Any], seconds: float = 150.0) -> Any:
    """Look until it is so, and answer what was found; the deadline is only for what never happens."""
    deadline = time.monotonic() + seconds
    pause = 0.02
    while not (found := done()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not after {seconds:g} s: {what() if callable(what) else what}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)
    return found


def early_in_a_window(seconds: int, room: float) -> None:
    """Wait until a window has begun that leaves this much time."""
    left = seconds - time.time() % seconds
    if left < room:
        time.sleep(left + 0.05)
