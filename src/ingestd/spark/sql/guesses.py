"""Guessing what is not known yet, so that an expression is judged before its columns have types.

A column may be of any type, so whoever asks for one is answered with a guess, and is run again until every combination
of guesses was tried. What fails with all of them fails whatever the columns are.
"""

from collections.abc import Sequence

from ingestd.googlesql.types import (
    ANY_STRUCT,
    BIGNUMERIC,
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT64,
    INT64,
    JSON,
    NUMERIC,
    SCALARS,
    STRING,
    TIME,
    TIMESTAMP,
    array_of,
)
from ingestd.googlesql.values import Value
from ingestd.spark.sql.values import NULL

# The likely ones first; whatever is not listed by name comes last.
_LIKELY = (
    STRING, INT64, TIMESTAMP, DATE, DATETIME, FLOAT64, NUMERIC, BOOL, TIME, BYTES, JSON, BIGNUMERIC, ANY_STRUCT,
)  # fmt: skip
_ELEMENTS = (*_LIKELY, *(kind for kind in SCALARS.values() if kind not in _LIKELY))

# What a column may be. A NULL fits nearly everywhere, so most expressions are done with the first guess.
ANYTHING = (NULL, *(Value("x", kind, simple=True) for kind in (*_ELEMENTS, *map(array_of, _ELEMENTS))))


class Guesses:
    """The guesses of one run after the other: the last one changes first."""

    def __init__(self) -> None:
        self._made: list[tuple[int, int]] = []  # which of how many
        self._used = 0
        self.steps = 0  # how far this run got
        self.unsure = False  # whether something took part that cannot be guessed

    def pick(self, among: Sequence[Value]) -> Value:
        if self._used == len(self._made):
            self._made.append((0, len(among)))
        self._used += 1
        return among[self._made[self._used - 1][0]]

    @property
    def combinations(self) -> int:
        """How many there are, going by this run."""
        found = 1
        for _, size in self._made:
            found *= size
        return found

    def change(self) -> bool:
        """Make ready for the next run; false when there is none."""
        del self._made[self._used :]
        self._used = self.steps = 0
        while self._made:
            chosen, size = self._made.pop()
            if chosen + 1 < size:
                self._made.append((chosen + 1, size))
                return True
        return False
