"""The `ingestd` command: every subcommand, in the order a newcomer meets them."""

from typing import Annotated

import typer

import ingestd
from ingestd.cli import (
    backfill,
    cloud,
    daemon,
    dead_letters,
    doctor,
    faults,
    files,
    ledger,
    load,
    local,
    ordered,
    rules,
    schema,
    settings,
    status,
    windows,
)
from ingestd.cli.acceptance import command as acceptance
from ingestd.cli.bqtail_flags import BqtailCommand
from ingestd.cli.errors import ReadableErrors
from ingestd.cli.terminal import Json, output, print_json

app = typer.Typer(
    cls=ReadableErrors,
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
        output.print(f"ingestd {ingestd.__version__}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback when something fails.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del debug, version  # read by ReadableErrors; answered before


_LOCAL = "On this machine"
_DAEMON = "The daemon"
_TOOLS = "Files and tables"

app.command("demo", rich_help_panel=_LOCAL)(local.demo)
app.command("local", rich_help_panel=_LOCAL)(local.local)
app.command("cloud", rich_help_panel=_LOCAL)(cloud.cloud)
app.add_typer(faults.app, name="faults", rich_help_panel=_LOCAL)

app.command("run", rich_help_panel=_DAEMON)(daemon.run)
app.add_typer(rules.app, name="rules", rich_help_panel=_DAEMON)

app.command("explain", rich_help_panel=_DAEMON)(ledger.explain)
app.command("replay", rich_help_panel=_DAEMON)(ledger.replay)
app.command("backfill", rich_help_panel=_DAEMON)(backfill.backfill)
app.command("status", rich_help_panel=_DAEMON)(status.status)
app.command("windows", rich_help_panel=_DAEMON)(windows.windows)
app.add_typer(ordered.app, name="ordered", rich_help_panel=_DAEMON)
app.add_typer(dead_letters.app, name="dead-letters", rich_help_panel=_DAEMON)
app.command("doctor", rich_help_panel=_DAEMON)(doctor.doctor)
app.command("acceptance", rich_help_panel=_DAEMON)(acceptance.acceptance)
app.command("settings", rich_help_panel=_DAEMON)(settings.settings)
app.command("schema", rich_help_panel=_DAEMON)(schema.schema)

app.command("load", rich_help_panel=_TOOLS, cls=BqtailCommand)(load.load)
app.command("cp", rich_help_panel=_TOOLS)(files.cp)
app.command("query", rich_help_panel=_TOOLS)(files.query)
app.command("publish", rich_help_panel=_TOOLS)(files.publish)


@app.command(rich_help_panel=_DAEMON)
def version(as_json: Json = False) -> None:
    """Print the version."""
    if as_json:
        print_json({"version": ingestd.__version__})
    else:
        _print_version(True)
