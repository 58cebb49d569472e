"""A batch and its surroundings in memory: objects and messages in the real cores, BigQuery jobs scripted."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.bindings import CorePublisher, CoreStore
from tests.support.progress import MemoryProgress

from ingestd.actions.context import ActionContext, ActionSettings
from ingestd.actions.executor import run_actions
from ingestd.actions.plan import plan
from ingestd.localcloud.faults import FaultPlan, Hooks
from ingestd.localcloud.pubsub import wire
from ingestd.localcloud.pubsub.core import PubSubCore
from ingestd.localcloud.storage import StorageCore
from ingestd.model.clock import SystemClock
from ingestd.model.jobs import JobError, JobKind, JobRef, JobRequest, JobState, Mode
from ingestd.model.objects import FileVersion, ObjectRef
from ingestd.model.tables import TableName
from ingestd.ports import HttpAnswer, TableInfo
from ingestd.retry import Retrier, RetryPolicy

PROJECT = "proj"
EVENT = "117"
QUICK = RetryPolicy(
    attempts=3, first_wait=timedelta(milliseconds=1), longest_wait=timedelta(milliseconds=2), total=timedelta(seconds=5)
)


@dataclass
class MemoryWarehouse:
    """Jobs under ids that are used once, tables by name. `fails` maps part of a job id to the error it ends with."""

    project: str = PROJECT
    jobs: dict[JobRef, JobState] = field(default_factory=dict)
    order: list[JobRequest] = field(default_factory=list)
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    results: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    streamed: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)
    requests: list[int] = field(default_factory=list)
    fails: dict[str, JobError] = field(default_factory=dict)
    locations: dict[tuple[str, str], str] = field(default_factory=lambda: {(PROJECT, "eu_data"): "EU"})

    async def insert_job(self, request: JobRequest) -> JobState:
        known = self.jobs.get(request.ref)
        if known is not None:
            return known
        self.order.append(request)
        error = next((error for part, error in self.fails.items() if part in request.ref.job_id), None)
        now = datetime.now(UTC)
        state = JobState(
            request.ref, request.kind, "DONE", request.configuration, error, (error,) if error else (),
            {"totalBytesProcessed": "1", "query": {"timeline": [1], "statementType": "SELECT"}},
            created=now, started=now, ended=now,
        )  # fmt: skip
        self.jobs[request.ref] = state
        if error is None and (written := request.configuration.get("destinationTable")):
            self.tables.setdefault(f"{written['datasetId']}.{written['tableId'].partition('$')[0]}", {})
        return state

    async def get_job(self, ref: JobRef) -> JobState | None:
        return self.jobs.get(ref)

    async def cancel_job(self, ref: JobRef) -> None: ...

    async def table(self, name: TableName) -> TableInfo | None:
        resource = self.tables.get(f"{name.dataset}.{name.table}")
        return None if resource is None else TableInfo(name, "US", resource)

    async def create_table(self, name: TableName, resource: dict[str, Any]) -> TableInfo:
        return TableInfo(name, "US", self.tables.setdefault(f"{name.dataset}.{name.table}", resource))

    async def patch_table(self, name: TableName, resource: dict[str, Any]) -> TableInfo:
        self.tables[f"{name.dataset}.{name.table}"] |= resource
        return TableInfo(name, "US", resource)

    async def delete_table(self, name: TableName) -> bool:
        return self.tables.pop(f"{name.dataset}.{name.table_id}", None) is not None

    async def dataset_location(self, project: str, dataset: str) -> str | None:
        return self.locations.get((project, dataset))

    async def rows(self, job: JobRef, *, limit: int | None = None, start: int = 0) -> list[dict[str, Any]]:
        found = next((rows for part, rows in self.results.items() if part in job.job_id), [])
        return found[start : None if limit is None else start + limit]

    async def insert_rows(self, name: TableName, rows: Sequence[Mapping[str, Any]], ids: Sequence[str]) -> None:
        self.requests.append(len(rows))
        self.streamed.setdefault(name.dotted, {}).update(zip(ids, rows, strict=True))

    def ran(self) -> list[str]:
        """The ids of the jobs that were really started, in order."""
        return [request.ref.job_id for request in self.order]


@dataclass
class OneRun:
    """Runs each job once; retries belong to the real runner."""

    warehouse: MemoryWarehouse

    async def run(self, make: Callable[[int], JobRequest]) -> JobState:
        return await self.warehouse.insert_job(make(1))


@dataclass
class ScriptedHttp:
    """Answers in turn, and keeps what was asked. An exception in the script is raised."""

    answers: list[HttpAnswer | Exception] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes, limit: timedelta, reach: Any
    ) -> HttpAnswer:
        asked = {"method": method, "url": url, "headers": dict(headers), "body": body, "limit": limit, "reach": reach}
        self.asked.append(asked)
        answer = self.answers.pop(0) if self.answers else HttpAnswer(200, {}, b"{}")
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def identity_token(self, audience: str) -> str:
        return f"identity-for-{audience}"

    async def access_token(self, scopes: Sequence[str]) -> str:
        return f"access-for-{','.join(scopes)}"


@dataclass
class Batch:
    """The batch under test: loaded files in `bucket`, and everything its actions may touch."""

    storage: StorageCore
    pubsub: PubSubCore
    warehouse: MemoryWarehouse
    progress: MemoryProgress
    http: ScriptedHttp
    faults: FaultPlan
    files: tuple[FileVersion, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    retrier: Retrier = field(default_factory=lambda: Retrier(QUICK))

    @property
    def store(self) -> CoreStore:
        return CoreStore(self.storage, SystemClock(), self.retrier)

    def upload(self, name: str, data: bytes = b"1", bucket: str = "inbox") -> FileVersion:
        version = self.storage.write(bucket, name, data)
        file = FileVersion(ObjectRef(bucket, name), version.generation, version.size)
        self.files = (*self.files, file)
        return file

    def names(self, bucket: str) -> list[str]:
        return [version.name for version in self.storage.glob(bucket, "*")]

    def messages(self) -> list[Any]:
        return self.pubsub.pull(f"projects/{PROJECT}/subscriptions/reader", 100)

    def context(self) -> ActionContext:
        urls = [file.ref.url for file in self.files]
        return ActionContext(
            store=self.store,
            warehouse=self.warehouse,
            publisher=CorePublisher(self.pubsub, PROJECT, SystemClock(), self.retrier),
            http=self.http,
            jobs=OneRun(self.warehouse),
            progress=self.progress,
            settings=ActionSettings(project=PROJECT, **self.settings),
            event_id=EVENT,
            dest="ds.orders",
            mode=Mode.DISPATCH,
            rule_key="gs://config/rules/orders.yaml",
            files=self.files,
            values={"EventID": EVENT, "LoadURIs": urls, "DestTable": "ds.orders", **self.values},
            retrier=self.retrier,
        )

    async def run(self, *actions: dict[str, Any], cleanup: Sequence[dict[str, Any]] = (), **options: Any) -> None:
        steps = plan(actions, cleanup=cleanup)
        options.setdefault("job", load_job(self.files))
        await run_actions(self.context(), steps.on_success, cleanup=steps.cleanup, **options)


def load_job(files: Sequence[FileVersion] = ()) -> JobState:
    configuration = {
        "sourceUris": [file.ref.url for file in files],
        "destinationTable": {"projectId": PROJECT, "datasetId": "ds", "tableId": "orders"},
    }
    return JobState(JobRef(PROJECT, "US", "load-job"), JobKind.LOAD, "DONE", configuration)


@pytest.fixture
def batch(tmp_path: Path) -> Iterator[Batch]:
    faults = FaultPlan()
    clock = SystemClock()
    storage = StorageCore(tmp_path, project=PROJECT, clock=clock, hooks=Hooks("storage", faults))
    for bucket in ("inbox", "outbox"):
        storage.buckets.insert({"name": bucket})
    pubsub = PubSubCore(None, clock=clock, hooks=Hooks("pubsub", faults))
    pubsub.create_topic(wire.Topic(name=f"projects/{PROJECT}/topics/news"))
    pubsub.create_subscription(
        wire.Subscription(name=f"projects/{PROJECT}/subscriptions/reader", topic=f"projects/{PROJECT}/topics/news")
    )
    yield Batch(storage, pubsub, MemoryWarehouse(), MemoryProgress(), ScriptedHttp(), faults)
    storage.close()
    pubsub.close()
