"""What follows a finished BigQuery job: a waiting batch, a deferred task, or a route.

The announcement is only a wake-up; `jobs.get` tells what became of the job. Announcements are repeated, late, early or
lost: each of them leads to the same end, because the batch's record decides (see `batch.runner`).
"""

from collections import OrderedDict
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import structlog
from prometheus_client import Counter

from ingestd.actions.values import job_destination
from ingestd.batch.journal import Journal
from ingestd.batch.phases import Phase
from ingestd.batch.placement import Placement
from ingestd.batch.record import Kind, Record
from ingestd.batch.rule import PinnedRule
from ingestd.batch.runner import BatchRunner
from ingestd.batch.stamp import Stamp
from ingestd.batch.tasks import DeferredTasks, Task, deferrable
from ingestd.dispatch.routes import RouteBook
from ingestd.intake.audit import OtherEntry, parse_audit
from ingestd.intake.deadletters import DeadLetters
from ingestd.intake.notifications import Unreadable
from ingestd.intake.receipts import Receipt
from ingestd.model.clock import Clock
from ingestd.model.errors import BadInput
from ingestd.model.jobs import JobRef, JobState
from ingestd.model.objects import event_id
from ingestd.ports import Message, Warehouse
from ingestd.rules.secrets import is_sealed, seal
from ingestd.warehouse.jobs import Completions

log = structlog.get_logger(__name__)

COMPLETIONS = Counter("ingestd_completions", "Audit entries received, by what they led to.", ["led_to"])
for _led in ("waiter", "task", "route", "nothing", "duplicate", "other_entry", "unreadable"):
    COMPLETIONS.labels(_led)

UNREADABLE_TASKS = Counter("ingestd_tasks_unreadable", "Deferred tasks set aside since they cannot be read.")

_HELD_ELSEWHERE = timedelta(seconds=3)
_REMEMBERED = 10_000


class Dispatcher:
    def __init__(
        self,
        *,
        subscription: str,
        warehouse: Warehouse,
        journal: Journal,
        tasks: DeferredTasks,
        runner: BatchRunner,
        completions: Completions,
        routes: Callable[[], RouteBook],
        dead_letters: DeadLetters,
        clock: Clock,
    ) -> None:
        self._subscription = subscription
        self._warehouse = warehouse
        self._journal = journal
        self._tasks = tasks
        self._runner = runner
        self._completions = completions
        self._routes = routes
        self._dead_letters = dead_letters
        dead_letters.expect(subscription)
        self._clock = clock
        self._handled: OrderedDict[str, None] = OrderedDict()

    def handle(self, message: Message, receipt: Receipt) -> Coroutine[Any, Any, None] | None:
        """The completions subscription's handler."""
        try:
            entry = parse_audit(message.data, message.attributes)
        except Unreadable as unreadable:
            COMPLETIONS.labels("unreadable").inc()
            return self._dead_letters.bury(receipt, self._subscription, unreadable.reason)
        if isinstance(entry, OtherEntry):
            COMPLETIONS.labels("other_entry").inc()
            receipt.ack()
            return None
        waiting = self._completions.announce(entry.ref.job_id)
        if entry.ref.job_id in self._handled:
            COMPLETIONS.labels("duplicate").inc()
            receipt.ack()
            return None
        if not deferrable(entry.ref.job_id) and not self._routes():
            COMPLETIONS.labels("waiter" if waiting else "nothing").inc()
            receipt.ack()
            return None
        return self._handle(entry.ref, receipt)

    async def _handle(self, ref: JobRef, receipt: Receipt) -> None:
        if not await self._follow(ref):
            receipt.retry_later(_HELD_ELSEWHERE)
            return
        self._handled[ref.job_id] = None
        if len(self._handled) > _REMEMBERED:
            self._handled.popitem(last=False)
        receipt.ack()

    async def poll(self, job_id: str) -> None:
        """The safety net's question: is this task's job done?"""
        task = await self._task(job_id)
        if task is not None:
            await self._continue(task)

    async def _task(self, job_id: str) -> Task | None:
        """The job's task, if it has one. One that cannot be read is set aside: looking again would change nothing."""
        try:
            return await self._tasks.find(job_id)
        except BadInput as error:
            reason = str(error)
        UNREADABLE_TASKS.inc()
        kept = await self._tasks.set_aside(job_id)
        log.error("task.unreadable", job=job_id, error=reason, kept=kept.url)
        return None

    async def _follow(self, ref: JobRef) -> bool:
        """Do what follows the job; False when another replica is at it and we should look again."""
        if deferrable(ref.job_id):
            task = await self._task(ref.job_id)
            if task is not None:
                COMPLETIONS.labels("task").inc()
                if not await self._continue(task):
                    return False
        routes = self._routes()
        if not routes:
            return True
        job = await self._warehouse.get_job(ref)
        if job is not None and not job.done:
            return False  # announced early: nobody polls the jobs of others, so the announcement has to come again
        route = routes.match(job) if job else None
        if job is None or route is None:
            COMPLETIONS.labels("nothing").inc()
            return True
        COMPLETIONS.labels("route").inc()
        return await self._run_actions(job, route.document, route.url, route.content_hash)

    async def _continue(self, task: Task) -> bool:
        job = await self._warehouse.get_job(task.job)
        if job is not None and not job.done:
            return True  # announced early, or still running: its completion or the next poll comes
        if task.process is None:
            if job is None:
                return True
            return await self._run_by_hand(task, job)
        held = await self._journal.read(task.process)
        if held is not None and self._runner.working_on(held.record.event_id):
            # The job was faster than we are at writing down that it was submitted.
            await self._runner.released(held.record.event_id)
            held = await self._journal.read(task.process)
        if held is None or await self._journal.is_finished(held.record):
            ended = held.record if held else await self._journal.whereabouts(task.process)
            if ended is not None:
                await self._runner.tidy(ended)
            await self._tasks.drop(task.job.job_id)
            if held is not None:
                await self._runner.leave(held)
            return True
        if held.record.wait.lasts(self._clock.now()):
            return True  # it waits for its surroundings; the sweep continues it in time
        if self._runner.working_on(held.record.event_id) or not await self._journal.claim(held):
            return False
        await self._runner.drive(held)
        return True

    async def _run_by_hand(self, task: Task, job: JobState) -> bool:
        """A task that carries its actions itself. Its record has no secrets, so the task stays until that has ended."""
        document = seal(task.document)
        done = await self._run_actions(job, document, task.ref.url, task.ref.url)
        if not done:
            return False
        if is_sealed(document):
            known = await self._journal.known(self._record(job, document, task.ref.url, task.ref.url))
            if known is not None and not known.phase.final:
                return True
        await self._tasks.drop(job.ref.job_id)
        return True

    async def _run_actions(self, job: JobState, document: dict[str, Any], url: str, content_hash: str) -> bool:
        """Run a route's (or a hand-written task's) actions for a finished job, once."""
        if not document.get("OnFailure" if job.failed else "OnSuccess"):
            return True
        held = await self._runner.accept(self._record(job, document, url, content_hash))
        if held is not None:
            await self._runner.drive(held)
        return True

    def _record(self, job: JobState, document: dict[str, Any], url: str, content_hash: str) -> Record:
        now = self._clock.now()
        return Record(
            event_id=event_id(f"{job.ref}|{content_hash}"),
            kind=Kind.ROUTE,
            phase=Phase.FAILING if job.failed else Phase.LOADED,
            dest=job_destination(job).replace("/", "_") or job.kind,
            files=(),
            rule=PinnedRule(document, url, url, content_hash),
            created=job.ended or now,
            stamp=Stamp(now),
            placement=Placement(job.ref.project, job.ref.location),
            trigger=job.ref,
            error=job.error.message if job.error else "",
        )
