"""The rows of a batch in scratch, where one per key is chosen, and one of each kind is found that Spark is to see.

Large batches with a key are read by one job and written by another; what happens in between, `distinct` and `alike`
tell. Small ones whose rows all have to go through Spark are read, looked at and handed on by one job.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingestd.model.preparation import Shaping
from ingestd.model.schema import Field, Schema
from ingestd.spark.files import alike
from ingestd.spark.files.carriers import spark_ddl
from ingestd.spark.files.kept import Answered, Keeping, Kept, marks_of
from ingestd.spark.files.read_task import Reading, Report
from ingestd.spark.files.reserved import FILE, LINE, REPORT, ROW
from ingestd.spark.files.write_task import Writing, Written
from ingestd.spark.shape import choose, distinct
from ingestd.spark.shape.choose import By
from ingestd.spark.shape.distinct import AtOnce
from ingestd.spark.shape.quarantine import judge
from ingestd.spark.shape.steps import answers_alike, for_keys, keyed, late_columns
from ingestd.spark.shape.work import (
    SHARE_BYTES,
    Rows,
    Told,
    TooWideError,
    Work,
    changes,
    check_complete,
    run_tasks,
    share,
    tasks,
    unsettled,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PLACES = {FILE: "INT", LINE: "BIGINT", ROW: "BIGINT"}


def keep(session: "SparkSession", work: Work, reading: Reading, tolerated: int) -> Rows:
    """The rows of a batch, read into scratch or about to be, and, where its key can be looked at, with one per key."""
    folder = f"{work.target}-rows"
    Path(folder).mkdir(parents=True)
    keys, order = distinct.keys_of(work.shaping, work.columns)
    few = distinct.alone(work.size)
    computable = not keys and not few and distinct.computable(work.shaping)
    looked_at = _looked_at(work, distinct.chosen(work.shaping) if keys or computable else work.shaping)
    shares = share(work.units, 1 if few and keys and not looked_at else tasks(work))
    stored = sum(unit.length for unit in work.units)
    keeping = Keeping(replace(reading, shares=shares), folder, work.size / max(stored, 1), looked_at)
    scratch = _Scratch(session, work, keeping, len(shares))
    computing = _computing(session, work, keeping, len(shares)) if computable else None
    if computing is not None:
        return _judged(scratch, tolerated, computing.fields.keys, computing.fields.by, computing.frame)
    if (looked_at and not computable) or (keys and not few):
        return _judged(scratch, tolerated, keys, order)
    return _at_once(replace(scratch, keeping=replace(keeping, looked_at=())), keys, order)


def _looked_at(work: Work, shaping: Shaping) -> tuple[str, ...]:
    """The columns by which rows are alike; none where every row has to go through Spark, or none has to."""
    if not changes(work, shaping) or not answers_alike(shaping):
        return ()
    late = late_columns(shaping, work.columns, work.destination).values()
    seen = tuple(item for item in work.columns if item.name not in late)
    return tuple(item.name for item in seen) if alike.comparable(seen) else ()


@dataclass(frozen=True, slots=True)
class _Scratch:
    """Where the rows of a batch are kept, and who does it."""

    session: "SparkSession"
    work: Work
    keeping: Keeping
    shares: int

    @property
    def folder(self) -> str:
        return self.keeping.folder

    def numbers(self) -> "DataFrame":
        return self.session.range(0, self.shares, 1, self.shares)

    def rows(self, kept: Kept, source: Callable[[Kept], Any], shaping: Shaping, told: Callable[[], Told]) -> Rows:
        """`source` hands rows on, in the workers."""
        places = [FILE, LINE] if shaping.unique_columns else []

        def frame(columns: Schema) -> "DataFrame":
            ddl = ", ".join(filter(None, (spark_ddl(columns), *(f"{name} {_PLACES[name]}" for name in (*places, ROW)))))
            named = (*(item.name for item in columns), *places)
            return self.numbers().mapInArrow(source(replace(kept, columns=named)), ddl)

        def write(writing: Writing) -> Written:
            writing = replace(writing, rows=source(replace(kept, columns=())))
            return Written.of(run_tasks(self.session, writing.tell, self.shares))

        return Rows(frame, shaping, told, folder=self.folder, write=write)


def _at_once(scratch: _Scratch, keys: tuple[Field, ...], order: tuple[By, ...]) -> Rows:
    """Rows that are read when they are written, by one job: nothing is known of them before."""
    work = scratch.work

    def told() -> Told:
        if distinct.silent(scratch.folder, scratch.shares):
            run_tasks(scratch.session, source(kept).read, scratch.shares)
        if (found := distinct.told(scratch.folder, scratch.shares)) is None:
            raise TooWideError
        return Told([Report.parse(text) for text in found[0]], found[1])

    def source(kept: Kept) -> AtOnce:
        return AtOnce(scratch.keeping, kept, keys, work.order, work.shaping.keep_keyless, order)

    kept = Kept(scratch.folder, marked=bool(keys))
    shaping = distinct.chosen(work.shaping) if keys else work.shaping
    return scratch.rows(kept, source, shaping, told)


def _judged(
    scratch: _Scratch,
    tolerated: int,
    keys: tuple[Field, ...],
    order: tuple[By, ...],
    computing: "DataFrame | None" = None,
) -> Rows:
    """Rows that are in scratch, and their files judged, before anything else is done with them."""
    work, folder, shares = scratch.work, scratch.folder, scratch.shares
    found: list[str] | None
    if computing is None:
        texts = run_tasks(scratch.session, scratch.keeping.tell, shares)
        found = [line for text in texts if text is not None for line in text.splitlines()]
        found = None if None in texts else found
    else:
        computing.collect()
        found = one[0] if (one := distinct.told(folder, shares)) is not None else None
    if found is None:
        shutil.rmtree(folder, ignore_errors=True)
        raise TooWideError
    reports = [Report.parse(text) for text in found]
    check_complete(work, reports)
    verdict = judge(reports, work.policy, tolerated)
    usable, dropped = not unsettled(work, verdict), None
    if usable and keys:
        computed = computing is not None
        dropped = choose.mark(folder, shares, keys, work.order, work.shaping.keep_keyless, order, computed)
    marked = dropped is not None
    shaping = distinct.chosen(work.shaping) if marked else work.shaping
    told = Told(reports, dropped or 0)
    rows = scratch.rows(Kept(folder, marked), _itself, shaping, lambda: told)
    shown = None
    if usable and scratch.keeping.looked_at and not shaping.unique_columns:
        shown = alike.shown(folder, [marks_of(folder, number) if marked else None for number in range(shares)])
    if shown is not None:
        rows = replace(rows, shown=shown, write=_answered(scratch, marked))
    return replace(rows, verdict=verdict)


def _answered(scratch: _Scratch, marked: bool) -> Callable[[Writing], Written]:
    """How rows are written for which answers are there."""

    def write(writing: Writing) -> Written:
        writing = replace(writing, rows=Answered(scratch.folder, marked))
        if scratch.work.size <= SHARE_BYTES:  # so few are written sooner than a worker is told to
            return Written.of(list(writing.tell(range(scratch.shares))))
        return Written.of(run_tasks(scratch.session, writing.tell, scratch.shares))

    return write


@dataclass(frozen=True, slots=True)
class _Computing:
    """A job that keeps the rows and leaves beside them what Spark computes of each: its key, and its place in order."""

    frame: "DataFrame"
    fields: distinct.Computed


def _computing(session: "SparkSession", work: Work, keeping: Keeping, count: int) -> _Computing | None:
    """None where the keys are of types that it takes Spark to compare."""
    shaping = for_keys(work.shaping)
    behind = set(late_columns(shaping, work.columns, ()).values())
    seen = tuple(item for item in work.columns if item.name not in behind)
    kept = Kept(keeping.folder, marked=False, columns=tuple(item.name for item in seen))
    ddl = ", ".join(filter(None, (spark_ddl(seen), f"{ROW} {_PLACES[ROW]}")))
    rows = session.range(0, count, 1, count).mapInArrow(AtOnce(keeping, kept), ddl)
    found = keyed(rows, shaping, work.columns, behind, ROW)
    fields = distinct.computed_fields(found.keys, found.order)
    if fields is None:
        return None
    return _Computing(found.frame.mapInArrow(distinct.KeysInto(keeping.folder), f"{REPORT} STRING"), fields)


def _itself(kept: Kept) -> Kept:
    return kept
