"""`ingestd cloud` as a process, for tests that meet it as users do."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.waiting import ended


@dataclass
class Command:
    """A running `ingestd cloud`."""

    process: subprocess.Popen[str]
    state: Path
    started: float

    @property
    def endpoints(self) -> dict[str, str]:
        shown: dict[str, str] = json.loads((self.state / "endpoints.json").read_text())
        return shown

    def wait_until_ready(self) -> float:
        """Seconds until the process has said where it is."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if "Ctrl-C" in line:
                return time.monotonic() - self.started
        pytest.fail(f"the cloud ended with {ended(self.process)}")


@contextmanager
def cloud_command(state: Path, *options: str) -> Iterator[Command]:
    command = [sys.executable, "-m", "ingestd", "cloud", "--state", str(state), "--project", "play", *options]
    started = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        running = Command(process, state, started)
        try:
            running.wait_until_ready()
            yield running
        finally:
            if process.poll() is None:
                process.kill()
