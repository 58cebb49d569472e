"""Runs the real daemon in processes that start fast and can be told when to die.

`python -m tests.support.e2e.driver` imports the daemon once and then forks a child for every line on its standard input
(an `Order` as JSON), answering each with the child's process id. A child runs `ingestd.app` as `ingestd run` does, with
its own settings file, environment and log. With `dies_after` its ports are wrapped: right after the n-th effect of that
description on the outside world the process sends itself SIGKILL, so nothing it holds in memory gets a last word.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.support.children import end_with_parent

from ingestd.app import build, serve
from ingestd.gcp.connect import Clients, connect
from ingestd.model.clock import SystemClock
from ingestd.ops import eventloop
from ingestd.ops.logging import configure
from ingestd.settings import Settings
from ingestd.settings_loader import load_settings

EFFECTS = {
    "store": ("create", "delete", "copy", "delete_all", "copy_all"),
    "warehouse": ("insert_job", "create_table", "patch_table", "delete_table", "insert_rows"),
    "publisher": ("publish",),
    "http": ("request",),
    "messages": ("ack", "extend"),
}


@dataclass(frozen=True, slots=True)
class Order:
    """One daemon to run. `effects` is the file that lists what it did; without it the ports are Google's, bare."""

    config: str
    log: str
    environ: dict[str, str] = field(default_factory=dict)
    effects: str = ""
    dies_after: tuple[str, int] | None = None
    """The beginning of an effect's description, and which of those; 0: before the first effect of any kind."""

    def line(self) -> str:
        return json.dumps(asdict(self)) + "\n"


class Fate:
    """Writes every effect down, and strikes right after the planned one."""

    def __init__(self, effects: Path, dies_after: tuple[str, int] | None) -> None:
        self._file = effects.open("a")
        self._fatal, self._left = dies_after or ("", -1)
        self._lock = threading.Lock()

    def about_to_act(self) -> None:
        if self._left == 0:
            self._die()

    def acted(self, what: str) -> None:
        with self._lock:
            self._file.write(what + "\n")
            self._file.flush()
            if what.startswith(self._fatal):
                self._left -= 1
                if self._left == 0:
                    self._die()

    def _die(self) -> None:
        self._file.write(STRUCK + "\n")
        self._file.flush()
        os.kill(os.getpid(), signal.SIGKILL)


STRUCK = "died as planned"


class MortalPort:
    """A port whose effects are counted; everything else passes through."""

    def __init__(self, port: Any, name: str, fate: Fate) -> None:
        self._port = port
        self._name = name
        self._fate = fate

    def __getattr__(self, method: str) -> Any:
        target = getattr(self._port, method)
        if method not in EFFECTS[self._name]:
            return target

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._fate.about_to_act()
            result = await target(*args, **kwargs)
            for what in _described(self._name, method, args):
                self._fate.acted(what)
            return result

        return call


def _described(port: str, method: str, args: tuple[Any, ...]) -> list[str]:
    """What was done, by what it was done to; many at once as if one by one."""
    many = args[0] if method.endswith("_all") else args[:1]
    subjects = [getattr(one, "ref", getattr(one, "source", one)) for one in many] if args else [""]
    return [f"{port}.{method.removesuffix('_all')} {subject}"[:300] for subject in subjects]


class NotedPulls:
    """A subscription whose leases are written down, so that a test can end a dead daemon's without waiting."""

    def __init__(self, port: Any, leases: Path) -> None:
        self._port = port
        self._leases = leases

    def __getattr__(self, method: str) -> Any:
        return getattr(self._port, method)

    async def pull(self, limit: int) -> Any:
        messages = await self._port.pull(limit)
        with self._leases.open("a") as file:
            file.writelines(f"{self._port.name} {message.ack_id}\n" for message in messages)
        return messages


def mortal(clients: Clients, fate: Fate, effects: str) -> Clients:
    ports = {name: MortalPort(getattr(clients, name), name, fate) for name in EFFECTS if name != "messages"}

    def subscription(name: str) -> Any:
        port: Any = NotedPulls(clients.subscription(name), Path(f"{effects}.leases"))
        # The audit feed brings every test's completions: settling those of others is no effect of this story.
        return port if name.endswith("completions") else MortalPort(port, "messages", fate)

    changes: dict[str, Any] = {**ports, "subscription": subscription}
    return replace(clients, **changes)


async def live_and_die(order: Order) -> None:
    """What `ingestd.app.serve` does, on mortal ports."""
    settings = load_settings(Settings, Path(order.config), os.environ)
    configure(settings.logging.format, settings.logging.level)
    fate = Fate(Path(order.effects), order.dies_after)
    clock = SystemClock()
    async with (
        connect(settings.project, clock=clock) as clients,
        build(settings, clients=mortal(clients, fate, order.effects), clock=clock) as app,
    ):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, app.stop)
        await app.run()


def run(order: Order) -> None:
    """The child's whole life."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    end_with_parent()
    log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(order.environ)
    if order.effects:
        eventloop.run(live_and_die(order))
    else:
        eventloop.run(serve(Path(order.config)))


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks for exit codes here: the kernel buries the dead
    for line in sys.stdin:
        order = Order(**json.loads(line))
        pid = os.fork()
        if pid == 0:
            try:
                run(order)
            finally:
                sys.stderr.flush()
                os._exit(0 if sys.exc_info()[0] is None else 1)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
