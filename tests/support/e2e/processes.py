"""Daemons as processes: start, watch, signal, kill, and read what they said."""

import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import httpx
from tests.support.e2e.driver import STRUCK, Order
from tests.support.places import ROOT
from tests.support.waiting import ended, eventually


class ForkServer:
    """The driver, kept warm for a whole test session."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.e2e.driver"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lock = Lock()

    def start(self, order: Order) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(order.line())
            self._process.stdin.flush()
            return int(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        ended(self._process)
        self._process.stdout.close()


@dataclass(slots=True)
class Daemon:
    """One running (or dead) daemon."""

    pid: int
    log: Path
    effects_file: Path | None = None
    command: subprocess.Popen[bytes] | None = None  # when it was started as `ingestd run`
    _pidfd: int = field(init=False)

    def __post_init__(self) -> None:
        self._pidfd = os.pidfd_open(self.pid)

    @property
    def alive(self) -> bool:
        return not select.select([self._pidfd], [], [], 0)[0]

    def wait(self) -> None:
        eventually(lambda: not self.alive, lambda: f"{self.pid} is still alive: {self.said()}")

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.wait()

    def close(self) -> None:
        self.kill()
        if self.command is not None:
            self.command.wait()
        os.close(self._pidfd)

    def said(self, event: str = "") -> list[dict[str, Any]]:
        """The log's events, all or those of one name (`batch.` means all that start so)."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        entries = [json.loads(line) for line in lines if line.startswith("{")]
        return [one for one in entries if _named(one["message"], event)]

    def heard(self, event: str) -> list[dict[str, Any]]:
        """The events of that name, waiting for the first: what is done may be logged a moment later."""
        found: list[dict[str, Any]] = eventually(lambda: self.said(event), lambda: f"no {event}: {self.said()}")
        return found

    def complaints(self) -> list[str]:
        """What no daemon may ever say: tracebacks, and errors nobody expected."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        loose = [line for line in lines if not line.startswith("{")]
        return loose + [json.dumps(one) for one in self.said() if "stack_trace" in one]

    def started(self) -> None:
        eventually(
            lambda: self.said("daemon.started") or not self.alive,
            lambda: f"daemon not up: {self.log.read_text()}",
        )
        assert self.said("daemon.started"), self.log.read_text()

    @property
    def url(self) -> str:
        return str(self.said("daemon.started")[0]["http"])

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", timeout=10, trust_env=False)

    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = self.get("/status").json()
        return document

    def metric(self, name: str, **labels: str) -> float:
        """The value of one sample of /metrics; 0 when it is not there."""
        from prometheus_client.parser import text_string_to_metric_families

        for family in text_string_to_metric_families(self.get("/metrics").text):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return sample.value
        return 0.0

    def effects(self) -> list[str]:
        assert self.effects_file is not None
        return self.effects_file.read_text().splitlines() if self.effects_file.exists() else []

    def leases(self) -> dict[str, list[str]]:
        """The messages it pulled: ack ids by subscription."""
        assert self.effects_file is not None
        file = Path(f"{self.effects_file}.leases")
        found: dict[str, list[str]] = {}
        for line in file.read_text().splitlines() if file.exists() else ():
            subscription, _, ack_id = line.partition(" ")
            found.setdefault(subscription, []).append(ack_id)
        return found

    @property
    def struck(self) -> bool:
        """Whether it died as planned."""
        return STRUCK in self.effects()


def _named(message: str, wanted: str) -> bool:
    return message.startswith(wanted) if wanted.endswith(".") or not wanted else message == wanted


class Nursery:
    """Starts daemons for one test and buries them at its end; a traceback in any log fails the test."""

    def __init__(self, server: ForkServer, folder: Path, environ: dict[str, str]) -> None:
        self._server = server
        self._folder = folder
        self._environ = environ
        self._all: list[Daemon] = []
        self._numbers = itertools.count()

    def fork(self, config: Path, *, dies_after: tuple[str, int] | None = None, mortal: bool = False) -> Daemon:
        """A daemon from the warm driver; with `mortal` (or `dies_after`) its effects are counted."""
        number = next(self._numbers)
        log = self._folder / f"daemon{number}.log"
        counted = mortal or dies_after is not None
        effects = self._folder / f"daemon{number}.effects" if counted else None
        order = Order(str(config), str(log), self._environ, str(effects or ""), dies_after)
        return self._add(Daemon(self._server.start(order), log, effects))

    def command(self, config: Path, **environ: str) -> Daemon:
        """`ingestd run`, as a user starts it."""
        log = self._folder / f"daemon{next(self._numbers)}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [Path(sys.executable).parent / "ingestd", "run", "--config", config],
                env={**os.environ, **self._environ, **environ},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        return self._add(Daemon(process.pid, log, command=process))

    def told(self) -> list[list[str]]:
        """Which events the daemons have logged so far; how often does not matter."""
        return [sorted({one["message"] for one in daemon.said()}) for daemon in self._all]

    def _add(self, daemon: Daemon) -> Daemon:
        self._all.append(daemon)
        return daemon

    def close(self) -> list[str]:
        for daemon in self._all:
            daemon.close()
        return [f"{daemon.log.name}: {line}" for daemon in self._all for line in daemon.complaints()]


@contextmanager
def nursery(server: ForkServer, folder: Path, environ: dict[str, str]) -> Iterator[Nursery]:
    keeper = Nursery(server, folder, environ)
    try:
        yield keeper
    except BaseException:
        traceback.print_exc()
        print(*keeper.close()[:20], sep="\n")
        raise
    complaints = keeper.close()
    assert not complaints, "\n".join(complaints[:5])
