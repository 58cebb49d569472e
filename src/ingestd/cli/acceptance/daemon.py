"""The daemon under test: `ingestd run` as a process of its own, with the run's settings and nobody else's.

Invariant: it never outlives this process (the kernel ends it with its parent), and it is in a session of its own, so a
Ctrl-C reaches only the kit, which drains it before it removes what it works with.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson

from ingestd.cli.errors import CommandError
from ingestd.settings import Settings

_TIED = """import ctypes, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
from ingestd.__main__ import main
main()"""
_START_SECONDS = 300.0  # a cold JVM warms up before the daemon says it is ready
_LOOK_SECONDS = 0.5
_MOST_LINES = 15


class Daemon:
    def __init__(self, process: Process, log: Path) -> None:
        self._process = process
        self.log = log

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    async def ready(self) -> None:
        """Wait until it takes work: rules read, Spark up if they need it."""
        async with httpx.AsyncClient(trust_env=False, timeout=10) as http:
            try:
                async with asyncio.timeout(_START_SECONDS):
                    while not await self._answers(http):  # noqa: ASYNC110 - it is another process
                        await asyncio.sleep(_LOOK_SECONDS)
            except TimeoutError:
                raise CommandError(
                    f"the daemon was not ready in {_START_SECONDS:.0f} s:\n{self.last_words()}"
                ) from None

    async def _answers(self, http: httpx.AsyncClient) -> bool:
        if not self.running:
            raise CommandError(f"the daemon ended with {self._process.returncode}:\n{self.last_words()}")
        started = [line for line in await asyncio.to_thread(self.lines) if line.get("message") == "daemon.started"]
        if not started:
            return False
        try:
            return (await http.get(f"{started[0]['http']}/readyz")).status_code == 200
        except httpx.HTTPError:
            return False

    def lines(self) -> list[dict[str, Any]]:
        found = []
        for line in self.log.read_bytes().splitlines():
            try:
                found.append(orjson.loads(line))
            except orjson.JSONDecodeError:  # half a line, or the JVM's own words
                continue
        return found

    def last_words(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_MOST_LINES:])

    def complaints(self) -> list[str]:
        """Tracebacks: whatever else happens, a daemon never has one."""
        return [str(line.get("message", "")) for line in self.lines() if "stack_trace" in line]

    async def stop(self, patience: float) -> int:
        """Drain, as SIGTERM does in production; the exit code."""
        if self.running:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), patience)
            except TimeoutError:
                self._process.kill()
        return await self._process.wait()


@asynccontextmanager
async def running(config: Path, log: Path) -> AsyncIterator[Daemon]:
    """A daemon for as long as the block runs; leaving it kills one that was not stopped."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _TIED, "run", "--config", str(config)),
            env=environment(dict(os.environ)),
            stdin=DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    daemon = Daemon(process, log)
    try:
        yield daemon
    finally:
        if daemon.running:
            process.send_signal(signal.SIGKILL)
        await process.wait()


def environment(environ: dict[str, str]) -> dict[str, str]:
    """Without settings that come from the environment: a pod's, or a user's own, are not the run's."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("INGESTD_") and name not in Settings.other_variables
    }
