"""`ingestd run`: the daemon, in the foreground, as it runs in production."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", dir_okay=False, exists=True, help="Settings, as YAML."),
]


def run(
    config: Annotated[
        Path, typer.Option("--config", metavar="FILE", dir_okay=False, exists=True, help="Settings, as YAML.")
    ],
) -> None:
    """Run the daemon until it is stopped; SIGTERM drains, SIGHUP reloads the rules.

    Every setting can also come from the environment, e.g. [cyan]INGESTD_PROJECT[/] or [cyan]INGESTD_HTTP__PORT[/].
    """
    from ingestd.app import serve

    asyncio.run(serve(config))
