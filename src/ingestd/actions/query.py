"""`query`: run a statement, optionally into a table."""

from typing import Any

from ingestd.actions.context import ActionContext, Outcome, Step
from ingestd.actions.jobs import create_from_template, location_of, run_job, write_disposition
from ingestd.actions.objects import content_of
from ingestd.actions.values import job_response
from ingestd.googlesql.words import returns_rows
from ingestd.model.errors import BadInput
from ingestd.model.jobs import JobKind, JobState
from ingestd.model.objects import ObjectRef
from ingestd.model.tables import TableName
from ingestd.rules.actions import InsertRequest, QueryRequest, SparkRequest
from ingestd.rules.expansion import Scope
from ingestd.rules.sql import expand_sql

_LARGEST_SQL = 4 << 20  # bytes of a file; BigQuery takes a statement of 1 MB


async def run(ctx: ActionContext, step: Step, request: QueryRequest) -> Outcome:
    sql = await statement(ctx, step, request)
    configuration: dict[str, Any] = {"query": sql, "useLegacySql": request.use_legacy}
    dest: TableName | None = None
    if request.dest and returns_rows(sql):
        dest = ctx.table(request.dest)
        configuration["destinationTable"] = dest.rest
        configuration["writeDisposition"] = write_disposition(append=request.append)
        if request.template:
            await create_from_template(ctx, dest, ctx.table(request.template))
        else:
            configuration["createDisposition"] = "CREATE_IF_NEEDED"
        if request.use_legacy:
            configuration["allowLargeResults"] = True
    job = await run_query(ctx, step, configuration, request.dataset_id, dest)
    return Outcome(job_response(job), job)


async def run_query(
    ctx: ActionContext, step: Step, configuration: dict[str, Any], dataset: str | None, dest: TableName | None
) -> JobState:
    """Run the statement where its destination or default dataset lives."""
    default: TableName | None = None
    once = ""
    if dataset:
        project, _, name = dataset.replace(":", ".").rpartition(".")
        default = TableName(project or ctx.settings.jobs_in, name, "_")
        configuration["defaultDataset"] = {"projectId": default.project, "datasetId": name}
        if not project and ctx.settings.home:  # where an earlier version ran it (see `run_job`)
            once = await location_of(ctx, dest, TableName(ctx.settings.home, name, "_"), ctx.dest_table)
    location = await location_of(ctx, dest, default, ctx.dest_table)
    return await run_job(ctx, step, JobKind.QUERY, configuration, location, once=once)


async def statement(ctx: ActionContext, step: Step, request: QueryRequest | InsertRequest | SparkRequest) -> str:
    """The SQL, from the rule (already filled in) or from a file, whose variables are filled in here."""
    if request.sql:
        return request.sql
    if not request.sql_url:
        raise BadInput(f"{step.action}: SQL is empty")
    try:
        ref = ObjectRef.parse(request.sql_url)
    except ValueError as error:
        raise BadInput(f"{step.action}: SQLURL: {error}") from error
    data = await content_of(ctx, ref, f"{step.action}: SQLURL", largest=_LARGEST_SQL)
    try:
        return expand_sql(data.decode(), Scope(step.values, home=ctx.settings.home), legacy=request.use_legacy)
    except ValueError as error:
        raise BadInput(f"{step.action}: {ref}: {error}") from error
