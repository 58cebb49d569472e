"""The safety net: what no message will ever remind us of is found by looking.

Two sweeps on a timer. Running records that nobody holds (their owner died, or they wait for a retry that is due) are
adopted. Deferred tasks are checked against their job, since an audit event may be lost.
"""

import asyncio
from collections.abc import Coroutine
from datetime import datetime
from typing import Any

import structlog
from prometheus_client import Counter, Gauge

from ingestd.batch.journal import Entry, Journal
from ingestd.batch.runner import BatchRunner
from ingestd.batch.tasks import DeferredTasks
from ingestd.dispatch.dispatcher import Dispatcher
from ingestd.model.clock import Clock
from ingestd.model.errors import UnreadableObject
from ingestd.ops.survival import surviving
from ingestd.settings import Settings

log = structlog.get_logger(__name__)

SWEEP_ERRORS = Counter("ingestd_sweep_errors", "Sweeps or adoptions that failed and will be repeated.", ["what"])
ADOPTED = Counter("ingestd_batches_adopted", "Batches taken over from a silent owner or due for a retry.")
PENDING = Gauge("ingestd_batches_pending", "Records under Running/ at the last sweep.")
BLOCKED_NOW = Gauge("ingestd_batches_blocked_now", "Of those, waiting for their surroundings to change.")
NEWER = Gauge("ingestd_batches_newer_version", "Of those, written by a newer version, which has to finish them.")
OLDEST = Gauge("ingestd_oldest_pending_timestamp_seconds", "Creation of the oldest pending record; 0 when none.")
OPEN_TASKS = Gauge("ingestd_deferred_tasks", "Deferred tasks at the last look.")
for _what in ("records", "tasks", "adoption"):
    SWEEP_ERRORS.labels(_what)

_SHOWN = 2_000


class Reconciler:
    def __init__(
        self,
        journal: Journal,
        tasks: DeferredTasks,
        runner: BatchRunner,
        dispatcher: Dispatcher,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._journal = journal
        self._tasks = tasks
        self._runner = runner
        self._dispatcher = dispatcher
        self._clock = clock
        self._settings = settings
        self._underway: set[str] = set()
        self.running: dict[str, Entry] = {}  # the whole deployment's records at the last sweep, as many as are shown
        self.swept_at: datetime | None = None

    async def run(self) -> None:
        """Root task."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweep_records(group), name="sweep:records")
            group.create_task(self._poll_tasks(group), name="sweep:tasks")

    async def _sweep_records(self, group: asyncio.TaskGroup) -> None:
        while True:
            with surviving("sweep:records", "sweep.failed", SWEEP_ERRORS.labels("records").inc, what="records"):
                await self._sweep(group)
            await self._clock.sleep(self._settings.recovery.sweep_every)

    async def _sweep(self, group: asyncio.TaskGroup) -> None:
        pending = blocked = newer = 0
        oldest: datetime | None = None
        running: dict[str, Entry] = {}
        began = self._clock.now()
        async for entry in self._journal.entries():
            pending += 1
            if len(running) < _SHOWN:
                running[entry.event_id] = entry
            blocked += entry.retry_at is not None
            newer += entry.newer
            oldest = min(oldest, entry.began) if oldest else entry.began
            if self._due(entry):
                self._spawn(group, entry.event_id, self._adopt(entry))
        self.running, self.swept_at = running, began
        PENDING.set(pending)
        BLOCKED_NOW.set(blocked)
        NEWER.set(newer)
        OLDEST.set(oldest.timestamp() if oldest else 0)

    def _due(self, entry: Entry) -> bool:
        """Nobody is on it, and it is its time."""
        now = self._clock.now()
        if entry.newer:
            return False
        if self._runner.working_on(entry.event_id) or (entry.lease_until and entry.lease_until > now):
            return False
        if entry.retry_at is not None:
            return entry.retry_at <= now
        # A free record was just created by an asynchronous arrival, or its owner died: a lease's time tells.
        return entry.lease_until is not None or entry.created + self._journal.lease <= now

    async def _adopt(self, entry: Entry) -> None:
        ADOPTED.inc()
        await self._runner.resume(entry.ref)

    async def _poll_tasks(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._clock.sleep(self._settings.jobs.poll_every)
            with surviving("sweep:tasks", "sweep.failed", SWEEP_ERRORS.labels("tasks").inc, what="tasks"):
                count = 0
                async for task in self._tasks.all():
                    count += 1
                    if task.created + self._settings.jobs.poll_every <= self._clock.now():
                        self._spawn(group, task.job_id, self._dispatcher.poll(task.job_id))
                OPEN_TASKS.set(count)

    def _spawn(self, group: asyncio.TaskGroup, key: str, work: Coroutine[Any, Any, None]) -> None:
        if key in self._underway:
            work.close()
            return
        self._underway.add(key)
        group.create_task(self._guarded(key, work), name=f"sweep:{key}")

    async def _guarded(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        """One stubborn batch must not stop the sweep: it stays where it is and is found again."""
        try:
            with surviving("adoption", "sweep.adoption_postponed", SWEEP_ERRORS.labels("adoption").inc, key=key):
                try:
                    await work
                except UnreadableObject:
                    return  # counted and told where it was met; whoever can read it goes on with it
        finally:
            self._underway.discard(key)
