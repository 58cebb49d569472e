"""Scenarios that kill sessions run in a process of their own: PySpark knows one session per process, and the tests'
shared one has to survive."""

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def run_scenario(name: str, *arguments: str, timeout: float = 150, **environ: str) -> None:
    """Run `main` of `tests.spark.scenarios.<name>`; its failed assertion is ours."""
    ended = subprocess.run(
        [sys.executable, "-m", f"tests.spark.scenarios.{name}", *arguments],
        cwd=PROJECT,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout[-2000:]}\n{ended.stderr[-6000:]}"
