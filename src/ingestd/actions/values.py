"""The variables an action's request is expanded with, and how a job appears in them."""

from collections.abc import Mapping
from typing import Any

from ingestd.model.jobs import JobKind, JobState
from ingestd.model.tables import TableName


def scope(
    values: Mapping[str, Any], previous: Any, job: JobState | None, error: str, parent_response: Any
) -> dict[str, Any]:
    """Batch values first, then what the previous action answered, then the surroundings of this list."""
    result: dict[str, Any] = dict(previous) if isinstance(previous, Mapping) else {}
    result.update(values)
    if job is not None:
        result["JobID"] = job.ref.job_id
        result["JobSource"] = job_source(job)
    if error:
        result["Error"] = error
    if parent_response is not None:
        result["Response"] = parent_response
    elif job is not None:
        result["Response"] = job_response(job)
    result.setdefault("DollarSign", "$")
    return result


def job_source(job: JobState) -> str:
    """What a job read: the load's files, the query on one line, or `project:dataset.table`."""
    configuration = job.configuration
    match job.kind:
        case JobKind.LOAD:
            return ",".join(configuration.get("sourceUris", ()))
        case JobKind.QUERY:
            return " ".join(str(configuration.get("query", "")).split())
        case JobKind.COPY:
            tables = configuration.get("sourceTables") or [configuration.get("sourceTable")]
            return ",".join(legacy_name(table) for table in tables if table)
        case JobKind.EXTRACT:
            return legacy_name(configuration.get("sourceTable") or {})


def job_destination(job: JobState) -> str:
    """What a job wrote: `project:dataset.table`, or an extract's URIs; empty when it wrote nothing lasting."""
    if job.kind is JobKind.EXTRACT:
        uris = job.configuration.get("destinationUris") or [job.configuration.get("destinationUri", "")]
        return ",".join(uris)
    table = job.configuration.get("destinationTable") or {}
    return legacy_name(table)


def legacy_name(reference: Mapping[str, Any]) -> str:
    if not reference.get("tableId"):
        return ""
    project = reference.get("projectId")
    name = f"{reference.get('datasetId', '')}.{reference['tableId']}"
    return f"{project}:{name}" if project else name


def job_response(job: JobState) -> dict[str, Any]:
    """A finished job for the next action's variables (`$Id`, `$Status.State`, …), small enough to keep."""
    return {
        "Id": str(job.ref),
        "JobReference": {"ProjectId": job.ref.project, "Location": job.ref.location, "JobId": job.ref.job_id},
        "Status": {"State": job.state},
        "Statistics": _scalars(job.statistics),
    }


def _scalars(statistics: Mapping[str, Any]) -> dict[str, Any]:
    """Counters of the job and of its kind; plans and timelines are left out."""
    kept: dict[str, Any] = {}
    for key, value in statistics.items():
        if isinstance(value, Mapping) and key in ("load", "query", "copy", "extract"):
            kept[key] = {name: item for name, item in value.items() if isinstance(item, str | int | float | bool)}
        elif isinstance(value, str | int | float | bool):
            kept[key] = value
    return kept


def with_source_table(values: Mapping[str, Any], table: TableName) -> dict[str, Any]:
    """`values` where `$Source` also has the table: `$Source.ProjectID`, `$Source.DatasetID`, `$Source.TableID`."""
    source = values.get("Source")
    names = {"ProjectID": table.project or "", "DatasetID": table.dataset, "TableID": table.table}
    return {**values, "Source": {**(source if isinstance(source, Mapping) else {}), **names}}
