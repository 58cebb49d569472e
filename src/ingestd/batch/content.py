"""Where every file of a batch stands: loaded by which job, about to be loaded, or set aside and why.

Files are named by their place in the batch's list. Invariant: each of them is in exactly one chunk, one load, or set
aside; `recovery` moves them, and a record that is read back says the same.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from ingestd.batch.pinned import Pinned, Published

Members = tuple[int, ...]


class Fate(StrEnum):
    """Why a batch did not load one of its files."""

    MISSING = "missing"  # deleted before it was loaded
    SUPERSEDED = "superseded"  # overwritten before it was loaded, or before its job read it: the newer has a batch
    IGNORED = "ignored"  # not ours to load: our own move put it there, or another batch has it
    READ_EARLIER = "read_earlier"  # the load of an earlier generation has read it: its rows are there
    LOADED = "loaded"  # by this batch, before it was replayed
    REFUSED = "refused"  # whether its rows are there cannot be told: a person has to look
    CORRUPTED = "corrupted"
    INVALID_SCHEMA = "invalid_schema"
    FAILED = "failed"  # its load failed, and it is not known to be at fault itself

    @property
    def bad(self) -> bool:
        """Whether the file itself is at fault."""
        return self in (Fate.CORRUPTED, Fate.INVALID_SCHEMA)

    @property
    def wrong(self) -> bool:
        """Whether somebody has to do something about it."""
        return self.bad or self in (Fate.FAILED, Fate.REFUSED)


@dataclass(frozen=True, slots=True)
class SetAside:
    """One file's fate, and what BigQuery said about it."""

    fate: Fate
    why: str
    job_id: str = ""
    row: int | None = None
    position: int | None = None  # the byte at which the row starts
    column: str = ""
    named: bool = True  # False: BigQuery named no file, and this one was found by elimination
    rows: int | None = None  # that another batch's job brought, of a file that was read earlier

    def to_json(self) -> dict[str, Any]:
        document = {
            "Fate": self.fate,
            "Why": self.why,
            "JobID": self.job_id,
            "Row": self.row,
            "Position": self.position,
            "Column": self.column,
            "Named": self.named,
            "Rows": self.rows,
        }
        return {key: value for key, value in document.items() if value not in ("", None)}

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Self:
        return cls(
            fate=Fate(item["Fate"]),
            why=item["Why"],
            job_id=item.get("JobID", ""),
            row=item.get("Row"),
            position=item.get("Position"),
            column=item.get("Column", ""),
            named=item.get("Named", True),
            rows=item.get("Rows"),
        )


@dataclass(frozen=True, slots=True)
class Chunk:
    """Files that are still to be loaded, by job number `job` and its successors.

    After a failure that names no file, the search narrows: `files` are probed next, `rest` holds a bad file if they
    load, and `pool` waits until the bad one is found.
    """

    job: int
    files: Members
    rest: Members = ()
    pool: Members = ()
    failures: int = 0  # times in a row that its job failed for a moment
    blame: SetAside | None = None  # what the last load of `rest` was refused for

    @property
    def all(self) -> Members:
        return tuple(sorted((*self.files, *self.rest, *self.pool)))


@dataclass(frozen=True, slots=True)
class Load:
    """A job that is done and proven."""

    job: int
    files: Members
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class Part:
    """What one of several jobs that load a batch together is called: which of them it is, and the attempt at it."""

    number: int
    of: int
    attempt: int = 1

    def __str__(self) -> str:
        return f"part{self.number}of{self.of}"


@dataclass(frozen=True, slots=True)
class Progress:
    chunks: tuple[Chunk, ...] = ()
    loads: tuple[Load, ...] = ()
    aside: Mapping[int, SetAside] = field(default_factory=dict)
    jobs: int = 0  # the highest job number given out
    parts: Mapping[int, Part] = field(default_factory=dict)  # by job number; others are attempts at all of the batch
    reloads: int = 0  # loads that were needed because others were refused
    publishing: int = 1  # the attempt at publishing what was landed, over all targets: no number is used twice
    published: tuple[Published, ...] = ()  # targets that have their rows
    preparing: int = 0  # the highest attempt at preparing that may have begun
    pinned: Pinned | None = None  # what the attempt that counts has prepared
    staged: bool = False  # loaded into a table of its own first, and published from there

    @property
    def begun(self) -> bool:
        """Whether it is decided which jobs load the files that are not set aside."""
        return bool(self.chunks or self.loads or self.pinned)

    def has(self, branch: int) -> bool:
        """Whether that target has its rows."""
        return any(one.branch == branch for one in self.published)

    @property
    def loaded(self) -> Members:
        """The files whose rows are in the table (or its staging)."""
        own = (index for load in self.loads for index in load.files)
        earlier = (index for index, one in self.aside.items() if one.fate is Fate.READ_EARLIER)
        return tuple(sorted((*own, *earlier)))

    @property
    def rows(self) -> int:
        """What its own jobs have loaded."""
        return sum(load.rows for load in self.loads)

    @property
    def claimed(self) -> int:
        """Its files' rows: what its own jobs loaded, and what another batch's job has read of them."""
        return self.rows + sum(one.rows or 0 for one in self.aside.values())

    @property
    def size(self) -> int:
        return sum(load.size for load in self.loads)

    def with_fate(self, *fates: Fate) -> Members:
        return tuple(sorted(index for index, one in self.aside.items() if one.fate in fates))

    @property
    def wrong(self) -> Members:
        return tuple(sorted(index for index, one in self.aside.items() if one.fate.wrong))

    def fate_of(self, index: int) -> str:
        """One word for where a file stands: `loaded`, `pending`, or why it was set aside."""
        aside = self.aside.get(index)
        return str(aside.fate) if aside else ("loaded" if index in self.loaded else "pending")

    def give_out(self, parts: Iterable[tuple[int, int]]) -> "Progress":
        """With the next job numbers given to these parts (which, of how many); no name is given twice."""
        named, number = dict(self.parts), self.jobs
        for part, of in parts:
            number += 1
            if of > 1:
                before = [one.attempt for one in named.values() if (one.number, one.of) == (part, of)]
                named[number] = Part(part, of, max(before, default=0) + 1)
        return replace(self, jobs=number, parts=named)

    def give_out_again(self, job: int) -> "Progress":
        """With the next job number given to another attempt at what this job was for."""
        part = self.parts.get(job)
        return self.give_out([(part.number, part.of) if part else (1, 1)])

    def take_back(self, first: int) -> "Progress":
        """Without the job numbers from this one on, none of which BigQuery ever heard of."""
        named = {number: part for number, part in self.parts.items() if number < first}
        return replace(self, chunks=(), pinned=None, jobs=first - 1, parts=named)

    def to_json(self) -> dict[str, Any]:
        """All but `staged`, which records have beside their progress."""
        return {
            "Chunks": [
                {
                    "Job": chunk.job,
                    "Files": spans(chunk.files),
                    "Rest": spans(chunk.rest),
                    "Pool": spans(chunk.pool),
                    "Failures": chunk.failures,
                    "Blame": chunk.blame.to_json() if chunk.blame else None,
                }
                for chunk in self.chunks
            ],
            "Loads": [
                {"Job": load.job, "Files": spans(load.files), "Rows": load.rows, "Bytes": load.size}
                for load in self.loads
            ],
            "Aside": {str(index): one.to_json() for index, one in sorted(self.aside.items())},
            "Jobs": self.jobs,
            **(
                {"Parts": {str(job): [one.number, one.of, one.attempt] for job, one in self.parts.items()}}
                if self.parts
                else {}
            ),
            "Reloads": self.reloads,
            "Publishing": self.publishing,
            **({"Published": [one.to_json() for one in self.published]} if self.published else {}),
            **({"Preparing": self.preparing} if self.preparing else {}),
            **({"Prepared": self.pinned.to_json()} if self.pinned else {}),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any], *, staged: bool = False) -> Self:
        return cls(
            chunks=tuple(
                Chunk(
                    item["Job"],
                    members(item["Files"]),
                    members(item["Rest"]),
                    members(item["Pool"]),
                    item["Failures"],
                    SetAside.from_json(item["Blame"]) if item["Blame"] else None,
                )
                for item in document["Chunks"]
            ),
            loads=tuple(
                Load(item["Job"], members(item["Files"]), item["Rows"], item["Bytes"]) for item in document["Loads"]
            ),
            aside={int(index): SetAside.from_json(item) for index, item in document["Aside"].items()},
            jobs=document["Jobs"],
            parts={int(job): Part(*item) for job, item in document.get("Parts", {}).items()},
            reloads=document["Reloads"],
            publishing=document["Publishing"],
            published=tuple(Published.from_json(item) for item in document.get("Published", ())),
            preparing=document.get("Preparing", 0),
            pinned=Pinned.from_json(document["Prepared"]) if document.get("Prepared") else None,
            staged=staged,
        )


def spans(indexes: Iterable[int]) -> str:
    """`0-5,7`: a hundred thousand files in a few characters."""
    ordered = sorted(indexes)
    if ordered and ordered == list(range(ordered[0], ordered[-1] + 1)):
        runs: Iterable[tuple[int, int]] = ((ordered[0], ordered[-1]),)  # mostly, and known at once
    else:
        runs = _runs(ordered)
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def members(text: str) -> Members:
    found: list[int] = []
    for run in filter(None, text.split(",")):
        first, _, last = run.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def _runs(indexes: list[int]) -> Iterator[tuple[int, int]]:
    start = previous = None
    for index in indexes:
        if previous is not None and start is not None and index != previous + 1:
            yield start, previous
            start = index
        elif start is None:
            start = index
        previous = index
    if start is not None and previous is not None:
        yield start, previous
