"""The tables that rows are published to: there, wide enough, and the job that fills each of them."""

from collections.abc import Callable
from dataclasses import replace

import structlog

from ingestd.batch.destinations import shape
from ingestd.batch.landing import APPEND, destination, landing_table, truncates
from ingestd.batch.parts import Parts
from ingestd.batch.record import Record
from ingestd.batch.steps import Step, branch_tables, shapes
from ingestd.batch.variables import batch_variables
from ingestd.model.errors import BadInput, NotFound, Transient
from ingestd.model.jobs import JobKind
from ingestd.model.preparation import Drift, Shaping
from ingestd.model.schema import Schema, schema_rest
from ingestd.model.tables import TableName, parse_table
from ingestd.ports import TableInfo
from ingestd.rules.shaping import absent_policy, shaping_of, upsert_conditions
from ingestd.warehouse.columns import fields_of
from ingestd.warehouse.schemas import Evolution, evolve, with_new_columns
from ingestd.warehouse.statements import (
    HOME,
    Publication,
    Statement,
    TableShape,
    UpsertPlan,
    publish_statement,
    unmatched_statement,
)

log = structlog.get_logger(__name__)

_AT_THE_SAME_MOMENT = 5

Merge = Callable[[Schema, Schema], Evolution]


class Targets:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def statement(self, record: Record, step: Step) -> Statement:
        """The step's job, after what has to be true of its target is."""
        spec = record.rule.spec
        if record.transient is None and not shapes(spec):
            return await self._copy(record, step)
        plan = await self._publication(record, step)
        found = unmatched_statement(plan) if step.counts else None
        if found is None:
            found = publish_statement(plan, step.branch if plan.branches else HOME)
        return replace(found, configuration=_as_asked(record, found))

    async def ensure(self, record: Record, table: TableName) -> TableInfo | None:
        """The split's table, made like the rule's template or the destination if it is missing."""
        whole = table.partition(None)
        found = await self._parts.warehouse.table(whole)
        if found is not None or (model := await self._model(record)) is None:
            return found
        log.info("table.created", table=str(whole), template=str(model.name))
        return await self._parts.warehouse.create_table(whole, shape(model))

    async def _publication(self, record: Record, step: Step) -> Publication:
        """What decides about the job. Rows that were prepared are shaped already: they only have to move."""
        dest = record.rule.spec.dest
        values = batch_variables(record, record.loaded_files, self._parts.settings)
        shaping = shaping_of(dest, values)
        parameters = dict(shaping.parameters)
        update_when, delete_when = upsert_conditions(dest, values, parameters)
        branches = branch_tables(record)
        if record.progress.pinned is not None:
            shaping, branches = Shaping(alias=shaping.alias), ()
        landed = landing_table(record, step.source).partition(None)
        found = await self._parts.warehouse.table(landed)
        if found is None:
            raise NotFound(f"{landed} does not exist")
        apart = step.branch >= 0
        target = await self.ensure(record, step.target) if apart else await self._table(step.target)
        absent = absent_policy(dest)
        if target is not None and absent is Drift.EVOLVE:
            target = await self._wider(target.name, fields_of(found.resource), with_new_columns)
        shown = _shape(step.target, target)
        return Publication(
            landed=_shape(landed, found),
            target=shown,
            shaping=replace(shaping, parameters=parameters),
            branches=tuple(replace(shown, name=one) for one in branches),  # only this step's statement is used
            append=not truncates(record),
            method=dest.staging.copy_method if dest.staging else None,
            absent=absent,
            upsert=UpsertPlan(dest.merge, update_when, delete_when) if dest.merge else None,
        )

    async def _copy(self, record: Record, step: Step) -> Statement:
        """What was staged is published as it is, partition by partition if need be."""
        landed = landing_table(record, step.source)
        if step.branch >= 0:
            await self.ensure(record, step.target)
        replaced = truncates(record) and step.target.decorator is None  # its columns, too
        evolves = record.rule.spec.dest.drift is Drift.EVOLVE
        wider = evolves or record.load.get("schemaUpdateOptions") or _evolved(record)
        if wider and not replaced and (found := await self._table(landed)) is not None:
            # A copy cannot add columns, so the target gets them first.
            await self._wider(step.target, fields_of(found.resource), evolve)
        configuration = {
            "sourceTables": [landed.rest],
            "destinationTable": step.target.rest,
            "writeDisposition": "WRITE_TRUNCATE" if truncates(record) else record.load.get("writeDisposition", APPEND),
            "createDisposition": record.load.get("createDisposition", "CREATE_IF_NEEDED"),
        }
        return Statement(JobKind.COPY, step.target, configuration, step.branch)

    async def _table(self, name: TableName) -> TableInfo | None:
        return await self._parts.warehouse.table(name.partition(None))

    async def _model(self, record: Record) -> TableInfo | None:
        """What a split's tables are made like: the rule's template, or the destination."""
        template = record.rule.spec.dest.schema_options.template
        if not template:
            return await self._table(destination(record))
        name = parse_table(template).in_project(self._parts.settings.project)
        if (found := await self._table(name)) is None:
            raise NotFound(f"template table {name} does not exist; create it or correct Schema.Template")
        return found

    async def _wider(self, name: TableName, landed: Schema, merge: Merge) -> TableInfo | None:
        """The target, with the columns that only the landed rows have.

        Another batch may give it columns at the same moment, which a change that does not know of them would drop:
        BigQuery refuses that, and then there is more to merge.
        """
        table = name.partition(None)
        for _ in range(_AT_THE_SAME_MOMENT):
            if (found := await self._table(table)) is None:
                return None
            wide = merge(fields_of(found.resource), landed)
            if not wide.changes:
                return found
            try:
                changed = await self._parts.warehouse.patch_table(table, {"schema": schema_rest(wide.fields)})
            except BadInput:
                now = await self._table(table)
                if now is None or fields_of(now.resource) == fields_of(found.resource):
                    raise
            else:
                log.info("table.widened", table=str(table), added=wide.added, relaxed=wide.relaxed)
                return changed
        raise Transient(f"{table} gets other columns all the time")


def _shape(name: TableName, info: TableInfo | None) -> TableShape:
    return TableShape.of(name, info.resource if info else None)


def _evolved(record: Record) -> bool:
    pinned = record.progress.pinned
    return pinned is not None and bool(pinned.prepared.added or pinned.prepared.relaxed)


def _as_asked(record: Record, statement: Statement) -> dict[str, object]:
    """The job's configuration, with the dispositions that the rule gives explicitly."""
    configuration = dict(statement.configuration)
    if "destinationTable" in configuration:
        if record.load.get("writeDisposition") == "WRITE_EMPTY":
            configuration["writeDisposition"] = "WRITE_EMPTY"
        configuration["createDisposition"] = record.load.get("createDisposition", "CREATE_IF_NEEDED")
    return configuration
