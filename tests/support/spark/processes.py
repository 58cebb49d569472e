"""Spark's own servers as processes, from the installed package: a standalone cluster, a Connect server."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.jvm import quick
from tests.support.ports import free_port
from tests.support.waiting import ended, eventually

from ingestd.spark.session.gateway import spark_home
from ingestd.spark.session.java import find_java, runnable_home

QUICK = quick()
# One short life on a cluster of this machine: small, and compiled little.
CLUSTER_CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK,
    "spark.sql.shuffle.partitions": "4",
}


@contextmanager
def server(command: Sequence[str], port: int, log: Path, **environ: str) -> Iterator["subprocess.Popen[bytes]"]:
    """One of Spark's scripts, in a process group of its own, until its port answers."""
    home = spark_home()
    java = runnable_home(find_java(os.environ), Path(tempfile.gettempdir()) / "ingestd-test-java")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(home / "bin" / command[0]), *command[1:]],
            env={**os.environ, "JAVA_HOME": str(java), **environ},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        if port:
            await_port(port, process, log)
        yield process
    finally:
        kill_group(process)


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """The process and all it started, at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    ended(process)


def children(pid: int, word: str) -> list[int]:
    """The living processes that this one started and that have the word in their command line."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    with suppress(FileNotFoundError):  # one of them ended while we looked
        numbers = {int(number) for file in files for number in file.read_text().split()}
        return sorted(number for number in numbers if word in Path(f"/proc/{number}/cmdline").read_text())
    return []


def await_port(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    def said() -> str:
        return f"{process.args} does not answer: {log.read_text()[-3000:]}"

    def answers() -> bool:
        assert process.poll() is None, said()
        with closing(socket.socket()) as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    eventually(answers, said)


@dataclass(frozen=True, slots=True)
class Cluster:
    url: str
    workers: tuple["subprocess.Popen[bytes]", ...]


@contextmanager
def standalone_cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """A master and its workers, one core each."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    common = {
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
        "SPARK_DAEMON_MEMORY": "192m",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder),
    }
    with ExitStack() as stack:
        master = ("spark-class", "org.apache.spark.deploy.master.Master")
        arguments = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        stack.enter_context(server((*master, *arguments), port, folder / "master.log", **common))
        joined = []
        for number in range(workers):
            worker = (
                "spark-class",
                "org.apache.spark.deploy.worker.Worker",
                "--host",
                "127.0.0.1",
                "--webui-port",
                "0",
            )
            command = (*worker, "--cores", "1", "--memory", "600m", url)
            log = folder / f"worker{number}.log"
            joined.append(stack.enter_context(server(command, 0, log, **common)))
        yield Cluster(url, tuple(joined))


@contextmanager
def connect_server(folder: Path, port: int, more: Mapping[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """A Spark Connect server on two cores, whose Python is ours."""
    conf = {
        "spark.master": "local[2]",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "spill"),
        **more,
    }
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    command = ["spark-submit", *options, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    log = folder / "connect.log"
    environ = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with server((*command, "spark-internal"), port, log, **environ) as process:
        yield process
