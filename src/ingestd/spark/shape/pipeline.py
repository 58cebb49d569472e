"""One pass over a batch on Spark: read, judge, shape, write. And another, where the first one taught that it must be.

Everything is one Spark job, from the files to the prepared files; the verdict on each file comes out of the same job as
an observation of the rows that were read. (Rows that are kept in scratch are read by one job and written by another:
see `keep`.) A second pass happens only when
- a bad file was too large to be held back until its end was seen (`Verdict.leaked`): again without it;
- more bad rows were tolerated than `maxBadRecords` allows in all (`Verdict.strict`): again, tolerating none;
- the data has columns that the table is to get (`Drift.EVOLVE`), or all columns are to be detected: again with them.
What an abandoned pass wrote is in a folder of its own and never looked at.

`prepare` blocks and runs in a thread; the session it gets is its own.
"""

import shutil
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from ingestd.googlesql.words import named_in
from ingestd.model.errors import BadInput, Fatal
from ingestd.model.preparation import DRIFT_REMEDY, BadData, Drift, Shaping, Unmatched
from ingestd.model.schema import Mode, Schema, by_name
from ingestd.spark.files import alike, bucket, content, kept, output
from ingestd.spark.files.carriers import required, spark_ddl
from ingestd.spark.files.read_task import HOLD_BYTES, Reading, Report
from ingestd.spark.files.reserved import BRANCH, FILE, HOME, LINE, REPORT, ROW
from ingestd.spark.files.unknown import agree, extended, leaves, missing_from
from ingestd.spark.files.write_task import TOLD, Writing, Written
from ingestd.spark.shape.keep import keep
from ingestd.spark.shape.quarantine import Verdict, judge, refusal
from ingestd.spark.shape.steps import Shaped, late_columns, looked_at, shape, uses_others
from ingestd.spark.shape.work import (
    SHARE_BYTES,
    SHRINKS,
    Rows,
    Sides,
    Told,
    TooWideError,
    Work,
    changes,
    check_complete,
    share,
    tasks,
    unsettled,
)
from ingestd.spark.sql.types import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = structlog.get_logger(__name__)

_SHUFFLE_BYTES = 256 << 20
_PARTITION_BYTES = 128 << 20  # read by one task at most: a worker holds a part of a file in memory
_MOST_PASSES = 5
# What makes an empty plan of one that no row can leave, and takes with it the reading that tells of the files.
_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer"
_PRUNING = {
    "spark.sql.optimizer.excludedRules": (f"{_OPTIMIZER}.PruneFilters", f"{_OPTIMIZER}.PropagateEmptyRelation"),
    "spark.sql.adaptive.optimizer.excludedRules": (
        "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation",
    ),
}


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
    _keep_reading(session, work.shaping)
    if not work.content and work.on_this_disk:
        work = replace(work, content=content.guess(work.plan, work.units))
    if not work.plan.schema and destination:
        work = replace(work, plan=replace(work.plan, schema=_as_in_the_table(detect(session, work), work)))
    elif not work.plan.schema:
        added = detect(session, work)
    elif work.plan.drift is Drift.EVOLVE and uses_others(work.shaping, [item.name for item in work.columns]):
        with suppress(BadInput):  # no new columns: the expression that wants one tells its name
            added = detect(session, work)
    if destination:
        strange = missing_from(work.columns, destination)
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
        verdict, made = _once(session, one, tolerated)
        if work.policy is BadData.FAIL and verdict.bad:
            raise refusal(verdict, work.names)
        known_bad = _with_leaked(known_bad, verdict)
        if verdict.leaked:
            without |= verdict.leaked
        if verdict.strict:
            tolerated = 0
        if verdict.unknown and work.plan.drift is Drift.EVOLVE:
            added = agree(added, verdict.unknown)
        if made is not None and not unsettled(work, verdict):
            bad = tuple(sorted((*known_bad.bad, *verdict.bad), key=lambda item: item.index))
            new = added if destination or work.plan.schema else ()
            if destination and work.plan.drift is Drift.EVOLVE:  # columns that only a transformation makes
                new = agree(new, missing_from(made.schema, extended(destination, added)))
            return replace(made, verdict=replace(verdict, bad=bad), added=new, passes=number)
        log.info("prepare.again", without=len(without), columns=[item.name for item in added], strict=verdict.strict)
    raise Fatal(f"the batch was not settled after {_MOST_PASSES} passes")


def _once(session: "SparkSession", work: Work, tolerated: int) -> tuple[Verdict, Made | None]:
    """What one pass tells of the files, and what it made; nothing, where it could tell before that it was in vain."""
    rows = _rows(session, work, tolerated)
    try:
        if rows.verdict is not None and unsettled(work, rows.verdict):
            return rows.verdict, None
        made = _pass(session, work, tolerated, rows)
    except (TooWideError, _MultipliedError) as why:
        log.info("prepare.not_to_be_kept", why=type(why).__doc__)
        again = replace(work, target=f"{work.target}-wide")
        made = _pass(session, again, tolerated, _unkept(session, again, tolerated))
    finally:
        if rows.folder:
            shutil.rmtree(rows.folder, ignore_errors=True)
    return made.verdict, made


def _refuse(strange: Schema, shaping: Shaping) -> None:
    """Columns that the rule declares, no expression uses and the table has not: their values would be lost."""
    used = looked_at(shaping) | {name.lower() for name in shaping.transform}
    carried = named_in(shaping.conditions, [item.name for item in strange])
    if unused := [item for item in strange if item.name.lower() not in used and item.name not in carried]:
        names = ", ".join(sorted(leaves(tuple(unused))))
        raise BadInput(f"the destination has no column {names}, and the rule's Drift is freeze: {DRIFT_REMEDY}")


def _with_leaked(known: Verdict | None, verdict: Verdict) -> Verdict:
    """Bad files that the next pass leaves out stay in the verdict."""
    leaked = tuple(item for item in verdict.bad if item.index in verdict.leaked)
    return Verdict(bad=(*(known.bad if known else ()), *leaked))


def detect(session: "SparkSession", work: Work) -> Schema:
    """The columns of files whose table does not exist yet: whatever any of them has.

    Of a column without a value in any of them, the file's type counts only where there is no other (`_without_values`).
    """
    plan = replace(work.plan, drift=Drift.EVOLVE, table=work.destination)
    if not plan.schema:  # nothing is known yet, and so nothing is to be ignored for being unknown
        plan = replace(plan, options=replace(plan.options, ignore_unknown_values=False))
    tolerated = work.plan.options.max_bad_records
    found = _reports(session, replace(work, plan=plan, rejects=""), tolerated)
    verdict = judge(found, work.policy, tolerated)
    if work.plan.detected:  # CSV has names and an order already
        shown = {item.name: item for item in verdict.unknown}
        return tuple(shown.get(item.name, item) for item in work.plan.detected)
    columns = extended(verdict.unknown, _without_values(verdict.untyped, work))
    if not columns:
        reason = f": {work.names[verdict.bad[0].index]}: {verdict.bad[0].why}" if verdict.bad else ""
        raise BadInput(f"no columns could be detected in the batch's files{reason}")
    return columns


def _without_values(untyped: Schema, work: Work) -> Schema:
    """Columns of which no file has a value: as the table has them, unless an expression converts the file's own.

    A table that evolves does not get such a column before there is a value, but for an expression that asks for it.
    """
    computed = {name.lower() for name in work.shaping.transform}
    table = {item.key: item for item in _nullable(work.destination) if item.key not in computed}
    found = tuple(table.get(item.key, item) for item in untyped)
    if work.plan.drift is not Drift.EVOLVE or not (work.plan.schema or work.destination):
        return found
    wanted = looked_at(work.shaping) | {item.key for item in work.destination}
    return tuple(item for item in found if item.key in wanted)


def _as_in_the_table(found: Schema, work: Work) -> Schema:
    """Columns of files that describe themselves: as the table has them, unless an expression looks at the files' own.

    So a file whose column is of another type is a bad file, and not a reason to read all of them as text.
    """
    table = by_name(_relaxed(work, work.destination))
    computed = {name.lower() for name in work.shaping.transform} | looked_at(work.shaping)
    return tuple(item if item.key in computed else table.get(item.key, item) for item in found)


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
    return ", ".join(part for part in (spark_ddl(work.columns), f"{FILE} INT", f"{LINE} BIGINT") if part)


class _MultipliedError(Exception):
    """A side input has several rows for one, of which one is to stay: which one, Spark decides."""


def _rows(session: "SparkSession", work: Work, tolerated: int) -> Rows:
    if work.in_bucket:  # a task's rows become one file, unless they are sent on
        largest = min(max(work.layout.target_size * SHRINKS, SHARE_BYTES), _PARTITION_BYTES)
        session.conf.set("spark.sql.files.maxPartitionBytes", str(largest))
    if work.cores and (work.shaping.unique_columns or work.shaping.side_inputs):
        session.conf.set("spark.sql.shuffle.partitions", str(max(tasks(work), -(-work.size // _SHUFFLE_BYTES))))
    _without_rejects(work)
    if work.on_this_disk and kept.worthwhile(work.size, work.room):
        try:
            return keep(session, work, _reading(work, tolerated), tolerated)
        except TooWideError:
            log.info("prepare.too_wide_to_keep", most=kept.MOST_KEPT)
    return _unkept(session, work, tolerated)


def _keep_reading(session: "SparkSession", shaping: Shaping) -> None:
    """Also where no row can be left, as Spark can tell before: files are judged, and rows counted, by reading them."""
    drops = bool(shaping.branches) and shaping.unmatched is Unmatched.DROP
    if not (shaping.criteria or drops or any(side.inner for side in shaping.side_inputs)):
        return
    for name, rules in _PRUNING.items():
        others = session.conf.get(name, "") or ""
        session.conf.set(name, ",".join(filter(None, (others, *rules))))


def _unkept(session: "SparkSession", work: Work, tolerated: int) -> Rows:
    """Rows that go through Spark as they are read."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sql

    def told() -> Told:
        texts = seen.get["reports"]
        # Nothing at all: a join with no rows on its other side has not asked for these.
        return Told(list(map(Report.parse, texts)) if texts else _reports(session, work, tolerated))

    seen = Observation(f"read-{uuid.uuid4().hex[:8]}")
    _without_rejects(work)
    frame = read_rows(session, work, tolerated)
    if work.in_bucket and not work.shaping.unique_columns:  # rows stay in their task, which writes a file
        frame = frame.coalesce(tasks(work))
    frame = frame.observe(seen, sql.expr(f"collect_list({REPORT}) AS reports")).where(f"{REPORT} IS NULL")
    return Rows(lambda _: frame, work.shaping, told)


def _without_rejects(work: Work) -> None:
    """No bad rows of a first try, whose shares were others, beside those of the next one."""
    if work.rejects:
        shutil.rmtree(work.rejects, ignore_errors=True)
        Path(work.rejects).mkdir(parents=True)


def _reports(session: "SparkSession", work: Work, tolerated: int) -> list[Report]:
    """What there is to tell of the files, without their rows."""
    frame = read_rows(session, work, tolerated).where(f"{REPORT} IS NOT NULL").select(REPORT)
    return [Report.parse(row[0]) for row in frame.collect()]


def _pass(session: "SparkSession", work: Work, tolerated: int, rows: Rows) -> Made:
    shaping, columns = rows.shaping, work.columns
    number = ROW if rows.folder else ""
    late = late_columns(shaping, columns, work.destination) if number else {}
    seen = tuple(item for item in columns if item.name not in late.values())
    shaped: Shaped | None = None
    answered = False
    if changes(work, shaping):
        sides = work.sides(session) if work.sides is not None else {}

        def shape_rows(frame: "DataFrame", late: Collection[str]) -> Shaped:
            return shape(
                frame,
                shaping,
                source=columns,
                destination=work.destination,
                sides=sides,
                file_order=work.order,
                evolve=work.plan.drift is Drift.EVOLVE,
                late=late,
                number=number,
            )

        one_of_each = _shown(session, rows, seen)
        shaped = shape_rows(rows.frame(seen) if one_of_each is None else one_of_each, late.values())
        schema = shaped.schema
        form = output.choose(work.layout, schema)
        answered = one_of_each is not None and form.name == output.PARQUET
        if (late or one_of_each is not None) and form.name != output.PARQUET:  # lines are made of whole rows
            shaped = shape_rows(rows.frame(columns), ())
    else:
        schema = work.destination or columns
        form = output.choose(work.layout, schema)
    here = work.on_this_disk
    if here:
        output.make_folder(work.target)
    if number and form.name == output.PARQUET:
        written = _write_late(work, rows, shaped, schema, form, late, answered)
    else:
        written = _write(work, shaped.frame if shaped else rows.frame(columns), shaped, schema, form)
    told = rows.told()
    verdict = rows.verdict or judge(told.reports, work.policy, tolerated)
    check_complete(work, told.reports)
    empty = tuple(name for name in required(schema) if written.empty.get(name))
    if empty and work.plan.drift is not Drift.EVOLVE:
        raise BadInput(f"REQUIRED column(s) have no value in some rows after the transformation: {', '.join(empty)}")
    left_out = shaped.left_out if shaped else _none
    read = sum(verdict.rows_per_file.values()) - told.duplicates
    chosen = shaping.unique_columns != work.shaping.unique_columns  # before they were joined
    if shaped and shaping.side_inputs and chosen and shaped.made(sum(written.rows.values())) > read:
        raise _MultipliedError
    left = left_out(read, sum(written.rows.values()))
    return Made(
        work.target,
        form,
        tuple(replace(item, mode=Mode.NULLABLE) if item.name in empty else item for item in schema),
        verdict,
        _by_branch(work, written) if shaped and shaped.branches else {HOME: sum(written.rows.values())},
        relaxed=empty,
        left_out=left | ({"duplicate": told.duplicates} if told.duplicates else {}),
        rejects=work.rejects,
        # By part: one that Spark read twice reports twice.
        rejected=tuple(line for one in {(r.index, r.part): r for r in told.reports}.values() for line in one.rejected),
    )


def _shown(session: "SparkSession", rows: Rows, seen: Schema) -> "DataFrame | None":
    """One row of each kind, where that is enough for Spark to see."""
    if rows.shown is None:
        return None
    table: Any = rows.shown  # PySpark takes Arrow tables; its annotations do not say so
    return session.createDataFrame(table, f"{spark_ddl(seen)}, {ROW} BIGINT")


def _by_branch(work: Work, written: Written) -> dict[int, int]:
    return {number: written.rows.get(number, 0) for number in (HOME, *range(len(work.shaping.branches)))}


def _write_late(
    work: Work,
    rows: Rows,
    shaped: Shaped | None,
    schema: Schema,
    form: output.Format,
    late: Mapping[str, str],
    answered: bool,
) -> Written:
    """The prepared files, written by the workers; columns that Spark has not seen come to the others there."""
    writing = Writing(
        rows.folder,
        work.target,
        _relaxed(work, schema),
        tuple(late.items()),
        form.codec,
        tuple(required(schema)),
        branches=shaped.branches if shaped else False,
    )
    assert rows.write is not None
    if shaped is None:
        return rows.write(writing)
    if answered:
        alike.leave_answers(rows.folder, shaped.frame.toArrow())
        return rows.write(writing)
    if work.size <= SHARE_BYTES:
        # What Spark has made of so few rows is here sooner than at another worker.
        return Written.of([writing.write(shaped.frame.toArrow().to_batches(), 0)])
    return Written.of([row[0] for row in shaped.frame.mapInArrow(writing, TOLD).collect()])


def _write(work: Work, frame: "DataFrame", shaped: Shaped | None, schema: Schema, form: output.Format) -> Written:
    """The prepared files, written by Spark."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sql

    branches = shaped is not None and shaped.branches
    counted = Observation(f"written-{uuid.uuid4().hex[:8]}")
    targets = [HOME, *range(len(work.shaping.branches))] if branches else [HOME]
    counts = [f"count_if({BRANCH} = {number}) AS `b{number}`" for number in targets] if branches else []
    obliged = required(schema)
    counts += ["count(1) AS rows", *(f"count_if({quote(name)} IS NULL) AS n{at}" for at, name in enumerate(obliged))]
    frame = frame.observe(counted, *map(sql.expr, counts))
    here, ready = work.on_this_disk, shaped is not None
    output.write(frame, _relaxed(work, schema), form, work.target, branches=branches, ready=ready, made=here)
    got = counted.get
    rows = {number: got[f"b{number}"] for number in targets} if branches else {HOME: got["rows"]}
    return Written(rows, {name: got[f"n{place}"] for place, name in enumerate(obliged)})


def _none(read: int, written: int) -> dict[str, int]:
    return {}


def _relaxed(work: Work, columns: Schema) -> Schema:
    """While columns may still be relaxed, none is declared REQUIRED in the files."""
    return _nullable(columns) if work.plan.drift is Drift.EVOLVE else columns


def _nullable(columns: Schema) -> Schema:
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


__all__ = [
    "Made",
    "Sides",
    "Work",
    "branch_of",
    "detect",
    "local_files",
    "prepare",
    "rank",
    "read_rows",
    "rejected_files",
    "share",
    "tasks",
]
