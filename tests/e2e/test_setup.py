"""`make setup` on machines that are not quite ready."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.places import ROOT

# A Python whose `venv` cannot bring pip along, as Debian's without python3-venv. `CRIPPLED` says what else is missing.
STUB = f"""#!/bin/sh
case "$*" in
  *"-m venv --without-pip"*) case "$CRIPPLED" in *bare*) exit 1 ;; esac ;;
  *"-m venv"*) mkdir -p "$3" && echo "ensurepip is not available" && exit 1 ;;
  *"-m virtualenv"*) exit 1 ;;
  *"-m pip --python"*) case "$CRIPPLED" in *pip*) exit 1 ;; esac ; echo "$@" >> used ; exit 1 ;;
esac
exec {sys.executable} "$@"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files setup reads, in a folder of their own."""
    (tmp_path / "tools").mkdir()
    for name in ("tools/setup", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def setup(project: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHON")}
    return subprocess.run(
        ["tools/setup"], cwd=project, env={**kept, **environ}, capture_output=True, text=True, timeout=500, check=False
    )


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_python_that_is_too_old_is_named(project: Path) -> None:
    old = executable(project / "python3.9", '#!/bin/sh\n[ "$1" = -V ] && echo "Python 3.9.2" && exit 0\nexit 1\n')
    ended = setup(project, PYTHON=str(old))
    assert ended.returncode == 1
    assert ended.stderr == f"setup: PYTHON={old} is Python 3.9.2; ingestd needs Python 3.11 or newer\n"


def test_a_python_that_is_not_there_is_named(project: Path) -> None:
    ended = setup(project, PYTHON="python9.9")
    assert (ended.returncode, ended.stderr) == (1, "setup: PYTHON=python9.9 is not a command\n")


@pytest.mark.parametrize("crippled", ["bare", "pip"])
def test_a_missing_venv_module_is_explained_with_the_package_to_install(project: Path, crippled: str) -> None:
    python = executable(project / "python", STUB)
    ended = setup(project, PYTHON=str(python), CRIPPLED=crippled)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].endswith("(Debian: apt-get install python3-venv) and try again")
    assert not (project / ".venv").exists()


def test_a_venv_without_pip_gets_it_from_the_python_that_has_it(project: Path) -> None:
    python = executable(project / "python", STUB)
    setup(project, PYTHON=str(python))
    assert "-m pip --python .venv/bin/python install -q pip" in (project / "used").read_text()


def test_a_ready_environment_is_left_alone(project: Path) -> None:
    """Nothing is installed again until what it was made from changes."""
    bin_folder = project / ".venv" / "bin"
    bin_folder.mkdir(parents=True)
    executable(bin_folder / "ingestd", "#!/bin/sh\n")
    executable(bin_folder / "python", f'#!/bin/sh\n[ "$1" = -c ] || echo "$@" >> {project}/used\nexit 0\n')
    first = setup(project, PYTHON=sys.executable)
    assert (first.returncode, "pip install" in (project / "used").read_text()) == (0, True)
    (project / "used").unlink()
    second = setup(project, PYTHON=sys.executable)
    assert (second.returncode, second.stdout, second.stderr, (project / "used").exists()) == (0, "", "", False)
    (project / "constraints.txt").write_text("anything==1\n")
    setup(project, PYTHON=sys.executable)
    assert "pip install" in (project / "used").read_text()


@pytest.fixture
def no_browser(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine that has no Chromium, and no apt to get one with."""
    (tmp_path / "bin").mkdir()
    for name in ("bash", "timeout", "mktemp", "rm", "dirname", "id"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    return {
        "PATH": f"{tmp_path}/bin",
        "HOME": str(tmp_path),
        "PLAYWRIGHT_BROWSERS_PATH": f"{tmp_path}/browsers",
        "PLAYWRIGHT_DOWNLOAD_HOST": "http://127.0.0.1:9",
    }


def test_where_no_browser_can_be_had_one_line_says_so(no_browser: dict[str, str]) -> None:
    venv = Path(sys.executable).parents[1]
    command = [ROOT / "tools/browser", venv]
    ended = subprocess.run(command, env=no_browser, capture_output=True, text=True, timeout=500, check=False)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1
    assert "tests of the console's page are skipped" in ended.stderr


def test_tests_that_were_skipped_are_told_at_the_end_in_a_line(no_browser: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "0", "tests/e2e/console/test_page.py"]
    ended = subprocess.run(command, cwd=ROOT, env=no_browser, capture_output=True, text=True, timeout=500, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = [line for line in ended.stdout.splitlines() if line.startswith("skipped ")]
    assert len(lines) == 1, ended.stdout
    assert "no Chromium found" in lines[0]
    assert int(lines[0].split()[1].rstrip(":")) > 15
