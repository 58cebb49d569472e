"""`ingestd windows`: the batch windows that are open, with their countdown."""

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rich.table import Table

from ingestd.cli import where
from ingestd.cli.ledger import Config, Json, print_json, settings_for
from ingestd.cli.terminal import output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingestd.ledger.overview import WindowLine
    from ingestd.settings import Settings

_STYLES = {"overdue": "yellow", "orphaned": "red", "closed": "cyan"}
_OWNER_ENDS_WITH = 12  # host names begin alike, the random part tells


def windows(config: Config = None, state: where.State = None, as_json: Json = False) -> None:
    """List open windows: when they close, who owns them, how many files wait.

    Files of the last few seconds are still in their owner's memory and not counted.
    """
    lines = asyncio.run(_windows(settings_for(config, "", state)))
    if as_json:
        print_json([line.to_json() for line in lines])
    elif not lines:
        output.print("no window is open")
    else:
        output.print(windows_table(lines), soft_wrap=False)


async def _windows(settings: "Settings") -> "list[WindowLine]":
    from ingestd.gcp.connect import connect
    from ingestd.ledger.parts import overseer
    from ingestd.model.clock import SystemClock

    async with connect(settings.project) as clients:
        return await overseer(settings, clients.store, clients.warehouse, SystemClock()).windows()


def windows_table(lines: "Sequence[WindowLine]", title: str | None = None) -> Table:
    from rich.filesize import decimal

    table = Table(title=title, title_justify="left", title_style="bold", expand=False)
    table.add_column("table", overflow="ellipsis", no_wrap=True, ratio=3)
    table.add_column("rule", overflow="ellipsis", no_wrap=True, ratio=2)
    table.add_column("closes in", justify="right", no_wrap=True)
    table.add_column("files", justify="right", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("owner", overflow="ellipsis", no_wrap=True, ratio=2)
    for line in lines:
        left = "" if line.seconds_left is None else span(timedelta(seconds=line.seconds_left))
        shown = left if line.state == "open" else f"{line.state} {left}".strip()
        table.add_row(
            line.destination,
            line.rule,
            f"[{_STYLES.get(line.state, '')}]{shown}[/]" if line.state in _STYLES else shown,
            f"{line.files:,}",
            decimal(line.bytes),
            f"…{line.owner[-_OWNER_ENDS_WITH:]}" if len(line.owner) > _OWNER_ENDS_WITH + 1 else line.owner,
        )
    return table


def span(duration: timedelta) -> str:
    """`1h02m`, `4m10s`, `12s`, and with a minus what has passed."""
    seconds = round(duration.total_seconds())
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    if seconds >= 2 * 86400:
        return f"{sign}{seconds // 86400}d{seconds % 86400 // 3600:02d}h"
    if seconds >= 3600:
        return f"{sign}{seconds // 3600}h{seconds % 3600 // 60:02d}m"
    if seconds >= 60:
        return f"{sign}{seconds // 60}m{seconds % 60:02d}s"
    return f"{sign}{seconds}s"


def ago(moment: datetime | None, now: datetime) -> str:
    return "never" if moment is None else f"{span(max(now - moment, timedelta()))} ago"
