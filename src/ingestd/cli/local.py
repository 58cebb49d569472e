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
from typing import TYPE_CHECKING, Annotated

import typer
from rich.panel import Panel
from rich.table import Table

from ingestd.cli.cloud import DEFAULT_PROJECT, Project, StateFolder
from ingestd.cli.daemon import ConfigFile
from ingestd.cli.files import show_rows
from ingestd.cli.terminal import duration, output

if TYPE_CHECKING:
    from ingestd.cli.samples import Outcome
    from ingestd.gcp.connect import Clients
    from ingestd.localcloud.statefolder import Endpoints

RulesFolder = Annotated[
    Path | None,
    typer.Option("--rules", metavar="DIR", exists=True, file_okay=False, help="Folder of rule files."),
]
SampleFolder = Annotated[
    Path | None,
    typer.Option("--samples", metavar="DIR", exists=True, file_okay=False, help="Folder of sample files to drop in."),
]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where and with what the daemon runs."""

    state: Path
    project: str
    rules: Path | None
    config: Path | None


def local(
    state: StateFolder,
    rules: RulesFolder = None,
    config: ConfigFile = None,
    project: Project = DEFAULT_PROJECT,
    samples: SampleFolder = None,
) -> None:
    """Run the daemon on a local cloud of its own, until stopped.

    Buckets, topics and subscriptions that are missing are created. The state folder keeps everything; the next start
    continues where this one ended.
    """
    asyncio.run(_stay(_Place(state, project, rules, config), samples))


def demo(
    rules: Annotated[Path, typer.Option(metavar="DIR", exists=True, file_okay=False)] = Path("config/rules"),
    samples: Annotated[Path, typer.Option(metavar="DIR", exists=True, file_okay=False)] = Path("config/samples"),
    patience: Annotated[
        timedelta, typer.Option(parser=duration, metavar="DURATION", help="How long the rows may take to arrive.")
    ] = timedelta(seconds=60),
) -> None:
    """Watch sample files become rows, in a throw-away folder, then exit."""
    with tempfile.TemporaryDirectory(prefix="ingestd-demo-") as folder:
        asyncio.run(_show_once(_Place(Path(folder), DEFAULT_PROJECT, rules, None), samples, patience))


async def _stay(place: _Place, samples: Path | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with _running(place) as (clients, endpoints):
        if samples is not None:
            _report(await _drop(clients, place, samples))
        _welcome(endpoints, place)
        await stop.wait()
        output.print("[dim]stopping; the next start continues from here[/]")


async def _show_once(place: _Place, samples: Path, patience: timedelta) -> None:
    async with _running(place) as (clients, _):
        _report(await _drop(clients, place, samples, patience))


@asynccontextmanager
async def _running(place: _Place) -> AsyncIterator[tuple["Clients", "Endpoints"]]:
    """Cloud and daemon, as long as the block runs; when either ends by itself, so does the block, with the reason."""
    from ingestd.cli import minimal
    from ingestd.cli.child import cloud_process, watch
    from ingestd.gcp.connect import connect

    async with cloud_process(place.state, place.project) as (process, endpoints):
        os.environ.update(endpoints.environ())
        async with connect(place.project) as clients, asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(watch(process), name="cloud"),
                tasks.create_task(minimal.run(clients, "ingestd-notifications", place.rules), name="daemon"),
            ]
            yield clients, endpoints
            for task in background:
                task.cancel()


async def _drop(
    clients: "Clients", place: _Place, samples: Path, patience: timedelta = timedelta(seconds=60)
) -> "Outcome":
    from ingestd.cli.samples import Dropper

    dropper = Dropper(clients.store, clients.warehouse, place.project)
    with output.status("dropping sample files and waiting for their rows"):
        return await dropper.drop(samples, patience)


def _report(outcome: "Outcome") -> None:
    for ref in outcome.dropped:
        output.print(f"[green]dropped[/] {ref}")
    if not outcome.dropped:
        output.print("[green]nothing new[/] to drop: the samples were ingested before")
    for table, rows in outcome.tables.items():
        output.print(f"[green]loaded[/]  {table} has {rows} rows")
    if outcome.dropped:
        output.print(f"[dim]from the first upload to the last row: {outcome.seconds:.1f} s[/]")
    output.print()
    show_rows(outcome.shown)


def _welcome(endpoints: "Endpoints", place: _Place) -> None:
    command, trigger = _command(), f"gs://{endpoints.project}-trigger"
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("Storage", endpoints.storage)
    grid.add_row("Pub/Sub", endpoints.pubsub)
    grid.add_row("BigQuery", endpoints.bigquery)
    grid.add_row("State", str(place.state))
    grid.add_row("", "")
    grid.add_row("Upload a file", f"[cyan]{command} cp FILE {trigger}/orders/[/]")
    grid.add_row("Query a table", f"[cyan]{command} query 'SELECT * FROM shop.orders'[/]")  # noqa: S608 - shown
    grid.add_row("Test a notification", f"[cyan]{command} publish {trigger}/customers/customers.csv[/]")
    grid.add_row("Rehearse a failure", f"[cyan]{command} faults add bigquery jobs.insert fail --times 3[/]")
    grid.add_row("", "")
    grid.add_row("With gcloud and bq", f"[cyan]source {place.state / 'env.sh'}[/]")
    grid.add_row("", f"[cyan]gcloud storage cp FILE {trigger}/orders/[/]")
    grid.add_row("", "[cyan]bq --api $BIGQUERY_EMULATOR_HOST query --nouse_legacy_sql 'SELECT …'[/]")
    output.print(Panel(grid, title="ingestd is running", subtitle="Ctrl-C stops it", border_style="green"))


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
