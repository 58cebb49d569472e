"""Take out guards one at a time, in a copy of the source, and see whether their tests notice.

python -m tests.mutants.run            all of them
python -m tests.mutants.run lease      those whose name has that word
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.guards import GUARDS, Guard
from tests.support.places import ROOT

SOON = 60.0  # seconds of the test's own work; a machine that is busy elsewhere is given more
HOPELESS = 600.0


@dataclass(frozen=True, slots=True)
class Outcome:
    caught: bool
    seconds: float  # of processor time
    said: str


def source_of(guard: Guard) -> str:
    return (ROOT / "src" / "ingestd" / guard.file).read_text()


def without(guard: Guard, folder: Path) -> Path:
    """A copy of the source without the guard; the path to put first."""
    copy = folder / "src"
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    text = source_of(guard)
    assert text.count(guard.text) == 1, f"{guard.file} has {text.count(guard.text)} times: {guard.text}"
    (copy / "ingestd" / guard.file).write_text(text.replace(guard.text, guard.without))
    return copy


def run(guard: Guard) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        path = without(guard, Path(folder))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
        command += ["-o", f"timeout={int(HOPELESS / 2)}", f"tests/{guard.test}"]
        environment = {**os.environ, "PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"}
        before = _children()
        started = time.monotonic()
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=HOPELESS, check=False
            )
        except subprocess.TimeoutExpired:
            return Outcome(caught=False, seconds=time.monotonic() - started, said="it hangs instead of failing")
        said = done.stdout[-3000:] + done.stderr[-1000:]
        # 1: tests failed. Anything else (nothing collected, a crash, an interruption) is no verdict.
        hung = "Timeout (>" in said
        return Outcome(done.returncode == 1 and not hung, _children() - before, said)


def _children() -> float:
    used = os.times()
    return used.children_user + used.children_system


def main() -> int:
    words = sys.argv[1:]
    chosen = [guard for guard in GUARDS if all(word in guard.name for word in words)]
    missed = []
    for guard in chosen:
        outcome = run(guard)
        late = outcome.seconds > SOON
        verdict = "caught" if outcome.caught and not late else "LATE" if outcome.caught else "SURVIVES"
        print(f"{verdict:8} {outcome.seconds:5.1f} s  {guard.name}  ({guard.test})", flush=True)
        if verdict != "caught":
            missed.append(guard.name)
            print(outcome.said, flush=True)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} guards are missed when they are gone")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
