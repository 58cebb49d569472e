"""What BigQuery's error reasons mean for the daemon: which of the four kinds each one is.

Used for REST errors (by the adapter) and for the `errorResult` of finished jobs, so both agree.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from ingestd.model.errors import BadInput, Fatal, IngestError, NotFound, PreconditionFailed, Throttled, Transient
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


# What BigQuery says of a statement that is right and met another one at its table. Its reason is that of wrong ones.
_PASSING = ("due to concurrent update", "would affect rows in the streaming buffer")


def kind_of(reason: str, message: str) -> Kind | None:
    """The kind a reason stands for; None when the reason says nothing (use the HTTP status then)."""
    if reason == "invalidQuery" and any(words in message for words in _PASSING):
        return Kind.TRANSIENT
    return _KINDS.get(reason)


def from_status(code: int, message: str, *, reason: str = "", until: datetime | None = None) -> IngestError:
    """The kind an HTTP answer stands for: by its reason where that tells more than the status, else by the status."""
    kind = kind_of(reason, message)
    match kind:
        case Kind.RATE:
            return Throttled(message, until)
        case Kind.QUOTA:
            return Throttled(message, until, quota=True)
        case Kind.TRANSIENT:
            return Transient(message)
        case _:
            pass
    match code:
        case 429:
            return Throttled(message, until)
        case 404:
            return NotFound(f"{message}; create it, or correct its name in the rule, _config/load.json or settings")
        case 409 | 412:
            return PreconditionFailed(message)
        case 403:
            return Fatal(f"{message}; no permission: grant the daemon's service account access to it")
        case 401:
            return Fatal(f"{message}; check the application default credentials")
        case 501:
            return Fatal(message)
        case 408 | 410 | 499:  # 410: what was begun (an upload, a long copy) has to be begun anew
            return Transient(message)
        case _ if kind is Kind.FATAL:  # what a query ran into, say, for which the client chooses 400
            return Fatal(message)
        case _ if kind is Kind.BAD_INPUT:  # and 500 for every reason that it does not know
            return BadInput(message)
        case _ if code >= 500:
            return Transient(message)
        case _ if 400 <= code < 500:
            return BadInput(message)
        case _:
            return Fatal(message)


def refused_rows(table: str, refused: Sequence[Mapping[str, Any]]) -> IngestError:
    """The verdict on `insertErrors`: `stopped` rows are bystanders of the row that was really refused."""
    faults = [
        (item.get("index"), fault.get("reason", ""), fault.get("message", ""), fault.get("location", ""))
        for item in refused
        for fault in item.get("errors", ())
    ]
    guilty = [fault for fault in faults if fault[1] != "stopped"] or faults
    index, reason, message, location = guilty[0] if guilty else (None, "", "no reason given", "")
    return from_status(
        400, f"{table}: {len(refused)} rows refused, row {index} ({reason} {location}): {message}", reason=reason
    )


def job_failure(job: JobState) -> IngestError | None:
    """The error a finished job stands for; None when it succeeded or still runs.

    For a load, `BadInput.files` names the source files that BigQuery blamed.
    """
    if not job.failed or job.error is None:
        return None
    error = job.error
    message = f"job {job.ref.job_id} failed ({error.reason}): {error.message}"
    match kind_of(error.reason, error.message):
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
