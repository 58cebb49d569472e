"""The audit feed: the Cloud Logging entry that a log sink publishes when a job completes.

Two shapes exist: `BigQueryAuditMetadata` (v2, always) and `AuditData.jobCompletedEvent` (v1, by switch). Entries are
made from a job's DONE row and delivered afterwards, at least once (see `outbox`).
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

import orjson

from ingestd.formats.errors import STATUS, ErrorProto
from ingestd.formats.schemas import schema_from_rest
from ingestd.localcloud.bigquery.copy_job import operation_of, sources_of
from ingestd.localcloud.bigquery.extract_job import uris_of
from ingestd.localcloud.bigquery.jobs import Job, JobType
from ingestd.localcloud.bigquery.resources import TableRef
from ingestd.model.schema import schema_rest

# https://cloud.google.com/bigquery/docs/reference/auditlogs: lists and texts are cut at 40 KB.
TRUNCATE_AT = 40_000

_AUDIT_LOG = "type.googleapis.com/google.cloud.audit.AuditLog"
_METADATA = "type.googleapis.com/google.cloud.audit.BigQueryAuditMetadata"
_AUDIT_DATA = "type.googleapis.com/google.cloud.bigquery.logging.v1.AuditData"
_TYPES = {JobType.LOAD: "IMPORT", JobType.QUERY: "QUERY", JobType.COPY: "COPY", JobType.EXTRACT: "EXPORT"}
_EVENT_NAMES = {
    JobType.LOAD: "load_job_completed",
    JobType.QUERY: "query_job_completed",
    JobType.COPY: "table_copy_job_completed",
    JobType.EXTRACT: "extract_job_completed",
}
_NAMESPACE = UUID("5f3c7f0a-6f3e-4c39-9a53-3f5f5f0b8a11")  # an entry delivered twice keeps its insertId
# google.rpc.Code of an HTTP status.
_CODES = {400: 3, 403: 7, 404: 5, 409: 6, 412: 9, 499: 1, 500: 13, 501: 12, 503: 14}


def completion(job: Job) -> dict[str, Any]:
    """The v2 entry of a finished job."""
    change = {"before": "RUNNING", "after": "DONE", "job": _job(job)}
    entry = _entry(job, "google.cloud.bigquery.v2.JobService.InsertJob", "v2")
    entry["protoPayload"]["metadata"] = {"@type": _METADATA, "jobChange": change}
    entry["resource"] = {
        "type": "bigquery_project",
        "labels": {"project_id": job.key.project, "location": job.key.location},
    }
    if dataset := _destination_dataset(job):
        entry["resource"] = {
            "type": "bigquery_dataset",
            "labels": {"project_id": job.key.project, "dataset_id": dataset},
        }
    return entry


def legacy_completion(job: Job) -> dict[str, Any]:
    """The v1 entry of a finished job."""
    entry = _entry(job, "jobservice.jobcompleted", "v1")
    entry["protoPayload"]["serviceData"] = {
        "@type": _AUDIT_DATA,
        "jobCompletedEvent": {"eventName": _EVENT_NAMES[job.type], "job": _legacy_job(job)},
    }
    entry["resource"] = {"type": "bigquery_resource", "labels": {"project_id": job.key.project}}
    return entry


def _entry(job: Job, method: str, shape: str) -> dict[str, Any]:
    ended = _stamp(job.ended or job.created)
    payload: dict[str, Any] = {
        "@type": _AUDIT_LOG,
        "status": _status(job.error) if job.error else {},
        "authenticationInfo": {"principalEmail": job.user},
        "requestMetadata": {"callerIp": "127.0.0.1", "callerSuppliedUserAgent": "ingestd"},
        "serviceName": "bigquery.googleapis.com",
        "methodName": method,
        "authorizationInfo": [
            {"resource": f"projects/{job.key.project}", "permission": "bigquery.jobs.create", "granted": True}
        ],
        "resourceName": f"projects/{job.key.project}/jobs/{job.key.job_id}",
    }
    return {
        "protoPayload": payload,
        "insertId": uuid5(_NAMESPACE, f"{shape}/{job.key}").hex[:14],
        "timestamp": ended,
        "receiveTimestamp": ended,
        "severity": "ERROR" if job.error else "INFO",
        "logName": f"projects/{job.key.project}/logs/cloudaudit.googleapis.com%2Fdata_access",
        "operation": {
            "id": f"{_milliseconds(job.created)}-{job.key.project}:{job.key.job_id}",
            "producer": "bigquery.googleapis.com",
            "last": True,
        },
    }


def _job(job: Job) -> dict[str, Any]:
    status: dict[str, Any] = {"jobState": "DONE"}
    if job.error:
        status["errorResult"] = _status(job.error)
    if job.errors:
        status["errors"] = [_status(error) for error in job.errors]
    return {
        "jobName": f"projects/{job.key.project}/jobs/{job.key.job_id}",
        "jobConfig": {"type": _TYPES[job.type], **_config(job), **({"labels": dict(job.labels)} if job.labels else {})},
        "jobStatus": status,
        "jobStats": _stats(job),
    }


def _config(job: Job) -> dict[str, Any]:
    details = job.details
    project = job.key.project
    if job.type is JobType.LOAD:
        load: dict[str, Any] = {**_cut("sourceUris", details.get("sourceUris") or [])}
        schema = schema_from_rest(details.get("schema"))
        if schema:
            load.update(_cut_text("schemaJson", orjson.dumps(schema_rest(schema)).decode()))
        load["destinationTable"] = _table(details["destinationTable"], project)
        load["createDisposition"] = details.get("createDisposition") or "CREATE_IF_NEEDED"
        load["writeDisposition"] = details.get("writeDisposition") or "WRITE_APPEND"
        return {"loadConfig": load}
    if job.type is JobType.COPY:
        names = [_path(source) for source in sources_of(details, project)]
        copy: dict[str, Any] = {**_cut("sourceTables", names)}
        copy["destinationTable"] = _table(details["destinationTable"], project)
        copy["createDisposition"] = details.get("createDisposition") or "CREATE_IF_NEEDED"
        copy["writeDisposition"] = details.get("writeDisposition") or "WRITE_EMPTY"
        copy["operationType"] = operation_of(details).value
        return {"tableCopyConfig": copy}
    if job.type is JobType.EXTRACT:
        extract = _cut("destinationUris", uris_of(details))
        return {"extractConfig": {**extract, "sourceTable": _table(details["sourceTable"], project)}}
    return {"queryConfig": _query_config(job)}


def _query_config(job: Job) -> dict[str, Any]:
    details = job.details
    query: dict[str, Any] = {
        **_cut_text("query", str(details.get("query") or "")),
        "createDisposition": details.get("createDisposition") or "CREATE_IF_NEEDED",
        "writeDisposition": details.get("writeDisposition") or "WRITE_EMPTY",
        "priority": "QUERY_BATCH" if details.get("priority") == "BATCH" else "QUERY_INTERACTIVE",
        "statementType": (job.statistics.get("query") or {}).get("statementType", "SELECT"),
    }
    if details.get("destinationTable"):
        query["destinationTable"] = _table(details["destinationTable"], job.key.project)
    if default := details.get("defaultDataset"):
        query["defaultDataset"] = (
            f"projects/{default.get('projectId') or job.key.project}/datasets/{default['datasetId']}"
        )
    if definitions := details.get("tableDefinitions"):
        query["tableDefinitions"] = [
            {"name": name, "sourceUris": list(config.get("sourceUris") or ())} for name, config in definitions.items()
        ]
    return query


def _stats(job: Job) -> dict[str, Any]:
    statistics = job.statistics
    stats: dict[str, Any] = {
        "createTime": _stamp(job.created),
        "startTime": _stamp(job.started or job.created),
        "endTime": _stamp(job.ended or job.created),
    }
    if load := statistics.get("load"):
        stats["loadStats"] = {"totalOutputBytes": load["outputBytes"]}
    elif query := statistics.get("query"):
        stats["queryStats"] = {
            "totalProcessedBytes": query.get("totalBytesProcessed", "0"),
            "totalBilledBytes": query.get("totalBytesBilled", "0"),
            "billingTier": 1,
            "referencedTables": [_table(table, job.key.project) for table in query.get("referencedTables") or ()],
        }
        if job.result and job.result.total_rows is not None:
            stats["queryStats"]["outputRowCount"] = str(job.result.total_rows)
    elif extract := statistics.get("extract"):
        stats["extractStats"] = {"totalInputBytes": extract["inputBytes"]}
    if job.parent:
        stats["parentJobName"] = f"projects/{job.key.project}/jobs/{job.parent}"
    stats["totalSlotMs"] = str(
        max(1, _milliseconds(job.ended or job.created) - _milliseconds(job.started or job.created))
    )
    return stats


def _legacy_job(job: Job) -> dict[str, Any]:
    details = job.details
    project = job.key.project
    configuration: dict[str, Any] = {}
    if job.type is JobType.LOAD:
        configuration["load"] = {
            "sourceUris": _cut("sourceUris", details.get("sourceUris") or []).get("sourceUris", []),
            "schemaJson": orjson.dumps(details.get("schema") or {}).decode(),
            "destinationTable": TableRef.from_rest(details["destinationTable"], project).rest(),
            "createDisposition": details.get("createDisposition") or "CREATE_IF_NEEDED",
            "writeDisposition": details.get("writeDisposition") or "WRITE_APPEND",
        }
    elif job.type is JobType.COPY:
        configuration["tableCopy"] = {
            "sourceTables": [source.rest() for source in sources_of(details, project)],
            "destinationTable": TableRef.from_rest(details["destinationTable"], project).rest(),
            "createDisposition": details.get("createDisposition") or "CREATE_IF_NEEDED",
            "writeDisposition": details.get("writeDisposition") or "WRITE_EMPTY",
        }
    elif job.type is JobType.EXTRACT:
        configuration["extract"] = {
            "destinationUris": uris_of(details),
            "sourceTable": TableRef.from_rest(details["sourceTable"], project).rest(),
        }
    else:
        configuration["query"] = {
            "query": str(details.get("query") or "")[:TRUNCATE_AT],
            "createDisposition": details.get("createDisposition") or "CREATE_IF_NEEDED",
            "writeDisposition": details.get("writeDisposition") or "WRITE_EMPTY",
            "defaultDataset": details.get("defaultDataset") or {},
            "queryPriority": "QUERY_BATCH" if details.get("priority") == "BATCH" else "QUERY_INTERACTIVE",
            "statementType": (job.statistics.get("query") or {}).get("statementType", "SELECT"),
        }
        if details.get("destinationTable"):
            configuration["query"]["destinationTable"] = details["destinationTable"]
    if job.labels:
        configuration["labels"] = dict(job.labels)
    status: dict[str, Any] = {"state": "DONE", "error": _status(job.error) if job.error else {}}
    if job.errors:
        status["additionalErrors"] = [_status(error) for error in job.errors]
    statistics: dict[str, Any] = {
        "createTime": _stamp(job.created),
        "startTime": _stamp(job.started or job.created),
        "endTime": _stamp(job.ended or job.created),
        "totalSlotMs": "1",
    }
    if load := job.statistics.get("load"):
        statistics["totalLoadOutputBytes"] = load["outputBytes"]
    if query := job.statistics.get("query"):
        statistics["totalProcessedBytes"] = query.get("totalBytesProcessed", "0")
        statistics["totalBilledBytes"] = query.get("totalBytesBilled", "0")
        statistics["referencedTables"] = list(query.get("referencedTables") or ())
    return {
        "jobName": job.key.rest(),
        "jobConfiguration": configuration,
        "jobStatus": status,
        "jobStatistics": statistics,
    }


def _destination_dataset(job: Job) -> str:
    """Data entries name the dataset they change; anonymous results belong to the project."""
    target: Mapping[str, Any] = job.details.get("destinationTable") or job.details.get("sourceTable") or {}
    dataset = str(target.get("datasetId") or "")
    return "" if dataset.startswith("_") else dataset


def _status(error: ErrorProto) -> dict[str, Any]:
    if error.reason == "stopped":
        return {"code": 1, "message": error.message}
    return {"code": _CODES.get(STATUS.get(error.reason, 400), 2), "message": error.message}


def _table(reference: Mapping[str, Any], project: str) -> str:
    return _path(TableRef.from_rest(reference, project))


def _path(ref: TableRef) -> str:
    return f"projects/{ref.project}/datasets/{ref.dataset}/tables/{ref.table}"


def _cut(key: str, values: list[str]) -> dict[str, Any]:
    """A list, cut where it passes Google's limit and then marked so."""
    kept: list[str] = []
    size = 0
    for value in values:
        size += len(value.encode())
        if size > TRUNCATE_AT:
            return {key: kept, f"{key}Truncated": True}
        kept.append(value)
    return {key: kept} if kept else {}


def _cut_text(key: str, value: str) -> dict[str, Any]:
    if len(value) <= TRUNCATE_AT:
        return {key: value}
    return {key: value[:TRUNCATE_AT], f"{key}Truncated": True}


def _stamp(at: datetime) -> str:
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)
