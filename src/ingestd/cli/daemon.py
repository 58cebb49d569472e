"""`ingestd run`: the daemon, in the foreground, as it runs in production."""

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", dir_okay=False, exists=True, help="Settings, as YAML."),
]


def run(config: ConfigFile = None) -> None:
    """Run the daemon until it is stopped; SIGTERM drains, SIGHUP reloads the rules.

    Every setting can also come from the environment, e.g. [cyan]INGESTD_PROJECT[/] or [cyan]INGESTD_HTTP__PORT[/];
    without a file, all of them do.
    """
    from ingestd.app import serve
    from ingestd.ops import eventloop

    eventloop.run(serve(config))
