"""The JVM behind a classic session: started, reached, and ended for certain.

PySpark can start one itself, but waits for ever when it does not come up, writes into our log, and leaves no way to
choose the Java. The process has a session of its own (Ctrl-C is the daemon's business), ends when the daemon does (its
standard input is a pipe), and what it prints is kept for the case that it dies.
"""

import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from ingestd.model.errors import Transient
from ingestd.spark.session.startup import Startup

log = structlog.get_logger(__name__)

_KEPT_LINES = 40
_KILL_PATIENCE = 10.0  # the kernel takes moments; a process that waits for a broken disk may take for ever
_LOCK = threading.Lock()


@dataclass(slots=True)
class Jvm:
    """The process; `said` are the last lines it printed."""

    process: "subprocess.Popen[bytes]"
    said: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))
    _reader: threading.Thread | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def listen(self) -> None:
        self._reader = threading.Thread(target=self._listen, name="spark:log", daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        for raw in stream:
            line = raw.decode(errors="replace").rstrip()
            if line and not line.startswith("\tat "):
                self.said.append(line)
                log.debug("spark.said", line=line)
        stream.close()

    def end(self, patience: float) -> None:
        """Let it exit by itself for so long, then kill it."""
        with suppress(OSError):
            if self.process.stdin is not None:
                self.process.stdin.close()  # it exits when this pipe breaks
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(patience)
        self.kill()

    def kill(self) -> None:
        """At once, even when it is stopped, with everything it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        try:
            self.process.wait(_KILL_PATIENCE)
        except subprocess.TimeoutExpired:
            log.error("spark.process_stays", pid=self.pid, patience=_KILL_PATIENCE)  # noqa: TRY400
        with suppress(OSError):
            if self.process.stdin is not None:
                self.process.stdin.close()
        if self._reader is not None:
            self._reader.join(2)

    def last_words(self) -> str:
        if self._reader is not None and not self.alive:
            self._reader.join(1)  # what it said while dying may still be on its way
        return " | ".join(list(self.said)[-5:])


def launch(conf: Mapping[str, str], java_home: Path, timeout: float, startup: Startup) -> tuple[Jvm, Any]:
    """A JVM that waits for Spark's commands, and the gateway to it; `Transient` when it does not come up."""
    startup.check()
    folder = Path(tempfile.mkdtemp(prefix="ingestd-gateway-"))
    try:
        address = folder / "address"
        command = [str(spark_home() / "bin" / "spark-submit")]
        for name, value in conf.items():
            command += ["--conf", f"{name}={value}"]
        environ = {
            **os.environ,
            "JAVA_HOME": str(java_home),
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address),
        }
        process = subprocess.Popen(  # noqa: S603 - Spark's own script
            [*command, "pyspark-shell"],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        jvm = Jvm(process)
        jvm.listen()
        try:
            startup.began(jvm.kill, jvm.last_words)
            port, secret = _await_address(jvm, address, time.monotonic() + timeout)
            return jvm, _connect(jvm, port, secret)
        except BaseException:
            jvm.kill()
            raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def spark_home() -> Path:
    """PySpark's own, or the one SPARK_HOME names."""
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())


def _await_address(jvm: Jvm, address: Path, deadline: float) -> tuple[int, str]:
    while not address.is_file():
        if not jvm.alive:
            jvm.kill()
            raise Transient(f"Spark's JVM ended with {jvm.process.returncode} while starting: {jvm.last_words()}")
        if time.monotonic() > deadline:
            raise Transient(f"Spark's JVM did not come up in time: {jvm.last_words()}")
        time.sleep(0.05)
    content = address.read_bytes()  # renamed into place when it is complete: port, length and text of the secret
    port, length = struct.unpack("!ii", content[:8])
    return port, content[8 : 8 + length].decode()


def _connect(jvm: Jvm, port: int, secret: str) -> Any:
    from pyspark.java_gateway import launch_gateway

    # The way PySpark itself offers to join a JVM that runs already is through its environment.
    known = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    with _LOCK:
        os.environ.update(known)
        try:
            gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
        finally:
            for name in known:
                os.environ.pop(name, None)
    gateway.proc = jvm.process
    return gateway


def forget_session() -> None:
    """Clear what PySpark remembers of a session whose JVM is gone: otherwise no other could be started."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with SparkContext._lock:
        context: Any = SparkContext._active_spark_context
        gateway: Any = SparkContext._gateway
        SparkContext._active_spark_context = None
        SparkContext._gateway = None
        SparkContext._jvm = None
        SparkSession._instantiatedSession = None
        SparkSession._activeSession = None
    if context is not None:
        context._jsc = None
        server = getattr(context, "_accumulatorServer", None)
        if server is not None:
            with suppress(Exception):
                server.shutdown()
                server.server_close()
            context._accumulatorServer = None
    if gateway is not None:
        with suppress(Exception):
            gateway.shutdown()
