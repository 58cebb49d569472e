"""Processes that tests start end with them, however those end."""

import ctypes
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Have this process killed when the one that started it is gone (Linux; nothing elsewhere)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Whether the process still runs; a zombie only waits for a parent that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
