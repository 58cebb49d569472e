"""`ingestd version`, and `ingestd --version`."""

import typer

import ingestd
from ingestd.cli.terminal import Json, print_json


def version(as_json: Json = False) -> None:
    """Print the version."""
    if as_json:
        print_json({"version": ingestd.__version__})
    else:
        show()


def show() -> None:
    typer.echo(f"ingestd {ingestd.__version__}")
