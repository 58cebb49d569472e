"""Every benchmark runs: with sizes that say nothing about speed, and all of its own checks."""

import json
import subprocess
import sys

import pytest
from bench.__main__ import names
from bench.tiny import TINY
from tests.support.places import ROOT


def test_every_benchmark_has_a_tiny_form() -> None:
    assert sorted(TINY) == names()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", names())
def test_the_benchmark_runs_and_ends_in_a_line_of_json(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.tiny", name], cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    table, last = done.stdout.rstrip().rsplit("\n", 1)
    assert table.strip()
    assert isinstance(json.loads(last), dict)
