"""A BigQuery small enough to simulate a thousand days of: jobs, tables of numbered rows, and nothing else.

It stands where the local cloud's BigQuery core stands, behind the same binding, faults and audit feed, and keeps what
the daemon relies on: an id is used once (409), a job goes PENDING, RUNNING, DONE on the clock, files are read when the
job ends, and a job's rows appear all at once or not at all. `test_seeds` holds it to the real core, seed by seed.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import orjson
from tests.support.sim import plain_sql
from tests.support.sim.names import DATASET

from ingestd.formats.errors import BigQueryError, ErrorProto
from ingestd.localcloud.faults import FaultInjected, Hooks, ResponseLost
from ingestd.localcloud.feeds import StoredObjects
from ingestd.model.clock import Clock

LOCATION = "US"
LEDGER = "bigquery_loads."  # the dataset of the load state
_READING = "Error while reading data, error message: "


@dataclass(slots=True)
class Job:
    reference: dict[str, str]
    configuration: dict[str, Any]
    created: datetime
    state: str = "PENDING"
    started: datetime | None = None
    ended: datetime | None = None
    errors: list[dict[str, str]] = field(default_factory=list)
    outcome: dict[str, Any] = field(default_factory=dict)
    answer: dict[str, int] = field(default_factory=dict)  # of a query: its one row

    @property
    def kind(self) -> str:
        return next(kind for kind in ("load", "copy", "query", "extract") if kind in self.configuration)

    def rest(self) -> dict[str, Any]:
        status: dict[str, Any] = {"state": self.state}
        if self.errors:
            status |= {"errorResult": self.errors[0], "errors": self.errors}
        times = {"creationTime": self.created, "startTime": self.started, "endTime": self.ended}
        statistics: dict[str, Any] = {
            name: str(int(moment.timestamp() * 1000)) for name, moment in times.items() if moment is not None
        }
        statistics |= self.outcome
        return {
            "jobReference": self.reference,
            "configuration": self.configuration,
            "status": status,
            "statistics": statistics,
        }


@dataclass(slots=True)
class Table:
    resource: dict[str, Any]
    rows: Counter[int] = field(default_factory=Counter)
    told: dict[str, dict[str, Any]] = field(default_factory=dict)  # streamed, by insert id


class PlainBigQuery:
    """The surface of `BigQueryCore` that `CoreWarehouse` uses."""

    def __init__(
        self,
        *,
        project: str,
        clock: Clock,
        hooks: Hooks,
        objects: StoredObjects,
        on_job_done: Callable[[dict[str, Any]], None],
        latency: Callable[[], float],
    ) -> None:
        self.project = project
        self.clock = clock
        self.hooks = hooks
        self.settings = SimpleNamespace(workers=1)  # jobs end by themselves, on the loop's timers
        self.jobs = _Jobs(self)
        self.metadata = _Metadata(self)
        self.tabledata = _TableData(self)
        self._objects = objects
        self._on_job_done = on_job_done
        self._latency = latency
        self.names_bad_files = True
        self.known: dict[str, Job] = {}
        self.tables: dict[str, Table] = {}
        self.datasets = {DATASET}

    def insert_job(self, project: str, resource: Mapping[str, Any]) -> Job:
        reference = {**resource["jobReference"], "location": LOCATION}
        name = reference["jobId"]
        with self.hooks.operation("jobs.insert", f"{project}/{name}"):
            if name in self.known:
                raise BigQueryError("duplicate", f"Already Exists: Job {project}:{LOCATION}.{name}")
            job = Job(reference, dict(resource["configuration"]), self.clock.now())
            self.known[name] = job
            latency = self._latency()
            loop = asyncio.get_running_loop()
            loop.call_later(latency / 2, self._start, job)
            loop.call_later(latency, self._end, job)
        return job

    def close(self) -> None: ...

    def rows(self) -> dict[str, Counter[int]]:
        return {name: table.rows for name, table in self.tables.items() if not name.startswith(LEDGER)}

    def load_state(self) -> list[dict[str, Any]]:
        """The rows of the load-state table."""
        return [row for name, table in self.tables.items() if name.startswith(LEDGER) for row in table.told.values()]

    def expiring(self) -> dict[str, bool]:
        """Every table, and whether it goes by itself."""
        mine = {name: table for name, table in self.tables.items() if not name.startswith(LEDGER)}
        return {name: "expirationTime" in table.resource for name, table in mine.items()}

    def _start(self, job: Job) -> None:
        job.state, job.started = "RUNNING", self.clock.now()

    def _end(self, job: Job) -> None:
        try:
            with self.hooks.operation(f"job.{job.kind}", f"{self.project}/{job.reference['jobId']}"):
                if job.kind == "query":
                    plain_sql.run(self, job)
                    added, table = Counter(), Table({})
                else:
                    added, table = self._work(job)
        except BigQueryError as error:
            job.errors = [error.proto.rest(), *(detail.rest() for detail in error.details)]
        except (FaultInjected, ResponseLost) as error:
            job.errors = [{"reason": error.fault.reason, "message": error.fault.message}]
        else:
            table.rows.update(added)
        job.state, job.ended = "DONE", self.clock.now()
        self._on_job_done(_audit_entry(job))

    def _work(self, job: Job) -> tuple[Counter[int], Table]:
        configuration = job.configuration[job.kind]
        if job.kind == "load":
            table = self.destination(configuration)
            return self._load(job, configuration), table
        if job.kind == "copy":
            sources = configuration.get("sourceTables") or [configuration["sourceTable"]]
            rows: Counter[int] = sum((self.find(one).rows for one in sources), Counter())
            job.outcome = {"copy": {"copiedRows": str(rows.total())}}
            return rows, self.destination(configuration)
        raise BigQueryError("notImplemented", f"no {job.kind} jobs here")

    def _load(self, job: Job, configuration: Mapping[str, Any]) -> Counter[int]:
        found: Counter[int] = Counter()
        size = 0
        bad: list[dict[str, str]] = []
        for uri in configuration["sourceUris"]:
            if not self._objects.match(uri):
                raise BigQueryError("notFound", f"Not found: URI {uri}", uri)
            data = self._objects.read(uri)
            size += len(data)
            try:
                found.update(_ids(data))
            except ValueError as error:
                bad.append({"uri": uri, "why": str(error)})
        if bad:
            raise self._refused(bad)
        counts = {
            "inputFiles": len(configuration["sourceUris"]),
            "inputFileBytes": size,
            "outputRows": found.total(),
            "outputBytes": size,
            "badRecords": 0,
        }
        job.outcome = {"load": {name: str(count) for name, count in counts.items()}}
        return found

    def _refused(self, bad: list[dict[str, str]]) -> BigQueryError:
        summary = (
            f"{_READING}JSON table encountered too many errors, giving up. Rows: 1; errors: 1. "
            "Please look into the errors[] collection for more details."
        )
        if not self.names_bad_files:
            return BigQueryError("invalid", summary)
        details = tuple(
            ErrorProto(
                "invalid",
                f"{_READING}JSON parsing error in row starting at position 0: {one['why']} File: {one['uri']}",
                one["uri"],
            )
            for one in bad
        )
        return BigQueryError("invalid", summary, bad[0]["uri"], details)

    def destination(self, configuration: Mapping[str, Any]) -> Table:
        reference = configuration["destinationTable"]
        name = _name(reference)
        if name not in self.tables:
            if configuration.get("createDisposition") == "CREATE_NEVER" or "schema" not in configuration:
                raise BigQueryError("invalid", "No schema specified on job or table.")
            if reference["datasetId"] not in self.datasets:
                raise BigQueryError("notFound", f"Not found: Dataset {self.project}:{reference['datasetId']}")
            self.tables[name] = Table({"tableReference": reference, "schema": configuration["schema"]})
        if str(configuration.get("writeDisposition")).startswith("WRITE_TRUNCATE"):
            self.tables[name].rows = Counter()
        return self.tables[name]

    def find(self, reference: Mapping[str, Any]) -> Table:
        table = self.tables.get(_name(reference))
        if table is None:
            raise BigQueryError("notFound", f"Not found: Table {self.project}:{_name(reference)}")
        return table


class _Jobs:
    def __init__(self, core: PlainBigQuery) -> None:
        self._core = core

    def get(self, project: str, name: str, location: str | None) -> Job:
        with self._core.hooks.operation("jobs.get", f"{project}/{name}"):
            job = self._core.known.get(name)
            if job is None:
                raise BigQueryError("notFound", f"Not found: Job {project}:{name}")
            return job

    def query_results(self, project: str, name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        job = self.get(project, name, None)
        fields = [{"name": column, "type": "INTEGER"} for column in job.answer]
        cells = [{"v": str(value)} for value in job.answer.values()]
        return {"jobComplete": job.state == "DONE", "schema": {"fields": fields}, "rows": [{"f": cells}]}


class _Metadata:
    def __init__(self, core: PlainBigQuery) -> None:
        self._core = core

    def get_dataset(self, project: str, dataset: str) -> dict[str, Any]:
        with self._core.hooks.operation("datasets.get", f"{project}/{dataset}"):
            if dataset not in self._core.datasets:
                raise BigQueryError("notFound", f"Not found: Dataset {project}:{dataset}")
            return {"location": LOCATION}

    def insert_dataset(self, project: str, resource: Mapping[str, Any]) -> dict[str, Any]:
        dataset = resource["datasetReference"]["datasetId"]
        with self._core.hooks.operation("datasets.insert", f"{project}/{dataset}"):
            if dataset in self._core.datasets:
                raise BigQueryError("duplicate", f"Already Exists: Dataset {project}:{dataset}")
            self._core.datasets.add(dataset)
            return {**resource, "location": LOCATION}

    def update_table(
        self, project: str, dataset: str, table: str, resource: Mapping[str, Any], *, patch: bool, etag: str | None
    ) -> dict[str, Any]:
        with self._core.hooks.operation("tables.patch", f"{project}/{dataset}/{table}"):
            found = self._core.find({"datasetId": dataset, "tableId": table})
            found.resource |= resource
            return {**found.resource, "location": LOCATION}

    def get_table(self, project: str, dataset: str, table: str) -> dict[str, Any]:
        with self._core.hooks.operation("tables.get", f"{project}/{dataset}/{table}"):
            found = self._core.tables.get(f"{dataset}.{table}")
            if found is None:
                raise BigQueryError("notFound", f"Not found: Table {project}:{dataset}.{table}")
            return {**found.resource, "location": LOCATION, "numRows": str(found.rows.total())}

    def insert_table(self, project: str, dataset: str, resource: Mapping[str, Any]) -> dict[str, Any]:
        table = resource["tableReference"]["tableId"]
        with self._core.hooks.operation("tables.insert", f"{project}/{dataset}/{table}"):
            if dataset not in self._core.datasets:
                raise BigQueryError("notFound", f"Not found: Dataset {project}:{dataset}")
            if f"{dataset}.{table}" in self._core.tables:
                raise BigQueryError("duplicate", f"Already Exists: Table {project}:{dataset}.{table}")
            self._core.tables[f"{dataset}.{table}"] = Table(dict(resource))
            return {**resource, "location": LOCATION}

    def delete_table(self, project: str, dataset: str, table: str) -> None:
        with self._core.hooks.operation("tables.delete", f"{project}/{dataset}/{table}"):
            if self._core.tables.pop(f"{dataset}.{table}", None) is None:
                raise BigQueryError("notFound", f"Not found: Table {project}:{dataset}.{table}")


class _TableData:
    def __init__(self, core: PlainBigQuery) -> None:
        self._core = core

    def insert_all(self, project: str, dataset: str, table: str, body: Mapping[str, Any]) -> dict[str, Any]:
        with self._core.hooks.operation("tabledata.insertAll", f"{project}/{dataset}/{table}"):
            told = self._core.find({"datasetId": dataset, "tableId": table}).told
            told |= {one["insertId"]: dict(one["json"]) for one in body["rows"]}
            return {}


def _ids(data: bytes) -> Iterator[int]:
    for line in data.splitlines():
        row = orjson.loads(line)
        if type(row.get("id")) is not int:
            raise ValueError(f"Could not convert value to integer. Field: id; Value: {row.get('id')}")
        yield row["id"]


def _name(reference: Mapping[str, Any]) -> str:
    table, _, _ = str(reference["tableId"]).partition("$")
    return f"{reference['datasetId']}.{table}"


def _audit_entry(job: Job) -> dict[str, Any]:
    name = f"projects/{job.reference['projectId']}/jobs/{job.reference['jobId']}"
    moment = (job.ended or job.created) + timedelta()
    return {
        "protoPayload": {"metadata": {"jobChange": {"before": "RUNNING", "after": "DONE", "job": {"jobName": name}}}},
        "resource": {"labels": {"location": LOCATION}},
        "timestamp": moment.isoformat(),
    }
