"""What commands print with: results on stdout, everything else on stderr, colours only on a terminal."""

from datetime import timedelta

import typer
from rich.console import Console

output = Console(soft_wrap=True, highlight=False)
errors = Console(stderr=True, soft_wrap=True, highlight=False)


def duration(text: str | timedelta) -> timedelta:
    """A duration given on the command line: `250ms`, `1s`, `1h30m`. Typer sends an option's default through it too."""
    if isinstance(text, timedelta):
        return text
    from ingestd.model.quantities import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
