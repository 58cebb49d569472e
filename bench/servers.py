"""Local-cloud servers in processes of their own, for benchmarks: the client under test has its core to itself."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PUBSUB = """
import asyncio, sys
from pathlib import Path
from ingestd.localcloud.faults import Hooks
from ingestd.localcloud.pubsub.core import PubSubCore
from ingestd.localcloud.pubsub.server import PubSubServer
from ingestd.model.clock import SystemClock

async def main():
    core = PubSubCore(Path(sys.argv[1]), clock=SystemClock(), hooks=Hooks("pubsub"))
    server = PubSubServer(core)
    await server.start()
    print(server.grpc_port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop()
    core.close()

asyncio.run(main())
"""


@contextmanager
def pubsub_server() -> Iterator[str]:
    """The endpoint of a Pub/Sub server with its log on disk; it ends with the block."""
    with tempfile.TemporaryDirectory() as root:
        server = subprocess.Popen(
            [sys.executable, "-c", _PUBSUB, str(Path(root) / "pubsub")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield f"127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.stdin.close()
            server.wait(20)
            server.stdout.close()


@contextmanager
def http_server(module: str) -> Iterator[tuple[int, int]]:
    """The port and the process id of a fresh server: what the module does when it is told to `--serve` a folder."""
    with tempfile.TemporaryDirectory() as root:
        process = subprocess.Popen([sys.executable, "-m", module, "--serve", root], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline()), process.pid
        finally:
            process.kill()
            process.wait()


def cpu_seconds(pid: int) -> float:
    """Processor time a process has used: what its work costs, however busy the machine is."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
