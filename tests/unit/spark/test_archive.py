"""The archive of Spark's classes: used where it is, left alone where the user has a say, harmless when it is broken."""

import os
import subprocess
from pathlib import Path

import pytest

from ingestd.spark import archive
from ingestd.spark.session.java import Java, find_java

JAVA = Java(Path("/java"), "17.0.1")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    found = archive.place(JAVA)
    found.parent.mkdir(parents=True)
    found.write_bytes(b"classes")
    return found


def test_java_is_told_of_its_own_archive_alone(made: Path) -> None:
    assert archive.option(JAVA, "-Xmx1g") == f"-XX:SharedArchiveFile={made}"
    assert archive.option(Java(Path("/other"), "21.0.1"), "") == ""
    made.unlink()
    assert archive.option(JAVA, "") == ""


@pytest.mark.parametrize("theirs", ["-Xshare:off", "-Da=b -XX:SharedArchiveFile=/x", "-XX:ArchiveClassesAtExit=/x"])
def test_options_that_a_user_has_about_it_are_left_alone(made: Path, theirs: str) -> None:
    assert archive.option(JAVA, theirs) == ""


def test_java_goes_on_without_an_archive_that_is_none_of_its_own(made: Path) -> None:
    java = find_java(os.environ)
    ended = subprocess.run(
        [java.command, archive.option(JAVA, ""), "-version"], capture_output=True, timeout=120, check=False
    )
    assert ended.returncode == 0
