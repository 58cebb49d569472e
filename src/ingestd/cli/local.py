"""`ingestd local` and `ingestd demo`: local cloud and daemon together, with nothing to prepare.

The cloud is a child process; the daemon runs here, unchanged: only the emulator variables tell it where it is.
"""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ingestd.cli import where
from ingestd.cli.cloud import DEFAULT_PROJECT, StateFolder, need_local_cloud
from ingestd.cli.daemon import ConfigFile
from ingestd.cli.errors import INTERRUPTED, CommandError
from ingestd.cli.files import show_rows
from ingestd.cli.terminal import duration, errors, output
from ingestd.model.errors import IngestError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from ingestd.app import App
    from ingestd.cli.samples import Outcome
    from ingestd.gcp.connect import Clients
    from ingestd.localcloud.statefolder import Endpoints
    from ingestd.settings import Settings

RulesFolder = Annotated[
    Path | None,
    typer.Option("--rules", metavar="DIR", exists=True, file_okay=False, help="Folder of rule files."),
]
SampleFolder = Annotated[
    Path | None,
    typer.Option("--samples", metavar="DIR", exists=True, file_okay=False, help="Folder of sample files to drop in."),
]


def local(
    state: StateFolder,
    rules: RulesFolder = None,
    config: ConfigFile = None,
    project: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The project to play. [dim]Default: the settings', else local-dev.[/]"),
    ] = None,
    samples: SampleFolder = None,
) -> None:
    """Run the daemon on a local cloud of its own, until stopped.

    Buckets, topics and subscriptions that are missing are created. The state folder keeps everything; the next start
    continues where this one ended. Without --rules and --config, rules are read from gs://PROJECT-config/rules.
    """
    need_local_cloud()
    settings = local_settings(config, project, rules)
    _configure_logging(settings, settings.logging.level)
    try:
        asyncio.run(_stay(state, settings, samples))
    except asyncio.CancelledError:
        raise typer.Exit(INTERRUPTED) from None


def demo(
    rules: Annotated[Path, typer.Option(metavar="DIR", exists=True, file_okay=False)] = Path("config/rules"),
    samples: Annotated[Path, typer.Option(metavar="DIR", exists=True, file_okay=False)] = Path("config/samples"),
    patience: Annotated[
        timedelta,
        typer.Option(
            parser=duration, metavar="DURATION", show_default="3m", help="How long the rows may take to arrive."
        ),
    ] = timedelta(minutes=3),
) -> None:
    """Watch sample files become rows, in a throw-away folder, then exit."""
    need_local_cloud()
    settings = local_settings(None, None, rules)
    _configure_logging(settings, "warning")
    with tempfile.TemporaryDirectory(prefix="ingestd-demo-") as folder:
        asyncio.run(_show_once(Path(folder), settings, samples, patience))


def local_settings(config: Path | None, project: str | None, rules: Path | None) -> "Settings":
    """The settings of a daemon on this machine: the command line wins over the environment, that over the file."""
    from ingestd.settings import Settings
    from ingestd.settings_loader import load_settings

    given = dict(os.environ)
    if project is not None:
        given["INGESTD_PROJECT"] = project
    elif config is None:
        given.setdefault("INGESTD_PROJECT", DEFAULT_PROJECT)
    if rules is not None:
        given["INGESTD_RULES__URL"] = str(rules)
    elif config is None:
        given.setdefault("INGESTD_RULES__URL", f"gs://{given['INGESTD_PROJECT']}-config/rules")
    settings = load_settings(Settings, config, given)
    # A laptop has other things on 9090 and no probes from outside, and so few batches that warming up takes longer.
    http = _unless_chosen(settings.http, {"host": "127.0.0.1", "port": 0})
    return settings.model_copy(update={"http": http, "spark": _unless_chosen(settings.spark, {"warm_up": False})})


def _unless_chosen(section: "BaseModel", values: dict[str, Any]) -> "BaseModel":
    chosen = section.model_fields_set
    return section.model_copy(update={name: value for name, value in values.items() if name not in chosen})


def _configure_logging(settings: "Settings", level: str) -> None:
    from ingestd.ops.logging import configure

    configure("console" if settings.logging.format == "auto" else settings.logging.format, level)


async def _stay(state: Path, settings: "Settings", samples: Path | None) -> None:
    stop, up = asyncio.Event(), asyncio.Event()
    own = asyncio.current_task()
    assert own is not None

    def stopped() -> None:
        """The first signal drains; one that comes before anything is up, or again, ends it at once."""
        if stop.is_set() or not up.is_set():
            own.cancel()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped)
    async with _running(state, settings) as running:
        up.set()
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, running.app.reload_rules)
        greeting = asyncio.create_task(_greet(running, samples), name="greeting")
        stopping = asyncio.create_task(stop.wait(), name="stopping")
        await asyncio.wait({greeting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if greeting.done():
            await greeting
        else:
            greeting.cancel()
        await stopping
        output.print("[dim]stopping; the next start continues from here (Ctrl-C again: at once)[/]")


async def _greet(running: "_Running", samples: Path | None) -> None:
    from ingestd.localcloud.statefolder import announce_daemon

    spark = running.app.spark
    while running.app.missing() and not (spark and spark.problem):  # noqa: ASYNC110 - it tells whether, not when
        await asyncio.sleep(0.05)
    if spark and spark.problem:
        errors.print(f"[bold yellow]warning:[/] files that Spark prepares wait: {escape(spark.problem)}")
    if running.app.ops is not None:
        announce_daemon(running.state, f"http://127.0.0.1:{running.app.ops.port}")
    if samples is not None:
        try:
            _report(await running.drop(samples))
        except (CommandError, IngestError) as error:  # the daemon is fine without its samples
            errors.print(f"[bold yellow]warning:[/] {escape(str(error))}")
    _welcome(running, *(_SAMPLE if samples else _PLACEHOLDER))


async def _show_once(state: Path, settings: "Settings", samples: Path, patience: timedelta) -> None:
    async with _running(state, settings) as running:
        _report(await running.drop(samples, patience))


@dataclass(frozen=True, slots=True)
class _Running:
    """A cloud and the daemon on it."""

    app: "App"
    clients: "Clients"
    endpoints: "Endpoints"
    state: Path

    async def drop(self, samples: Path, patience: timedelta = timedelta(minutes=3)) -> "Outcome":
        from ingestd.cli.samples import Dropper

        dropper = Dropper(self.clients.store, self.clients.warehouse, self.endpoints.project)
        return await dropper.drop(samples, patience)


@asynccontextmanager
async def _running(state: Path, settings: "Settings") -> AsyncIterator[_Running]:
    """Cloud and daemon, as long as the block runs; when either ends by itself, so does the block, with the reason."""
    from ingestd.app import build
    from ingestd.cli.child import cloud_process, watch
    from ingestd.gcp.connect import connect
    from ingestd.localcloud.statefolder import announce_daemon

    async with cloud_process(state, settings.project, _needs(settings)) as (process, endpoints):
        os.environ.update(endpoints.environ())
        async with (
            connect(settings.project) as clients,
            build(settings, clients=clients) as app,
            asyncio.TaskGroup() as tasks,
        ):
            watching = tasks.create_task(watch(process), name="cloud")
            daemon = tasks.create_task(app.run(), name="daemon")
            try:
                yield _Running(app, clients, endpoints, state)
            finally:
                announce_daemon(state, "")
            app.stop()
            await daemon
            watching.cancel()


def _needs(settings: "Settings") -> list[str]:
    """What the settings name and the cloud has to have."""
    urls = [settings.journal.url, settings.errors.url, settings.tasks.url, settings.rules.url]
    urls += [settings.corrupted_file_url, settings.invalid_schema_url]
    buckets = {url.removeprefix("gs://").partition("/")[0] for url in urls if url.startswith("gs://")}
    options = ["--notifications-subscription", settings.subscriptions.notifications]
    options += ["--completions-subscription", settings.subscriptions.completions]
    landing = {convention.bucket for convention in settings.success.conventions} - {"*"}
    options += [f"--notified-bucket={bucket}" for bucket in sorted(landing)]
    config = {convention.config_url for convention in settings.success.effective()} - {""}
    buckets |= {url.removeprefix("gs://").partition("/")[0] for url in config}
    return options + [f"--bucket={bucket}" for bucket in sorted(buckets - landing)]


def _report(outcome: "Outcome") -> None:
    for ref in outcome.dropped:
        output.print(f"[green]dropped[/] {escape(str(ref))}")
    if not outcome.dropped:
        output.print("[green]nothing new[/] to drop: the samples were ingested before")
    for table, rows in outcome.tables.items():
        output.print(f"[green]loaded[/]  {table} has {rows} rows")
    if outcome.dropped:
        output.print(f"[dim]from the first upload to the last row: {outcome.seconds:.1f} s[/]")
    output.print()
    show_rows(outcome.shown)


# What the shown commands name: a folder, an object and a table of the trigger bucket.
_SAMPLE = ("orders/", "customers/customers.csv", "shop.orders")
_PLACEHOLDER = ("FOLDER/", "OBJECT", "DATASET.TABLE")


def _welcome(running: _Running, folder: str, name: str, table: str) -> None:
    """Where everything is, and commands to copy: plain lines, since a frame would be copied with them."""
    endpoints, state = running.endpoints, running.state
    trigger = f"gs://{endpoints.project}-trigger"
    command = _command()
    at = "" if state == where.DEFAULT_STATE else f" --state {state}"
    port = running.app.ops.port if running.app.ops is not None else 0
    sections = {
        "ingestd is running": [
            ("Storage", endpoints.storage),
            ("Pub/Sub", endpoints.pubsub),
            ("BigQuery", endpoints.bigquery),
            ("Console", f"http://127.0.0.1:{port}/"),
            ("Daemon", f"http://127.0.0.1:{port}/status, /metrics, /readyz"),
            ("State", str(state)),
        ],
        "Try it, in another terminal": [
            ("Upload a file", f"[cyan]{command} cp FILE {trigger}/{folder}{at}[/]"),
            ("Query a table", f"[cyan]{command} query 'SELECT * FROM {table}'{at}[/]"),  # noqa: S608 - shown only
            ("Test a notification", f"[cyan]{command} publish {trigger}/{name}{at}[/]"),
            ("Rehearse a failure", f"[cyan]{command} faults add bigquery jobs.insert fail --times 3{at}[/]"),
        ],
        "With Google's command lines": [
            ("Point them here", f"[cyan]source {state / 'env.sh'}[/]"),
            ("Upload a file", f"[cyan]gcloud storage cp FILE {trigger}/{folder}[/]"),
            ("Query a table", "[cyan]bq --oauth_access_token=local query --nouse_legacy_sql 'SELECT …'[/]"),
        ],
    }
    for title, lines in sections.items():
        output.print(f"\n[bold green]{title}[/]")
        for label, text in lines:
            output.print(f"  {label:<20} {text}")
    output.print("\n[dim]Ctrl-C stops it; the next start continues where it was.[/]")


def _command() -> str:
    """How this user calls `ingestd` from here: by name when it is on the path, else by the shortest path."""
    own = Path(sys.executable).with_name("ingestd")
    found = shutil.which("ingestd")
    if found is not None and Path(found).resolve() == own.resolve():
        return "ingestd"
    try:
        return str(own.relative_to(Path.cwd()))
    except ValueError:
        return str(own)
