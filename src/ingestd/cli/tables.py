"""Tables that stay readable in 80 columns: names give way, numbers never do."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.table import Table
from rich.text import Text

Cell = str | Text

_GAP = 3  # between columns
_NARROWEST = 6


@dataclass(frozen=True, slots=True)
class LinedUp:
    """A table from headers: `<name` is cut short where the width asks for it, `>name` is a number."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in self.rows]
        names = [header.lstrip("<>") for header in self.headers]
        wanted = [max(len(name), *(row[at].cell_len for row in cells)) for at, name in enumerate(names)]
        widths = fitted(wanted, [header.startswith("<") for header in self.headers], options.max_width)
        table = Table(
            title=self.title or None, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False
        )
        for header, name, width in zip(self.headers, names, widths, strict=True):
            justify: JustifyMethod = "right" if header.startswith(">") else "left"
            table.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis", width=width)
        for row in cells:
            table.add_row(*row)
        yield table


def fitted(wanted: Sequence[int], elastic: Sequence[bool], room: int) -> list[int]:
    """Column widths that fit: the widest elastic column gives way first."""
    widths = list(wanted)
    excess = sum(widths) + _GAP * len(widths) - room
    while excess > 0:
        widest = max((at for at, gives in enumerate(elastic) if gives), key=lambda at: widths[at], default=None)
        if widest is None or widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
        excess -= 1
    return widths


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
