"""Which cloud a command talks to: the one in the environment, the one of a state folder, or Google's.

The environment wins, so that a terminal that sourced `env.sh` stays where it is. Without it a local cloud in the
current folder's `.state` is meant, as `make run` leaves it.
"""

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingestd.cli.errors import CommandError

if TYPE_CHECKING:
    from ingestd.localcloud.statefolder import Endpoints

DEFAULT_STATE = Path(".state")

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
    host, _, port = found.storage.removeprefix("http://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        raise CommandError(
            f"the local cloud of {folder} is not running: start it with `ingestd local --state {folder}`"
        ) from None
    return found


def enter(state: Path | None, environ: os._Environ[str] = os.environ) -> str:
    """Point this process's clients at the right cloud; the answer is its project."""
    from ingestd.localcloud.statefolder import ENDPOINTS_FILE

    named = "STORAGE_EMULATOR_HOST" in environ or "PUBSUB_EMULATOR_HOST" in environ
    if state is not None or (not named and (DEFAULT_STATE / ENDPOINTS_FILE).exists()):
        environ.update(endpoints(state).environ())
    project = environ.get("GOOGLE_CLOUD_PROJECT", "")
    if not project:
        raise CommandError(
            "which cloud? Start a local one (`ingestd local --state .state`) or set GOOGLE_CLOUD_PROJECT for Google's"
        )
    return project
