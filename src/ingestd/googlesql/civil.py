"""What GoogleSQL's functions of dates and times have in common: their parts, and the elements of formats."""

import re

from ingestd.googlesql import ast
from ingestd.googlesql.types import DATE, DATETIME, TIME, TIMESTAMP

FAMILY = {"DATE": DATE, "DATETIME": DATETIME, "TIME": TIME, "TIMESTAMP": TIMESTAMP}
# In microseconds.
TIME_PARTS = {
    "HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000, "MILLISECOND": 1_000, "MICROSECOND": 1,
}  # fmt: skip
_WEEKDAYS = ("SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY")


def date_part(node: ast.Expression) -> tuple[str, int] | None:
    """A date part and, for weeks, the day they start on (0 is Sunday); None when it is something else."""
    if isinstance(node, ast.Call) and node.name == "WEEK" and len(node.args) == 1:
        day = node.args[0].parts[0].upper() if isinstance(node.args[0], ast.Path) else ""
        return ("WEEK", _WEEKDAYS.index(day)) if day in _WEEKDAYS else None
    if isinstance(node, ast.Path) and len(node.parts) == 1:
        name = node.parts[0].upper()
        return name, 1 if name == "ISOWEEK" else 0
    return None


ELEMENT = re.compile(r"%(E\*S|E\d+S|E4Y|Ez|E[cCxXyY]|O[deHImMSuUVwWy]|.)", re.DOTALL)
EXPANSIONS = {
    "c": "%a %b %e %H:%M:%S %Y", "D": "%m/%d/%y", "F": "%Y-%m-%d", "R": "%H:%M", "T": "%H:%M:%S",
    "X": "%H:%M:%S", "x": "%m/%d/%y", "h": "%b",
}  # fmt: skip
_FOREIGN = {
    "DATE": re.compile(r"%%|%(?:[EO]?[cHIklMPpRrSsTXZz]|E\*S|E\d+S)"),
    "TIME": re.compile(r"%%|%(?:[EO]?[AaBbhCcDdeFGgjmQsUuVWwxYyZz]|E4Y)"),
    "DATETIME": re.compile(r"%%|%[EO]?[Zz]"),
}


def escape_format(pattern: str, kind: str) -> str:
    """Elements that say nothing about a type stay as they are written."""
    foreign = _FOREIGN.get(kind)
    if foreign is None:
        return pattern
    return foreign.sub(lambda found: found[0] if found[0] == "%%" else f"%{found[0]}", pattern)
