"""Every subcommand by name, each imported only when it is called.

What `ingestd --help` says of a command is written here, so that asking for help imports none of them: a command's
parameters alone take longer to build than Python takes to start. Tests hold these lines against the commands' own.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand

from ingestd.cli.bqtail_flags import BqtailCommand
from ingestd.cli.errors import ReadableErrors

LOCAL = "On this machine"
DAEMON = "The daemon"
TOOLS = "Files and tables"


@dataclass(frozen=True, slots=True)
class Late:
    """A function, or the Typer of a group, in a module of `ingestd.cli`."""

    panel: str
    module: str
    attribute: str
    help: str
    command: type[TyperCommand] = TyperCommand

    def load(self, name: str) -> Any:
        found = getattr(import_module(f"ingestd.cli.{self.module}"), self.attribute)
        host = typer.Typer(rich_markup_mode="rich", add_completion=False, callback=_nothing)
        if isinstance(found, typer.Typer):
            host.add_typer(found, name=name, rich_help_panel=self.panel)
        else:
            host.command(name, rich_help_panel=self.panel, cls=self.command)(found)
        return typer.main.get_group(host).commands[name]


def _nothing() -> None:
    """Makes a group of a Typer with one command."""


COMMANDS = {
    "demo": Late(LOCAL, "local", "demo", "Watch sample files become rows, in a throw-away folder, then exit."),
    "local": Late(LOCAL, "local", "local", "Run the daemon on a local cloud of its own, until stopped."),
    "cloud": Late(LOCAL, "cloud", "cloud", "Serve Cloud Storage, Pub/Sub and BigQuery on loopback until stopped."),
    "faults": Late(
        LOCAL,
        "faults",
        "app",
        "Rehearse failures on a running local cloud: errors, delays, lost answers, repeated messages.",
    ),
    "run": Late(
        DAEMON, "daemon", "run", "Run the daemon until it is stopped; SIGTERM drains, SIGHUP reloads the rules."
    ),
    "rules": Late(DAEMON, "rules", "app", "Check, show and test rule files."),
    "explain": Late(
        DAEMON, "ledger", "explain", "Say which rule takes a file, what would happen, and what did happen."
    ),
    "replay": Late(DAEMON, "ledger", "replay", "Try blocked or failed batches again, now; who asked and why is kept."),
    "backfill": Late(
        DAEMON,
        "backfill",
        "backfill",
        "Load what lies in a bucket already: list it, subtract what was loaded, ingest or announce the rest.",
    ),
    "status": Late(
        DAEMON,
        "status",
        "status",
        "Show open windows, batches under way, recent failures, how fresh tables are, and quotas.",
    ),
    "windows": Late(
        DAEMON, "windows", "windows", "List open windows: when they close, who owns them, how many files wait."
    ),
    "ordered": Late(DAEMON, "ordered", "app", "Tables whose batches are loaded in order."),
    "dead-letters": Late(DAEMON, "dead_letters", "app", "Messages that ended on the dead-letter topic."),
    "doctor": Late(
        DAEMON,
        "doctor",
        "doctor",
        "Check what the daemon needs, with remedies: permissions, topics, notifications, sink, locations, Spark.",
    ),
    "acceptance": Late(
        DAEMON,
        "acceptance.command",
        "acceptance",
        "Prove it on a real project: a daemon, files, windows, Spark, routes and trouble, with resources of its own.",
    ),
    "settings": Late(
        DAEMON, "settings", "settings", "Print every setting with its default and its reason, as Markdown."
    ),
    "schema": Late(
        DAEMON, "schema", "schema", "Print the JSON Schema of rules, settings or _config/load.json, for editors."
    ),
    "version": Late(DAEMON, "version", "version", "Print the version."),
    "load": Late(
        TOOLS,
        "load",
        "load",
        "Load a folder or file into a table, once, through the daemon's own engine.",
        BqtailCommand,
    ),
    "cp": Late(TOOLS, "files", "cp", "Copy files into a bucket, out of it, or inside it."),
    "query": Late(TOOLS, "files", "query", "Run a query and print its rows."),
    "publish": Late(TOOLS, "files", "publish", "Publish test notifications, shaped exactly like Cloud Storage's."),
}


class LateCommands(ReadableErrors):
    """The root command: it lists stand-ins that have a name and a line, and calls the commands themselves."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, late in COMMANDS.items():
            self.add_command(TyperCommand(name, help=late.help, rich_help_panel=late.panel))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, COMMANDS[name].load(name) if name in COMMANDS else command, rest
