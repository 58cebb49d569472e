"""A thousand deployments, each drawn from its seed: nothing lost, nothing doubled, nothing deleted early.

The seeds run in processes of their own, where coverage does not slow them down, beside all the other tests.
Longer runs: `make sim SEEDS=100000`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sim.real_bigquery import RealBigQuery
from tests.sim.seeds import Report, command, run_seeds
from tests.sim.sites import SITES

SEEDS = 1000
ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.xdist_group("seeds"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def report() -> Report:
    workers = min(2, os.cpu_count() or 1)
    arguments = ["-m", "tests.sim", "--seeds", str(SEEDS), "--workers", str(workers), "--json"]
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: os.nice(10),  # their time is virtual: they take what tests that watch the clock leave over
    )
    print(done.stdout, done.stderr)
    return Report.from_json(json.loads(done.stdout.splitlines()[-1]))


def test_a_thousand_seeds_hold_every_guarantee(report: Report) -> None:
    replays = [f"{problem}\n  replay: {command(seed)}" for seed, problem in sorted(report.failures.items())]
    assert report.seeds == SEEDS
    assert not replays, "\n".join(replays)


def test_replicas_died_after_every_kind_of_effect(report: Report) -> None:
    assert report.never_crashed_at == []
    assert set(report.effects) <= set(SITES), "a new kind of effect: add it to the sites that are crashed at"


def test_a_seed_repeats_exactly() -> None:
    told = [
        subprocess.run(
            [sys.executable, "-m", "tests.sim", "--seed", "33", "-v"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for salt in ("1", "2")
    ]
    assert len(told[0].splitlines()) > 100
    assert told[0] == told[1]


def test_the_local_clouds_own_bigquery_holds_some_of_the_seeds_too() -> None:
    report = run_seeds((2, 8, 10, 21, 25, 28, 45), bigquery=RealBigQuery)
    assert report.failures == {}
