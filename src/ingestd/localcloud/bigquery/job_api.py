"""Jobs over REST semantics: insert, get, list, cancel, delete, query and its results.

Invariants: an inserted job is durable before the answer is given; an id is used once (409 afterwards); a job in a
region outside the US and EU multi-regions is found only with its location.
"""

import hashlib
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ingestd.formats.errors import BigQueryError
from ingestd.googlesql.words import named_in
from ingestd.localcloud.bigquery import copy_job, extract_job, load_job, query_job
from ingestd.localcloud.bigquery.catalog import Catalog
from ingestd.localcloud.bigquery.database import Database
from ingestd.localcloud.bigquery.jobs import MULTI_REGIONS, Job, JobKey, JobState, JobStore, JobType
from ingestd.localcloud.bigquery.metadata import Transaction
from ingestd.localcloud.bigquery.paging import count, decode_token, encode_token
from ingestd.localcloud.bigquery.resources import DatasetRef, TableRef, millis
from ingestd.localcloud.bigquery.runner import JobRunner
from ingestd.localcloud.bigquery.settings import BigQuerySettings
from ingestd.localcloud.bigquery.tabledata import read_page
from ingestd.localcloud.faults import Hooks
from ingestd.model.clock import Clock
from ingestd.model.schema import schema_rest

_JOB_ID = re.compile(r"^[A-Za-z0-9_\-]{1,1024}$")
_REQUEST_MEMORY = timedelta(minutes=15)
# Fields of a jobs.query request that are fields of the job's query configuration.
_QUERY_FIELDS = (
    "query",
    "useLegacySql",
    "defaultDataset",
    "maximumBytesBilled",
    "parameterMode",
    "queryParameters",
    "createSession",
    "connectionProperties",
    "destinationEncryptionConfiguration",
    "continuous",
    "useQueryCache",
    "preserveNulls",
)


@dataclass(frozen=True, slots=True)
class Inserted:
    """A job that was stored, or the finished record of a dry run, which is never stored."""

    job: Job

    @property
    def key(self) -> JobKey:
        return self.job.key


class JobApi:
    def __init__(
        self,
        database: Database,
        runner: JobRunner,
        *,
        clock: Clock,
        hooks: Hooks,
        settings: BigQuerySettings,
        reading: Transaction,
    ) -> None:
        self._database = database
        self._runner = runner
        self._clock = clock
        self._hooks = hooks
        self._settings = settings
        self._reading = reading

    def insert(self, project: str, resource: Mapping[str, Any], *, upload: str = "") -> Inserted:
        """jobs.insert: validate, store as PENDING, hand over to the runner."""
        reference = resource.get("jobReference") or {}
        job_id = str(reference.get("jobId") or "") or f"job_{secrets.token_urlsafe(20)}"
        with self._hooks.operation("jobs.insert", f"{project}/{job_id}"):
            if not _JOB_ID.match(job_id):
                raise BigQueryError(
                    "invalid",
                    f'Invalid job ID "{job_id}". Job IDs must be alphanumeric (plus underscores and dashes) and must '
                    "be at most 1024 characters long.",
                )
            configuration = _labelled(resource.get("configuration") or {})
            kind = _kind(configuration)
            _validate(kind, configuration.get(kind.key) or {}, project, uploaded=bool(upload))
            with self._cursor_store() as (catalog, store):
                location = self._location(catalog, project, kind, configuration, str(reference.get("location") or ""))
                job = Job(
                    key=JobKey(project, location, job_id),
                    type=kind,
                    configuration={key: value for key, value in configuration.items() if key != "jobType"},
                    created=self._clock.now(),
                    user=self._settings.user_email,
                    upload=upload,
                )
                if job.dry_run:
                    return Inserted(self._dry_run(catalog, job))
                if kind is JobType.LOAD:
                    waiting = sum(other.type is JobType.LOAD for other in self._runner.unfinished(project))
                    self._runner.quotas.check_project_loads(catalog.conn, project, waiting)
                self._runner.submit(job, store.find)
            return Inserted(job)

    def _dry_run(self, catalog: Catalog, job: Job) -> Job:
        if job.type is not JobType.QUERY:
            return job.done(self._clock.now())
        return query_job.dry_run(self._runner.prepare(job, catalog))

    def _location(
        self, catalog: Catalog, project: str, kind: JobType, configuration: Mapping[str, Any], given: str
    ) -> str:
        """The location asked for, or that of the datasets the job names; a contradiction is a 404 as in BigQuery."""
        details = configuration.get(kind.key) or {}
        named = [
            TableRef.from_rest(reference, project).dataset_ref
            for key in ("destinationTable", "sourceTable")
            if (reference := details.get(key))
        ]
        if default := details.get("defaultDataset"):
            named.append(DatasetRef.from_rest(default, project))
        found = [dataset for ref in named if (dataset := catalog.find_dataset(ref))]
        if given:
            location = _canonical(given)
            for dataset in found:
                if dataset.location.lower() != location.lower():
                    raise BigQueryError(
                        "notFound", f"Not found: Dataset {dataset.ref} was not found in location {location}"
                    )
            return location
        if found:
            return found[0].location
        if kind is JobType.QUERY:
            text = str(details.get("query") or "")
            for dataset in catalog.datasets(project):
                elsewhere = dataset.location != self._settings.default_location
                if elsewhere and named_in([text], [dataset.ref.dataset]):
                    return dataset.location
        return self._settings.default_location

    def get(self, project: str, job_id: str, location: str | None = None) -> Job:
        with self._hooks.operation("jobs.get", f"{project}/{job_id}"):
            return self.find(project, job_id, location)

    def find(self, project: str, job_id: str, location: str | None) -> Job:
        places = (location,) if location else MULTI_REGIONS
        keys = [JobKey(project, _canonical(place), job_id) for place in places]
        for key in keys:
            if job := self._runner.current(key):
                return job
        with self._cursor_store() as (_, store):
            for key in keys:
                if job := store.find(key):
                    return job
        named = f"{project}:{location}.{job_id}" if location else f"{project}:{job_id}"
        raise BigQueryError("notFound", f"Not found: Job {named}")

    def list_jobs(self, project: str, parameters: Mapping[str, str], states: list[str]) -> dict[str, Any]:
        with self._hooks.operation("jobs.list", project), self._cursor_store() as (_, store):
            wanted = {state.upper() for state in states}
            size = count(parameters.get("maxResults"), 1000, 1000)
            start = decode_token(parameters.get("pageToken"))
            since, until = _optional(parameters.get("minCreationTime")), _optional(parameters.get("maxCreationTime"))
            parent = parameters.get("parentJobId") or ""
            # Looked at before the stored ones, so that a job that ends meanwhile is found twice rather than never.
            jobs = [
                job
                for job in self._runner.unfinished(project)
                if job.parent == parent and _between(since, millis(job.created), until)
            ]
            if not wanted or "DONE" in wanted:
                done = store.listing(project, since=since, until=until, parent=parent, limit=start + size + 1)
                ended = {job.key for job in done}
                jobs = [*done, *(job for job in jobs if job.key not in ended)]
        jobs = [job for job in jobs if not wanted or job.state.value in wanted]
        jobs = sorted(jobs, key=lambda job: (-millis(job.created), job.key.job_id))[start:]
        full = parameters.get("projection", "minimal").lower() == "full"
        answer: dict[str, Any] = {"kind": "bigquery#jobList", "etag": str(len(jobs))}
        if jobs:
            answer["jobs"] = [job.listed(full=full) for job in jobs[:size]]
        if len(jobs) > size:
            answer["nextPageToken"] = encode_token(start + size)
        return answer

    def cancel(self, project: str, job_id: str, location: str | None = None) -> Job:
        with self._hooks.operation("jobs.cancel", f"{project}/{job_id}"):
            job = self.find(project, job_id, location)
            if job.state is not JobState.DONE:
                self._runner.cancel(job.key)
                job = self.find(project, job_id, job.key.location)
            return job

    def delete(self, project: str, job_id: str, location: str | None = None) -> None:
        with self._hooks.operation("jobs.delete", f"{project}/{job_id}"):
            job = self.find(project, job_id, location)
            if job.state is not JobState.DONE:
                raise BigQueryError("invalid", f"Cannot delete a job that is not DONE: {job.key}")
            if job.parent:
                raise BigQueryError("invalid", f"Cannot delete a child job: {job.key}")
            self._runner.forget(job.key)
            with self._cursor_store() as (_, store):
                store.delete(job.key)

    def start_query(self, project: str, request: Mapping[str, Any]) -> Inserted:
        """The first half of jobs.query: the job, new or (for a repeated requestId) the one already there."""
        with self._hooks.operation("jobs.query", project):
            query = {key: request[key] for key in _QUERY_FIELDS if request.get(key) is not None}
            configuration: dict[str, Any] = {"query": query}
            for key in ("labels", "dryRun", "jobTimeoutMs"):
                if request.get(key):
                    configuration[key] = request[key]
            reference = {"location": request.get("location") or ""}
            if request_id := str(request.get("requestId") or ""):
                digest = hashlib.sha256(f"{project}/{request_id}".encode()).hexdigest()[:32]
                known = self._recent(project, f"job_{digest}")
                if known is not None:
                    return Inserted(known)
                reference["jobId"] = f"job_{digest}"
        return self.insert(project, {"jobReference": reference, "configuration": configuration})

    def _recent(self, project: str, job_id: str) -> Job | None:
        if not self._runner.known.anywhere(project, job_id):
            return None
        job = self._runner.find_anywhere(project, job_id)
        if job is None:
            with self._cursor_store() as (_, store):
                job = store.find_anywhere(project, job_id)
        return job if job and job.created > self._clock.now() - _REQUEST_MEMORY else None

    def query_response(self, key: JobKey, request: Mapping[str, Any]) -> dict[str, Any]:
        """The second half of jobs.query: the first page, or `jobComplete: false`."""
        options = request.get("formatOptions") or {}
        parameters = {
            "maxResults": request.get("maxResults"),
            "formatOptions.useInt64Timestamp": options.get("useInt64Timestamp"),
        }
        answer = self._results(self.find(key.project, key.job_id, key.location), parameters)
        return answer | {"kind": "bigquery#queryResponse", "queryId": key.job_id}

    def dry_run_response(self, job: Job) -> dict[str, Any]:
        query = job.statistics.get("query") or {}
        answer = {
            "kind": "bigquery#queryResponse",
            "jobComplete": True,
            "jobReference": {"projectId": job.key.project, "location": job.key.location},
            "totalBytesProcessed": query.get("totalBytesProcessed", "0"),
            "cacheHit": False,
        }
        return answer | {"schema": query["schema"]} if "schema" in query else answer

    def query_results(self, project: str, job_id: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """jobs.getQueryResults, without the waiting."""
        with self._hooks.operation("jobs.getQueryResults", f"{project}/{job_id}"):
            job = self.find(project, job_id, parameters.get("location"))
            if job.type is not JobType.QUERY:
                raise BigQueryError("invalid", f"Cannot get query results of a {job.type} job: {job.key}")
            return self._results(job, parameters) | {"kind": "bigquery#getQueryResultsResponse"}

    def _results(self, job: Job, parameters: Mapping[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "jobReference": job.key.rest(),
            "jobComplete": job.state is JobState.DONE,
            "location": job.key.location,
            "jobCreationReason": {"code": job.creation_reason},
        }
        if job.state is not JobState.DONE:
            return answer
        if job.error is not None:
            raise BigQueryError(job.error.reason, job.error.message, job.error.location)
        query = job.statistics.get("query") or {}
        answer |= {
            "etag": job.rest()["etag"],
            "cacheHit": False,
            "totalBytesProcessed": query.get("totalBytesProcessed", "0"),
            "creationTime": str(millis(job.created)),
            "startTime": str(millis(job.started or job.created)),
            "endTime": str(millis(job.ended or job.created)),
        }
        for key in ("numDmlAffectedRows", "dmlStats", "totalBytesBilled"):
            if key in query:
                answer[key] = query[key]
        result = job.result
        if result is None or result.table is None:
            return answer | {"schema": {}} if result is not None else answer
        answer["schema"] = schema_rest(result.schema)
        with self._reading() as catalog:
            table = catalog.table(result.table)
            # An anonymous table never changes, so its rows need no counting.
            known = result.total_rows if result.table.dataset.startswith("_") else None
            answer |= read_page(catalog, table.ref.physical, result.schema, parameters, total=known)
        return answer

    @contextmanager
    def _cursor_store(self) -> Iterator[tuple[Catalog, JobStore]]:
        with self._reading() as catalog:
            yield catalog, JobStore(catalog.conn)


def _canonical(location: str) -> str:
    """Multi-regions are written in capitals, regions in small letters."""
    return location.upper() if location.upper() in MULTI_REGIONS else location.lower()


def _labelled(configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    """Labels that a client put into its load are accepted, as BigQuery does; they are labels of the job."""
    load = configuration.get("load")
    if not isinstance(load, Mapping) or not isinstance(inner := load.get("labels"), Mapping):
        return configuration
    labels = {**inner, **(configuration.get("labels") or {})}
    return {**configuration, "labels": labels, "load": {key: load[key] for key in load if key != "labels"}}


def _kind(configuration: Mapping[str, Any]) -> JobType:
    present = [kind for kind in JobType if kind.key in configuration]
    if len(present) != 1:
        raise BigQueryError("required", "Required parameter is missing: exactly one of load, query, copy, extract")
    return present[0]


def _validate(kind: JobType, details: Mapping[str, Any], project: str, *, uploaded: bool) -> None:
    if kind is JobType.LOAD:
        load_job.validate(details, project, uploaded=uploaded)
    elif kind is JobType.COPY:
        copy_job.validate(details, project)
    elif kind is JobType.EXTRACT:
        extract_job.validate(details, project)
    else:
        query_job.validate(details, project)


def _between(low: int | None, value: int, high: int | None) -> bool:
    return (low is None or low <= value) and (high is None or value <= high)


def _optional(value: str | None) -> int | None:
    return int(value) if value else None
