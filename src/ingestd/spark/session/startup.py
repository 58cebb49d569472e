"""A session that is being started, and how to call that off.

Starting blocks a thread for many seconds: on a JVM that comes up, then on Spark's first answers in it. Nothing can
reach into that thread, but its process can be killed from another one, and whatever waited for it fails at once.

Invariant: after `call_off`, no process of this start is left, whether it was there already or would have come later.
"""

import threading
from collections.abc import Callable

from ingestd.model.errors import Transient


class CalledOff(Transient):
    """Nobody wants the session any more."""

    def __init__(self) -> None:
        super().__init__("the start of Spark was called off")


class Startup:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kill: Callable[[], None] | None = None
        self._last_words: Callable[[], str] = str
        self._called_off = False

    def check(self) -> None:
        if self._called_off:
            raise CalledOff

    def began(self, kill: Callable[[], None], last_words: Callable[[], str] = str) -> None:
        """From now on there is a process: `kill` ends it, `last_words` tells what it printed.

        Both may be called more than once, and from any thread.
        """
        with self._lock:
            self._kill, self._last_words = kill, last_words
        if self._called_off:
            kill()
            raise CalledOff

    def call_off(self) -> None:
        """Blocks for a moment, until the process is gone."""
        with self._lock:
            self._called_off = True
            kill = self._kill
        if kill is not None:
            kill()

    def last_words(self) -> str:
        """What the process printed last; empty while there is none."""
        return self._last_words()
