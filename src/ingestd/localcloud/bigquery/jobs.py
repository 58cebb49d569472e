"""Jobs as records: their identity, their three states, their REST resource, and the table that stores them.

Invariants: a job id is used once per project and location; a stored job is DONE and never changes. Until then a job
lives in memory and in the journal of `pending`, so that one cut short by a crash runs again when the process returns.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

import duckdb
import orjson

from ingestd.formats.errors import BigQueryError, ErrorProto
from ingestd.formats.schemas import schema_from_rest
from ingestd.localcloud.bigquery.resources import TableRef, from_millis, millis
from ingestd.model.schema import Schema, schema_rest

MULTI_REGIONS = ("US", "EU")


class JobState(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    DONE = "DONE"


class JobType(StrEnum):
    LOAD = "LOAD"
    QUERY = "QUERY"
    COPY = "COPY"
    EXTRACT = "EXTRACT"

    @property
    def key(self) -> str:
        """The member of `configuration` that describes this kind of job."""
        return self.value.lower()


@dataclass(frozen=True, slots=True)
class JobKey:
    project: str
    location: str
    job_id: str

    def __str__(self) -> str:
        return f"{self.project}:{self.location}.{self.job_id}"

    def rest(self) -> dict[str, str]:
        return {"projectId": self.project, "jobId": self.job_id, "location": self.location}


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Where the rows of a finished query are; a statement without rows has none."""

    schema: Schema = ()
    table: TableRef | None = None
    total_rows: int | None = None

    def rest(self) -> dict[str, Any]:
        return {
            "schema": schema_rest(self.schema),
            "table": self.table.rest() if self.table else None,
            "totalRows": self.total_rows,
        }

    @classmethod
    def from_rest(cls, resource: Mapping[str, Any]) -> "QueryResult":
        table = resource.get("table")
        return cls(
            schema_from_rest(resource.get("schema")),
            TableRef.from_rest(table, "") if table else None,
            resource.get("totalRows"),
        )


@dataclass(frozen=True, slots=True)
class Job:
    key: JobKey
    type: JobType
    configuration: Mapping[str, Any]
    created: datetime
    user: str
    state: JobState = JobState.PENDING
    started: datetime | None = None
    ended: datetime | None = None
    error: ErrorProto | None = None
    errors: tuple[ErrorProto, ...] = ()
    statistics: Mapping[str, Any] = field(default_factory=dict)
    parent: str = ""
    creation_reason: str = "REQUESTED"
    result: QueryResult | None = None
    upload: str = ""  # the posted bytes a load reads, when it does not read objects

    @property
    def dry_run(self) -> bool:
        return bool(self.configuration.get("dryRun"))

    @property
    def labels(self) -> Mapping[str, str]:
        return self.configuration.get("labels") or {}

    @property
    def details(self) -> Mapping[str, Any]:
        """The configuration of this kind of job (`configuration.load`, …)."""
        found: Mapping[str, Any] = self.configuration.get(self.type.key) or {}
        return found

    def running(self, now: datetime) -> "Job":
        return replace(self, state=JobState.RUNNING, started=now)

    def done(
        self,
        now: datetime,
        *,
        error: BigQueryError | None = None,
        warnings: Sequence[ErrorProto] = (),
        statistics: Mapping[str, Any] | None = None,
        configuration: Mapping[str, Any] | None = None,
        result: QueryResult | None = None,
    ) -> "Job":
        """The finished job. With an error, `errors[]` opens with it and goes on with its details."""
        errors = (error.proto, *(item for item in error.details if item != error.proto)) if error else tuple(warnings)
        return replace(
            self,
            state=JobState.DONE,
            started=self.started or now,
            ended=max(now, self.started or now),
            error=error.proto if error else None,
            errors=errors,
            statistics=statistics if statistics is not None else self.statistics,
            configuration=configuration or self.configuration,
            result=result,
        )

    def rest(self) -> dict[str, Any]:
        status: dict[str, Any] = {"state": self.state.value}
        if self.error:
            status["errorResult"] = self.error.rest()
        if self.errors:
            status["errors"] = [item.rest() for item in self.errors]
        statistics: dict[str, Any] = {"creationTime": str(millis(self.created)), **self.statistics}
        if self.started:
            statistics["startTime"] = str(millis(self.started))
        if self.ended and self.started:
            statistics["endTime"] = str(millis(self.ended))
            slot = str(max(1, millis(self.ended) - millis(self.started)))
            statistics["totalSlotMs"] = slot
            statistics["finalExecutionDurationMs"] = slot
        if self.parent:
            statistics["parentJobId"] = self.parent
        resource: dict[str, Any] = {
            "kind": "bigquery#job",
            "id": str(self.key),
            "user_email": self.user,
            "principal_subject": f"user:{self.user}",
            "configuration": {**self.configuration, "jobType": self.type.value},
            "jobReference": self.key.rest(),
            "statistics": statistics,
            "status": status,
            "jobCreationReason": {"code": self.creation_reason},
        }
        digest = hashlib.sha1(orjson.dumps(resource), usedforsecurity=False).digest()
        resource["etag"] = base64.b64encode(digest[:16]).decode()
        return resource

    def listed(self, *, full: bool) -> dict[str, Any]:
        """An entry of jobs.list."""
        resource = self.rest()
        entry = {key: resource[key] for key in ("kind", "id", "jobReference", "statistics", "status", "user_email")} | {
            "state": self.state.value
        }
        if self.error:
            entry["errorResult"] = self.error.rest()
        if full:
            entry["configuration"] = resource["configuration"]
        else:
            entry["configuration"] = {"jobType": self.type.value}
        return entry

    def dump(self) -> str:
        return orjson.dumps(
            {
                "schema_version": 1,
                "type": self.type.value,
                "configuration": self.configuration,
                "created": millis(self.created),
                "user": self.user,
                "started": millis(self.started) if self.started else None,
                "ended": millis(self.ended) if self.ended else None,
                "errors": [item.rest() for item in self.errors],
                "failed": self.error is not None,
                "statistics": self.statistics,
                "creationReason": self.creation_reason,
                "result": self.result.rest() if self.result else None,
                "upload": self.upload,
            }
        ).decode()

    @classmethod
    def load(cls, key: JobKey, state: str, parent: str, text: str) -> "Job":
        record = orjson.loads(text)
        errors = tuple(
            ErrorProto(item["reason"], item["message"], item.get("location", "")) for item in record["errors"]
        )
        return cls(
            key=key,
            type=JobType(record["type"]),
            configuration=record["configuration"],
            created=from_millis(record["created"]),
            user=record["user"],
            state=JobState(state),
            started=from_millis(record["started"]) if record["started"] else None,
            ended=from_millis(record["ended"]) if record["ended"] else None,
            error=errors[0] if record["failed"] else None,
            errors=errors,
            statistics=record["statistics"],
            parent=parent,
            creation_reason=record["creationReason"],
            result=QueryResult.from_rest(record["result"]) if record["result"] else None,
            upload=record["upload"],
        )


class KnownKeys:
    """Which job ids were ever seen, so that a new one need not be looked for. False alarms are possible."""

    def __init__(self, keys: Iterable[JobKey]) -> None:
        self._seen: set[int] = set()
        for key in keys:
            self.add(key)

    def add(self, key: JobKey) -> None:
        self._seen.add(hash(key))
        self._seen.add(hash((key.project, key.job_id)))

    def __contains__(self, key: JobKey) -> bool:
        return hash(key) in self._seen

    def anywhere(self, project: str, job_id: str) -> bool:
        """Whether the id may be in use in some location."""
        return hash((project, job_id)) in self._seen


class JobStore:
    """The stored jobs, through one cursor and within its transaction."""

    def __init__(self, conn: duckdb.DuckDBPyConnection) -> None:
        self._conn = conn

    def insert(self, job: Job) -> None:
        """Store a job that is DONE."""
        self._conn.execute(
            'INSERT INTO "__catalog".jobs VALUES (?, ?, ?, ?, ?, ?, ?)',
            [*_key(job.key), job.state, millis(job.created), job.parent, job.dump()],
        )

    def find(self, key: JobKey) -> Job | None:
        row = self._conn.execute(
            'SELECT state, parent, resource FROM "__catalog".jobs WHERE project = ? AND location = ? AND job_id = ?',
            _key(key),
        ).fetchone()
        return Job.load(key, *row) if row else None

    def find_anywhere(self, project: str, job_id: str) -> Job | None:
        """The job of this id in whichever location has it."""
        row = self._conn.execute(
            'SELECT location, state, parent, resource FROM "__catalog".jobs WHERE project = ? AND job_id = ?',
            [project, job_id],
        ).fetchone()
        return Job.load(JobKey(project, row[0], job_id), *row[1:]) if row else None

    def keys(self) -> Iterator[JobKey]:
        cursor = self._conn.execute('SELECT project, location, job_id FROM "__catalog".jobs')
        while rows := cursor.fetchmany(10_000):
            yield from (JobKey(*row) for row in rows)

    def listing(
        self,
        project: str,
        *,
        since: int | None = None,
        until: int | None = None,
        parent: str | None = None,
        state: str | None = None,
        limit: int = 1000,
        offset: int = 0,
    ) -> list[Job]:
        """Newest first. Without `parent`, child jobs are left out, as jobs.list does."""
        where = ["project = ?", "parent = ?"]
        values: list[Any] = [project, parent or ""]
        if since is not None:
            where.append("created >= ?")
            values.append(since)
        if until is not None:
            where.append("created <= ?")
            values.append(until)
        if state is not None:
            where.append("state = ?")
            values.append(state)
        rows = self._conn.execute(
            f"""SELECT project, location, job_id, state, parent, resource FROM "__catalog".jobs
            WHERE {" AND ".join(where)} ORDER BY created DESC, job_id LIMIT ? OFFSET ?""",  # noqa: S608
            [*values, limit, offset],
        ).fetchall()
        return [Job.load(JobKey(*row[:3]), *row[3:]) for row in rows]

    def everything(self, project: str) -> list[Job]:
        """All jobs of a project, children included, oldest first."""
        rows = self._conn.execute(
            """SELECT project, location, job_id, state, parent, resource FROM "__catalog".jobs
            WHERE project = ? ORDER BY created, job_id""",
            [project],
        ).fetchall()
        return [Job.load(JobKey(*row[:3]), *row[3:]) for row in rows]

    def forget_before(self, created: int) -> None:
        """Drop finished jobs older than BigQuery remembers them."""
        self._conn.execute("""DELETE FROM "__catalog".jobs WHERE state = 'DONE' AND created < ?""", [created])

    def delete(self, key: JobKey) -> None:
        self._conn.execute(
            'DELETE FROM "__catalog".jobs WHERE project = ? AND location = ? AND (job_id = ? OR parent = ?)',
            [*_key(key), key.job_id],
        )


def _key(key: JobKey) -> list[str]:
    return [key.project, key.location, key.job_id]
