"""The daemon's ports bound straight to the local cloud's cores: the same behaviour as over the wire, without the wire.

For simulations: everything happens on the injected clock, in one thread, and repeats exactly. Planned faults, delays
and lost answers strike here as they would a client, and are retried under the same policy as in `ingestd.gcp`.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from tests.support.one_by_one import OneByOne
from tests.support.rest_values import rows_from_rest

from ingestd.formats.errors import BigQueryError
from ingestd.formats.textfiles import CorruptGzipError, gunzip
from ingestd.localcloud.bigquery.core import BigQueryCore
from ingestd.localcloud.faults import FaultInjected, Hooks, ResponseLost
from ingestd.localcloud.pubsub.core import PubSubCore
from ingestd.localcloud.pubsub.errors import Code, PubSubError
from ingestd.localcloud.storage.core import StorageCore
from ingestd.localcloud.storage.errors import StorageError
from ingestd.localcloud.storage.model import ListQuery, ObjectMetadata, ObjectVersion, Preconditions
from ingestd.model.clock import Clock
from ingestd.model.errors import BadInput, Fatal, IngestError, NotFound, TooWide, Transient
from ingestd.model.jobs import JobRef, JobRequest, JobState
from ingestd.model.objects import Generation, ObjectInfo, ObjectRef
from ingestd.model.stored import refuse_larger
from ingestd.model.tables import TableName
from ingestd.ports import Message, PlainMessage, TableInfo
from ingestd.retry import Retrier
from ingestd.warehouse.errors import from_status, refused_rows
from ingestd.warehouse.resources import job_state

WRITE_MARK = "ingestd-write"  # as `ingestd.gcp.storage` has it

T = TypeVar("T")


class _Caller:
    """Calls a core the way a client calls a service: planned delay, then the work or its failure, then retries."""

    def __init__(self, hooks: Hooks, clock: Clock, retrier: Retrier | None) -> None:
        self.clock = clock
        self._hooks = hooks
        self._retrier = retrier or Retrier(clock=clock)

    async def __call__(self, method: str, resource: str, fn: Callable[[], T], *, shown: str = "") -> T:
        async def attempt() -> T:
            await self.delay(method, resource)
            try:
                return fn()
            except IngestError:
                raise
            except Exception as error:
                raise _translate(error, f"{method} {shown or resource}") from error

        return await self._retrier.call(attempt, f"local.{method}", resource=shown or resource)

    async def delay(self, method: str, resource: str) -> None:
        if seconds := self._hooks.delay(method, resource):
            await self.clock.sleep(timedelta(seconds=seconds))


def _translate(error: Exception, where: str) -> Exception:
    match error:
        case ResponseLost():
            return Transient(f"{where}: the answer was lost")
        case FaultInjected():
            fault = error.fault
            return from_status(fault.status, f"{where}: {fault.status} {fault.message}", reason=fault.reason)
        case StorageError():
            return from_status(error.status, f"{where}: {error}", reason=error.reason)
        case BigQueryError():
            return from_status(error.status, f"{where}: {error.status} {error.message}", reason=error.reason)
        case PubSubError():
            if error.code is Code.ABORTED:
                return Transient(f"{where}: {error.message}")
            if error.code is Code.FAILED_PRECONDITION:
                return Fatal(f"{where}: {error.message}")
            return from_status(error.http_status, f"{where}: {error.http_status} {error.message}")
        case _:
            return error


class CoreStore(OneByOne):
    """`ObjectStore` on a `StorageCore`."""

    def __init__(self, core: StorageCore, clock: Clock, retrier: Retrier | None = None) -> None:
        self._core = core
        self._call = _Caller(core.hooks, clock, retrier)

    async def stat(self, ref: ObjectRef, *, generation: Generation | None = None) -> ObjectInfo | None:
        found = await self._call("objects.get", _name(ref), lambda: self._found(ref, generation), shown=ref.url)
        return None if found is None else _info(found)

    async def read(
        self, ref: ObjectRef, *, generation: Generation | None = None, largest: int | None = None
    ) -> tuple[bytes, ObjectInfo]:
        def read() -> tuple[bytes, ObjectVersion]:
            with closing(self._core.objects.open(ref.bucket, ref.name, generation)) as content:
                if largest is not None:
                    refuse_larger(_info(content.version), largest)
                return content.read(), content.version

        data, version = await self._call("objects.get", _name(ref), read, shown=ref.url)
        if version.metadata.content_encoding == "gzip":
            try:
                data = gunzip(".gz", data)
            except CorruptGzipError as error:
                raise BadInput(f"read {ref}: {error}") from None
        return data, _info(version)

    async def create(
        self,
        ref: ObjectRef,
        data: bytes,
        *,
        if_generation: Generation | None = None,
        content_type: str = "application/json",
        metadata: Mapping[str, str] | None = None,
    ) -> Generation:
        custom = dict(metadata or {})
        mark = uuid.uuid4().hex if if_generation is not None else ""
        if mark:
            custom[WRITE_MARK] = mark
        tries = 0

        def insert() -> Generation:
            nonlocal tries
            tries += 1
            described = ObjectMetadata(content_type=content_type, custom=custom)
            conditions = Preconditions(generation=if_generation)
            try:
                version = self._core.objects.insert(ref.bucket, ref.name, data, described, conditions)
            except StorageError as error:
                # After a lost answer, the obstacle may be our own write.
                present = self._found(ref, None) if error.status == 412 and tries > 1 else None
                if present is None or present.metadata.custom.get(WRITE_MARK) != mark:
                    raise
                version = present
            return Generation(version.generation)

        return await self._call("objects.insert", _name(ref), insert, shown=ref.url)

    async def fetch(
        self, ref: ObjectRef, *, generation: Generation, start: int = 0, end: int | None = None, small: bool = False
    ) -> bytes | None:
        def read() -> bytes | None:
            if self._found(ref, generation) is None:
                return None
            return self._core.objects.open(ref.bucket, ref.name, generation).read()[start:end]

        return await self._call("objects.get", _name(ref), read, shown=ref.url)

    async def upload(self, ref: ObjectRef, path: Path, *, content_type: str = "application/octet-stream") -> Generation:
        return await self.create(ref, path.read_bytes(), content_type=content_type)

    async def delete(self, ref: ObjectRef, *, if_generation: Generation | None = None) -> bool:
        def delete() -> bool:
            try:
                self._core.objects.delete(ref.bucket, ref.name, None, Preconditions(generation=if_generation))
            except StorageError as error:
                if error.status == 404:
                    _refuse_missing_bucket(error)
                    return False
                raise
            return True

        return await self._call("objects.delete", _name(ref), delete, shown=ref.url)

    async def copy(
        self,
        source: ObjectRef,
        target: ObjectRef,
        *,
        source_generation: Generation | None = None,
        if_generation: Generation | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Generation:
        origin = await self._call(
            "objects.get", _name(source), lambda: self._found(source, source_generation), shown=source.url
        )
        if origin is None:
            raise NotFound(f"copy {source}: no such object")
        described: ObjectMetadata | None = None
        if metadata:
            kept = {key: value for key, value in origin.metadata.custom.items() if key != WRITE_MARK}
            described = ObjectMetadata(
                content_type=origin.metadata.content_type,
                content_encoding=origin.metadata.content_encoding,
                content_disposition=origin.metadata.content_disposition,
                content_language=origin.metadata.content_language,
                cache_control=origin.metadata.cache_control,
                custom={**kept, **metadata},
            )
        tries = 0

        def copy() -> Generation:
            nonlocal tries
            tries += 1
            try:
                version = self._core.objects.copy(
                    (source.bucket, source.name),
                    (target.bucket, target.name),
                    metadata=described,
                    source_generation=origin.generation,
                    conditions=Preconditions(generation=if_generation),
                    method="objects.rewrite",
                )
            except StorageError as error:
                present = self._found(target, None) if error.status == 412 and tries > 1 else None
                if present is None or (present.crc32c, present.size) != (origin.crc32c, origin.size):
                    raise
                version = present
            return Generation(version.generation)

        return await self._call("objects.rewrite", _name(target), copy, shown=target.url)

    async def list(
        self, prefix: ObjectRef, *, delimiter: str = "", start: str = "", end: str = "", glob: str = ""
    ) -> AsyncIterator[ObjectInfo]:
        token = ""
        while True:
            query = ListQuery(
                prefix=prefix.name,
                delimiter=delimiter,
                start_offset=start,
                end_offset=end,
                page_token=token,
                match_glob=glob,
            )
            page = await self._call(
                "objects.list",
                prefix.bucket,
                lambda query=query: self._core.objects.list(prefix.bucket, query),  # type: ignore[misc]
                shown=prefix.url,
            )
            token = page.next_page_token
            if glob and token:
                raise TooWide(f"listing {prefix} by pattern takes several calls")
            for version in page.items:
                yield _info(version)
            if not token:
                return

    def _found(self, ref: ObjectRef, generation: int | None) -> ObjectVersion | None:
        try:
            return self._core.objects.get(ref.bucket, ref.name, generation)
        except StorageError as error:
            if error.status != 404:
                raise
            _refuse_missing_bucket(error)
            return None


def _refuse_missing_bucket(error: StorageError) -> None:
    if "bucket does not exist" in error.message:
        raise error


def _name(ref: ObjectRef) -> str:
    return f"{ref.bucket}/{ref.name}"


def _info(version: ObjectVersion) -> ObjectInfo:
    return ObjectInfo(
        ref=ObjectRef(version.bucket, version.name),
        generation=Generation(version.generation),
        size=version.size,
        # Resources show whole milliseconds.
        created=datetime.fromtimestamp(version.created // 1000 / 1000, UTC),
        crc32c=version.crc32c,
        content_type=version.metadata.content_type or "",
        metadata={key: value for key, value in version.metadata.custom.items() if key != WRITE_MARK},
        metageneration=version.metageneration,
    )


class CoreWarehouse:
    """`Warehouse` on a `BigQueryCore`. A core without workers is moved on by every call about jobs."""

    def __init__(self, core: BigQueryCore, clock: Clock, retrier: Retrier | None = None) -> None:
        self._core = core
        self._call = _Caller(core.hooks, clock, retrier)

    @property
    def project(self) -> str:
        return self._core.project

    async def insert_job(self, request: JobRequest) -> JobState:
        ref = request.ref
        configuration: dict[str, Any] = {str(request.kind): dict(request.configuration)}
        if request.labels:
            configuration["labels"] = dict(request.labels)
        reference = {"projectId": ref.project, "jobId": ref.job_id, "location": ref.location}

        def insert() -> JobState:
            try:
                job = self._core.insert_job(ref.project, {"jobReference": reference, "configuration": configuration})
            except BigQueryError as error:
                if error.status != 409:
                    raise
                job = self._core.jobs.get(ref.project, ref.job_id, ref.location or None)
            return job_state(job.rest())

        state = await self._call("jobs.insert", f"{ref.project}/{ref.job_id}", insert)
        self._move_on()
        return state

    async def get_job(self, ref: JobRef) -> JobState | None:
        def get() -> JobState | None:
            try:
                return job_state(self._core.jobs.get(ref.project, ref.job_id, ref.location or None).rest())
            except BigQueryError as error:
                if error.status != 404:
                    raise
                return None

        self._move_on()
        return await self._call("jobs.get", f"{ref.project}/{ref.job_id}", get)

    async def child_jobs(self, ref: JobRef) -> list[JobState]:
        def listed() -> list[JobState]:
            page = self._core.jobs.list_jobs(ref.project, {"parentJobId": ref.job_id, "projection": "full"}, [])
            return [job_state(item) for item in reversed(page.get("jobs", ()))]

        return await self._call("jobs.list", f"{ref.project}/{ref.job_id}", listed)

    async def cancel_job(self, ref: JobRef) -> None:
        name = f"{ref.project}/{ref.job_id}"
        await self._call(
            "jobs.cancel", name, lambda: self._core.jobs.cancel(ref.project, ref.job_id, ref.location or None)
        )

    async def table(self, name: TableName) -> TableInfo | None:
        project = name.project or self.project

        def get() -> TableInfo | None:
            try:
                return _table_info(name, self._core.metadata.get_table(project, name.dataset, name.table))
            except BigQueryError as error:
                if error.status != 404:
                    raise
                return None

        return await self._call("tables.get", f"{project}/{name.dataset}/{name.table}", get)

    async def create_table(self, name: TableName, resource: dict[str, Any]) -> TableInfo:
        project = name.project or self.project
        whole = name.in_project(project).partition(None)

        def create() -> TableInfo:
            wanted = {**resource, "tableReference": whole.rest}
            try:
                made = self._core.metadata.insert_table(project, name.dataset, wanted)
            except BigQueryError as error:
                if error.status != 409:
                    raise
                made = self._core.metadata.get_table(project, name.dataset, name.table)
            return _table_info(name, made)

        return await self._call("tables.insert", f"{project}/{name.dataset}/{name.table}", create)

    async def patch_table(self, name: TableName, resource: dict[str, Any]) -> TableInfo:
        project = name.project or self.project

        def patch() -> TableInfo:
            changed = self._core.metadata.update_table(
                project, name.dataset, name.table, resource, patch=True, etag=None
            )
            return _table_info(name, changed)

        return await self._call("tables.patch", f"{project}/{name.dataset}/{name.table}", patch)

    async def delete_table(self, name: TableName) -> bool:
        project = name.project or self.project

        def delete() -> bool:
            try:
                self._core.metadata.delete_table(project, name.dataset, name.table_id)
            except BigQueryError as error:
                if error.status != 404:
                    raise
                return False
            return True

        return await self._call("tables.delete", f"{project}/{name.dataset}/{name.table_id}", delete)

    async def dataset_location(self, project: str, dataset: str) -> str | None:
        owner = project or self.project

        def get() -> str | None:
            try:
                return str(self._core.metadata.get_dataset(owner, dataset)["location"])
            except BigQueryError as error:
                if error.status != 404:
                    raise
                return None

        return await self._call("datasets.get", f"{owner}/{dataset}", get)

    async def create_dataset(
        self, project: str, dataset: str, location: str, *, table_expiration: timedelta | None = None
    ) -> str:
        owner = project or self.project
        wanted: dict[str, Any] = {"datasetReference": {"projectId": owner, "datasetId": dataset}, "location": location}
        if table_expiration is not None:
            wanted["defaultTableExpirationMs"] = str(int(table_expiration.total_seconds() * 1000))

        def create() -> str:
            try:
                made = self._core.metadata.insert_dataset(owner, wanted)
            except BigQueryError as error:
                if error.status != 409:
                    raise
                made = self._core.metadata.get_dataset(owner, dataset)
            return str(made["location"])

        return await self._call("datasets.insert", f"{owner}/{dataset}", create)

    async def rows(self, job: JobRef, *, limit: int | None = None, start: int = 0) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        token = ""
        self._move_on()
        while True:
            parameters: dict[str, Any] = {"location": job.location, "formatOptions.useInt64Timestamp": True}
            if token:
                parameters["pageToken"] = token
            elif start:
                parameters["startIndex"] = str(start)

            def fetch(parameters: dict[str, Any] = parameters) -> dict[str, Any]:
                return self._core.jobs.query_results(job.project, job.job_id, parameters)

            page = await self._call("jobs.getQueryResults", f"{job.project}/{job.job_id}", fetch)
            if not page["jobComplete"]:
                raise BadInput(f"job {job} is not done: it has no rows yet")
            found += rows_from_rest(page.get("schema", {}), page.get("rows", ()))
            token = page.get("pageToken", "")
            if not token or (limit is not None and len(found) >= limit):
                return found if limit is None else found[:limit]

    async def insert_rows(self, name: TableName, rows: Sequence[Mapping[str, Any]], ids: Sequence[str]) -> None:
        project = name.project or self.project
        body = {"rows": [{"insertId": key, "json": dict(row)} for key, row in zip(ids, rows, strict=True)]}

        def insert() -> None:
            answer = self._core.tabledata.insert_all(project, name.dataset, name.table, body)
            if refused := answer.get("insertErrors"):
                raise refused_rows(str(name), refused)

        await self._call("tabledata.insertAll", f"{project}/{name.dataset}/{name.table}", insert)

    def _move_on(self) -> None:
        if self._core.settings.workers == 0:
            self._core.run_pending()


def _table_info(name: TableName, resource: dict[str, Any]) -> TableInfo:
    return TableInfo(name, str(resource.get("location", "")), resource)


class _Bell:
    """Rung by the core (from whatever thread) when a subscription has messages; heard on the event loop."""

    def __init__(self, subscription: str) -> None:
        self._subscription = subscription
        self._loop = asyncio.get_running_loop()
        self.rung = asyncio.Event()

    def messages_ready(self, subscription: str) -> None:
        if subscription == self._subscription:
            self._loop.call_soon_threadsafe(self.rung.set)

    def capacity_freed(self, subscription: str) -> None:
        """Streams only."""

    def subscription_changed(self, subscription: str) -> None:
        self.messages_ready(subscription)

    def wakeup_moved(self) -> None:
        """Waiting pulls look at `next_wakeup` themselves."""


class CoreSubscription:
    """`Subscription` on a `PubSubCore`; an empty pull waits on the clock for `patience`, as the service does."""

    def __init__(
        self,
        core: PubSubCore,
        name: str,
        clock: Clock,
        retrier: Retrier | None = None,
        *,
        patience: timedelta = timedelta(seconds=10),
    ) -> None:
        self._core = core
        self._name = name
        self._call = _Caller(core.hooks, clock, retrier)
        self._patience = patience

    @property
    def name(self) -> str:
        return self._name

    async def pull(self, limit: int) -> list[Message]:
        clock = self._call.clock
        deadline = clock.monotonic() + self._patience.total_seconds()
        bell = _Bell(self._name)
        self._core.add_listener(bell)
        try:
            while True:
                bell.rung.clear()
                received = await self._call("Pull", self._name, lambda: self._core.pull(self._name, limit))
                if received:
                    return [
                        PlainMessage(
                            one.ack_id,
                            one.data,
                            dict(one.attributes),
                            one.message_id,
                            one.delivery_attempt,
                        )
                        for one in received
                    ]
                left = deadline - clock.monotonic()
                if left <= 0:
                    return []
                # A lease that runs out makes a message ready without anybody doing anything.
                due = self._core.next_wakeup() - self._core.clock.monotonic()
                # Durations know microseconds only: a shorter wait would be none, and time would stand still.
                await _ring_or_sleep(bell.rung, clock, max(min(left, due), 1e-6) if due > 0 else left)
                self._core.tick()
        finally:
            self._core.remove_listener(bell)

    async def ack(self, ack_ids: Sequence[str]) -> None:
        if ack_ids:
            await self._call("Acknowledge", self._name, lambda: self._core.acknowledge(self._name, ack_ids))

    async def extend(self, ack_ids: Sequence[str], deadline: timedelta) -> None:
        if ack_ids:
            seconds = int(deadline.total_seconds())
            await self._call(
                "ModifyAckDeadline",
                self._name,
                lambda: self._core.modify_ack_deadline(self._name, ack_ids, seconds),
            )


async def _ring_or_sleep(rung: asyncio.Event, clock: Clock, seconds: float) -> None:
    timer = asyncio.ensure_future(clock.sleep(timedelta(seconds=seconds)))

    def over(timer: asyncio.Future[None]) -> None:
        if not timer.cancelled():
            timer.exception()  # whoever is gone needs no more of it
            rung.set()

    timer.add_done_callback(over)
    try:
        await rung.wait()
    finally:
        timer.cancel()


class CorePublisher:
    """`Publisher` on a `PubSubCore`."""

    def __init__(self, core: PubSubCore, project: str, clock: Clock, retrier: Retrier | None = None) -> None:
        self._core = core
        self._project = project
        self._call = _Caller(core.hooks, clock, retrier)

    async def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> str:
        return (await self.publish_all(topic, [(data, attributes)]))[0]

    async def publish_all(self, topic: str, messages: Sequence[tuple[bytes, Mapping[str, str]]]) -> list[str]:
        path = topic if topic.startswith("projects/") else f"projects/{self._project}/topics/{topic}"
        sent = [(data, dict(attributes), "") for data, attributes in messages]
        return list(await self._call("Publish", path, lambda: self._core.publish(path, sent)))
