"""Whose a folder in scratch is, told by its name, so that what a dead process left is found and nothing else.

Scratch may be a disk that several machines share, and containers give the same numbers to one process after another:
an owner is a machine, a process there, and the moment it began. Of another machine's processes nothing can be known;
what they leave goes by its age.
"""

import os
import re
import socket
import time
from pathlib import Path

ABANDONED = 2 * 24 * 3600.0  # seconds without a change, of a folder whose owner cannot be asked


def mine() -> str:
    """This process, as the names of its folders tell it."""
    return f"{_host()}.{os.getpid()}.{_born(os.getpid())}"


def left_behind(folder: Path, owner: str) -> bool:
    """Whether nobody uses the folder any more that bears this owner's name."""
    host, _, process = owner.partition(".")
    pid, _, born = process.partition(".")
    if not pid.isdigit():
        return False
    if host == _host():
        return not (_alive(int(pid)) and born in ("", _born(int(pid))))
    try:
        return time.time() - folder.stat().st_mtime > ABANDONED
    except OSError:
        return False


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", socket.gethostname())


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _born(pid: int) -> str:
    """When the process began, in ticks; empty where that is not told."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
