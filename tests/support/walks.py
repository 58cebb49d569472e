"""docs/walks.md as a value: its walks, hop by hop."""

import re
from dataclasses import dataclass

from tests.support.places import ROOT

PAGE = (ROOT / "docs/walks.md").read_text()
BACK = "↩ "


@dataclass(frozen=True, slots=True)
class Hop:
    number: int
    room: str
    name: str  # below `ingestd`
    back: bool


def walks() -> dict[str, list[Hop]]:
    """By heading."""
    found = {}
    for section in PAGE.split("\n## ")[1:]:
        rows = re.findall(r"^\| (\d+) \| ([^|]+) \| `([\w.]+)` \| [^|]+ \|$", section, re.M)
        found[section.partition("\n")[0]] = [
            Hop(int(number), room.removeprefix(BACK), name, room.startswith(BACK)) for number, room, name in rows
        ]
    return found
