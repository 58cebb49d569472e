"""`copy`: one BigQuery table to another, or partition by partition."""

import asyncio
from typing import Any

from ingestd.actions.context import ActionContext, Outcome, Step
from ingestd.actions.jobs import create_from_template, location_of, run_job, write_disposition
from ingestd.actions.values import job_response, with_source_table
from ingestd.model.errors import BadInput
from ingestd.model.jobs import JobKind, JobState
from ingestd.model.tables import TableName
from ingestd.rules.actions import CopyRequest
from ingestd.rules.expansion import Scope, render
from ingestd.rules.sql import expand_sql, literal

_UNUSABLE_PARTITIONS = ("__NULL__", "__UNPARTITIONED__")


async def run(ctx: ActionContext, step: Step, request: CopyRequest) -> Outcome:
    if not request.source:
        raise BadInput("copy: Source is empty")
    if request.multi_partition or request.partition_sql:
        return await _partitions(ctx, step, request)
    job = await _one(ctx, step, request, request.source, request.dest, part="")
    return Outcome(job_response(job), job)


async def _one(
    ctx: ActionContext, step: Step, request: CopyRequest, source_text: str, dest_text: str, *, part: str
) -> JobState:
    source, dest = ctx.table(source_text), ctx.table(dest_text)
    configuration: dict[str, Any] = {
        "sourceTables": [source.rest],
        "destinationTable": dest.rest,
        "writeDisposition": write_disposition(append=request.append),
    }
    if request.template:
        await create_from_template(ctx, dest, ctx.table(request.template))
    else:
        configuration["createDisposition"] = "CREATE_IF_NEEDED"
    location = await location_of(ctx, source, dest)
    return await run_job(ctx, step, JobKind.COPY, configuration, location, part=part)


async def _partitions(ctx: ActionContext, step: Step, request: CopyRequest) -> Outcome:
    """One job per partition; the step is done when all are, also when there are none."""
    assert request.source is not None
    found = await _partition_ids(ctx, step, request)
    slots = asyncio.Semaphore(ctx.settings.max_concurrency)

    async def one(partition: str) -> JobState:
        values = Scope({"PartitionID": partition, "DollarSign": "$"})
        source, dest = (_partitioned(text, partition, values) for text in (request.source or "", request.dest))
        async with slots:
            return await _one(ctx, step, request, source, dest, part=partition)

    results = await asyncio.gather(*(one(partition) for partition in found), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    jobs = [result for result in results if isinstance(result, JobState)]
    response: dict[str, Any] = job_response(jobs[-1]) if jobs else {}
    return Outcome({**response, "Partitions": found}, jobs[-1] if jobs else None, {"partitions": len(found)})


def _partitioned(text: str, partition: str, values: Scope) -> str:
    """The table with its partition: where the rule says so, else as a decorator."""
    return render(values.expand_text(text)) if "PartitionID" in text else f"{text}${partition}"


async def _partition_ids(ctx: ActionContext, step: Step, request: CopyRequest) -> list[str]:
    table = _whole_table(ctx, request.source or "")
    written = request.partition_sql or ""
    legacy = "[" in written and "]" in written  # as in bqtail
    sql = _default_partition_sql(table)
    if written:
        try:
            scope = Scope(with_source_table(step.values, table), home=ctx.settings.home)
            sql = expand_sql(written, scope, legacy=legacy)
        except ValueError as error:
            raise BadInput(f"copy: PartitionSQL: {error}") from error
    configuration = {"query": sql, "useLegacySql": legacy}
    location = await location_of(ctx, table)
    job = await run_job(ctx, step, JobKind.QUERY, configuration, location, part="partitions")
    rows = await ctx.warehouse.rows(job.ref)
    if rows and "partition_id" not in rows[0]:
        raise BadInput(f"PartitionSQL returned no column partition_id but {', '.join(rows[0])}")
    ids = (render(row["partition_id"]) for row in rows if row["partition_id"] is not None)
    return [found for found in dict.fromkeys(ids) if found not in _UNUSABLE_PARTITIONS]


def _default_partition_sql(table: TableName) -> str:
    views = f"`{table.project}.{table.dataset}.INFORMATION_SCHEMA.PARTITIONS`"
    unusable = ", ".join(literal(name) for name in _UNUSABLE_PARTITIONS)
    return (
        f"SELECT partition_id FROM {views} WHERE table_name = {literal_text(table.table)} "  # noqa: S608 - literals
        f"AND partition_id IS NOT NULL AND partition_id NOT IN ({unusable}) ORDER BY partition_id"
    )


def literal_text(text: str) -> str:
    """A string literal even for a name made of digits, which `literal` would write as a number."""
    return literal(text) if not text.isdigit() else f"'{text}'"


def _whole_table(ctx: ActionContext, text: str) -> TableName:
    """The table behind a text that may end in variables for a partition."""
    return ctx.table(text.partition("$")[0])
