"""A session with a JVM of our own: `local[*]`, or the driver of a cluster (`spark://`, `yarn`, `k8s://`)."""

import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from ingestd.spark.session.engine import Work
from ingestd.spark.session.gateway import Jvm, forget_session, launch
from ingestd.spark.session.spill import Spill
from ingestd.spark.session.startup import Startup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger(__name__)

_PATIENCE = 5.0


def _untold(record: logging.LogRecord) -> bool:
    """py4j prints the stack of what it tells us anyway, through the root logger."""
    return record.msg != "Exception while sending command."


def _server_broke(_request: Any, _client: Any) -> None:
    """PySpark's server for accumulators prints a stack when the JVM goes away: the supervisor tells of that."""
    if not isinstance(sys.exception(), EOFError | OSError):
        log.exception("spark.accumulators_broke")


class ClassicEngine:
    def __init__(self, jvm: Jvm, session: "SparkSession", spill: Spill) -> None:
        self._jvm = jvm
        self._session = session
        self._spill = spill
        self._context = session.sparkContext
        self._beating: Any = session.sparkContext._jvm
        self.application = str(self._context.applicationId)

    @classmethod
    def open(
        cls,
        conf: Mapping[str, str],
        java_home: Path,
        timeout: float,
        startup: Startup | None = None,
        spill: Spill | None = None,
    ) -> "ClassicEngine":
        """Start a JVM and a session in it; what was there before is forgotten. `spill` ends with the session."""
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        spill = spill or Spill()
        forget_session()
        logging.getLogger().addFilter(_untold)
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # it prints what it raises
        warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM")  # we tell of that ourselves
        try:
            jvm, gateway = launch(conf, java_home, timeout, startup or Startup())
        except BaseException:
            spill.remove()
            raise
        try:
            wanted = SparkConf(loadDefaults=False)
            for name, value in conf.items():
                wanted.set(name, value)
            context = SparkContext(conf=wanted, gateway=gateway)
            # Workers run what the daemon runs, not whatever `python3` is on somebody's PATH.
            context.pythonExec = conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON", sys.executable)
            if context._accumulatorServer is not None:
                context._accumulatorServer.handle_error = _server_broke  # type: ignore[assignment, method-assign]
            _without_checksum_files(context)
            spill.keep(Path(context._temp_dir))
            spill.check()
            return cls(jvm, SparkSession(context), spill)
        except BaseException:
            jvm.kill()
            forget_session()
            spill.remove()
            raise

    @property
    def session(self) -> "SparkSession":
        return self._session

    @property
    def pid(self) -> int:
        return self._jvm.pid

    @property
    def alive(self) -> bool:
        return self._jvm.alive

    def last_words(self) -> str:
        return self._jvm.last_words()

    @contextmanager
    def tagged(self, tag: str, pool: str) -> Iterator["SparkSession"]:
        context = self._context
        context.setLocalProperty("spark.scheduler.pool", pool)
        context.addJobTag(tag)
        try:
            # Views and SQL settings are the call's own; files, caches and executors are everybody's.
            yield self._session.newSession()
        finally:
            with suppress(Exception):  # a dead JVM has nothing to clear
                context.clearJobTags()
                context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]

    def cancel(self, tag: str) -> None:
        self._context.cancelJobsWithTag(tag)

    def beat(self) -> None:
        self._beating.java.lang.System.nanoTime()
        if self._context._jsc is None or self._context._jsc.sc().isStopped():
            raise ConnectionError("SparkContext was shut down")
        self._spill.check()

    def work(self) -> Work:
        tracker = self._context.statusTracker()
        jobs = len(tracker.getActiveJobsIds())
        if not jobs:
            return Work()
        stages = [info for number in tracker.getActiveStageIds() if (info := tracker.getStageInfo(number)) is not None]
        return Work(
            jobs=jobs,
            stages=len(stages),
            tasks=sum(stage.numTasks for stage in stages),
            tasks_done=sum(stage.numCompletedTasks for stage in stages),
            tasks_failed=sum(stage.numFailedTasks for stage in stages),
        )

    def close(self, patience: float = _PATIENCE) -> None:
        if self._jvm.alive:
            with suppress(Exception):
                self._session.stop()
        self._jvm.end(patience)
        forget_session()
        self._spill.remove()

    def kill(self) -> None:
        self._jvm.kill()
        forget_session()
        self._spill.remove()


def _without_checksum_files(context: Any) -> None:
    """Files on this machine's disk are checked when they are uploaded.

    Hadoop would put a checksum file beside each, and start a process to set its permissions.
    """
    local = context._jvm.org.apache.hadoop.fs.FileSystem.getLocal(context._jsc.hadoopConfiguration())
    local.setWriteChecksum(False)
