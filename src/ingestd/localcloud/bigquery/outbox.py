"""Audit entries on their way out: stored with the job that ended, delivered at least once, then forgotten."""

from collections.abc import Callable
from threading import Condition, Lock, Thread
from typing import Any

import duckdb
import orjson
import structlog

from ingestd.localcloud.bigquery.audit import completion, legacy_completion
from ingestd.localcloud.bigquery.database import Database
from ingestd.localcloud.bigquery.jobs import Job
from ingestd.localcloud.bigquery.resources import millis

log = structlog.get_logger(__name__)

Deliver = Callable[[dict[str, Any]], None]
_RETRY_SECONDS = 1.0


class Outbox:
    def __init__(self, database: Database, deliver: Deliver | None, *, legacy: bool, threaded: bool) -> None:
        self._database = database
        self._deliver = deliver
        self._legacy = legacy
        self._changed = Condition()
        self._delivering = Lock()
        self._pending = True  # an earlier process may have left entries behind
        self._stopping = False
        self._thread: Thread | None = None
        if deliver is not None and threaded:
            self._thread = Thread(target=self._loop, name="bigquery-audit", daemon=True)

    def start(self) -> None:
        if self._thread is not None:
            self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def store(self, conn: duckdb.DuckDBPyConnection, job: Job) -> None:
        """Add the entries of a finished job to the open transaction."""
        if self._deliver is None:
            return
        shapes = [completion(job), legacy_completion(job)] if self._legacy else [completion(job)]
        for entry in shapes:
            conn.execute(
                'INSERT INTO "__catalog".outbox VALUES (?, ?, ?)',
                [entry["insertId"], millis(job.ended or job.created), orjson.dumps(entry).decode()],
            )

    def wake(self) -> None:
        """Committed entries are waiting."""
        with self._changed:
            self._pending = True
            self._changed.notify_all()

    def deliver(self) -> int:
        """Hand over what is stored, oldest first; stops at the first refusal, which is tried again later."""
        if self._deliver is None:
            return 0
        with self._delivering:
            cursor = self._database.cursor()
            delivered: list[str] = []
            try:
                rows = cursor.execute(
                    'SELECT entry_id, entry FROM "__catalog".outbox ORDER BY created, rowid'
                ).fetchall()
                try:
                    for entry_id, entry in rows:
                        self._deliver(orjson.loads(entry))
                        delivered.append(entry_id)
                finally:
                    if delivered:
                        cursor.execute(
                            'DELETE FROM "__catalog".outbox WHERE entry_id IN (SELECT unnest(?))', [delivered]
                        )
            finally:
                cursor.close()
            return len(delivered)

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._stopping)
                if self._stopping:
                    return
                self._pending = False
            try:
                self.deliver()
            except Exception:
                log.exception("bigquery.audit_delivery_failed")
                with self._changed:
                    self._pending = True
                    self._changed.wait_for(lambda: self._stopping, _RETRY_SECONDS)
