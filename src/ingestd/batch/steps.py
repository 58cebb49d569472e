"""Which way a batch's rows take, and in which steps: functions of the record alone, so that everyone sees the same."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ingestd.batch.landing import destination, truncates
from ingestd.batch.pinned import HOME, UNMATCHED
from ingestd.batch.record import Record
from ingestd.model.errors import BadInput
from ingestd.model.jobs import JobRef
from ingestd.model.preparation import BadData, Drift, Unmatched
from ingestd.model.tables import TableName
from ingestd.rules.destination import DestinationError, expand_destination
from ingestd.rules.rule import Matcher, Rule
from ingestd.rules.schema import Engine, RuleSpec
from ingestd.rules.shaping import engine_asked
from ingestd.warehouse.schemas import SELF_DESCRIBING


@dataclass(frozen=True, slots=True)
class Step:
    """One job that brings landed rows to one target."""

    branch: int  # the split's mapping, `HOME`, or `UNMATCHED`
    target: TableName
    source: int = HOME  # the landed table it reads: rows that were prepared apart lie apart

    @property
    def counts(self) -> bool:
        """Whether it only counts the rows that no mapping of the split takes."""
        return self.branch == UNMATCHED


class Way(StrEnum):
    """How a batch's rows get from its files into tables."""

    DIRECT = "direct"  # its files are loaded as they are
    PREPARED = "prepared"  # a preparer reads them first, and its files are loaded
    STATEMENTS = "statements"  # its files are loaded into a table of the batch's own, and SQL does the rest
    QUERY = "query"  # a directory's own query reads its files, and says where rows go


def shapes(spec: RuleSpec) -> bool:
    """Whether the rows are not the files' own any more."""
    return spec.dest.shapes


def engine_matters(spec: RuleSpec, load: dict[str, Any]) -> bool:
    """Whether it makes a difference which engine works for the batch."""
    return _way(spec, load, Engine.SPARK) is not _way(spec, load, Engine.BIGQUERY)


def way_of(record: Record, default: str) -> Way:
    """The batch's way: by its pinned engine, the rule's, or the default; a directory says it itself."""
    if record.success is not None:
        if record.success.spark:
            return Way.PREPARED
        return Way.QUERY if record.success.sql else Way.DIRECT
    spec = record.rule.spec
    return _way(spec, record.load, engine_of(record, default))


def engine_of(record: Record, default: str) -> Engine:
    """Who prepares rows: what only Spark can do is Spark's, whatever the default; else what was chosen stays."""
    spec = record.rule.spec
    if spec.engine is None and spec.needs_spark:
        return Engine.SPARK
    return Engine(record.placement.engine or engine_asked(spec) or default)


def _way(spec: RuleSpec, load: dict[str, Any], engine: Engine) -> Way:
    by_row = spec.dest.drift is Drift.DISCARD_ROW or spec.on_bad_data is BadData.QUARANTINE_ROWS
    if by_row or spec.merge is not None:
        return Way.PREPARED  # whatever the default: nobody else can do it, and `Engine: bigquery` was refused
    if engine is Engine.BIGQUERY:
        return Way.STATEMENTS if shapes(spec) else Way.DIRECT
    infers = spec.dest.drift is Drift.EVOLVE and load.get("sourceFormat") not in SELF_DESCRIBING
    return Way.PREPARED if shapes(spec) or infers else Way.DIRECT


def branch_tables(record: Record) -> tuple[TableName, ...]:
    """The tables of the rule's split, by mapping: named like the destination, after the batch's first file."""
    spec = record.rule.spec
    split = spec.dest.schema_options.split
    if split is None:
        return ()
    tables = []
    home = destination(record)
    for mapping in split.mapping:
        dest = spec.dest.model_copy(update={"table": mapping.then})
        like = spec.model_copy(update={"dest": dest})
        rule = Rule(record.rule.url, 0, record.rule.name, like, record.rule.content_hash, Matcher(like))
        values = {**record.values, "EventID": record.event_id, "ProjectID": record.placement.project}
        try:
            found = expand_destination(rule, record.files[0], values)
        except DestinationError as error:
            raise BadInput(str(error)) from error
        tables.append(found.target.in_project(str(home.project)))
    if truncates(record) and len(set(tables)) < len(tables):
        raise BadInput("two mappings of Schema.Split replace the same table, so the second would undo the first")
    return tuple(tables)


def steps_of(record: Record) -> tuple[Step, ...]:
    """The steps in their order: count what fits nowhere, a split's mappings as written, the destination itself."""
    branches = branch_tables(record)
    home = Step(HOME, destination(record))
    pinned = record.progress.pinned
    if not branches and pinned is None:
        return (home,)
    if pinned is not None:
        there = {output.branch for output in pinned.prepared.outputs}
        apart = [Step(branch, table, branch) for branch, table in enumerate(branches) if branch in there]
        return (*apart, *((home,) if HOME in there else ()))
    split = record.rule.spec.dest.schema_options.split
    apart = [Step(branch, table) for branch, table in enumerate(branches)]
    if split is not None and split.unmatched is Unmatched.KEEP:
        return (*apart, home)
    return (Step(UNMATCHED, home.target), *apart)


def next_step(record: Record) -> Step | None:
    """The first step that is not taken yet."""
    return next((step for step in steps_of(record) if not record.progress.has(step.branch)), None)


def targets_of(record: Record) -> tuple[int, ...]:
    """What the batch may publish to, and what it counts."""
    split = record.rule.spec.dest.schema_options.split
    return (HOME, UNMATCHED, *range(len(split.mapping))) if split else (HOME,)


def submitted_jobs(record: Record) -> list[JobRef]:
    """Every job that the batch may have submitted on its way."""
    jobs = [record.load_job(number) for number in range(1, record.attempt + 1)]
    if record.load and record.lands_apart:
        attempts = range(1, record.progress.publishing + 1)
        jobs += [record.publish_job(branch, attempt) for branch in targets_of(record) for attempt in attempts]
    return jobs
