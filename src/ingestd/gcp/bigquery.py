"""`Warehouse` on google-cloud-bigquery.

Jobs are inserted with ids chosen by the daemon. A 409 means the id was submitted before (by an attempt whose answer was
lost, by an earlier life of this process, or by another replica): the existing job is the answer.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import orjson
from google.api_core import exceptions as api
from google.cloud import bigquery

from ingestd.gcp.errors import translated
from ingestd.gcp.rest import Rest
from ingestd.gcp.threads import Threads
from ingestd.model.clock import Clock, SystemClock
from ingestd.model.errors import BadInput, Transient
from ingestd.model.jobs import JobKind, JobRef, JobRequest, JobState
from ingestd.model.tables import TableName
from ingestd.ports import TableInfo
from ingestd.retry import Retrier
from ingestd.warehouse.errors import refused_rows
from ingestd.warehouse.resources import job_state

T = TypeVar("T")


class BigQueryWarehouse:
    def __init__(
        self,
        client: bigquery.Client,
        rest: Rest,
        threads: Threads,
        retrier: Retrier,
        *,
        timeout: float = 60.0,
        location_ttl: timedelta = timedelta(minutes=10),
        clock: Clock | None = None,
    ) -> None:
        self._client: Any = client  # its annotations deny that `retry=None` is allowed
        self._rest = rest
        self._threads = threads
        self._retrier = retrier
        self._timeout = timeout
        self._location_ttl = location_ttl.total_seconds()
        self._clock = clock or SystemClock()
        self._locations: dict[tuple[str, str], tuple[str, float]] = {}

    @property
    def project(self) -> str:
        return str(self._client.project)

    async def insert_job(self, request: JobRequest) -> JobState:
        async def submit() -> JobState:
            try:
                if request.kind is JobKind.LOAD:
                    return job_state(await self._load(request))
                return job_state(await self._threads.run(self._submit, request))
            except api.Conflict:
                existing = await self._fetch(request.ref)
                if existing is None:  # the service knows the id before it shows the job
                    raise Transient(f"job {request.ref} exists but cannot be read yet") from None
                return existing

        return await self._ask("insert_job", str(request.ref), submit)

    async def get_job(self, ref: JobRef) -> JobState | None:
        return await self._ask("get_job", str(ref), lambda: self._fetch(ref))

    async def child_jobs(self, ref: JobRef) -> list[JobState]:
        def listed() -> list[JobState]:
            found = self._client.list_jobs(
                project=ref.project, parent_job=ref.job_id, retry=None, timeout=self._timeout
            )
            return [job_state(_resource(job)) for job in reversed(list(found))]

        return await self._call("child_jobs", str(ref), listed)

    async def cancel_job(self, ref: JobRef) -> None:
        def cancel() -> None:
            self._client.cancel_job(
                ref.job_id, project=ref.project, location=ref.location or None, retry=None, timeout=self._timeout
            )

        await self._call("cancel_job", str(ref), cancel)

    async def table(self, name: TableName) -> TableInfo | None:
        def get() -> TableInfo | None:
            try:
                return _table_info(name, self._client.get_table(self._ref(name), retry=None, timeout=self._timeout))
            except api.NotFound:
                return None

        return await self._call("get_table", str(name), get)

    async def create_table(self, name: TableName, resource: dict[str, Any]) -> TableInfo:
        def create() -> TableInfo:
            wanted = bigquery.Table.from_api_repr({**resource, "tableReference": self._ref(name).to_api_repr()})
            try:
                made = self._client.create_table(wanted, retry=None, timeout=self._timeout)
            except api.Conflict:
                made = self._client.get_table(self._ref(name), retry=None, timeout=self._timeout)
            return _table_info(name, made)

        return await self._call("create_table", str(name), create)

    async def patch_table(self, name: TableName, resource: dict[str, Any]) -> TableInfo:
        def patch() -> TableInfo:
            wanted = bigquery.Table.from_api_repr({**resource, "tableReference": self._ref(name).to_api_repr()})
            return _table_info(
                name, self._client.update_table(wanted, list(resource), retry=None, timeout=self._timeout)
            )

        return await self._call("patch_table", str(name), patch)

    async def delete_table(self, name: TableName) -> bool:
        """With a decorator only that partition goes."""
        target = bigquery.DatasetReference(name.project or self.project, name.dataset).table(name.table_id)

        def delete() -> bool:
            try:
                self._client.delete_table(target, retry=None, timeout=self._timeout)
            except api.NotFound:
                return False
            return True

        return await self._call("delete_table", str(name), delete)

    async def dataset_location(self, project: str, dataset: str) -> str | None:
        """Datasets never move, but they can be dropped and made anew elsewhere: answers are kept for a while."""
        key = (project or self.project, dataset)
        known = self._locations.get(key)
        if known is not None and known[1] > self._clock.monotonic():
            return known[0]

        def get() -> str | None:
            reference = bigquery.DatasetReference(*key)
            try:
                return str(self._client.get_dataset(reference, retry=None, timeout=self._timeout).location)
            except api.NotFound:
                return None

        location = await self._call("get_dataset", ".".join(key), get)
        if location is None:
            self._locations.pop(key, None)
        else:
            self._locations[key] = (location, self._clock.monotonic() + self._location_ttl)
        return location

    async def create_dataset(
        self, project: str, dataset: str, location: str, *, table_expiration: timedelta | None = None
    ) -> str:
        reference = bigquery.DatasetReference(project or self.project, dataset)

        def create() -> str:
            wanted = bigquery.Dataset(reference)
            wanted.location = location
            if table_expiration is not None:
                wanted.default_table_expiration_ms = int(table_expiration.total_seconds() * 1000)
            try:
                made = self._client.create_dataset(wanted, retry=None, timeout=self._timeout)
            except api.Conflict:
                made = self._client.get_dataset(reference, retry=None, timeout=self._timeout)
            return str(made.location)

        return await self._call("create_dataset", f"{reference.project}.{dataset}", create)

    async def rows(self, job: JobRef, *, limit: int | None = None, start: int = 0) -> list[dict[str, Any]]:
        def fetch() -> list[dict[str, Any]]:
            found = self._client.get_job(
                job.job_id, project=job.project, location=job.location or None, retry=None, timeout=self._timeout
            )
            if not isinstance(found, bigquery.QueryJob):
                raise BadInput(f"job {job} is no query: it has no rows")
            result = found.result(
                retry=None, job_retry=None, timeout=self._timeout, max_results=limit, start_index=start or None
            )
            return [dict(row.items()) for row in result]

        return await self._call("rows", str(job), fetch)

    async def insert_rows(self, name: TableName, rows: Sequence[Mapping[str, Any]], ids: Sequence[str]) -> None:
        items = [{"insertId": one, "json": row} for one, row in zip(ids, rows, strict=True)]
        body = orjson.dumps({"rows": items})
        table = f"/projects/{name.project or self.project}/datasets/{name.dataset}/tables/{name.table}"

        async def stream() -> None:
            answer = await self._rest.post(self._client._connection.build_api_url(f"{table}/insertAll"), body)
            if refused := answer.get("insertErrors"):
                raise refused_rows(str(name), refused)

        await self._ask("insert_rows", str(name), stream)

    async def _ask(self, operation: str, resource: str, fn: Callable[[], Awaitable[T]]) -> T:
        async def attempt() -> T:
            with translated(operation, resource):
                return await fn()

        return await self._retrier.call(attempt, f"bigquery.{operation}", resource=resource)

    async def _call(self, operation: str, resource: str, fn: Callable[[], T]) -> T:
        """By the client, in a thread."""

        def attempt() -> Awaitable[T]:
            return self._threads.run(_translating, operation, resource, fn)

        return await self._retrier.call(attempt, f"bigquery.{operation}", resource=resource)

    async def _fetch(self, ref: JobRef) -> JobState | None:
        where = {"projection": "full", **({"location": ref.location} if ref.location else {})}
        url = self._client._connection.build_api_url(f"/projects/{ref.project}/jobs/{ref.job_id}", where)
        try:
            return job_state(await self._rest.get(url))
        except api.NotFound:
            return None

    def _ref(self, name: TableName) -> bigquery.TableReference:
        return bigquery.DatasetReference(name.project or self.project, name.dataset).table(name.table)

    async def _load(self, request: JobRequest) -> dict[str, Any]:
        """As the client does, without its objects: there is one per batch, and it may name ten thousand files."""
        ref = request.ref
        configuration: dict[str, Any] = {"load": request.configuration}
        if request.labels:
            configuration["labels"] = dict(request.labels)
        reference = {"projectId": ref.project, "jobId": ref.job_id}
        if ref.location:
            reference["location"] = ref.location
        body = orjson.dumps({"jobReference": reference, "configuration": configuration})
        return await self._rest.post(self._client._connection.build_api_url(f"/projects/{ref.project}/jobs"), body)

    def _submit(self, request: JobRequest) -> dict[str, Any]:
        body = request.configuration
        where: dict[str, Any] = {
            "job_id": request.ref.job_id,
            "project": request.ref.project,
            "location": request.ref.location or None,
            "retry": None,
            "timeout": self._timeout,
        }
        resource: dict[str, Any] = {str(request.kind): body}
        if request.labels:
            resource["labels"] = dict(request.labels)
        match request.kind:
            case JobKind.COPY:
                sources = body.get("sourceTables") or [body["sourceTable"]]
                job = self._client.copy_table(
                    [bigquery.TableReference.from_api_repr(source) for source in sources],
                    bigquery.TableReference.from_api_repr(body["destinationTable"]),
                    job_config=bigquery.CopyJobConfig.from_api_repr(resource),
                    **where,
                )
            case JobKind.EXTRACT:
                job = self._client.extract_table(
                    bigquery.TableReference.from_api_repr(body["sourceTable"]),
                    list(body.get("destinationUris") or [body["destinationUri"]]),
                    job_config=bigquery.ExtractJobConfig.from_api_repr(resource),
                    **where,
                )
            case JobKind.QUERY:
                job = self._client.query(
                    body["query"],
                    job_config=bigquery.QueryJobConfig.from_api_repr(resource),
                    job_retry=None,
                    **where,
                )
            case JobKind.LOAD:
                raise AssertionError("loads go without the client's objects")
        return _resource(job)


def _translating(operation: str, resource: str, fn: Callable[[], T]) -> T:
    with translated(operation, resource):
        return fn()


def _table_info(name: TableName, table: bigquery.Table) -> TableInfo:
    return TableInfo(name, str(table.location or ""), table.to_api_repr())


def _resource(job: Any) -> dict[str, Any]:
    """The whole resource of a client library job.

    `to_api_repr()` leaves out status and statistics for most kinds of job, and no public attribute has them all.
    """
    return dict(job._properties)
