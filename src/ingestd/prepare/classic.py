"""A session with a JVM of our own: `local[*]`, or the driver of a cluster (`spark://`, `yarn`, `k8s://`)."""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from ingestd.prepare.class_archive import ClassArchive
from ingestd.prepare.engine import Work
from ingestd.prepare.gateway import Jvm, forget_session, launch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger(__name__)

_PATIENCE = 5.0
_WRITING_PATIENCE = 20.0  # the archive is a few hundred megabytes


def _untold(record: logging.LogRecord) -> bool:
    """py4j prints the stack of what it tells us anyway, through the root logger."""
    return record.msg != "Exception while sending command."


class ClassicEngine:
    def __init__(self, jvm: Jvm, session: "SparkSession", archive: ClassArchive | None = None) -> None:
        self._jvm = jvm
        self._archive = archive
        self._session = session
        self._context = session.sparkContext
        self._beating: Any = session.sparkContext._jvm
        self.application = str(self._context.applicationId)

    @classmethod
    def open(
        cls, conf: Mapping[str, str], java_home: Path, timeout: float, archive: ClassArchive | None = None
    ) -> "ClassicEngine":
        """Start a JVM and a session in it; what was there before is forgotten."""
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        forget_session()
        logging.getLogger().addFilter(_untold)
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # it prints what it raises
        jvm, gateway = launch(conf, java_home, timeout)
        try:
            wanted = SparkConf(loadDefaults=False)
            for name, value in conf.items():
                wanted.set(name, value)
            context = SparkContext(conf=wanted, gateway=gateway)
            # Workers run what the daemon runs, not whatever `python3` is on somebody's PATH.
            context.pythonExec = conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON", sys.executable)
            return cls(jvm, SparkSession(context), archive)
        except BaseException:
            jvm.kill()
            forget_session()
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

    def close(self) -> None:
        if self._jvm.alive:
            with suppress(Exception):
                self._session.stop()
        writing = self._archive is not None and self._archive.wanted
        if writing:
            log.info("spark.keeping_classes", why="so that the next start takes half the time")
        code = self._jvm.end(_WRITING_PATIENCE if writing else _PATIENCE)
        if self._archive is not None:
            self._archive.settle(code)
        forget_session()

    def kill(self) -> None:
        self._jvm.kill()
        if self._archive is not None:
            self._archive.settle(None)
        forget_session()
