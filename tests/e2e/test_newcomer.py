"""What somebody meets who just cloned the repository: nothing installed, one command."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# What a developer's shell and this test run have and a newcomer's has not.
LEAKS = ("VIRTUAL_ENV", "PYTHON", "COV", "COVERAGE", "PYTEST", "INGESTD", "CLOUDSDK", "GOOGLE", "MAKE", "MFLAGS")


def newcomers_environment() -> dict[str, str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(LEAKS)}
    kept = [folder for folder in environ["PATH"].split(os.pathsep) if not folder.startswith(str(ROOT))]
    return {**environ, "PATH": os.pathsep.join(kept)}


@pytest.mark.newcomer
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("newcomer")
def test_a_fresh_clone_shows_rows_with_one_command(tmp_path: Path) -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is not a git checkout, so there is nothing to clone")
    clone = tmp_path / "a new folder" / "project"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True, timeout=60)
    started = time.monotonic()
    ended = subprocess.run(
        ["make", "demo"],
        cwd=clone,
        env=newcomers_environment(),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    print(f"make demo took {time.monotonic() - started:.0f} s")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "shop.orders has 7 rows" in ended.stdout
    assert "London" in ended.stdout
    assert (clone / ".venv" / "bin" / "ingestd").exists()
    # Nothing that the demo made is in the way of the next `git status`.
    status = ["git", "-C", str(clone), "status", "--porcelain"]
    assert subprocess.run(status, capture_output=True, text=True, check=True).stdout == ""
