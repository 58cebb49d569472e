"""What a request leaves unsaid is taken from the job it follows: a route's `export` need not repeat the table."""

from ingestd.actions.values import job_destination, job_source
from ingestd.model.jobs import JobKind, JobState
from ingestd.rules.actions import CopyRequest, ExportRequest, Request


def fill_from_job(request: Request, job: JobState | None) -> Request:
    """`Source` of a `copy` or `export` becomes the table the job wrote (an extract's: the one it read)."""
    if job is None or not isinstance(request, CopyRequest | ExportRequest) or request.source:
        return request
    table = job_source(job) if job.kind is JobKind.EXTRACT else job_destination(job)
    return request.model_copy(update={"source": table}) if table else request
