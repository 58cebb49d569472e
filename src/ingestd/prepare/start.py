"""From settings to the daemon's Spark."""

import os
import tempfile
from pathlib import Path

from ingestd.prepare.classic import ClassicEngine
from ingestd.prepare.engine import Engine
from ingestd.prepare.java import find_java, runnable_home
from ingestd.prepare.masters import configuration
from ingestd.prepare.session import Spark
from ingestd.prepare.supervisor import Supervisor
from ingestd.prepare.warmup import warm_up
from ingestd.settings import Spark as SparkSettings


def spark_for(settings: SparkSettings) -> Spark:
    """The daemon's Spark, not started yet: that is done by its root task, when somebody wants it."""
    supervisor = Supervisor(
        lambda: open_engine(settings),
        warm_up if settings.warm_up else None,
        heartbeat=settings.heartbeat,
        heartbeat_timeout=settings.heartbeat_timeout,
        restart_first=settings.restart_first,
        restart_longest=settings.restart_longest,
    )
    return Spark(
        supervisor,
        max_jobs=settings.max_jobs,
        start_timeout=settings.start_timeout,
        allowed=settings.start != "never",
    )


def open_engine(settings: SparkSettings) -> Engine:
    """A session, up but cold. Blocks for many seconds."""
    java = find_java(os.environ)
    conf = configuration(settings, scratch_folder(settings))
    return ClassicEngine.open(conf, runnable_home(java, cache_folder(settings)), settings.start_timeout.total_seconds())


def scratch_folder(settings: SparkSettings) -> Path:
    folder = settings.scratch or Path(tempfile.gettempdir()) / f"ingestd-{os.getuid()}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def cache_folder(settings: SparkSettings) -> Path:
    if settings.cache:
        return settings.cache
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ingestd"
