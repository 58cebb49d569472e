"""BigQuery jobs of actions: deterministic ids, awaited, and judged once."""

from collections.abc import Callable
from typing import Any

from ingestd.actions.context import ActionContext, Step
from ingestd.model.errors import Fatal, NotFound
from ingestd.model.jobs import JobKind, JobRef, JobRequest, JobState, job_id
from ingestd.model.schema import schema_rest
from ingestd.model.tables import TableName
from ingestd.warehouse.columns import fields_of
from ingestd.warehouse.errors import job_failure
from ingestd.warehouse.schemas import patched

_MAX_EARLIER_ATTEMPTS = 1000
# What a table made from a template takes over; its data, expiration and description stay behind.
_TEMPLATE_FIELDS = ("schema", "timePartitioning", "rangePartitioning", "clustering")


async def run_job(
    ctx: ActionContext,
    step: Step,
    kind: JobKind,
    configuration: dict[str, Any],
    location: str,
    *,
    part: str = "",
    once: str = "",
) -> JobState:
    """Run this step's job to its success, or raise the kind of error it ended with.

    `part` tells several jobs of one step apart. Attempts that failed in an earlier life are left behind: their ids are
    used up, and whatever made them fail may have been mended since. One that is running or succeeded is adopted.

    Earlier versions submitted to the daemon's own project, and so does whoever acts before the batch's project is
    chosen. What runs or succeeded there is adopted there (at `once`, where that was another location): a job id counts
    in one project only, and another would run the same job again.
    """
    settings = ctx.settings
    for project in dict.fromkeys((settings.project, settings.jobs_in)):
        place = location if project == settings.jobs_in else once or location
        make, adopted = await _next(ctx, _requests(ctx, step, kind, configuration, (project, place), part))
        if adopted:
            break
    job = await ctx.jobs.run(make)
    if problem := job_failure(job):
        raise problem
    return job


async def _next(ctx: ActionContext, make: Callable[[int], JobRequest]) -> tuple[Callable[[int], JobRequest], bool]:
    """The requests that are left after those that failed, and whether the first of them is there already."""
    skipped, earlier = 0, None
    while skipped < _MAX_EARLIER_ATTEMPTS:
        earlier = await ctx.warehouse.get_job(make(skipped + 1).ref)
        if earlier is None or not earlier.failed:
            break
        skipped += 1
    return (lambda attempt: make(skipped + attempt)), earlier is not None and not earlier.failed


def _requests(
    ctx: ActionContext, step: Step, kind: JobKind, configuration: dict[str, Any], place: tuple[str, str], part: str
) -> Callable[[int], JobRequest]:
    name = (f"{step.action}_{part}" if part else step.action) + ctx.again
    labels = {"ingestd": step.action, "ingestd_event": ctx.event_id}

    def make(attempt: int) -> JobRequest:
        identity = job_id(ctx.dest, ctx.event_id, step.number, name, ctx.mode, attempt)
        return JobRequest(JobRef(*place, identity), kind, configuration, labels)

    return make


async def location_of(ctx: ActionContext, *tables: TableName | None) -> str:
    """Where the first of these tables lives; a job has to run there."""
    for table in tables:
        if table is not None and (found := await ctx.warehouse.dataset_location(table.project or "", table.dataset)):
            return found
    return ctx.settings.location


async def create_from_template(ctx: ActionContext, dest: TableName, template: TableName) -> None:
    """Make `dest` with the template's schema, partitioning and clustering; one that exists gets its new columns."""
    model = await ctx.warehouse.table(template)
    if model is None:
        raise NotFound(f"template table {template} does not exist; create it, or correct Template")
    resource = {key: model.resource[key] for key in _TEMPLATE_FIELDS if key in model.resource}
    if "schema" not in resource:
        raise Fatal(f"template table {template} has no schema")
    found = await ctx.warehouse.create_table(dest.partition(None), resource)
    wide = patched(fields_of(found.resource), fields_of(resource))
    if wide is not None and wide.changes:
        await ctx.warehouse.patch_table(found.name, {"schema": schema_rest(wide.fields)})


def write_disposition(*, append: bool) -> str:
    return "WRITE_APPEND" if append else "WRITE_TRUNCATE"
