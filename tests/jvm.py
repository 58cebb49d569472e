"""The JVMs that tests start live for seconds: they compile little, and find Spark's classes read and verified.

`python -m tests.jvm` makes the archive that has them (`make test` does so once per environment): half a minute of CPU
time, and every JVM that finds it takes 7 s instead of 17 s until its first batch is done. Without it, or where it is
another Java's, a JVM reads the classes as ever.
"""

import shutil
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark.jsa"
_PATIENCE = 600.0  # seconds; writing 150 MB takes ten on a quiet machine

# Few rows and many plans: what the second compiler would gain is less than what it takes from the other tests.
_LITTLE = "-XX:TieredStopAtLevel=1"


def options() -> str:
    """What every JVM is started with; Spark takes it from SPARK_SUBMIT_OPTS, and cannot have spaces in it."""
    found = ARCHIVE.exists() and " " not in str(ARCHIVE)
    return f"{_LITTLE} -XX:SharedArchiveFile={ARCHIVE}" if found else _LITTLE


def make_archive(path: Path = ARCHIVE) -> None:
    """Whatever a session loads until its first batch is done."""
    from ingestd.prepare.classic import ClassicEngine
    from ingestd.prepare.masters import master
    from ingestd.prepare.start import open_engine
    from ingestd.prepare.warmup import warm_up
    from ingestd.settings import Spark as SparkSettings

    folder = Path(tempfile.mkdtemp(prefix="ingestd-archive-"))
    part = folder / "spark.jsa"
    conf = {"spark.driver.extraJavaOptions": f"{_LITTLE} -XX:ArchiveClassesAtExit={part}"}
    settings = SparkSettings(master="local[2]", heap=1024**3, scratch=folder, conf=conf)
    try:
        engine = open_engine(settings)
        assert isinstance(engine, ClassicEngine)
        try:
            warm_up(engine, master(settings), times=1, rows=100)
            engine.session.stop()
            engine._jvm.end(_PATIENCE)  # which writes it
        finally:
            engine.kill()
        shutil.move(part, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    make_archive()
