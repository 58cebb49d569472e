"""Scenarios that kill sessions run in a process of their own: PySpark knows one session per process, and the tests'
shared one has to survive."""

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def run_scenario(name: str, *arguments: str, timeout: float = 150, **environ: str) -> None:
    """Run `main` of `tests.spark.scenarios.<name>`; its failed assertion is ours."""
    command = [sys.executable, "-m", f"tests.spark.scenarios.{name}", *arguments]
    with subprocess.Popen(
        command,
        cwd=PROJECT,
        env=os.environ | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            said, complained = process.communicate(timeout=timeout)
            ended = process.returncode == 0
        except subprocess.TimeoutExpired:
            process.kill()
            said, complained = process.communicate()
            ended = False
            complained += f"\nnot done after {timeout:g} seconds"
    assert ended, f"{said[-4000:]}\n{complained[-6000:]}"
