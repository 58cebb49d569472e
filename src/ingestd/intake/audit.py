"""Reading BigQuery's audit log: which job is done.

Two shapes exist, and a sink may deliver both for one job: v2 `BigQueryAuditMetadata.jobChange` and the legacy v1
`jobCompletedEvent`. An entry is only a wake-up: it names the job, and `jobs.get` tells the truth about it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from ingestd.intake.notifications import Unreadable
from ingestd.model.jobs import MAX_JOB_ID, JobRef

_LONGEST = 200  # characters of a project or a location; real ones have some thirty


@dataclass(frozen=True, slots=True)
class JobDone:
    """A completion was announced for this job."""

    ref: JobRef


@dataclass(frozen=True, slots=True)
class OtherEntry:
    """A log entry that announces no completion: fine, and nothing to do."""

    what: str


def parse_audit(data: bytes, attributes: Mapping[str, str]) -> JobDone | OtherEntry:
    del attributes  # the sink's attributes repeat the entry's timestamp
    try:
        entry = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Unreadable(f"the payload is not JSON: {error}") from None
    payload = _member(entry, "protoPayload")
    if not payload:
        raise Unreadable("the payload is not an audit log entry (no protoPayload)")
    if completed := _member(_member(payload, "serviceData"), "jobCompletedEvent"):
        return _from_v1(completed)
    metadata = _member(payload, "metadata")
    change = _member(metadata, "jobChange")
    if change:
        return _from_v2(change, _member(entry, "resource"))
    return OtherEntry(str(payload.get("methodName") or "entry without a job change"))


def _from_v2(change: dict[str, Any], resource: dict[str, Any]) -> JobDone | OtherEntry:
    job = _member(change, "job")
    state = _member(job, "jobStatus").get("jobState")
    if change.get("after", state) != "DONE" and state != "DONE":
        return OtherEntry(f"job is {change.get('after') or state}")
    name = job.get("jobName")
    parts = name.split("/") if isinstance(name, str) else []
    if len(parts) != 4 or parts[0] != "projects" or parts[2] != "jobs":
        raise Unreadable(f"the entry names no job: jobName is {name!r}")
    labels = _member(resource, "labels")
    return JobDone(_ref(parts[1], labels.get("location"), parts[3]))


def _from_v1(completed: dict[str, Any]) -> JobDone:
    name = _member(_member(completed, "job"), "jobName")
    project, identity = name.get("projectId"), name.get("jobId")
    if not isinstance(project, str) or not isinstance(identity, str) or not project or not identity:
        raise Unreadable("the entry names no job: jobCompletedEvent.job.jobName is incomplete")
    return JobDone(_ref(project, name.get("location"), identity))


def _ref(project: str, location: object, identity: str) -> JobRef:
    # Some entries carry `US:job_1` or `project:US.job_1`; the id itself never holds a colon or a dot.
    place, _, bare = identity.rpartition(":") if ":" in identity else identity.rpartition(".")
    known = location if isinstance(location, str) else place.rpartition(".")[2].rpartition(":")[2]
    job = bare or identity
    if len(job) > MAX_JOB_ID or len(project) > _LONGEST or len(known) > _LONGEST or "/" in project + known + job:
        raise Unreadable(f"the entry names no job: {identity[:100]!r} of {project[:100]!r} cannot be one")
    return JobRef(project, known, job)


def _member(value: object, key: str) -> dict[str, Any]:
    member = value.get(key) if isinstance(value, dict) else None
    return member if isinstance(member, dict) else {}
