"""`ingestd ordered`: how far ordered tables are, and what to do about one that is held."""

import asyncio
import getpass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ingestd.cli import where
from ingestd.cli.errors import CommandError
from ingestd.cli.ledger import Config, settings_for
from ingestd.cli.terminal import Json, output, print_json

if TYPE_CHECKING:
    from ingestd.collect.success.queue import OrderedTable, Queues
    from ingestd.settings import Settings

app = typer.Typer(help="Tables whose batches are loaded in order.", no_args_is_help=True)

Table = Annotated[str, typer.Argument(metavar="TABLE", help="`dataset.table`, or gs://bucket/dataset/table.")]


@app.command()
def show(
    table: Annotated[str, typer.Argument(metavar="[TABLE]", help="Only this one.")] = "",
    config: Config = None,
    state: where.State = None,
    as_json: Json = False,
) -> None:
    """How far each table is, what waits, and what holds it."""
    asyncio.run(_show(settings_for(config, "", state), table, as_json=as_json))


@app.command()
def retry(table: Table, config: Config = None, state: where.State = None) -> None:
    """Try a held table's batch again, or go on after validation."""
    asyncio.run(_act(settings_for(config, "", state), table, skip=False))


@app.command()
def skip(table: Table, config: Config = None, state: where.State = None) -> None:
    """Leave the batch that holds a table out, and go on with the next."""
    asyncio.run(_act(settings_for(config, "", state), table, skip=True))


async def _show(settings: "Settings", name: str, *, as_json: bool) -> None:
    from ingestd.collect.success.queue import Queues
    from ingestd.gcp.connect import connect

    async with connect(settings.project) as clients:
        queues = Queues(clients.store, settings.journal / "ordered")
        tables = [await _find(queues, name)] if name else await _all(queues)
        if as_json:
            print_json([await _document(queues, table) for table in tables])
            return
        if not tables:
            output.print("no table has ordered batches")
        for table in tables:
            await _describe(queues, table)


async def _document(queues: "Queues", table: "OrderedTable") -> dict[str, Any]:
    state, _ = await queues.state(table)
    return {
        "table": table.url,
        "committed": state.committed.rpartition("@")[0],
        "current": state.current_url,
        "hold": state.hold,
        "note": state.note,
        "waiting": [entry.success.ref.url async for entry in queues.entries(table) if entry.order != state.current],
    }


async def _describe(queues: "Queues", table: "OrderedTable") -> None:
    state, _ = await queues.state(table)
    output.print(f"[bold]{escape(table.url)}[/]")
    output.print(f"  committed  {state.committed.rpartition('@')[0] or 'nothing yet'}", markup=False)
    if state.current:
        output.print(f"  under way  {state.current_url}", markup=False)
    if state.hold:
        output.print(f"  held       [yellow]{state.hold}[/]: {escape(state.note)}")
        output.print(f"             go on: ingestd ordered retry {table.url}", markup=False)
        if state.current:
            output.print(f"             leave it out: ingestd ordered skip {table.url}", markup=False)
    waiting = [entry.order async for entry in queues.entries(table) if entry.order != state.current]
    output.print(f"  waiting    {len(waiting)}")
    for order in waiting[:10]:
        output.print(f"             {order.rpartition('@')[0]}", markup=False)
    if len(waiting) > 10:
        output.print(f"             … and {len(waiting) - 10} more")


async def _act(settings: "Settings", name: str, *, skip: bool) -> None:
    from ingestd.batch.journal import Journal
    from ingestd.collect.success.interventions import Interventions
    from ingestd.collect.success.queue import Queues
    from ingestd.gcp.connect import connect
    from ingestd.model.clock import SystemClock

    clock = SystemClock()
    async with connect(settings.project) as clients:
        queues = Queues(clients.store, settings.journal / "ordered")
        journal = Journal(clients.store, settings.journal, clock, owner="ordered", lease=settings.recovery.lease)
        project, staging = settings.project, settings.staging
        acting = Interventions(
            queues, journal, clients.store, clients.warehouse, clock, project=project, staging=staging
        )
        table = await _find(queues, name)
        said = await (acting.skip(table, getpass.getuser()) if skip else acting.retry(table))
        output.print(f"{table.url} {said}", markup=False)


async def _all(queues: "Queues") -> "list[OrderedTable]":
    known = {state.table for state in [one async for one in queues.states()]}
    return sorted(known | set(await queues.waiting()), key=lambda table: table.url)


async def _find(queues: "Queues", name: str) -> "OrderedTable":
    wanted = name.rstrip("/") if name.startswith("gs://") else "/" + name.replace(".", "/")
    found = [table for table in await _all(queues) if table.url == wanted or table.url.endswith(wanted)]
    if not found:
        raise CommandError(f"{name} has no ordered batches; `ingestd ordered show` lists the tables that have")
    if len(found) > 1:
        raise CommandError(f"{name} is in several buckets: {', '.join(table.url for table in found)}")
    return found[0]
