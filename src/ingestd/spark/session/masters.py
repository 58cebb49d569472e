"""Where Spark runs, and what follows from it: its configuration, and who fetches the files.

The defaults are for many small jobs: few shuffle partitions, files listed by the driver, small files packed together,
no web pages, and fair shares between batches. Whatever `spark.conf` says wins.
"""

import os
import re
import socket
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ingestd.model.errors import Fatal
from ingestd.ops.container import usable_cores, usable_memory
from ingestd.settings import Spark as SparkSettings
from ingestd.spark.session.sizes import Sizes, share_out

LOCAL_DIR = "spark.local.dir"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
# Expressions are translated for a session that fails on overflow and whose zone is UTC.
_MIB = 1024**2
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
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
        return 0 if self.url.startswith("local-cluster") else int(inside or 1)


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
    if url.startswith("local[*"):  # Spark would take the node's cores, not the pod's
        url = url.replace("*", str(sizes(settings).cores), 1)
    return Master(url, kind, Files(files))


def sizes(settings: SparkSettings) -> Sizes:
    """Of a local master: how it shares out what the container has."""
    asked = re.match(r"local(?:\[(\d+))?", settings.master.strip())
    every = settings.master.strip().startswith("local[*")
    tasks = None if every or asked is None else int(asked[1] or 1)
    return share_out(usable_cores(), usable_memory(), tasks=tasks, heap=int(settings.heap) if settings.heap else None)


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
            "spark.python.daemon.module": "ingestd.spark.workers",
            "spark.driver.memory": f"{sizes(settings).heap // 1024**2}m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            LOCAL_DIR: str(scratch),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        }
    if where.url.startswith("k8s://"):
        conf |= _kubernetes(settings)
    if where.files is Files.GS:
        conf |= storage_connector(os.environ.get("STORAGE_EMULATOR_HOST", ""))
    for name, value in _SETTLED.items():
        if settings.conf.get(name, value) != value:
            raise Fatal(f"spark.conf: {name} has to be {value}, since rules are translated for that; leave it out")
    theirs = settings.conf.get(JAVA_OPTIONS, "")
    return conf | settings.conf | {JAVA_OPTIONS: " ".join(filter(None, [*java_options(theirs), theirs]))}


def _kubernetes(settings: SparkSettings) -> dict[str, str]:
    """Executors run the daemon's own image and, when the daemon is a pod itself, beside it: they go when it goes."""
    conf = {"spark.kubernetes.container.image": settings.image} if settings.image else {}
    namespace = _SERVICE_ACCOUNT / "namespace"
    if namespace.exists():
        conf |= {
            "spark.kubernetes.namespace": namespace.read_text().strip(),
            "spark.kubernetes.driver.pod.name": socket.gethostname(),
        }
    return conf


def storage_connector(emulator: str) -> dict[str, str]:
    """How Spark reaches buckets; the connector itself is a jar that the image or the cluster brings."""
    conf = {
        "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
        # Hadoop brings defaults for a connector of its own ("64m"), under the names of Google's, which wants numbers.
        "fs.gs.block.size": str(64 * _MIB),
        "fs.gs.rewrite.max.chunk.size": str(512 * _MIB),
        "fs.gs.outputstream.buffer.size": str(8 * _MIB),
        "fs.gs.outputstream.sync.min.interval": "0",
        "fs.gs.inputstream.inplace.seek.limit": str(8 * _MIB),
        "fs.gs.inputstream.min.range.request.size": str(2 * _MIB),
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
