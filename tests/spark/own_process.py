"""Scenarios that kill sessions run in a process of their own: PySpark knows one session per process, and the tests'
shared one has to survive."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

from tests.support.children import end_with_parent
from tests.support.places import ROOT

HOPELESS = 1500.0  # seconds: what takes one on a quiet machine took minutes on a busy one


def run_scenario(name: str, *arguments: str, timeout: float = HOPELESS, **environ: str) -> None:
    """Run `main` of `tests.spark.scenarios.<name>`; its failed assertion is ours. Its JVMs end with it."""
    command = [sys.executable, "-m", f"tests.spark.scenarios.{name}", *arguments]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=end_with_parent,
    ) as process:
        try:
            said, complained = process.communicate(timeout=timeout)
            ended = process.returncode == 0
        except subprocess.TimeoutExpired:
            _kill_group(process)
            said, complained = process.communicate()
            ended = False
            complained += f"\nnot done after {timeout:g} seconds"
        finally:
            _kill_group(process)
    assert ended, f"{said[-4000:]}\n{complained[-6000:]}"


def _kill_group(process: "subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
