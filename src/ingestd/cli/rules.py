"""`ingestd rules`: check rule files before they are deployed."""

from typing import Annotated

import typer

app = typer.Typer(help="Check rule files.", no_args_is_help=True)


@app.callback()
def rules() -> None:
    """Check rule files."""


@app.command()
def lint(
    path: Annotated[str, typer.Argument(help="A rule file, a folder of them, or gs://bucket/prefix.")],
) -> None:
    """Check rules and print every problem with its file and line."""
