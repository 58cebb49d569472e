"""Servers in processes of their own, for tests that kill them in the middle of their work."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def killable(*arguments: str) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """`python ARGUMENTS…`, which says its port first; the process, and that port."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, next(int(line) for line in process.stdout if line.strip().isdigit())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
