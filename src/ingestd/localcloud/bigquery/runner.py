"""Runs jobs: PENDING → RUNNING → DONE, in worker threads or by hand.

Invariants: a job is in the journal before it is acknowledged; its work and its DONE row commit together; a job that the
journal has and the database has not is run again at start-up. Half of `job_latency` a job waits, half of it it "runs"
before the work is done; a DELAY fault on `job.<type>` adds to the second half.
"""

import heapq
import itertools
import queue
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from threading import Condition, Thread
from typing import Any

import duckdb
import structlog

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.bigquery import copy_job, extract_job, load_job, query_job
from ingestd.localcloud.bigquery.catalog import Catalog
from ingestd.localcloud.bigquery.commit_watch import clear, marks
from ingestd.localcloud.bigquery.database import Database
from ingestd.localcloud.bigquery.execution import Cancelled, Run, WriterLock, as_bigquery, rollback
from ingestd.localcloud.bigquery.files.objects import Objects
from ingestd.localcloud.bigquery.jobs import Job, JobKey, JobState, JobStore, JobType, KnownKeys
from ingestd.localcloud.bigquery.mirror import Session
from ingestd.localcloud.bigquery.outbox import Outbox
from ingestd.localcloud.bigquery.pending import PendingJobs
from ingestd.localcloud.bigquery.quota import Quotas
from ingestd.localcloud.bigquery.resources import TableRef, millis, split_decorator
from ingestd.localcloud.bigquery.settings import BigQuerySettings
from ingestd.localcloud.faults import FaultInjected, Hooks
from ingestd.model.clock import Clock

log = structlog.get_logger(__name__)

_KINDS: Mapping[JobType, Callable[[Run], None]] = {
    JobType.LOAD: load_job.run,
    JobType.QUERY: query_job.run,
    JobType.COPY: copy_job.run,
    JobType.EXTRACT: extract_job.run,
}
_CONFLICT_RETRIES = 5
_REMEMBERED = 1_000
_JOB_MEMORY = timedelta(days=180)
_STOPPED = "Job execution was cancelled: User requested cancellation"


@dataclass(slots=True)
class _Live:
    """A job that is not DONE yet."""

    job: Job
    run_at: datetime
    work_at: datetime
    run: Run | None = None
    cancelled: bool = False
    queued: bool = False
    callbacks: list[Callable[[], None]] = field(default_factory=list)


class JobRunner:
    def __init__(
        self,
        database: Database,
        *,
        project: str,
        clock: Clock,
        hooks: Hooks,
        objects: Objects,
        settings: BigQuerySettings,
        outbox: Outbox,
        pending: PendingJobs,
    ) -> None:
        self._database = database
        self._project = project
        self._clock = clock
        self._hooks = hooks
        self._objects = objects
        self._settings = settings
        self._outbox = outbox
        self._pending = pending
        self.data_lock = WriterLock()
        self.quotas = Quotas(clock, settings.enforce_quotas)
        self._live: dict[JobKey, _Live] = {}
        self._finished: OrderedDict[JobKey, Job] = OrderedDict()  # DONE never changes, so these cannot be stale
        self._changed = Condition()  # over a reentrant lock
        self._queue: queue.SimpleQueue[JobKey | None] = queue.SimpleQueue()
        self._timers: list[tuple[datetime, int, JobKey]] = []
        self._sequence = itertools.count()
        self._threads: list[Thread] = []
        self._stopping = False
        self._deleted: set[JobKey] = set()  # before they were announced
        cursor = database.cursor()
        stored = set(JobStore(cursor).keys())
        cursor.close()
        self.known = KnownKeys(stored)
        left = pending.load()
        pending.rewrite(left)
        self.left_over = [job for job in left if job.key not in stored]
        self._unannounced = [job.key for job in left if job.key in stored]

    def start(self) -> None:
        """Take up what an earlier process left unfinished, and start the threads."""
        for index in range(self._settings.workers):
            self._spawn(self._work, f"bigquery-worker-{index}")
        if self._settings.workers:
            self._spawn(self._keep_time, "bigquery-timer")
        self._recover()

    def _spawn(self, target: Callable[[], None], name: str) -> None:
        thread = Thread(target=target, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def stop(self) -> None:
        """Let running jobs finish their current work, leave the rest for the next start."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for _ in range(self._settings.workers):
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _recover(self) -> None:
        cursor = self._database.cursor()
        try:
            store = JobStore(cursor)
            for key in self._unannounced:
                if done := store.find(key):
                    self._announce(done)
            for job in self.left_over:
                self.known.add(job.key)
                if committed := marks(cursor, job.key):
                    done = query_job.recovered(job, committed, self._clock.now())
                    self._finish(cursor, done)
                    self._announce(done)
                else:
                    log.info("bigquery.job_resumed", job=str(job.key))
                    self._schedule(job)
        finally:
            cursor.close()

    def submit(self, job: Job, stored: Callable[[JobKey], Job | None]) -> None:
        """Accept a new job: from here on it will be DONE one day. `stored` finds a finished job."""
        with self._changed:
            taken = job.key in self._live or job.key in self._finished
            if taken or (job.key in self.known and stored(job.key)):
                raise BigQueryError("duplicate", f"Already Exists: Job {job.key}")
            self._pending.add(job)
            self.known.add(job.key)
            self._schedule(job)
            if self._pending.long:
                self._rewrite_pending()

    def _rewrite_pending(self) -> None:
        """Jobs between their end and their announcement are not live any more, but not over either."""
        ended = (job for job in self._outbox.waiting() if job.key not in self._deleted)
        self._pending.rewrite([*ended, *(live.job for live in self._live.values())])

    def _announce(self, done: Job) -> None:
        self._outbox.add(done, lambda: self._over(done.key))

    def _over(self, key: JobKey) -> None:
        with self._changed:
            self._deleted.discard(key)
            self._pending.over(key)

    def _schedule(self, job: Job) -> None:
        now = self._clock.now()
        half = self._settings.job_latency / 2
        delay = self._hooks.delay(f"job.{job.type.key}", f"{job.key.project}/{job.key.job_id}")
        live = _Live(job, now + half, now + half * 2 + timedelta(seconds=delay))
        with self._changed:
            self._live[job.key] = live
            if not self._settings.workers:
                return
            if live.work_at <= now:
                live.queued = True
                self._queue.put(job.key)
            else:
                heapq.heappush(self._timers, (live.run_at, next(self._sequence), job.key))
                heapq.heappush(self._timers, (live.work_at, next(self._sequence), job.key))
                self._changed.notify_all()

    def current(self, key: JobKey) -> Job | None:
        """A job as it stands, if it is unfinished or ended lately."""
        with self._changed:
            live = self._live.get(key)
            return live.job if live else self._finished.get(key)

    def find_anywhere(self, project: str, job_id: str) -> Job | None:
        """An unfinished or lately ended job of this id, in whichever location has it."""
        with self._changed:
            jobs = [*(live.job for live in self._live.values()), *self._finished.values()]
        return next((job for job in jobs if job.key.project == project and job.key.job_id == job_id), None)

    def forget(self, key: JobKey) -> None:
        """The finished job is about to be deleted."""
        with self._changed:
            self._pending.over(key)
            if any(job.key == key for job in self._outbox.waiting()):
                self._deleted.add(key)
            self._finished.pop(key, None)

    def unfinished(self, project: str) -> list[Job]:
        with self._changed:
            return [live.job for key, live in self._live.items() if key.project == project]

    def on_done(self, key: JobKey, callback: Callable[[], None]) -> bool:
        """Call back once when the job is DONE; False when it already is (or is unknown)."""
        with self._changed:
            live = self._live.get(key)
            if live is None:
                return False
            live.callbacks.append(callback)
            return True

    def wait(self, key: JobKey, timeout: float | None = None) -> bool:
        """Block until the job is DONE. Without worker threads this runs what is due first."""
        if not self._settings.workers:
            self.run_pending()
        with self._changed:
            return self._changed.wait_for(lambda: key not in self._live or self._stopping, timeout)

    def run_pending(self) -> int:
        """Advance every job as far as the clock allows, oldest first; the number that became DONE."""
        finished = 0
        with self._changed:
            keys = list(self._live)
        for key in keys:
            self._advance(key)
            with self._changed:
                live = self._live.get(key)
                due = live is not None and live.work_at <= self._clock.now() and live.run is None
            if due:
                self._execute(key)
                finished += 1
        self._outbox.deliver()
        return finished

    def cancel(self, key: JobKey) -> None:
        """Stop a job that is not DONE: at once while it waits, as soon as possible while it works."""
        with self._changed:
            live = self._live.get(key)
            if live is None:
                return
            live.cancelled = True
            run = live.run
        if run is not None:
            run.cancel()
        else:
            self._execute(key)

    def _advance(self, key: JobKey) -> None:
        now = self._clock.now()
        with self._changed:
            live = self._live.get(key)
            if live and live.job.state is JobState.PENDING and live.run_at <= now:
                live.job = live.job.running(live.run_at)

    def _keep_time(self) -> None:
        """Move jobs on when their time comes, and free what has expired."""
        next_sweep = self._clock.monotonic() + self._settings.sweep_interval.total_seconds()
        while True:
            due: list[JobKey] = []
            with self._changed:
                if self._stopping:
                    return
                now = self._clock.now()
                while self._timers and self._timers[0][0] <= now:
                    due.append(heapq.heappop(self._timers)[2])
                if not due and self._clock.monotonic() < next_sweep:
                    until = (self._timers[0][0] - now).total_seconds() if self._timers else 1.0
                    self._changed.wait(min(max(until, 0.001), 1.0))
            for key in due:
                self._advance(key)
                with self._changed:
                    live = self._live.get(key)
                    if live and not live.queued and live.work_at <= self._clock.now():
                        live.queued = True
                        self._queue.put(key)
            if self._clock.monotonic() >= next_sweep:
                next_sweep = self._clock.monotonic() + self._settings.sweep_interval.total_seconds()
                self.sweep()

    def _work(self) -> None:
        while (key := self._queue.get()) is not None:
            if self._stopping:
                return
            try:
                self._execute(key)
            except Exception:
                log.exception("bigquery.job_lost", job=str(key))

    def sweep(self) -> None:
        """Free expired tables and partitions, old jobs and quota records."""
        with self._changed:
            self._rewrite_pending()
        session = self._database.session()
        try:
            with self.data_lock:
                try:
                    session.begin()
                    self._catalog(session).purge_expired()
                    self.quotas.forget_old(session.conn)
                    JobStore(session.conn).forget_before(millis(self._clock.now() - _JOB_MEMORY))
                    session.commit()
                except duckdb.Error:
                    log.exception("bigquery.sweep_failed")
                    rollback(session.conn)
        finally:
            session.close()

    def _catalog(self, session: Session) -> Catalog:
        return Catalog(session.conn, project=self._project, clock=self._clock, changes=session.changes)

    def prepare(self, job: Job, catalog: Catalog) -> Run:
        return Run(
            job=job,
            conn=catalog.conn,
            catalog=catalog,
            objects=self._objects,
            clock=self._clock,
            settings=self._settings,
            data_lock=self.data_lock,
            quotas=self.quotas,
            known=self.known,
            jobs=lambda: self._all_jobs(catalog.conn, job.key.project),
        )

    def _all_jobs(self, cursor: duckdb.DuckDBPyConnection, project: str) -> Iterable[Mapping[str, Any]]:
        unfinished = self.unfinished(project)
        finished = JobStore(cursor).everything(project)
        seen = {job.key for job in finished}
        jobs = [*finished, *(job for job in unfinished if job.key not in seen)]
        for job in sorted(jobs, key=lambda job: (millis(job.created), job.key.job_id)):
            yield job.rest()

    def _execute(self, key: JobKey) -> None:
        with self._changed:
            live = self._live.get(key)
            if live is None or live.run is not None:
                return
            if live.job.state is JobState.PENDING:
                live.job = live.job.running(self._clock.now())
            session = self._database.session()
            live.run = run = self.prepare(live.job, self._catalog(session))
            if live.cancelled:
                run.cancel()
        try:
            done = self._attempts(run)
        finally:
            session.close()
        self._settle(key, done)

    def _attempts(self, run: Run) -> Job:
        """Do the work; when it cannot be done, say why. Either way the job is DONE and stored."""
        for attempt in itertools.count(1):
            try:
                self._perform(run)
                assert run.finished is not None
            except (Cancelled, duckdb.InterruptException):
                error = BigQueryError("stopped", _STOPPED)
            except BigQueryError as failure:
                error = failure
            except duckdb.TransactionException as conflict:
                rollback(run.conn)
                if attempt < _CONFLICT_RETRIES and not run.cancelled and not run.applied:
                    log.info("bigquery.job_retried", job=str(run.job.key), reason=str(conflict))
                    self._drop_temporary(run.conn)
                    run = self.prepare(run.job, run.catalog)
                    continue
                error = as_bigquery(conflict)
            except duckdb.Error as failure:
                error = as_bigquery(failure)
            except Exception as defect:
                log.exception("bigquery.job_failed", job=str(run.job.key))
                error = BigQueryError("internalError", f"{type(defect).__name__}: {defect}")
            else:
                return run.finished
            rollback(run.conn)
            done = run.job.done(self._clock.now(), error=error, statistics=self._failed_statistics(run))
            self._finish(run.conn, done)
            return done
        raise AssertionError("unreachable")

    def _drop_temporary(self, conn: duckdb.DuckDBPyConnection) -> None:
        """The failed attempt left temporary tables on the cursor."""
        for (name,) in conn.execute("SELECT table_name FROM duckdb_tables() WHERE temporary").fetchall():
            conn.execute(f'DROP TABLE "{name}"')

    def _perform(self, run: Run) -> None:
        run.check_cancelled()
        method = f"job.{run.job.type.key}"
        try:
            with self._hooks.operation(method, f"{run.job.key.project}/{run.job.key.job_id}"):
                pass
        except FaultInjected as injected:
            raise BigQueryError(injected.fault.reason, injected.fault.message) from injected
        _KINDS[run.job.type](run)

    def _failed_statistics(self, run: Run) -> Mapping[str, Any]:
        if run.job.type is not JobType.QUERY:
            return {}
        children = JobStore(run.conn).listing(run.job.key.project, parent=run.job.key.job_id)
        return {"numChildJobs": str(len(children))} if children else {}

    def _finish(self, cursor: duckdb.DuckDBPyConnection, done: Job) -> None:
        cursor.begin()
        JobStore(cursor).insert(done)
        if done.error and self.quotas.enforced and (target := done.details.get("destinationTable")):
            self._count_failure(cursor, done, target)
        if done.type is JobType.QUERY:
            clear(cursor, done.key)
        cursor.commit()

    def _count_failure(self, cursor: duckdb.DuckDBPyConnection, done: Job, target: Mapping[str, Any]) -> None:
        """A failed modification counts against the table's daily quota as well."""
        ref = TableRef.from_rest(target, done.key.project)
        self.quotas.record(cursor, replace(ref, table=split_decorator(ref.table)[0]), daily=True)

    def _settle(self, key: JobKey, done: Job) -> None:
        with self._changed:
            live = self._live.pop(key)
            self._announce(done)
            self._finished[key] = done
            if len(self._finished) > _REMEMBERED:
                self._finished.popitem(last=False)
            self._changed.notify_all()
        for callback in live.callbacks:
            callback()
