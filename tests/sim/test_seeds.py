"""A thousand deployments, each drawn from its seed: nothing lost, nothing doubled, nothing deleted early.

The seeds run in processes of their own, where coverage does not slow them down, beside all the other tests.
Longer runs: `make sim SEEDS=100000`.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.sim import seeds
from tests.sim.real_bigquery import RealBigQuery
from tests.sim.scenario import draw
from tests.sim.scheduler import simulate
from tests.sim.seeds import Report, command, run_seeds
from tests.sim.sites import HOUSEKEEPING, RARE, SITES
from tests.support.children import end_with_parent
from tests.support.places import ROOT

SEEDS = 1000

# What stops the hopeless is a limit on the CPU of each seed; how fast the machine is, is not the question.
pytestmark = [pytest.mark.xdist_group("seeds"), pytest.mark.timeout(0)]


def _behind_and_with_us() -> None:
    os.nice(10)  # their time is virtual: they take what tests that watch the clock leave over
    end_with_parent()


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
        preexec_fn=_behind_and_with_us,
    )
    print(done.stdout, done.stderr)
    return Report.from_json(json.loads(done.stdout.splitlines()[-1]))


def test_a_thousand_seeds_hold_every_guarantee(report: Report) -> None:
    replays = [f"{problem}\n  replay: {command(seed)}" for seed, problem in sorted(report.failures.items())]
    assert report.seeds == SEEDS
    assert not replays, "\n".join(replays)


def test_replicas_died_after_every_kind_of_effect(report: Report) -> None:
    assert report.never_crashed_at == []
    assert set(report.effects) <= {*SITES, *RARE} | HOUSEKEEPING, (
        "a new kind of effect: add it to the sites that are crashed at"
    )


def test_a_seed_that_never_ends_is_a_failure_and_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "_HOPELESS", 0.02)
    assert run_seeds((5,)).failures == {5: "Hopeless: not over after 0.02 s of CPU"}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_workers_end_with_whoever_started_them() -> None:
    run = subprocess.Popen([sys.executable, "-m", "tests.sim", "--seeds", "100000", "--workers", "2"], cwd=ROOT)
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
    try:
        while run.poll() is None and len(found := children.read_text().split()) < 2:
            time.sleep(0.1)
    finally:
        run.kill()
        run.wait()
    assert len(found) == 2
    while any(_runs(child) for child in found):
        time.sleep(0.1)


def _runs(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


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


def test_a_seed_repeats_exactly_whatever_ran_before_it(tmp_path: Path) -> None:
    def story(seed: int, number: int) -> list[str]:
        told: list[str] = []
        with seeds.quiet():
            scenario = draw(seed, seeds.FEATURES)
            simulate(scenario, tmp_path / f"{number}", lambda who, what: told.append(f"{who} {what}"))
        return told

    first = [story(seed, seed) for seed in (31, 32, 33)]
    assert [story(seed, 100 + seed) for seed in (33, 32, 31)] == first[::-1]


def test_the_local_clouds_own_bigquery_holds_some_of_the_seeds_too() -> None:
    report = run_seeds((2, 8, 10, 21, 25, 28, 45), bigquery=RealBigQuery)
    assert report.failures == {}
