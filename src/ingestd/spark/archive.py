"""Spark's classes as a file that the JVM maps, instead of reading and linking thousands of them at every start.

`python -m ingestd.spark.archive` makes it: a session, a batch, and Java writes what it has loaded when it ends. The
set-up does so once per environment, in the environment's own folder. That halves what a cold session costs up to its
first batch. Java itself looks whether the file is of its own build and of these jars, and goes on without it when not;
a user who has options of their own about it (`-Xshare`, `-XX:SharedArchiveFile`) is left alone.
"""

import os
import re
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from ingestd.spark.session.java import Java

_THEIRS = re.compile(r"-Xshare|-XX:(?:SharedArchiveFile|ArchiveClassesAtExit)")
_PATIENCE = 300.0  # writing it takes seconds, or minutes where others want the cores
_TIMES, _ROWS = 2, 2_000


def place(java: Java) -> Path:
    """Where the archive of this environment is, for that Java."""
    return Path(sys.prefix) / "share" / "ingestd" / f"spark-{version('pyspark')}-java-{java.version}.jsa"


def option(java: Java, theirs: str) -> str:
    """What lets Java use it; empty where there is none."""
    found = place(java)
    if _THEIRS.search(theirs) or " " in str(found) or not found.is_file():
        return ""
    return f"-XX:SharedArchiveFile={found}"


def make(java: Java) -> Path:
    """Blocks for half a minute; raises what kept it from being made."""
    from ingestd.settings import Spark as SparkSettings
    from ingestd.spark.session.classic import ClassicEngine
    from ingestd.spark.session.masters import JAVA_OPTIONS, master
    from ingestd.spark.start import open_engine
    from ingestd.spark.warmup import warm_up

    target = place(java)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_suffix(f".{os.getpid()}")
    with tempfile.TemporaryDirectory(prefix="ingestd-archive-", ignore_cleanup_errors=True) as folder:
        options = {JAVA_OPTIONS: f"-XX:ArchiveClassesAtExit={draft}"}
        settings = SparkSettings(scratch=Path(folder), conf=options)
        engine = open_engine(settings)
        assert isinstance(engine, ClassicEngine)
        try:
            warm_up(engine, master(settings), times=_TIMES, rows=_ROWS)
            engine.close(_PATIENCE)
            draft.replace(target)  # complete, or not there
        finally:
            engine.kill()
            draft.unlink(missing_ok=True)
    return target


def _main() -> int:
    from ingestd.spark.session.java import find_java

    java = find_java(os.environ)
    if not place(java).is_file():
        make(java)
    print(place(java))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(_main())
