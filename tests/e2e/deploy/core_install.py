"""The wheel as the image has it: built from what the image copies, in an environment of its own without extras.

Its dependencies come from the package index once and are kept under `~/.cache/ingestd-test`, by what they follow from
(the requirements, the constraints, the interpreter). Every session takes its own copy of them (links, so it is quick)
and installs the wheel of the sources as they are now.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.e2e.environment import newcomers_environment
from tests.support.places import ROOT

from ingestd.spark.session.java import find_java

_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
_KEPT = timedelta(days=14)
_IMPORTED = "ingestd.app, ingestd.cli.main, ingestd.gcp.connect, ingestd.spark.start, pyspark.sql, pyspark.worker"


@dataclass(frozen=True, slots=True)
class CoreInstall:
    """An environment with ingestd and nothing that it does not ask for."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin/python"

    @property
    def command(self) -> Path:
        return self.folder / "bin/ingestd"

    def environ(self, **more: str) -> dict[str, str]:
        """A newcomer's, with the Java that the tests run on: where there is none, `tools/setup` brings one."""
        java = str(find_java(os.environ).home)
        return {**newcomers_environment(), "JAVA_HOME": java, "COLUMNS": "200", "TERM": "dumb", **more}

    def run(self, *arguments: str | Path, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.command, *arguments],
            cwd=cwd,
            env=self.environ(**environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )


def core_install(folder: Path) -> CoreInstall:
    """A new one in `folder`."""
    env = folder / "env"
    subprocess.run(["cp", "-a", "--link", _dependencies(folder), env], check=True)
    wheel = build_wheel(folder)
    # Nothing may be missing: with no index, pip refuses a wheel whose requirements are not all there.
    _pip(env, "install", "--no-index", wheel)
    _pip(env, "check")
    return CoreInstall(env)


def build_wheel(folder: Path) -> Path:
    """From a folder that holds what the Dockerfile copies, and nothing else."""
    build = folder / "build"
    build.mkdir()
    for line in re.findall(r"^COPY (?!--)(.+) \./\S*$", (ROOT / "Dockerfile").read_text(), re.M):
        for name in line.split():
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, build / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, build / name)
    wheels = folder / "wheels"
    subprocess.run([*_PIP, "wheel", "--no-deps", "--wheel-dir", wheels, "."], cwd=build, check=True)
    [wheel] = wheels.glob("*.whl")
    return wheel


def _dependencies(scratch: Path) -> Path:
    """The environment with the wheel's requirements in it, made where it is not there yet."""
    requirements: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    constraints = ROOT / "constraints.txt"
    made_from = "\n".join([sys.version, sys.base_prefix, _IMPORTED, *requirements, constraints.read_text()])
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ingestd-test"
    kept.mkdir(parents=True, exist_ok=True)
    env = kept / f"core-{hashlib.sha256(made_from.encode()).hexdigest()[:16]}"
    complete = env / "complete"
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            for old in kept.glob("core-*"):
                if old == env or not (old / "complete").exists() or _unused(old):
                    shutil.rmtree(old)
            venv.create(env, with_pip=False)
            wanted = scratch / "requirements.txt"
            wanted.write_text("\n".join(requirements))
            _pip(env, "install", "--no-compile", "-c", constraints, "-r", wanted)
            _compile(env)
        complete.touch()
    return env


def _compile(env: Path) -> None:
    """What ingestd imports, once for all copies: each would compile the same modules again."""
    environ = {**newcomers_environment(), "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([env / "bin/python", "-c", f"import {_IMPORTED}"], env=environ, cwd=env, check=True)


def _unused(env: Path) -> bool:
    """Whether no session has taken it for long: a gigabyte each is much to keep."""
    used = datetime.fromtimestamp((env / "complete").stat().st_mtime, UTC)
    return datetime.now(UTC) - used > _KEPT


def _pip(env: Path, *arguments: str | Path) -> None:
    subprocess.run([*_PIP, "--python", env / "bin/python", *arguments], check=True)
