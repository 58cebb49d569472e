"""`ingestd windows`: the batch windows that are open, with their countdown."""

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.text import Text

from ingestd.cli import where
from ingestd.cli.ledger import Config, Json, print_json, settings_for
from ingestd.cli.tables import Cell, LinedUp, span
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


def windows_table(lines: "Sequence[WindowLine]", title: str = "") -> LinedUp:
    from rich.filesize import decimal

    rows: list[tuple[Cell, ...]] = []
    for line in lines:
        left = "" if line.seconds_left is None else span(timedelta(seconds=line.seconds_left))
        shown = left if line.state == "open" else f"{line.state} {left}".strip()
        owner = f"…{line.owner[-_OWNER_ENDS_WITH:]}" if len(line.owner) > _OWNER_ENDS_WITH + 1 else line.owner
        style = _STYLES.get(line.state, "")
        size = decimal(line.bytes)
        rows.append((line.destination, line.rule, Text(shown, style=style), f"{line.files:,}", size, owner))
    return LinedUp(title, ("<table", "<rule", ">closes in", ">files", ">size", "<owner"), rows)
