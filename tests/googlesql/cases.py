"""What GoogleSQL means, as a table: expressions with the type and the value that Google gives them.

`cases/PAGE.txt` holds the cases whose rules are on that page of Google's reference. A line is

    expression ⇒ type ⇒ value      expression ⇒ type ⇒ error      expression ⇒ refused

`error` comes when it is computed, `refused` before. No value was made with this project's code: Google's reference
implementation computed them, and `make oracle` asks it again. «…» in an expression is a value that stands for a column
as well: such a case is two, once as it is written and once where nothing about the value is known beforehand.

`differences.txt` is the one list of what an engine does otherwise, and why.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).parent
ENGINES = ("spark", "bigquery", "reference")
_ARROW = " ⇒ "
_COLUMN = re.compile("«(.*?)»")


@dataclass(frozen=True, slots=True)
class Case:
    """One expression. `type` is empty where it is refused, `value` where it is refused or fails."""

    page: str
    expression: str
    type: str
    value: str | None
    bare: bool = True  # as nothing is known of it beforehand: with columns, where it has some

    @property
    def refused(self) -> bool:
        return not self.type


@dataclass(frozen=True, slots=True)
class Difference:
    """An engine does not do what a case says: it `refuses` it, or `accepts` what should be refused, or answers else."""

    engine: str
    how: str
    reason: str
    expression: str


def cases() -> list[Case]:
    return [case for path in sorted((HERE / "cases").glob("*.txt")) for case in _read(path)]


def _read(path: Path) -> Iterator[Case]:
    for line in path.read_text().splitlines():
        if not line or line.startswith("## "):
            continue
        written, *answer = line.split(_ARROW)
        refused = answer == ["refused"]
        kind, value = ("", None) if refused else (answer[0], None if answer[1] == "error" else answer[1])
        *others, last = forms(written)
        for expression in others:
            yield Case(path.stem, expression, kind, value, bare=False)
        yield Case(path.stem, last, kind, value)


def forms(written: str) -> list[str]:
    """The expression as it is written, and with columns in place of the marked values."""
    return list(dict.fromkeys([_COLUMN.sub(r"\1", written), _COLUMN.sub(r"IF(TRUE, \1, NULL)", written)]))


def differences() -> dict[tuple[str, str], Difference]:
    """By engine and expression, each form of it."""
    listed = (item for item in _listed() if not item.expression.startswith("~ "))
    return {(item.engine, form): replace(item, expression=form) for item in listed for form in forms(item.expression)}


def patterns() -> list[Difference]:
    """Differences of expressions that `make oracle` makes up; these are regular expressions."""
    listed = (item for item in _listed() if item.expression.startswith("~ "))
    return [replace(item, expression=item.expression.removeprefix("~ ")) for item in listed]


def _listed() -> Iterator[Difference]:
    """A section is headed by `## engine how: reason`; its lines are expressions as the cases have them."""
    engine = how = reason = ""
    for line in (HERE / "differences.txt").read_text().splitlines():
        if line.startswith("## "):
            head, _, reason = line[3:].partition(": ")
            engine, _, how = head.partition(" ")
        elif line and not line.startswith("# "):
            yield Difference(engine, how, reason, line)
