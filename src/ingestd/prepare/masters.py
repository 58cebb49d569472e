"""Where Spark runs, and what follows from it: its configuration, and who fetches the files.

The defaults are for many small jobs: few shuffle partitions, files listed by the driver, small files packed together,
no web pages, and fair shares between batches. Whatever `spark.conf` says wins.
"""

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ingestd.model.errors import Fatal
from ingestd.settings import Spark as SparkSettings

_GIB = 1024**3
LOCAL_DIR = "spark.local.dir"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
# Expressions are translated for a session that fails on overflow and whose zone is UTC.
_SETTLED = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}


class Files(StrEnum):
    """Where Spark finds a batch's files and leaves its own."""

    LOCAL = "local"  # on this machine's disk: fetched before, uploaded after
    GS = "gs"  # in the buckets, through the Cloud Storage connector


class Kind(StrEnum):
    LOCAL = "local"  # driver and executors are one JVM of our own
    CLUSTER = "cluster"  # the driver is a JVM of our own, the executors are elsewhere
    CONNECT = "connect"  # everything is behind a Spark Connect server


@dataclass(frozen=True, slots=True)
class Master:
    url: str
    kind: Kind
    files: Files

    @property
    def cores(self) -> int:
        """How many tasks run at the same time on this machine; 0 where that is not ours to say."""
        if self.kind is not Kind.LOCAL:
            return 0
        inside = self.url.partition("[")[2].rstrip("]").partition(",")[0]
        if self.url.startswith("local-cluster"):
            return 0
        return usable_cores() if inside == "*" else int(inside or 1)


def master(settings: SparkSettings) -> Master:
    url = settings.master.strip()
    if url == "local" or url.startswith(("local[", "local-cluster[")):
        kind = Kind.LOCAL
    elif url.startswith(("spark://", "k8s://")) or url == "yarn":
        kind = Kind.CLUSTER
    elif url.startswith("sc://"):
        kind = Kind.CONNECT
    else:
        raise Fatal(f"spark.master: {url!r} is none of local[*], spark://…, yarn, k8s://… or sc://…")
    files = settings.files
    if files == "auto":
        files = "local" if kind is Kind.LOCAL else "gs"
    return Master(url, kind, Files(files))


def configuration(settings: SparkSettings, scratch: Path) -> dict[str, str]:
    """Everything a classic session is started with."""
    where = master(settings)
    partitions = where.cores or 200
    conf = {
        "spark.app.name": "ingestd",
        "spark.master": where.url,
        "spark.submit.deployMode": "client",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        **_SETTLED,
        "spark.sql.shuffle.partitions": str(partitions),
        # A listing as a Spark job costs more than the listing; so do many tasks for many small files.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
        "spark.sql.files.openCostInBytes": "65536",
        # A stable name of each written file's part, and no marker objects that a load could stumble over.
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Status of finished work is kept for a while only: the process lives for months.
        "spark.ui.retainedJobs": "100",
        "spark.ui.retainedStages": "100",
        "spark.ui.retainedTasks": "1000",
        "spark.sql.ui.retainedExecutions": "20",
    }
    if where.kind is Kind.LOCAL:
        conf |= {
            # The pipeline knows the sizes before it starts: planning again in the middle costs a fifth of small jobs.
            "spark.sql.adaptive.enabled": "false",
            # One sort of each row instead of two: without a network, sending duplicates on is cheaper than looking
            # for them twice.
            "spark.sql.optimizer.windowGroupLimitThreshold": "-1",
            # Over TCP a task's first bytes to its Python worker and back wait 40 ms for an acknowledgement.
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.driver.memory": f"{heap(settings) // 1024**2}m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            LOCAL_DIR: str(scratch),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        }
    if where.files is Files.GS:
        conf |= _storage_connector(os.environ.get("STORAGE_EMULATOR_HOST", ""))
    for name, value in _SETTLED.items():
        if settings.conf.get(name, value) != value:
            raise Fatal(f"spark.conf: {name} has to be {value}, since rules are translated for that; leave it out")
    theirs = settings.conf.get(_JAVA_OPTIONS, "")
    return conf | settings.conf | {_JAVA_OPTIONS: " ".join(filter(None, [*java_options(theirs), theirs]))}


def _storage_connector(emulator: str) -> dict[str, str]:
    """How Spark reaches buckets; the connector itself is a jar that the image or the cluster brings."""
    conf = {
        "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
    }
    if emulator:
        conf |= {
            "fs.gs.storage.root.url": emulator if "://" in emulator else f"http://{emulator}",
            "fs.gs.auth.type": "UNAUTHENTICATED",
            "fs.gs.auth.service.account.enable": "false",  # the same, as older connectors call it
            "fs.gs.auth.null.enable": "true",
            "fs.gs.create.items.conflict.check.enable": "false",
        }
    return {f"spark.hadoop.{name}": value for name, value in conf.items()}


def java_options(theirs: str = "") -> list[str]:
    """How the JVM runs, beside the options that a user has; who chooses a garbage collector there has chosen it."""
    options = [
        # A JVM out of memory ends, and is replaced, instead of going on with unknown parts of it dead.
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.net.preferIPv4Stack=true",
        # Arrow's batches come from our own workers: checking every access again takes a tenth of a batch's time.
        "-Darrow.enable_unsafe_memory_access=true",
        "-Darrow.enable_null_check_for_get=false",
    ]
    # Throughput is what counts: nobody waits for a single row.
    return options if _COLLECTOR.search(theirs) else [*options, "-XX:+UseParallelGC"]


def heap(settings: SparkSettings) -> int:
    if settings.heap:
        return int(settings.heap)
    return max(min(usable_memory() // 2, 4 * _GIB), _GIB)


def usable_memory() -> int:
    """Of the container where there is one, else of the machine."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(limit).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            whole = min(whole, int(text))
    return whole


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
