"""What somebody meets who just cloned the repository: nothing installed, one command."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from tests.support.e2e.environment import newcomers_environment
from tests.support.places import ROOT


@pytest.mark.newcomer
@pytest.mark.timeout(1800)
@pytest.mark.xdist_group("newcomer")
def test_a_fresh_clone_shows_rows_with_one_command(tmp_path: Path) -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is not a git checkout, so there is nothing to clone")
    clone = tmp_path / "a new folder" / "project"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    started = time.monotonic()
    ended = subprocess.run(
        ["make", "demo"],
        cwd=clone,
        env=newcomers_environment(),
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    print(f"make demo took {time.monotonic() - started:.0f} s")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "shop.orders has 7 rows" in ended.stdout
    assert "shop.clicks has 6 rows" in ended.stdout  # prepared on Spark
    assert "London" in ended.stdout
    assert (clone / ".venv" / "bin" / "ingestd").exists()
    # Nothing that the demo made is in the way of the next `git status`.
    status = ["git", "-C", str(clone), "status", "--porcelain"]
    assert subprocess.run(status, capture_output=True, text=True, check=True).stdout == ""
