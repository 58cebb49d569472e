"""`ingestd status`: how things stand, on one screen, once or live."""

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.text import Text

from ingestd.cli import where
from ingestd.cli.errors import CommandError
from ingestd.cli.ledger import Config, Json, print_json, settings_for
from ingestd.cli.tables import Cell, LinedUp, ago, span
from ingestd.cli.terminal import duration, output
from ingestd.cli.windows import windows_table

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
        str, typer.Option(help="Its address, for quotas. [dim]Default: that of --state, else here, on http.port.[/]")
    ] = "",
    as_json: Json = False,
    config: Config = None,
    state: where.State = None,
) -> None:
    """Show open windows, batches under way, recent failures, how fresh tables are, and quotas."""
    settings = settings_for(config, "", state)
    daemon = daemon or where.daemon(state)
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
    try:
        view.daemon = await ask_daemon(settings, daemon)
    except CommandError as error:
        view.notes.append(f"no quotas: {error}")
    return view


async def _watch(settings: "Settings", since: timedelta, every: timedelta, daemon: str) -> None:
    from rich.live import Live

    console = Console(highlight=False)
    with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            live.update(screen(await _look(settings, since, daemon), since), refresh=True)
            await asyncio.sleep(every.total_seconds())


async def ask_daemon(settings: "Settings", address: str) -> dict[str, Any]:
    import httpx

    port = settings.http.port
    url = address.rstrip("/") or f"http://127.0.0.1:{port}"
    if not address and not port:
        raise CommandError("where is the daemon? (--daemon http://host:port)")
    try:
        async with httpx.AsyncClient(timeout=_PATIENCE, trust_env=False) as client:
            answer = await client.get(f"{url}/status", headers=_credentials(settings))
        if answer.status_code in (401, 403):
            raise CommandError(f"the daemon at {url} wants its token: set http.token_file as it has it (--config)")
        document: dict[str, Any] = answer.raise_for_status().json()
    except (httpx.HTTPError, ValueError):
        raise CommandError(f"the daemon is out of reach at {url} (--daemon http://host:port)") from None
    if document.get("project") != settings.project:
        raise CommandError(f"what answers at {url} is no daemon of project {settings.project}")
    return document


def _credentials(settings: "Settings") -> dict[str, str]:
    """The console's token, where it asks for one."""
    from ingestd.console.wiring import console_token

    try:
        token = console_token(settings)
    except (OSError, ValueError) as error:
        raise CommandError(f"the daemon's token cannot be read: {error}") from None
    return {"Authorization": f"Bearer {token()}"} if token is not None else {}


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
    if strangers := (view.daemon or {}).get("left_alone"):
        lines = [Text(f"  {one['why']}: {one['reason']}", style="yellow") for one in strangers[:_SHOWN]]
        parts.append(Group(Text("Objects that the daemon cannot read and leaves alone", style="bold"), *lines, Text()))
    parts += [Text(f"note: {note}", style="dim") for note in view.notes]
    return Group(*parts)


def _headline(view: "Overview") -> Text:
    waiting = sum(1 for one in view.batches if one.state == "waiting")
    newer = sum(1 for one in view.batches if one.state == "newer version")
    text = Text.assemble(
        (f"{view.at:%Y-%m-%d %H:%M:%S} UTC", "bold"),
        f"  {_count(len(view.windows), 'window')}, {_count(len(view.batches), 'batch', 'batches')}",
    )
    if waiting:
        text.append(f", {waiting} waiting", "yellow")
    if newer:
        text.append(f", {newer} left to a newer version", "yellow")
    if view.failures:
        text.append(f", {len(view.failures)} failed lately", "red")
    return text


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _title(text: str, count: int) -> str:
    return text if count <= _SHOWN else f"{text} (the first {_SHOWN} of {count:,})"


def _batches(view: "Overview") -> LinedUp:
    rows: list[tuple[Cell, ...]] = []
    ordered = sorted(view.batches, key=lambda one: (one.state != "waiting", one.since))
    for one in ordered[:_SHOWN]:
        state = Text(one.phase)
        if one.state == "newer version":
            state = Text("left to a newer version", style="yellow")
        elif one.retry_at is not None:
            state = Text(f"again in {span(max(one.retry_at - view.at, timedelta()))}", style="yellow")
        waited = span(max(view.at - one.since, timedelta()))
        rows.append((one.event_id, one.destination, f"{one.files:,}", waited, state))
    title = _title("Batches under way", len(view.batches))
    return LinedUp(title, ("batch", "<table", ">files", ">for", "state"), rows)


def _failures(view: "Overview") -> Group:
    """Two lines each: which, and why as far as it fits."""
    lines: list[Text] = [Text("Recent failures", style="bold")]
    for one in view.failures[:_SHOWN]:
        when = ago(one.updated_at, view.at)
        lines.append(
            Text.assemble("  ", (one.event_id, "red"), f"  {_short(one.destination)}  {when}  rule {one.rule or '-'}")
        )
        lines.append(Text(f"    {' '.join(one.error.split())}", style="dim", no_wrap=True, overflow="ellipsis"))
    return Group(*lines, Text())


def _short(destination: str) -> str:
    """Without the project, which is mostly the same."""
    return destination.partition(".")[2] or destination


def _tables(view: "Overview", since: timedelta) -> LinedUp:
    stale_first = sorted(view.tables, key=lambda one: (one.fresh_until is not None, one.fresh_until or view.at))
    rows: list[tuple[Cell, ...]] = [
        (
            _short(one.destination),
            ago(one.fresh_until, view.at),
            ago(one.last_loaded_at, view.at),
            f"{one.rows_loaded or 0:,}",
            f"{one.batches_done:,}",
            Text(f"{one.batches_failed:,}", style="red" if one.batches_failed else ""),
        )
        for one in stale_first[:_SHOWN]
    ]
    title = _title(f"Tables, of the last {span(since)}", len(view.tables))
    return LinedUp(title, ("<table", ">data until", ">loaded", ">rows", ">done", ">failed"), rows)


def _quotas(quotas: list[dict[str, Any]]) -> LinedUp:
    rows = [
        (
            _short(str(one["table"])),
            f"{one['used_today']:,} of {one['limit']:,}",
            str(one["waiting"]),
            f"x{one['stretch']:g}",
            f"{one['closed_for_seconds']:g}s",
        )
        for one in quotas[:_SHOWN]
    ]
    return LinedUp("Quota budget", ("<table", ">loads today", ">waiting", ">windows widened", ">closed for"), rows)
