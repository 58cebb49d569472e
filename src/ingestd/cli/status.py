"""`ingestd status`: how things stand, on one screen, once or live."""

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from ingestd.cli import where
from ingestd.cli.errors import CommandError
from ingestd.cli.ledger import Config, Json, print_json, settings_for
from ingestd.cli.terminal import duration, output
from ingestd.cli.windows import ago, span, windows_table

if TYPE_CHECKING:
    from ingestd.ledger.overview import Overview
    from ingestd.settings import Settings

_SHOWN = 8  # lines per part: one screen
_PATIENCE = 2.0


def status(
    since: Annotated[
        timedelta, typer.Option(parser=duration, help="How far back failures and tables are looked for.")
    ] = timedelta(days=1),
    watch: Annotated[bool, typer.Option("--watch", help="Keep looking until Ctrl-C.")] = False,
    every: Annotated[timedelta, typer.Option(parser=duration, help="How often, with --watch.")] = timedelta(seconds=10),
    daemon: Annotated[
        str, typer.Option(help="Its address, for quotas. [dim]Default: this machine, the settings' port.[/]")
    ] = "",
    as_json: Json = False,
    config: Config = None,
    state: where.State = None,
) -> None:
    """Show open windows, batches under way, recent failures, how fresh tables are, and quotas."""
    settings = settings_for(config, "", state)
    if watch and as_json:
        raise CommandError("--watch is for people; repeat `ingestd status --json` instead")
    if watch:
        asyncio.run(_watch(settings, since, every, daemon))
        return
    view = asyncio.run(_look(settings, since, daemon))
    if as_json:
        print_json(view.to_json())
    else:
        output.print(screen(view, since), soft_wrap=False)


async def _look(settings: "Settings", since: timedelta, daemon: str) -> "Overview":
    from ingestd.gcp.connect import connect
    from ingestd.ledger.parts import overseer
    from ingestd.model.clock import SystemClock

    async with connect(settings.project) as clients:
        view = await overseer(settings, clients.store, clients.warehouse, SystemClock()).look(since=since)
    view.daemon = await _ask_daemon(settings, daemon)
    if view.daemon is None:
        view.notes.append("the daemon's own /status is out of reach: no quotas (--daemon http://host:port)")
    return view


async def _watch(settings: "Settings", since: timedelta, every: timedelta, daemon: str) -> None:
    from rich.live import Live

    console = Console(highlight=False)
    with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            live.update(screen(await _look(settings, since, daemon), since), refresh=True)
            await asyncio.sleep(every.total_seconds())


async def _ask_daemon(settings: "Settings", address: str) -> dict[str, Any] | None:
    import httpx

    port = settings.http.port
    if not address and not port:
        return None
    url = f"{(address or f'http://127.0.0.1:{port}').rstrip('/')}/status"
    try:
        async with httpx.AsyncClient(timeout=_PATIENCE, trust_env=False) as client:
            answer = await client.get(url)
            document: dict[str, Any] = answer.raise_for_status().json()
    except (httpx.HTTPError, ValueError):
        return None
    return document if document.get("project") == settings.project else None


def screen(view: "Overview", since: timedelta) -> Group:
    parts: list[Any] = [_headline(view)]
    if view.windows:
        parts.append(windows_table(view.windows[:_SHOWN], _title("Open windows", len(view.windows))))
    if view.batches:
        parts.append(_batches(view))
    if view.failures:
        parts.append(_failures(view))
    if view.tables:
        parts.append(_tables(view, since))
    if quotas := (view.daemon or {}).get("quotas", {}).get("tables"):
        parts.append(_quotas(quotas))
    parts += [Text(f"note: {note}", style="dim") for note in view.notes]
    return Group(*parts)


def _headline(view: "Overview") -> Text:
    waiting = sum(1 for one in view.batches if one.state == "waiting")
    text = Text.assemble(
        (f"{view.at:%Y-%m-%d %H:%M:%S} UTC", "bold"),
        f"  {len(view.windows)} windows, {len(view.batches)} batches under way",
    )
    if waiting:
        text.append(f", {waiting} waiting for their surroundings", "yellow")
    if view.failures:
        text.append(f", {len(view.failures)} failed lately", "red")
    return text


def _title(text: str, count: int) -> str:
    return text if count <= _SHOWN else f"{text} (the first {_SHOWN} of {count:,})"


def _table(title: str, *columns: tuple[str, str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", expand=False)
    for name, justify in columns:
        elastic = justify == "left"
        table.add_column(
            name,
            justify="left" if elastic else "right",
            overflow="ellipsis",
            no_wrap=True,
            ratio=1 if elastic else None,
        )
    return table


def _batches(view: "Overview") -> Table:
    table = _table(
        _title("Batches under way", len(view.batches)),
        ("table", "left"), ("batch", "left"), ("phase", "left"), ("files", "right"), ("for", "right"), ("", "left"),
    )  # fmt: skip
    ordered = sorted(view.batches, key=lambda one: (one.state != "waiting", one.since))
    for one in ordered[:_SHOWN]:
        state: Text | str = one.state
        if one.retry_at is not None:
            state = Text(f"waits, again in {span(max(one.retry_at - view.at, timedelta()))}", style="yellow")
        table.add_row(
            one.destination,
            one.event_id,
            one.phase,
            f"{one.files:,}",
            span(max(view.at - one.since, timedelta())),
            state,
        )
    return table


def _failures(view: "Overview") -> Table:
    table = _table("Recent failures", ("when", "right"), ("table", "left"), ("batch", "left"), ("why", "left"))
    for one in view.failures[:_SHOWN]:
        why = one.error.replace("\n", " ")
        table.add_row(ago(one.updated_at, view.at), one.destination.partition(".")[2], one.event_id, Text(why))
    return table


def _tables(view: "Overview", since: timedelta) -> Table:
    table = _table(
        _title(f"Tables, of the last {span(since)}", len(view.tables)),
        ("table", "left"), ("data until", "right"), ("loaded", "right"), ("rows", "right"), ("done", "right"),
        ("failed", "right"),
    )  # fmt: skip
    stale_first = sorted(view.tables, key=lambda one: (one.fresh_until is not None, one.fresh_until or view.at))
    for one in stale_first[:_SHOWN]:
        failed = Text(f"{one.batches_failed:,}", style="red" if one.batches_failed else "")
        table.add_row(
            one.destination.partition(".")[2],
            ago(one.fresh_until, view.at),
            ago(one.last_loaded_at, view.at),
            f"{one.rows_loaded or 0:,}",
            f"{one.batches_done:,}",
            failed,
        )
    return table


def _quotas(quotas: list[dict[str, Any]]) -> Table:
    names = [name for name in quotas[0] if name != "table"]
    table = _table("Quota budget", ("table", "left"), *((name.replace("_", " "), "right") for name in names))
    for one in quotas[:_SHOWN]:
        table.add_row(str(one["table"]), *(str(one[name]) for name in names))
    return table
