"""What commands print with: results on stdout, everything else on stderr, colours only on a terminal."""

from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.console import Console

output = Console(soft_wrap=True, highlight=False)
errors = Console(stderr=True, soft_wrap=True, highlight=False)

Json = Annotated[bool, typer.Option("--json", help="As JSON, for scripts.")]


def print_json(document: Any) -> None:
    """Results for a script: JSON on stdout, as it is."""
    import orjson

    typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2, default=str).decode())


def duration(text: str | timedelta) -> timedelta:
    """A duration given on the command line: `250ms`, `1s`, `1h30m`. Typer sends an option's default through it too."""
    if isinstance(text, timedelta):
        return text
    from ingestd.model.quantities import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
