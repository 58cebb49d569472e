"""The `ingestd` command; its subcommands are in `commands`."""

from typing import Annotated

import typer

from ingestd.cli import version
from ingestd.cli.commands import LateCommands

app = typer.Typer(
    cls=LateCommands,
    name="ingestd",
    help="Files from Cloud Storage into BigQuery: event-driven, batched, exactly once.",
    epilog="Start with [cyan]ingestd demo[/], then [cyan]ingestd local --state .state[/]. Docs: README.md and docs/.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        version.show()
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback when something fails.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del debug, version  # read by ReadableErrors; answered before
