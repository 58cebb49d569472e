"""Which cloud a command talks to: the one of the folder it is given, of the environment, of `.state`, or Google's.

A terminal that sourced `env.sh` stays where it is, unless `--state` says otherwise. Without either a local cloud in
the current folder's `.state` is meant, as `make run` leaves it.
"""

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingestd.cli.errors import CommandError

if TYPE_CHECKING:
    from ingestd.localcloud.statefolder import Endpoints

DEFAULT_STATE = Path(".state")
_EMULATORS = ("STORAGE_EMULATOR_HOST", "PUBSUB_EMULATOR_HOST", "BIGQUERY_EMULATOR_HOST")

State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        file_okay=False,
        help="State folder of the local cloud to use. [dim]Default: the environment's, else .state if there.[/]",
    ),
]


def endpoints(state: Path | None) -> "Endpoints":
    """The local cloud of the folder; a command that needs one and finds none says how to start it."""
    from ingestd.localcloud.statefolder import Endpoints

    folder = state or DEFAULT_STATE
    found = Endpoints.load(folder)
    if not _answers(found.storage):
        raise CommandError(
            f"the local cloud of {folder} is not running: start it with `ingestd local --state {folder}`"
        )
    return found


def check_reachable(environ: Mapping[str, str] = os.environ) -> None:
    """Clients would go on trying an emulator that is not there for a long time, and say so many times."""
    for name in _EMULATORS:
        address = environ.get(name, "")
        if address and not _answers(address):
            raise CommandError(f"nothing answers at {address}, which {name} names: start it, or unset the variable")


def _answers(address: str) -> bool:
    host, _, port = address.rpartition("://")[2].partition("/")[0].rpartition(":")
    if not port.isdecimal():
        return True  # an address without a port is somebody's own arrangement
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def enter(state: Path | None, environ: os._Environ[str] = os.environ) -> str:
    """Point this process's clients at the right cloud; the answer is its project."""
    from ingestd.localcloud.statefolder import ENDPOINTS_FILE

    named = "STORAGE_EMULATOR_HOST" in environ or "PUBSUB_EMULATOR_HOST" in environ
    if state is not None or (not named and (DEFAULT_STATE / ENDPOINTS_FILE).exists()):
        environ.update(endpoints(state).environ())
    else:
        check_reachable(environ)
    project = environ.get("GOOGLE_CLOUD_PROJECT", "")
    if not project:
        raise CommandError(
            "which cloud? Start a local one (`ingestd local --state .state`) or set GOOGLE_CLOUD_PROJECT for Google's"
        )
    return project


def daemon(state: Path | None, environ: Mapping[str, str] = os.environ) -> str:
    """Where the daemon answers that `ingestd local` runs on the cloud this process talks to; empty: none is known."""
    from ingestd.localcloud.statefolder import Endpoints, StateFolderError, announced_daemon

    folder = state or DEFAULT_STATE
    try:
        same = Endpoints.load(folder).storage == environ.get("STORAGE_EMULATOR_HOST")
    except StateFolderError:
        return ""
    return announced_daemon(folder) if same else ""
