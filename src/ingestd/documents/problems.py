"""What is wrong in a document, where, and how to mend it."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A position a person can open: `file:line:column`, or a name alone (line 0), such as an environment variable."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing to mend. `path` is the dotted key path inside the document, empty for its root."""

    file: str
    line: int
    column: int
    path: str
    message: str
    severity: Severity = Severity.ERROR

    @classmethod
    def at(cls, place: Place, path: str, message: str, severity: Severity = Severity.ERROR) -> "Problem":
        return cls(place.file, place.line, place.column, path, message, severity)

    @property
    def place(self) -> Place:
        return Place(self.file, self.line, self.column)

    def __str__(self) -> str:
        text = f"{self.path}: {self.message}" if self.path else self.message
        return f"{self.place}: {text}" if self.severity is Severity.ERROR else f"{self.place}: warning: {text}"


class DocumentError(ValueError):
    """A document that cannot be used. Lists every problem found in it, not only the first."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'Table'?`, or nothing when no known word is near."""
    by_folded = {name.lower(): name for name in known}
    near = get_close_matches(word.lower(), by_folded, n=1, cutoff=0.6)
    return f"; did you mean {by_folded[near[0]]!r}?" if near else ""
