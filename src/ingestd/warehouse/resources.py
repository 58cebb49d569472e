"""BigQuery's job resource (REST form) as the daemon's `JobState`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ingestd.model.jobs import JobError, JobKind, JobRef, JobState


def job_state(resource: Mapping[str, Any]) -> JobState:
    reference = resource.get("jobReference", {})
    configuration = resource.get("configuration", {})
    status = resource.get("status", {})
    statistics = resource.get("statistics", {})
    kind = next((kind for kind in JobKind if kind in configuration), JobKind.QUERY)
    failure = status.get("errorResult")
    return JobState(
        ref=JobRef(reference.get("projectId", ""), reference.get("location", ""), reference.get("jobId", "")),
        kind=kind,
        state=status.get("state", "PENDING"),
        configuration=dict(configuration.get(str(kind), {})),
        error=_error(failure) if failure else None,
        errors=tuple(_error(item) for item in status.get("errors", ())),
        statistics=dict(statistics),
        labels=dict(configuration.get("labels", {})),
        created=_instant(statistics.get("creationTime")),
        started=_instant(statistics.get("startTime")),
        ended=_instant(statistics.get("endTime")),
    )


def _error(item: Mapping[str, Any]) -> JobError:
    return JobError(item.get("reason", ""), item.get("message", ""), item.get("location", ""))


def _instant(milliseconds: object) -> datetime | None:
    if not isinstance(milliseconds, str | int | float) or milliseconds == "":
        return None
    return datetime.fromtimestamp(int(milliseconds) / 1000, UTC)
