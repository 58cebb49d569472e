"""The local cloud as a whole: three cores on one folder, wired as Google's services are, served on loopback.

Invariants: the state folder is held as long as the cloud runs; `endpoints.json` and `env.sh` are written once every
service answers; a stop ends the servers first and the cores last, so that nothing is accepted that cannot be kept.
"""

import asyncio
import contextlib
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from ingestd.localcloud.bigquery.core import BigQueryCore
from ingestd.localcloud.bigquery.server import make_handler as bigquery_handler
from ingestd.localcloud.bigquery.settings import BigQuerySettings
from ingestd.localcloud.control import SERVICES, Control
from ingestd.localcloud.faults import FaultPlan, Hooks
from ingestd.localcloud.feeds import AuditSink, Notifications, StoredObjects
from ingestd.localcloud.http import HttpServer
from ingestd.localcloud.provision import Names, ensure_resources
from ingestd.localcloud.pubsub.core import PubSubCore
from ingestd.localcloud.pubsub.server import PubSubServer
from ingestd.localcloud.statefolder import Endpoints, Ports, held, settle
from ingestd.localcloud.storage.core import StorageCore
from ingestd.localcloud.storage.server import make_handler as storage_handler
from ingestd.localcloud.storage.state import StorageSettings
from ingestd.model.clock import Clock, SystemClock

_NOTIFICATION_RETRY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class CloudSettings:
    """How the services behave where Google's are configured or governed."""

    job_latency: timedelta = timedelta()
    enforce_quotas: bool = False
    legacy_audit: bool = False
    audit_topic: str = "bigquery-completions"


class LocalCloud:
    """`async with LocalCloud(folder, "my-project") as cloud:` serves until the block ends."""

    def __init__(
        self,
        state: Path,
        project: str,
        *,
        ports: Ports | None = None,
        settings: CloudSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.state = state
        self.project = project
        self.faults = FaultPlan()
        self.hooks = {service: Hooks(service, self.faults) for service in SERVICES}
        self._ports = ports or Ports()
        self._settings = settings or CloudSettings()
        self._clock = clock or SystemClock()
        self._names = Names(project, completions_topic=self._settings.audit_topic)
        self._running = AsyncExitStack()
        self.storage: StorageCore
        self.pubsub: PubSubCore
        self.bigquery: BigQueryCore
        self.endpoints: Endpoints

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as starting:
            starting.enter_context(held(self.state))
            self._open_cores(starting)
            self.endpoints = Endpoints.on(await self._serve(starting, settle(self._ports, self.state)), self.project)
            self.endpoints.save(self.state)
            self._running = starting.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._running.aclose()

    def provision(self, names: Names | None = None) -> None:
        """Create what the daemon expects to find in its project, where it is missing."""
        ensure_resources(names or self._names, self.storage, self.pubsub)

    def _open_cores(self, stack: AsyncExitStack) -> None:
        settings = self._settings
        self.pubsub = PubSubCore(self.state / "pubsub", clock=self._clock, hooks=self.hooks["pubsub"])
        stack.callback(self.pubsub.close)
        notifications = Notifications(self.pubsub)
        self.storage = StorageCore(
            self.state / "storage",
            project=self.project,
            clock=self._clock,
            hooks=self.hooks["storage"],
            publish=notifications,
            publish_many=notifications.many,
            settings=StorageSettings(writes_per_second=1.0 if settings.enforce_quotas else None),
        )
        stack.callback(self.storage.close)
        self.bigquery = BigQueryCore(
            self.state / "bigquery",
            project=self.project,
            clock=self._clock,
            hooks=self.hooks["bigquery"],
            objects=StoredObjects(self.storage),
            on_job_done=AuditSink(self.pubsub, self._names.topic(settings.audit_topic)),
            settings=BigQuerySettings(
                job_latency=settings.job_latency,
                enforce_quotas=settings.enforce_quotas,
                legacy_audit=settings.legacy_audit,
            ),
        )
        stack.callback(self.bigquery.close)

    async def _serve(self, stack: AsyncExitStack, ports: Ports) -> Ports:
        control = Control(self.faults, self.hooks)
        storage = HttpServer(control.mounted_on(storage_handler(self.storage)), port=ports.storage)
        pubsub = PubSubServer(self.pubsub, grpc_port=ports.pubsub, rest_port=ports.pubsub_rest)
        bigquery = HttpServer(bigquery_handler(self.bigquery), port=ports.bigquery)
        started: list[HttpServer | PubSubServer] = []
        stack.push_async_callback(_stopped, started)
        for server in (storage, pubsub, bigquery):
            await server.start()
            started.append(server)
        retry = asyncio.create_task(self._retry_notifications(), name="notifications")
        stack.push_async_callback(_cancelled, retry)
        return Ports(storage.port, pubsub.grpc_port, bigquery.port, pubsub.rest_port or 0)

    async def _retry_notifications(self) -> None:
        """Hand over what a fault withheld or a failing topic refused."""
        while True:
            await asyncio.sleep(_NOTIFICATION_RETRY_SECONDS)
            await asyncio.to_thread(self.storage.deliver_notifications)


async def _stopped(servers: list[HttpServer | PubSubServer]) -> None:
    """End them together: each waits a moment for its open connections."""
    await asyncio.gather(*(server.stop() for server in servers))


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
