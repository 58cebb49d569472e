"""`export`: a table to files."""

from typing import Any

from ingestd.actions.context import ActionContext, Outcome, Step
from ingestd.actions.jobs import location_of, run_job
from ingestd.actions.values import job_response
from ingestd.model.errors import BadInput
from ingestd.model.jobs import JobKind
from ingestd.rules.actions import ExportFormat, ExportRequest


async def run(ctx: ActionContext, step: Step, request: ExportRequest) -> Outcome:
    if not request.source:
        raise BadInput("export: Source is empty")
    source = ctx.table(request.source)
    kind = ExportFormat.CSV if request.field_delimiter and not request.format else request.resolved_format
    configuration: dict[str, Any] = {
        "sourceTable": source.rest,
        "destinationUris": [request.dest_url],
        "destinationFormat": str(kind),
    }
    if kind is ExportFormat.CSV:
        configuration["fieldDelimiter"] = request.field_delimiter or ","
        configuration["printHeader"] = request.include_header is not False
    if kind is ExportFormat.AVRO:
        configuration["useAvroLogicalTypes"] = request.use_avro_logical_types is not False
    if request.resolved_compression:
        configuration["compression"] = str(request.resolved_compression)
    job = await run_job(ctx, step, JobKind.EXTRACT, configuration, await location_of(ctx, source))
    return Outcome(job_response(job), job)
