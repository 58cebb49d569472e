"""What BigQuery's error reasons mean for the daemon: which of the four kinds each one is.

Used for REST errors (by the adapter) and for the `errorResult` of finished jobs, so both agree.
"""

from enum import StrEnum

from ingestd.model.errors import BadInput, Fatal, IngestError, NotFound, Throttled, Transient
from ingestd.model.jobs import JobError, JobKind, JobState


class Kind(StrEnum):
    TRANSIENT = "transient"
    RATE = "rate"
    QUOTA = "quota"
    BAD_INPUT = "bad_input"
    NOT_FOUND = "not_found"
    FATAL = "fatal"


_KINDS = {
    "backendError": Kind.TRANSIENT,
    "internalError": Kind.TRANSIENT,
    "jobBackendError": Kind.TRANSIENT,
    "jobInternalError": Kind.TRANSIENT,
    "resourceInUse": Kind.TRANSIENT,
    "tableUnavailable": Kind.TRANSIENT,
    "timeout": Kind.TRANSIENT,
    "rateLimitExceeded": Kind.RATE,
    "userRateLimitExceeded": Kind.RATE,
    "jobRateLimitExceeded": Kind.RATE,
    "concurrentLimitExceeded": Kind.RATE,
    "quotaExceeded": Kind.QUOTA,
    "dailyLimitExceeded": Kind.QUOTA,
    "invalid": Kind.BAD_INPUT,
    "invalidQuery": Kind.BAD_INPUT,
    "invalidParameter": Kind.BAD_INPUT,
    "parseError": Kind.BAD_INPUT,
    "notFound": Kind.NOT_FOUND,
    "accessDenied": Kind.FATAL,
    "billingNotEnabled": Kind.FATAL,
    "billingTierLimitExceeded": Kind.FATAL,
    "blocked": Kind.FATAL,
    "duplicate": Kind.FATAL,
    "notImplemented": Kind.FATAL,
    "resourcesExceeded": Kind.FATAL,
    "responseTooLarge": Kind.FATAL,
    "stopped": Kind.FATAL,  # somebody cancelled it: running it again would defy them
}


def kind_of(reason: str) -> Kind | None:
    """The kind a reason stands for; None when the reason says nothing (use the HTTP status then)."""
    return _KINDS.get(reason)


def job_failure(job: JobState) -> IngestError | None:
    """The error a finished job stands for; None when it succeeded or still runs.

    For a load, `BadInput.files` names the source files that BigQuery blamed.
    """
    if not job.failed or job.error is None:
        return None
    error = job.error
    message = f"job {job.ref.job_id} failed ({error.reason}): {error.message}"
    match kind_of(error.reason):
        case Kind.TRANSIENT:
            return Transient(message)
        case Kind.RATE:
            return Throttled(message)
        case Kind.QUOTA:
            return Throttled(message, quota=True)
        case Kind.BAD_INPUT:
            return BadInput(message, blamed_files(job))
        case Kind.NOT_FOUND:
            files = blamed_files(job)
            # A load names its missing file; anything else that is missing is part of the surroundings.
            return BadInput(message, files) if files else NotFound(message)
        case _:
            return Fatal(message)


def blamed_files(job: JobState) -> tuple[str, ...]:
    """The `gs://` files that a failed load's errors point at, each once, in order."""
    if job.kind is not JobKind.LOAD:
        return ()
    found = dict.fromkeys(filter(None, map(_blamed, (*job.errors, *((job.error,) if job.error else ())))))
    return tuple(found)


def _blamed(error: JobError) -> str:
    for text in (error.location, error.message):
        for word in text.replace("/bigstore/", "gs://").split():
            if word.startswith("gs://"):
                return word.rstrip(".,;:'\")")
    return ""
