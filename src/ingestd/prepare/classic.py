"""A session with a JVM of our own: `local[*]`, or the driver of a cluster (`spark://`, `yarn`, `k8s://`)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingestd.prepare.engine import Work
from ingestd.prepare.gateway import Jvm, forget_session, launch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE = 10.0


class ClassicEngine:
    def __init__(self, jvm: Jvm, session: "SparkSession") -> None:
        self._jvm = jvm
        self._session = session
        self._context = session.sparkContext
        self._beating: Any = session.sparkContext._jvm
        self.application = str(self._context.applicationId)

    @classmethod
    def open(cls, conf: Mapping[str, str], java_home: Path, timeout: float) -> "ClassicEngine":
        """Start a JVM and a session in it; what was there before is forgotten."""
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        forget_session()
        jvm, gateway = launch(conf, java_home, timeout)
        try:
            wanted = SparkConf(loadDefaults=False)
            for name, value in conf.items():
                wanted.set(name, value)
            context = SparkContext(conf=wanted, gateway=gateway)
            return cls(jvm, SparkSession(context))
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
        self._jvm.end(_PATIENCE)
        forget_session()

    def kill(self) -> None:
        self._jvm.kill()
        forget_session()
