"""The judge: what was put in, what is in the tables and buckets at the end, and nothing about how it came about.

It knows none of the daemon's code. Guarantees are named as in the documentation: G1 nothing lost, G2 nothing doubled,
G3 nothing deleted early (watched at every deletion), G5 everything settled and acted upon.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
from tests.sim.scenario import Ending, RulePlan
from tests.support.sim.names import DATASET

_FINAL = ("done", "failed", "superseded", "missing", "ignored")


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
    early: list[str]  # deletions that came too soon, and what else was seen under way
    stray: list[str] = field(default_factory=list)  # tables that should be gone if they belong to no rule
    explained: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # what `explain` says, by name
    load_state: list[dict[str, Any]] | None = None  # rows of that table; None: it is not kept
    litter: set[str] = field(default_factory=set)  # what others put into our folders
    settled_after: float = 0.0
    replaced: dict[tuple[str, int], float] = field(default_factory=dict)  # when it was overwritten or taken back
    ends: list[tuple[float, bytes]] = field(default_factory=list)  # records written under `Done/`, and when
    left_out: set[tuple[str, int]] = field(default_factory=set)  # a person did, of an ordered table
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
        if (given.name, given.generation) in evidence.left_out:
            yield from _left_out(evidence, given)
            continue
        several = sum(times > 1 for name, times in uploads.items() if name.startswith(f"{given.rule.prefix}/")) > 1
        if given.generation != newest[given.name]:
            yield from _overwritten(evidence, given, told_apart=not several)
        elif uploads[given.name] == 1 or not (several and _refused(evidence, given)):
            yield from _lost(evidence, given)
        sure = uploads[given.name] == 1 or not several
        if not given.bad:
            yield from _claims(evidence, given, sure=sure)
        yield from _explained(evidence, given, sure=sure)
    if evidence.load_state is not None:
        yield from _told(evidence, evidence.load_state)
        yield from _counted(evidence, evidence.load_state, {name for name, times in uploads.items() if times > 1})


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


def _left_out(evidence: Evidence, given: Input) -> Iterator[str]:
    """A person did not want its batch: its rows are not there, it is where it was, and `explain` says so."""
    loaded = any(_found(evidence.rows, given, number) for number in given.ids)
    if loaded:
        yield f"G6: {given} was left out of its table by a person, and its rows are there"
    if (given.name, given.generation) not in evidence.sources:
        yield f"G3: {given} was left out of its table, and is gone"
    phases = [one["phase"] for one in evidence.explained.get(given.name, ())]
    if phases != ["failed"]:
        yield f"G8: {given} was left out of its table by a person, and explain says {phases}"


def _undecided(evidence: Evidence, given: Input) -> bool:
    """Whether its batch failed, and says so, because its bad files were not found within `MaxReload`."""
    return any(_gave_up(record, place) for record, place in _records(evidence, given))


def _gave_up(record: dict[str, Any], place: int) -> bool:
    aside = record["Progress"]["Aside"].get(str(place))
    gave_up = aside is not None and aside["Fate"] == "failed" and aside["Why"].startswith("still refused after")
    return record["Status"] == "failed" and gave_up


def _overwritten(evidence: Evidence, given: Input, *, told_apart: bool) -> Iterator[str]:
    """The newer generation stands for one that was overwritten (or taken back) before anything read it.

    Whatever its batch says, that is no excuse once the batch has ended: by then it was read, or a person was asked for
    a reason that is documented. And nothing is loaded by halves.
    """
    loaded = [number for number in given.ids if _found(evidence.rows, given, number)]
    if len(loaded) == len(given.ids):
        return
    if loaded:
        yield f"G1: {given} was overwritten, and only its rows {loaded} are there"
        return
    replaced = evidence.replaced[given.name, given.generation]
    for at, data in evidence.ends:
        if at >= replaced or given.name.encode() not in data:
            continue
        for record, place in _having(data, given):
            fate = _fate(record, place)
            asked = _gave_up(record, place) or (fate == "refused" and not told_apart)
            if fate != "ignored" and not asked:  # "ignored": another batch has it, and its end is the one that counts
                yield (
                    f"G1: {given} was there until {replaced:.2f}, its batch ended as {fate or record['Status']} "
                    f"at {at:.2f}, and its rows are missing"
                )
                return


def _claims(evidence: Evidence, given: Input, *, sure: bool) -> Iterator[str]:
    """The journal says what is so: a file that is claimed is there, one that is there is claimed, and none is silent.

    Where several files of a rule were overwritten, the bytes of one job do not tell which of them it read (not `sure`).
    """
    loaded = all(_found(evidence.rows, given, number) for number in given.ids)
    fates = [_fate(record, place) for record, place in _records(evidence, given)]
    claimed = any(fate in ("loaded", "read_earlier") for fate in fates)
    if not fates:
        yield f"G8: no batch knows of {given}"
    if not sure:
        return
    if claimed and not loaded:
        yield f"G8: {given} is said to be loaded ({fates}), and its rows are not there"
    if loaded and not claimed and not _read_instead(evidence, given) and "" not in fates:
        yield f"G8: the rows of {given} are there, and nobody says so ({fates})"


def _explained(evidence: Evidence, given: Input, *, sure: bool) -> Iterator[str]:
    """`explain` says of every generation what is so: where it is, and that nothing is under way any more."""
    about = [one for one in evidence.explained.get(given.name, ()) if one["generation"] == given.generation]
    fates = [one["fate"] for one in about]
    loaded = all(_found(evidence.rows, given, number) for number in given.ids)
    claimed = any(fate in ("loaded", "read_earlier") for fate in fates)
    if not about:
        yield f"G8: explain does not know {given}"
    for one in about:
        if one["phase"] not in _FINAL:
            yield f"G8: explain says that {given} is under way ({one['phase']}), and everything is over"
        if one["fate"] == "pending" and one["phase"] != "failed":
            yield f"G8: explain says that {given} is pending in a batch that ended as {one['phase']}"
    if given.bad and claimed:
        yield f"G8: explain says that {given} was loaded ({fates})"
    if not sure or given.bad:
        return
    if claimed and not loaded:
        yield f"G8: explain says that {given} was loaded ({fates}), and its rows are not there"
    if loaded and about and not claimed and not _read_instead(evidence, given):
        yield f"G8: the rows of {given} are there, and explain says {fates}"


def _told(evidence: Evidence, rows: list[dict[str, Any]]) -> Iterator[str]:
    """The load-state table has the end of every batch, and no other end than the journal's."""
    latest = _latest(rows)
    ended = {record["EventID"]: record for record in finished(evidence) if record["Kind"] == "load"}
    for event, record in ended.items():
        row = latest.get(event)
        if row is None or not row["final"] or row["revision"] < record["Revision"]:
            yield f"G8: the load state does not have the end of batch {event} ({record['Status']}): {row}"
        elif row["state"] != record["Status"] or row["rows_loaded"] != record["Rows"]:
            yield (
                f"G8: the load state says that batch {event} is {row['state']} with {row['rows_loaded']} rows, "
                f"the journal {record['Status']} with {record['Rows']}"
            )
    yield from (f"G8: the load state has batch {event}, the journal has not" for event in latest if event not in ended)


def _counted(evidence: Evidence, rows: list[dict[str, Any]], overwritten: set[str]) -> Iterator[str]:
    """What it says was loaded into the tables of a rule is what they hold (where no name was written twice)."""
    for rule in {given.rule.number: given.rule for given in evidence.inputs}.values():
        if any(name.startswith(f"{rule.prefix}/") for name in overwritten):
            continue
        tables = {f"{DATASET}.{table}" for table in rule.tables}
        held = sum(evidence.rows.get(table, Counter()).total() for table in tables)
        ends = [row for row in _latest(rows).values() if (row["destination"] or "").partition(".")[2] in tables]
        told = sum(row["rows_loaded"] or 0 for row in ends)
        if held != told:
            yield f"G8: the load state counts {told} rows in {sorted(tables)}, and there are {held}"


def _latest(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """As the view of that name: of every batch the row with the highest revision."""
    return {row["event_id"]: row for row in sorted(rows, key=lambda row: (row["revision"], row["recorded_at"]))}


def finished(evidence: Evidence) -> Iterator[dict[str, Any]]:
    for name, data in evidence.objects.items():
        if name.startswith("journal/Done/") and name not in evidence.litter:
            yield orjson.loads(data)


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
    return any(_fate(record, place) == "refused" for record, place in _records(evidence, given))


def _fate(record: dict[str, Any], place: int) -> str:
    """What a record says of one of its files; nothing where it has failed as a whole."""
    whole = "loaded" if record["Status"] == "done" else ""
    return str(record["Progress"]["Aside"].get(str(place), {}).get("Fate", whole))


def _records(evidence: Evidence, given: Input) -> Iterator[tuple[dict[str, Any], int]]:
    """The finished batches that have this very generation, and its place in them."""
    for name, data in evidence.objects.items():
        if name.startswith("journal/Done/") and given.name.encode() in data:
            yield from _having(data, given)


def _having(data: bytes, given: Input) -> Iterator[tuple[dict[str, Any], int]]:
    record = orjson.loads(data)
    for place, file in enumerate(record["Files"]):
        if file["URL"].endswith(f"/{given.name}") and int(file["Generation"]) == given.generation:
            yield record, place
