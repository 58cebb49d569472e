"""A batch as the pipeline sees it: what is asked for, how it is dealt to tasks, and its rows once they are read."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ingestd.model.errors import Fatal, Transient
from ingestd.model.preparation import BadData, Drift, FileLayout, Shaping
from ingestd.model.schema import Mode, Schema
from ingestd.spark.files import bucket
from ingestd.spark.files.read_task import Report, Unit
from ingestd.spark.files.readers import ReadPlan
from ingestd.spark.files.write_task import Writing, Written
from ingestd.spark.shape.quarantine import Verdict
from ingestd.spark.shape.steps import SideFrame

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

SHARE_BYTES = 4 << 20  # less is not worth another task
SHRINKS = 2  # text to compressed columns, cautiously: decides how many files there will be

Sides = Callable[["SparkSession"], Mapping[str, SideFrame]]


@dataclass(frozen=True, slots=True)
class Work:
    """A batch as the pipeline sees it."""

    plan: ReadPlan
    units: tuple[Unit, ...]
    destination: Schema  # empty: made from the rows
    shaping: Shaping
    policy: BadData
    layout: FileLayout
    target: str  # folder for what is written, of this attempt alone
    names: tuple[str, ...]  # of all files, by their place in the request
    order: tuple[int, ...] = ()  # rank of each file: the highest is the newest
    absent: Drift = Drift.DISCARD_VALUE
    in_bucket: bool = False  # Spark itself reads the files, and writes there
    rejects: str = ""
    cores: int = 0
    sides: Sides | None = None
    content: int = 0  # bytes that the rows may take, by guess (`content`); 0: not guessed yet
    room: int | None = None  # bytes of scratch that kept rows may take; None: as many as they are worth

    @property
    def size(self) -> int:
        """What the batch is worth: its files' size, or more, where they are packed."""
        return max(self.content, sum(unit.length for unit in self.units))

    @property
    def columns(self) -> Schema:
        """What the rows have as they are read."""
        return (*self.plan.schema, *self.plan.keys)

    @property
    def on_this_disk(self) -> bool:
        """Whether workers read and write where this process does."""
        return not self.in_bucket and self.cores > 0


@dataclass(frozen=True, slots=True)
class Told:
    """What the reading of a batch told: reports on its files, and how many rows were left out as duplicates."""

    reports: list[Report]
    duplicates: int = 0


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch's rows, and what is known of its files: everything, or nothing before the rows are written."""

    frame: Callable[[Schema], "DataFrame"]  # with these columns
    shaping: Shaping  # what is still to be done
    told: Callable[[], Told]
    verdict: Verdict | None = None
    folder: str = ""  # where they are kept
    write: Callable[[Writing], Written] | None = None  # into files, past Spark
    shown: "pa.Table | None" = None  # one row of each kind, of what expressions look at


def changes(work: Work, shaping: Shaping) -> bool:
    """Whether rows have to be made into others."""
    return shaping.asked or (bool(work.destination) and _outline(work.destination) != _outline(work.columns))


def _outline(schema: Schema) -> list[Any]:
    """Names to the letter: whoever writes rows as they are finds columns and members by them."""
    return [
        (item.name, item.type, item.mode is Mode.REPEATED, _outline(item.fields) if item.fields else None)
        for item in schema
    ]


def unsettled(work: Work, verdict: Verdict) -> bool:
    """Whether what was read is not to be used."""
    new = bool(verdict.unknown) and work.plan.drift is Drift.EVOLVE
    return bool(verdict.leaked) or verdict.strict or new or (work.policy is BadData.FAIL and bool(verdict.bad))


def check_complete(work: Work, reports: Sequence[Report]) -> None:
    """Every unit was read: a file that nobody reports on must never pass for an empty one."""
    silent = {(unit.index, unit.part) for unit in work.units} - {(item.index, item.part) for item in reports}
    if silent:
        raise Fatal(f"no report came for {len(silent)} file(s), e.g. {work.names[min(silent)[0]]}")
    if short := bucket.short(work.units, reports):
        raise Transient(f"Spark did not read all of {len(short)} file(s), e.g. {short[0]}")


class TooWideError(Exception):
    """The rows take more room in scratch than the files let expect, or have too many keys to look at."""


def tasks(work: Work) -> int:
    """How many tasks read: enough to use every core, few enough that each writes a file of some size."""
    busy = min(work.cores or 8, -(-work.size // SHARE_BYTES))
    return max(1, busy, -(-work.size // (work.layout.target_size * SHRINKS)))


def share(units: Sequence[Unit], count: int) -> tuple[tuple[Unit, ...], ...]:
    """The units in that many shares of about equal size, the largest units dealt first."""
    heap: list[tuple[int, int]] = [(0, number) for number in range(min(count, max(len(units), 1)))]
    shares: list[list[Unit]] = [[] for _ in heap]
    for unit in sorted(units, key=lambda unit: (-unit.length, unit.index, unit.part)):
        size, number = heapq.heappop(heap)
        shares[number].append(unit)
        heapq.heappush(heap, (size + unit.length + 1, number))
    return tuple(tuple(sorted(one, key=lambda unit: (unit.index, unit.part))) for one in shares)


def run_tasks(session: "SparkSession", task: Callable[[Iterable[int]], Iterator[T]], shares: int) -> list[T]:
    """What a task tells of each share, in their order.

    Not as a query: to plan one and to feed it to Python takes several times as long as a job of this kind.
    """
    numbers = session.sparkContext.parallelize(range(shares), shares)
    return numbers.mapPartitions(task).collect()
