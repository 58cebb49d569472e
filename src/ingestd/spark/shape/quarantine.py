"""The verdict on every file of a batch, from the reports of one pass.

Pure: reports in, verdict out. A file that has no report was never read, which is no verdict but a defect; files that
could not be had at all are the fetch's to name.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ingestd.formats.errors import BigQueryError
from ingestd.model.errors import BadInput
from ingestd.model.preparation import BadData, BadFile
from ingestd.model.schema import Field, Schema
from ingestd.spark.files.read_task import Report
from ingestd.spark.files.unknown import agree


@dataclass(frozen=True, slots=True)
class Verdict:
    bad: tuple[BadFile, ...] = ()
    leaked: frozenset[int] = frozenset()  # bad files of which rows were given on: read again without them
    strict: bool = False  # more bad rows than were tolerated in all: read again and tolerate none
    unknown: Schema = ()  # what the good files have beyond the schema
    rows_per_file: dict[int, int] = field(default_factory=dict)
    bad_rows: int = 0  # left out of files that are loaded
    left: int = 0  # left out for having columns the table has not
    untyped: Schema = ()  # columns beyond the schema of which a good file has no value


def judge(reports: Iterable[Report], policy: BadData, tolerated: int = 0) -> Verdict:
    """What the reports of one pass say about each file."""
    by_file: dict[int, dict[int, Report]] = defaultdict(dict)
    for report in reports:
        by_file[report.index][report.part] = report  # a share that Spark ran twice reports twice, the same
    bad: list[BadFile] = []
    leaked: set[int] = set()
    rows: dict[int, int] = {}
    unknown: Schema = ()
    untyped: Schema = ()
    dropped = left = 0
    for index in sorted(by_file):
        parts = [report for _, report in sorted(by_file[index].items())]
        count = sum(report.bad for report in parts)
        if count:
            refused = any(report.whole for report in parts)
            refused |= policy is not BadData.QUARANTINE_ROWS and count > tolerated
            bad.append(_bad_file(index, parts, count, loaded=not refused))
            if refused:
                if any(report.out for report in parts):
                    leaked.add(index)
                continue
            dropped += count
        rows[index] = sum(report.rows for report in parts)
        left += sum(report.left for report in parts)
        for report in parts:
            unknown = _agreed(unknown, tuple(map(Field.from_rest, report.unknown)))
            untyped = _agreed(untyped, tuple(map(Field.from_rest, report.untyped)))
    strict = policy is not BadData.QUARANTINE_ROWS and tolerated > 0 and dropped > tolerated
    return Verdict(tuple(bad), frozenset(leaked), strict, unknown, rows, dropped, left, untyped)


def _agreed(left: Schema, right: Schema) -> Schema:
    """What files before this one have, and this one: where they cannot agree it is left out, and will not fit."""
    try:
        return agree(left, right)
    except BigQueryError:
        return left


def _bad_file(index: int, parts: Sequence[Report], count: int, *, loaded: bool) -> BadFile:
    before = 0
    first = parts[0]
    for report in parts:
        if report.bad:
            first = report
            break
        before += report.lines
    worst = next((report for report in parts if report.whole), first)
    line = None if worst.line is None else worst.line + before
    return BadFile(
        index,
        worst.why,
        schema=worst.schema,
        line=line,
        column=worst.column,
        rows=count,
        loaded=loaded,
    )


def refusal(verdict: Verdict, names: Sequence[str]) -> BadInput:
    """For the policy that fails a batch over bad data: which files, and what is wrong with the first ones."""
    shown = "; ".join(_shown(item, names[item.index]) for item in verdict.bad[:5])
    more = f" and {len(verdict.bad) - 5} more" if len(verdict.bad) > 5 else ""
    return BadInput(
        f"bad data in {len(verdict.bad)} file(s): {shown}{more}", tuple(names[b.index] for b in verdict.bad)
    )


def _shown(item: BadFile, name: str) -> str:
    return name + (f" line {item.line}" if item.line is not None else "") + f": {item.why}"
