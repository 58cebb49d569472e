"""How far compressed data may grow: a few bytes can claim gigabytes, and whoever may upload may send them.

A file may always grow to `free` bytes, whatever its own size: a short file of equal rows is an honest file. Beyond that
it may grow to `ratio` times its own size. Text compresses ten to a hundred times, rows that hardly differ two hundred
times; a bomb, thousands to millions of times. What grows further is refused where that shows, never inflated whole.
"""

from dataclasses import dataclass


class InflationError(Exception):
    """The data grows further than its size allows."""


@dataclass(frozen=True, slots=True)
class Inflation:
    free: int = 512 << 20
    ratio: int = 250
    advice: str = "spark.inflated_size or spark.inflated_ratio"  # what to raise

    def budget(self, stored: int) -> "Budget":
        return Budget(max(self.free, self.ratio * stored), stored, self.advice)


BOUND = Inflation()


class Budget:
    """What one file may still grow; raises `InflationError`."""

    def __init__(self, most: int, stored: int, advice: str) -> None:
        self._most = most
        self._stored = stored
        self._advice = advice
        self.left = most

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise InflationError(
                f"its {self._stored:,} bytes grow to more than {self._most:,}, as bombs do; if this is none, split it"
                f" or raise {self._advice}"
            )
