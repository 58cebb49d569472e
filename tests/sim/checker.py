"""The judge: what was put in, what is in the tables and buckets at the end, and nothing about how it came about.

It knows none of the daemon's code. Guarantees are named as in the documentation: G1 nothing lost, G2 nothing doubled,
G3 nothing deleted early (watched at every deletion), G5 everything settled and acted upon.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
from tests.sim.scenario import DATASET, Ending, RulePlan


@dataclass(frozen=True, slots=True)
class Input:
    name: str
    generation: int
    ids: tuple[int, ...]
    rule: RulePlan
    bad: bool = False

    def __str__(self) -> str:
        return f"{self.name}#{self.generation} (rows {self.ids}{', bad' if self.bad else ''})"


@dataclass(slots=True)
class Evidence:
    inputs: tuple[Input, ...]
    rows: dict[str, Counter[int]]  # by table
    objects: dict[str, bytes]  # of the operations bucket
    sources: set[tuple[str, int]]
    early: list[str]  # deletions that came too soon
    stray: list[str] = field(default_factory=list)  # tables that should be gone if they belong to no rule
    settled_after: float = 0.0
    effects: Counter[str] = field(default_factory=Counter)
    crashed_at: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)


class Deletions:
    """Looks at every deletion of a source the moment it happens: are its rows there?"""

    def __init__(self, rows: Callable[[], dict[str, Counter[int]]], kept: Callable[[str], bool]) -> None:
        self._rows = rows
        self._kept = kept
        self._inputs: dict[tuple[str, int], Input] = {}
        self.early: list[str] = []

    def uploaded(self, given: Input) -> None:
        self._inputs[given.name, given.generation] = given

    def deleted(self, name: str, generation: int) -> None:
        given = self._inputs.get((name, generation))
        if given is None:
            return
        tables = self._rows()
        loaded = all(_found(tables, given, number) for number in given.ids)
        if not loaded and not (given.bad and self._kept(f"corrupted/{name}")):
            self.early.append(f"G3: {given} was deleted before its rows were in the table")
        if given.rule.ending is Ending.MOVE and not given.bad and not self._kept(f"archive/{name}"):
            self.early.append(f"G3: {given} was deleted before it was archived")


def check(evidence: Evidence) -> None:
    problems = list(_problems(evidence))
    assert not problems, "\n".join(problems)


def _problems(evidence: Evidence) -> Iterator[str]:
    yield from evidence.early
    yield from _doubled(evidence)
    newest = {given.name: given.generation for given in evidence.inputs}
    uploads = Counter(given.name for given in evidence.inputs)
    for given in evidence.inputs:
        several = sum(times > 1 for name, times in uploads.items() if name.startswith(f"{given.rule.prefix}/")) > 1
        if given.generation != newest[given.name]:
            yield from _half_loaded(evidence, given)
        elif uploads[given.name] == 1 or not (several and _refused(evidence, given)):
            yield from _lost(evidence, given)
        if not given.bad:
            yield from _claims(evidence, given, sure=uploads[given.name] == 1 or not several)


def _doubled(evidence: Evidence) -> Iterator[str]:
    wanted = {f"{DATASET}.{table}" for given in evidence.inputs for table in given.rule.tables}
    total: Counter[int] = Counter()
    for table, rows in evidence.rows.items():
        if table in wanted:
            total.update(rows)
        elif rows:
            yield f"G5: table {table} with {rows.total()} rows was left behind"
        elif table in evidence.stray:
            yield f"G5: table {table} was left behind"
    owners = {number: given for given in evidence.inputs for number in given.ids}
    for number, times in sorted(total.items()):
        given = owners.get(number)
        if given is None:
            yield f"G2: row {number} belongs to no file"
        elif times > 1:
            yield f"G2: row {number} of {given} is there {times} times"
        elif given.bad:
            yield f"G2: row {number} of {given} cannot have been loaded"


def _lost(evidence: Evidence, given: Input) -> Iterator[str]:
    loaded = [number for number in given.ids if _found(evidence.rows, given, number)]
    there = (given.name, given.generation) in evidence.sources
    if given.bad:
        if not _visible(evidence, given):
            yield f"G1: {given} is neither in quarantine nor reported as failed"
        if not there and f"corrupted/{given.name}" not in evidence.objects:
            yield f"G3: {given} is gone without a trace"
        return
    if len(loaded) < len(given.ids):
        if there and not loaded and _undecided(evidence, given):
            return
        missing = sorted(set(given.ids) - set(loaded))
        yield f"G1: {given}: rows {missing} are missing (source {'exists' if there else 'is gone'})"
        return
    if there and given.rule.ending is not Ending.KEEP:
        yield f"G5: {given} was loaded, but its source was never removed"
    if given.rule.ending is Ending.MOVE and f"archive/{given.name}" not in evidence.objects:
        yield f"G5: {given} was loaded, but never archived"


def _undecided(evidence: Evidence, given: Input) -> bool:
    """Whether its batch failed, and says so, because its bad files were not found within `MaxReload`."""
    return any(
        aside["Fate"] == "failed" and aside["Why"].startswith("still refused after")
        for record, place in _records(evidence, given)
        if record["Status"] == "failed" and (aside := record["Progress"]["Aside"].get(str(place)))
    )


def _half_loaded(evidence: Evidence, given: Input) -> Iterator[str]:
    """A file that was overwritten may never have been loaded; but not by halves."""
    loaded = [number for number in given.ids if _found(evidence.rows, given, number)]
    if 0 < len(loaded) < len(given.ids):
        yield f"G1: {given} was overwritten, and only its rows {loaded} are there"


def _claims(evidence: Evidence, given: Input, *, sure: bool) -> Iterator[str]:
    """The journal says what is so: a file that is claimed is there, one that is there is claimed, and none is silent.

    Where several files of a rule were overwritten, the bytes of one job do not tell which of them it read (not `sure`).
    """
    loaded = all(_found(evidence.rows, given, number) for number in given.ids)
    fates = [
        record["Progress"]["Aside"].get(str(place), {}).get("Fate", "loaded" if record["Status"] == "done" else "")
        for record, place in _records(evidence, given)
    ]
    claimed = any(fate in ("loaded", "read_earlier") for fate in fates)
    if not fates:
        yield f"G8: no batch knows of {given}"
    if not sure:
        return
    if claimed and not loaded:
        yield f"G8: {given} is said to be loaded ({fates}), and its rows are not there"
    if loaded and not claimed and not _read_instead(evidence, given) and "" not in fates:
        yield f"G8: the rows of {given} are there, and nobody says so ({fates})"


def _read_instead(evidence: Evidence, given: Input) -> bool:
    """Whether the batch of an earlier generation says that its job has read a newer one."""
    return any(
        aside["Fate"] == "superseded" and aside.get("JobID")
        for other in evidence.inputs
        if other.name == given.name and other.generation < given.generation
        for record, place in _records(evidence, other)
        if (aside := record["Progress"]["Aside"].get(str(place)))
    )


def _found(tables: dict[str, Counter[int]], given: Input, number: int) -> bool:
    return any(tables.get(f"{DATASET}.{table}", Counter())[number] for table in given.rule.tables)


def _visible(evidence: Evidence, given: Input) -> bool:
    """Whether somebody who looks finds out that this file was not loaded: set aside, or its batch failed."""
    if f"corrupted/{given.name}" in evidence.objects:
        return True
    return any(record["Status"] == "failed" for record, _ in _records(evidence, given))


def _refused(evidence: Evidence, given: Input) -> bool:
    """Whether a person was asked, since it cannot be told which of two generations a load has read.

    That is so when several files of one load were overwritten while it ran.
    """
    return any(
        record["Progress"]["Aside"].get(str(place), {}).get("Fate") == "refused"
        for record, place in _records(evidence, given)
    )


def _records(evidence: Evidence, given: Input) -> Iterator[tuple[dict[str, Any], int]]:
    """The finished batches that have this very generation, and its place in them."""
    for name, data in evidence.objects.items():
        if name.startswith("journal/Done/") and given.name.encode() in data:
            record = orjson.loads(data)
            for place, file in enumerate(record["Files"]):
                if file["URL"].endswith(f"/{given.name}") and int(file["Generation"]) == given.generation:
                    yield record, place
