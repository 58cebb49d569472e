"""One pass over a batch on Spark: read, judge, shape, write. And another, where the first one taught that it must be.

Everything is one Spark job, from the files to the prepared files; the verdict on each file comes out of the same job as
an observation of the rows that were read. (Large batches with a plain key are read by one job and written by another:
see `distinct`.) A second pass happens only when
- a bad file was too large to be held back until its end was seen (`Verdict.leaked`): again without it;
- more bad rows were tolerated than `maxBadRecords` allows in all (`Verdict.strict`): again, tolerating none;
- the data has columns that the table is to get (`Drift.EVOLVE`), or all columns are to be detected: again with them.
What an abandoned pass wrote is in a folder of its own and never looked at.

`prepare` blocks and runs in a thread; the session it gets is its own.
"""

import heapq
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from ingestd.formats.types import Mode, Schema
from ingestd.model.errors import BadInput, Fatal, Transient
from ingestd.model.preparation import DRIFT_REMEDY, BadData, Drift, FileLayout, Shaping, named_in
from ingestd.prepare import bucket, distinct, output
from ingestd.prepare.quarantine import Verdict, judge, refusal
from ingestd.prepare.readers import ReadPlan
from ingestd.prepare.reading import HOLD_BYTES, REPORT, Reading, Report, Unit
from ingestd.prepare.shaping import BRANCH, FILE, HOME, LINE, SideFrame, looked_at, shape, uses_others
from ingestd.prepare.sqltypes import quote
from ingestd.prepare.types import parse_schema, required, rest, spark_ddl
from ingestd.prepare.unknown import agree, extended, leaves, missing_from

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = structlog.get_logger(__name__)

SHARE_BYTES = 4 << 20  # less is not worth another task
_SHRINKS = 2  # text to compressed columns, cautiously: decides how many files there will be
_SHUFFLE_BYTES = 256 << 20
_PARTITION_BYTES = 128 << 20  # read by one task at most: a worker holds a part of a file in memory
_MOST_PASSES = 5

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


@dataclass(frozen=True, slots=True)
class Made:
    """What a batch became."""

    target: str
    form: output.Format
    schema: Schema
    verdict: Verdict
    rows: dict[int, int]  # by branch
    added: Schema = ()
    relaxed: tuple[str, ...] = ()
    left_out: dict[str, int] = field(default_factory=dict)
    rejects: str = ""  # folder with the bad rows of files whose good ones were taken
    rejected: tuple[str, ...] = ()  # or these rows themselves
    passes: int = 1


def prepare(session: "SparkSession", work: Work) -> Made:
    """The prepared files of a batch are in `Made.target` when this returns."""
    added: Schema = ()
    tolerated = work.plan.options.max_bad_records
    without: set[int] = set()
    known_bad: Verdict | None = None
    destination = work.destination
    if not work.plan.schema and destination:
        work = replace(work, plan=replace(work.plan, schema=_as_in_the_table(detect(session, work), work)))
    elif not work.plan.schema:
        added = detect(session, work)
    elif work.plan.drift is Drift.EVOLVE and uses_others(work.shaping, [item.name for item in _columns(work)]):
        with suppress(BadInput):  # no new columns: the expression that wants one tells its name
            added = detect(session, work)
    if destination:
        strange = missing_from(_columns(work), destination)
        if work.plan.drift is Drift.EVOLVE:
            added = agree(added, strange)
        elif work.absent is Drift.FREEZE:
            _refuse(strange, work.shaping)
    for number in range(1, _MOST_PASSES + 1):
        plan = replace(work.plan, schema=extended(work.plan.schema, added), added=leaves(added))
        one = replace(
            work,
            plan=plan,
            units=tuple(unit for unit in work.units if unit.index not in without),
            destination=extended(destination, added) if destination else (),
            target=f"{work.target}/{number}-{uuid.uuid4().hex[:8]}",
            rejects=f"{work.rejects}/{number}" if work.rejects else "",
        )
        rows = _rows(session, one, tolerated)
        verdict, made = rows.verdict, None
        try:
            if verdict is None or not _unsettled(work, verdict):
                made = _pass(session, one, tolerated, rows)
                verdict = made.verdict
        finally:
            if rows.folder:
                shutil.rmtree(rows.folder, ignore_errors=True)
        if work.policy is BadData.FAIL and verdict.bad:
            raise refusal(verdict, work.names)
        known_bad = _with_leaked(known_bad, verdict)
        if verdict.leaked:
            without |= verdict.leaked
        if verdict.strict:
            tolerated = 0
        if verdict.unknown and work.plan.drift is Drift.EVOLVE:
            added = agree(added, verdict.unknown)
        if made is not None and not _unsettled(work, verdict):
            bad = tuple(sorted((*known_bad.bad, *verdict.bad), key=lambda item: item.index))
            new = added if destination or work.plan.schema else ()
            if destination and work.plan.drift is Drift.EVOLVE:  # columns that only a transformation makes
                new = agree(new, missing_from(made.schema, extended(destination, added)))
            return replace(made, verdict=replace(verdict, bad=bad), added=new, passes=number)
        log.info("prepare.again", without=len(without), columns=[item.name for item in added], strict=verdict.strict)
    raise Fatal(f"the batch was not settled after {_MOST_PASSES} passes")


def _refuse(strange: Schema, shaping: Shaping) -> None:
    """Columns that the rule declares, no expression uses and the table has not: their values would be lost."""
    used = looked_at(shaping) | {name.lower() for name in shaping.transform}
    carried = named_in(shaping.conditions, [item.name for item in strange])
    if unused := [item for item in strange if item.name.lower() not in used and item.name not in carried]:
        names = ", ".join(sorted(leaves(tuple(unused))))
        raise BadInput(f"the destination has no column {names}, and the rule's Drift is freeze: {DRIFT_REMEDY}")


def _unsettled(work: Work, verdict: Verdict) -> bool:
    """Whether what was read is not to be used."""
    new = bool(verdict.unknown) and work.plan.drift is Drift.EVOLVE
    return bool(verdict.leaked) or verdict.strict or new or (work.policy is BadData.FAIL and bool(verdict.bad))


def _with_leaked(known: Verdict | None, verdict: Verdict) -> Verdict:
    """Bad files that the next pass leaves out stay in the verdict."""
    leaked = tuple(item for item in verdict.bad if item.index in verdict.leaked)
    return Verdict(bad=(*(known.bad if known else ()), *leaked))


def detect(session: "SparkSession", work: Work) -> Schema:
    """The columns of files whose table does not exist yet: whatever any of them has."""
    plan = replace(work.plan, drift=Drift.EVOLVE)
    frame = read_rows(session, replace(work, plan=plan, rejects=""), work.plan.options.max_bad_records)
    found = [Report.parse(row[0]) for row in frame.where(f"{REPORT} IS NOT NULL").select(REPORT).collect()]
    verdict = judge(found, work.policy, work.plan.options.max_bad_records)
    if work.plan.detected:  # CSV has names and an order already
        shown = {item.name: item for item in verdict.unknown}
        return tuple(shown.get(item.name, item) for item in work.plan.detected)
    if not verdict.unknown:
        reason = f": {work.names[verdict.bad[0].index]}: {verdict.bad[0].why}" if verdict.bad else ""
        raise BadInput(f"no columns could be detected in the batch's files{reason}")
    return verdict.unknown


def _as_in_the_table(found: Schema, work: Work) -> Schema:
    """Columns of files that describe themselves: as the table has them, unless an expression looks at the files' own.

    So a file whose column is of another type is a bad file, and not a reason to read all of them as text.
    """
    table = {item.name.lower(): item for item in work.destination}
    computed = {name.lower() for name in work.shaping.transform} | looked_at(work.shaping)
    return tuple(item if (name := item.name.lower()) in computed else table.get(name, item) for item in found)


def read_rows(session: "SparkSession", work: Work, tolerated: int) -> "DataFrame":
    """The frame of good rows and reports."""
    ddl = f"{_ddl(work)}, {REPORT} STRING"
    reading = _reading(work, tolerated)
    if work.in_bucket:
        return bucket.rows(session, reading, work.units, ddl)
    shares = share(work.units, tasks(work))
    reading = replace(reading, shares=shares)
    return session.range(0, len(shares), 1, len(shares)).mapInArrow(reading, ddl)


def _reading(work: Work, tolerated: int) -> Reading:
    return Reading(work.plan, work.policy, tolerated=tolerated, hold=HOLD_BYTES, rejects=work.rejects)


def _ddl(work: Work) -> str:
    """What rows have when they come to Spark."""
    return ", ".join(part for part in (spark_ddl(_columns(work)), f"{FILE} INT", f"{LINE} BIGINT") if part)


def _columns(work: Work) -> Schema:
    """What the rows have as they are read."""
    return (*work.plan.schema, *work.plan.keys)


def tasks(work: Work) -> int:
    """How many tasks read: enough to use every core, few enough that each writes a file of some size."""
    size = sum(unit.length for unit in work.units)
    busy = min(work.cores or 8, -(-size // SHARE_BYTES))
    return max(1, busy, -(-size // (work.layout.target_size * _SHRINKS)))


def share(units: Sequence[Unit], count: int) -> tuple[tuple[Unit, ...], ...]:
    """The units in that many shares of about equal size, the largest units dealt first."""
    heap: list[tuple[int, int]] = [(0, number) for number in range(min(count, max(len(units), 1)))]
    shares: list[list[Unit]] = [[] for _ in heap]
    for unit in sorted(units, key=lambda unit: (-unit.length, unit.index, unit.part)):
        size, number = heapq.heappop(heap)
        shares[number].append(unit)
        heapq.heappush(heap, (size + unit.length + 1, number))
    return tuple(tuple(sorted(one, key=lambda unit: (unit.index, unit.part))) for one in shares)


@dataclass(frozen=True, slots=True)
class _Rows:
    """A batch's rows, and what is known of its files: everything, or nothing before the rows are written."""

    frame: "DataFrame"
    shaping: Shaping  # what is still to be done
    reports: Callable[[], list[Report]]
    verdict: Verdict | None = None
    duplicates: int = 0  # left out already
    folder: str = ""  # where they are kept


def _rows(session: "SparkSession", work: Work, tolerated: int) -> _Rows:
    from pyspark.sql import Observation
    from pyspark.sql import functions as sql

    size = sum(unit.length for unit in work.units)
    if work.in_bucket:  # a task's rows become one file, unless they are sent on
        largest = min(max(work.layout.target_size * _SHRINKS, SHARE_BYTES), _PARTITION_BYTES)
        session.conf.set("spark.sql.files.maxPartitionBytes", str(largest))
    if work.cores:
        session.conf.set("spark.sql.shuffle.partitions", str(max(tasks(work), -(-size // _SHUFFLE_BYTES))))
    if work.rejects:
        Path(work.rejects).mkdir(parents=True)
    keys = distinct.keys_of(work.shaping, _columns(work))
    worthwhile = keys and _on_this_disk(work) and distinct.worthwhile(work.plan.options.source_format, work.units)
    if worthwhile and (kept := _kept_rows(session, work, tolerated, keys)) is not None:
        return kept
    seen = Observation(f"read-{uuid.uuid4().hex[:8]}")
    frame = read_rows(session, work, tolerated)
    if work.in_bucket and not work.shaping.unique_columns:  # rows stay in their task, which writes a file
        frame = frame.coalesce(tasks(work))
    frame = frame.observe(seen, sql.expr(f"collect_list({REPORT}) AS reports"))
    return _Rows(
        frame.where(f"{REPORT} IS NULL"), work.shaping, lambda: [Report.parse(text) for text in seen.get["reports"]]
    )


def _on_this_disk(work: Work) -> bool:
    """Whether workers read and write where this process does."""
    return not work.in_bucket and work.cores > 0


def _kept_rows(session: "SparkSession", work: Work, tolerated: int, keys: Schema) -> _Rows | None:
    """The rows of a large batch, read into scratch and with one per key; None when they take too much room there."""
    folder = f"{work.target}-rows"
    Path(folder).mkdir(parents=True)
    shares = share(work.units, tasks(work))
    count = len(shares)
    reading = replace(_reading(work, tolerated), shares=shares)
    told = session.range(0, count, 1, count).mapInArrow(distinct.Keeping(reading, folder), f"{REPORT} STRING")
    texts = [row[0] for row in told.collect()]
    if None in texts:
        shutil.rmtree(folder, ignore_errors=True)
        log.info("prepare.too_wide_to_keep", most=distinct.MOST_KEPT)
        return None
    reports = [Report.parse(text) for told_of in texts for text in told_of.splitlines()]
    _complete(work, reports)
    verdict = judge(reports, work.policy, tolerated)
    dropped = (
        None if _unsettled(work, verdict) else distinct.mark(folder, count, keys, work.order, work.shaping.keep_keyless)
    )
    ddl, shaping = _ddl(work), work.shaping
    if dropped is not None:
        ddl, shaping = spark_ddl(_columns(work)), replace(shaping, unique_columns=())
    kept = distinct.Kept(folder, marked=dropped is not None)
    frame = session.range(0, count, 1, count).mapInArrow(kept, ddl)
    return _Rows(frame, shaping, lambda: reports, verdict, dropped or 0, folder)


def _pass(session: "SparkSession", work: Work, tolerated: int, rows: _Rows) -> Made:
    from pyspark.sql import Observation
    from pyspark.sql import functions as sql

    frame, shaping = rows.frame, rows.shaping
    columns = _columns(work)
    left_out: Callable[[int, int], dict[str, int]] = _none
    branches = ready = False
    if shaping.asked or (work.destination and _differ(work.destination, columns)):
        sides = work.sides(session) if work.sides is not None else {}
        shaped = shape(
            frame,
            shaping,
            source=rest(columns),
            destination=rest(work.destination),
            sides=sides,
            file_order=work.order,
            evolve=work.plan.drift is Drift.EVOLVE,
        )
        frame, branches, left_out, ready = shaped.frame, shaped.branches, shaped.left_out, True
        columns = parse_schema(shaped.schema)
    elif work.destination:
        columns = work.destination
    form = output.choose(work.layout, columns)
    counted = Observation(f"written-{uuid.uuid4().hex[:8]}")
    counts = ["count(1) AS rows"]
    if branches:
        targets = [HOME, *range(len(work.shaping.branches))]
        counts += [f"count_if({BRANCH} = {number}) AS `b{number}`" for number in targets]
    obliged = required(columns)
    counts += [f"count_if({quote(name)} IS NULL) AS n{place}" for place, name in enumerate(obliged)]
    frame = frame.observe(counted, *map(sql.expr, counts))
    here = _on_this_disk(work)
    if here:
        output.make_folder(work.target)
    output.write(frame, _relaxed(work, columns), form, work.target, branches=branches, ready=ready, made=here)
    reports = rows.reports()
    verdict = rows.verdict or judge(reports, work.policy, tolerated)
    _complete(work, reports)
    got = counted.get
    empty = tuple(name for place, name in enumerate(obliged) if got[f"n{place}"])
    if empty and work.plan.drift is not Drift.EVOLVE:
        raise BadInput(f"REQUIRED column(s) have no value in some rows after the transformation: {', '.join(empty)}")
    written = {number: got[f"b{number}"] for number in targets} if branches else {HOME: got["rows"]}
    left = left_out(sum(verdict.rows_per_file.values()) - rows.duplicates, got["rows"])
    return Made(
        work.target,
        form,
        tuple(replace(item, mode=Mode.NULLABLE) if item.name in empty else item for item in columns),
        verdict,
        written,
        relaxed=empty,
        left_out=left | ({"duplicate": rows.duplicates} if rows.duplicates else {}),
        rejects=work.rejects,
        # By part: one that Spark read twice reports twice.
        rejected=tuple(line for one in {(r.index, r.part): r for r in reports}.values() for line in one.rejected),
    )


def _none(read: int, written: int) -> dict[str, int]:
    return {}


def _complete(work: Work, reports: Sequence[Report]) -> None:
    """Every unit was read: a file that nobody reports on must never pass for an empty one."""
    silent = {(unit.index, unit.part) for unit in work.units} - {(item.index, item.part) for item in reports}
    if silent:
        raise Fatal(f"no report came for {len(silent)} file(s), e.g. {work.names[min(silent)[0]]}")
    if short := bucket.short(work.units, reports):
        raise Transient(f"Spark did not read all of {len(short)} file(s), e.g. {short[0]}")


def _differ(left: Schema, right: Schema) -> bool:
    """Whether rows with the one set of columns have to be made into the other."""
    return _outline(left) != _outline(right)


def _outline(schema: Schema) -> list[Any]:
    return [
        (item.name.lower(), item.type, item.mode is Mode.REPEATED, _outline(item.fields) if item.fields else None)
        for item in schema
    ]


def _relaxed(work: Work, columns: Schema) -> Schema:
    """While columns may still be relaxed, none is declared REQUIRED in the files."""
    if work.plan.drift is not Drift.EVOLVE:
        return columns
    return tuple(replace(item, mode=Mode.NULLABLE) if item.mode is Mode.REQUIRED else item for item in columns)


def branch_of(folder: str) -> int:
    """The branch whose rows are in a folder that Spark made."""
    return int(folder.removeprefix(f"{BRANCH}=")) if folder.startswith(f"{BRANCH}=") else HOME


def local_files(target: str, branches: Mapping[int, int]) -> dict[int, list[Path]]:
    """What a pass wrote on this machine's disk, by branch."""
    root = Path(target)
    found: dict[int, list[Path]] = {}
    for path in sorted(root.rglob("part-*")):
        branch = branch_of(path.parent.name)
        committed = "_temporary" not in path.relative_to(root).parts
        if committed and branches.get(branch, 0):
            found.setdefault(branch, []).append(path)
    return found


def rejected_files(made: Made) -> list[Path]:
    return sorted(Path(made.rejects).glob("*.jsonl")) if made.rejects else []


def rank(keys: Sequence[Any]) -> tuple[int, ...]:
    """The place of each key among all, from the lowest up."""
    order = sorted(range(len(keys)), key=partial(_key_of, keys))
    ranks = [0] * len(keys)
    for place, index in enumerate(order):
        ranks[index] = place
    return tuple(ranks)


def _key_of(keys: Sequence[Any], index: int) -> Any:
    return keys[index]
