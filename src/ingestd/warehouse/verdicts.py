"""How a job ended, in the daemon's own four kinds.

A job that is `DONE` with an `errorResult` has failed. Its reason decides what to do: try again (`Transient`), wait
(`Throttled`), set the files aside (`BadInput`), or keep everything until the surroundings change (`Fatal`).
"""

from ingestd.model.errors import BadInput, Fatal, IngestError, NotFound, Throttled, Transient
from ingestd.model.jobs import JobError, JobState

_TRANSIENT = frozenset(
    {"backendError", "internalError", "jobBackendError", "jobInternalError", "tableUnavailable", "timeout"}
)
_THROTTLED = frozenset({"rateLimitExceeded", "jobRateLimitExceeded", "concurrentLimitExceeded"})
_QUOTA = frozenset({"quotaExceeded", "billingTierLimitExceeded", "dailyLimitExceeded"})
_FATAL = frozenset({"accessDenied", "billingNotEnabled", "blocked", "proxyAuthenticationRequired", "responseTooLarge"})


def verdict(job: JobState) -> IngestError | None:
    """None for success, else the failure as one of the four kinds."""
    if job.error is None:
        return None
    error = job.error
    if error.reason in _TRANSIENT:
        return Transient(describe(job))
    if error.reason in _THROTTLED:
        return Throttled(describe(job))
    if error.reason in _QUOTA:
        return Throttled(describe(job), quota=True)
    if error.reason in _FATAL:
        return Fatal(describe(job))
    if error.reason == "notFound" and not _names_file(error):
        return NotFound(describe(job))
    files = dict.fromkeys(entry.location for entry in (error, *job.errors) if entry.location.startswith("gs://"))
    return BadInput(describe(job), tuple(files))


def missing_files(job: JobState) -> bool:
    """Whether the load failed only because a source object is gone."""
    return job.error is not None and job.error.reason == "notFound" and _names_file(job.error)


def schema_problem(job: JobState) -> bool:
    """Whether the files do not fit the table (rather than being broken in themselves)."""
    texts = " ".join(entry.message.lower() for entry in job.errors) or (job.error.message.lower() if job.error else "")
    return "no such field" in texts or "schema" in texts


def describe(job: JobState) -> str:
    """The error with the details a person needs: BigQuery's own words, and the files it names."""
    assert job.error is not None
    lines = [f"{job.error.reason}: {job.error.message}"]
    for entry in job.errors[:5]:
        if entry.message not in lines[0]:
            place = f" ({entry.location})" if entry.location else ""
            lines.append(f"{entry.reason}: {entry.message}{place}")
    return "\n".join(lines)


def _names_file(error: JobError) -> bool:
    return "gs://" in error.message or "URI" in error.message or error.location.startswith("gs://")
