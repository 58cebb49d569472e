"""Where Spark runs, and what follows from it: its configuration, and who fetches the files.

The defaults are for many small jobs: few shuffle partitions, files listed by the driver, small files packed together,
no web pages, and fair shares between batches. Whatever `spark.conf` says wins.
"""

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ingestd.model.errors import Fatal
from ingestd.settings import Spark as SparkSettings

_GIB = 1024**3
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


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
        _JAVA_OPTIONS: " ".join(java_options()),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
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
            "spark.driver.memory": f"{heap(settings) // 1024**2}m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(scratch / "spill"),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        }
    if where.files is Files.GS:
        conf |= _storage_connector(os.environ.get("STORAGE_EMULATOR_HOST", ""))
    theirs = settings.conf.get(_JAVA_OPTIONS, "")
    return conf | settings.conf | {_JAVA_OPTIONS: f"{conf[_JAVA_OPTIONS]} {theirs}".strip()}


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


def java_options() -> list[str]:
    """A JVM out of memory ends, and is replaced, instead of going on with unknown parts of it dead."""
    return ["-XX:+ExitOnOutOfMemoryError", "-Djava.net.preferIPv4Stack=true"]


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
