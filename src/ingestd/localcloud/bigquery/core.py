"""The local BigQuery: one database, its jobs and its REST semantics, in plain synchronous Python.

`BigQueryCore` is what the server speaks to and what simulations drive directly. With `settings.workers == 0` nothing
happens by itself: `run_pending` moves the jobs on, as far as the injected clock allows.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ingestd.localcloud.bigquery import query_job
from ingestd.localcloud.bigquery.catalog import Catalog
from ingestd.localcloud.bigquery.database import Database
from ingestd.localcloud.bigquery.execution import rollback
from ingestd.localcloud.bigquery.files.objects import Objects
from ingestd.localcloud.bigquery.job_api import Inserted, JobApi
from ingestd.localcloud.bigquery.jobs import Job, JobKey, JobState, JobType
from ingestd.localcloud.bigquery.metadata import Metadata
from ingestd.localcloud.bigquery.mirror import Session
from ingestd.localcloud.bigquery.outbox import Deliver, Outbox
from ingestd.localcloud.bigquery.pending import PendingJobs
from ingestd.localcloud.bigquery.resources import Table, TableKind
from ingestd.localcloud.bigquery.runner import JobRunner
from ingestd.localcloud.bigquery.settings import BigQuerySettings
from ingestd.localcloud.bigquery.sql_surroundings import detect_external
from ingestd.localcloud.bigquery.tabledata import TableData
from ingestd.localcloud.bigquery.uploads import Uploads
from ingestd.localcloud.faults import Hooks
from ingestd.model.clock import Clock, SystemClock
from ingestd.model.schema import Schema


class BigQueryCore:
    def __init__(
        self,
        root: Path | None,
        *,
        project: str,
        objects: Objects,
        clock: Clock | None = None,
        hooks: Hooks | None = None,
        on_job_done: Deliver | None = None,
        settings: BigQuerySettings | None = None,
    ) -> None:
        self.project = project
        self.clock = clock or SystemClock()
        self.hooks = hooks or Hooks("bigquery")
        self.settings = settings or BigQuerySettings()
        self.database = Database(root)
        self.uploads = Uploads(objects, root)
        self.outbox = Outbox(on_job_done, legacy=self.settings.legacy_audit, threaded=self.settings.workers > 0)
        self._pending = PendingJobs(root)
        self.runner = JobRunner(
            self.database,
            project=project,
            clock=self.clock,
            hooks=self.hooks,
            objects=self.uploads,
            settings=self.settings,
            outbox=self.outbox,
            pending=self._pending,
        )
        self.metadata = Metadata(
            reading=self.reading,
            writing=self.writing,
            describe=self._describe,
            hooks=self.hooks,
            quotas=self.runner.quotas,
            settings=self.settings,
        )
        self.tabledata = TableData(reading=self.reading, writing=self.writing, hooks=self.hooks, settings=self.settings)
        self.jobs = JobApi(
            self.database,
            self.runner,
            clock=self.clock,
            hooks=self.hooks,
            settings=self.settings,
            reading=self.reading,
        )
        self.uploads.keep_only({job.upload for job in self.runner.left_over})
        self.outbox.start()
        self.runner.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.runner.stop()
        self.outbox.stop()
        self._pending.close()
        self.database.close()

    @contextmanager
    def reading(self) -> Iterator[Catalog]:
        """A consistent look at the catalog and the rows; writers do not wait for it."""
        session = self.database.session()
        try:
            yield self._catalog(session)
        finally:
            session.close()

    def _catalog(self, session: Session) -> Catalog:
        return Catalog(session.conn, project=self.project, clock=self.clock, changes=session.changes)

    @contextmanager
    def writing(self) -> Iterator[Catalog]:
        """One change outside of a job, in one transaction."""
        with self.runner.data_lock:
            session = self.database.session()
            try:
                session.begin()
                yield self._catalog(session)
                session.commit()
            except BaseException:
                rollback(session.conn)
                raise
            finally:
                session.close()

    def insert_job(self, project: str, resource: Mapping[str, Any]) -> Job:
        return self.jobs.insert(project, resource).job

    def upload_job(self, project: str, resource: Mapping[str, Any], data: bytes) -> Job:
        """A load job whose rows come with the request."""
        uri = self.uploads.keep(data)
        try:
            inserted = self.jobs.insert(project, resource, upload=uri)
        except BaseException:
            self.uploads.forget(uri)
            raise
        forget: Callable[[], None] = lambda: self.uploads.forget(uri)  # noqa: E731
        if not self.runner.on_done(inserted.key, forget):
            forget()
        return inserted.job

    def run_pending(self) -> int:
        return self.runner.run_pending()

    def wait(self, job: Job | JobKey, timeout: float | None = None) -> Job:
        """The job once it is DONE (or as it stands after the timeout)."""
        key = job.key if isinstance(job, Job) else job
        self.runner.wait(key, timeout)
        return self.jobs.get(key.project, key.job_id, key.location)

    def query(self, project: str, request: Mapping[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """jobs.query, waiting for the answer."""
        inserted: Inserted = self.jobs.start_query(project, request)
        if inserted.job.dry_run:
            return self.jobs.dry_run_response(inserted.job)
        self.runner.wait(inserted.key, timeout)
        return self.jobs.query_response(inserted.key, request)

    def _describe(self, catalog: Catalog, table: Table) -> Schema:
        """The schema of a view's query or of an external table's files."""
        now = self.clock.now()
        key = JobKey(table.ref.project, self.settings.default_location, "describe")
        job = Job(key, JobType.QUERY, {"query": {}}, now, self.settings.user_email, JobState.RUNNING)
        run = self.runner.prepare(job, catalog)
        if table.kind is TableKind.EXTERNAL:
            return detect_external(run, table.external or {}, table.schema)
        return query_job.plan(run, table.view_query).schema or ()
