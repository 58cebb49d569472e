"""Completed jobs on their way to the audit feed: announced at least once, in the order they ended.

An entry is made from the job's DONE row, so nothing but the job has to be stored: its line in the journal stays until
the entry was delivered, and a job found there with a DONE row is announced after a restart.
"""

from collections import deque
from collections.abc import Callable
from threading import Condition, Lock, Thread
from typing import Any

import structlog

from ingestd.localcloud.bigquery.audit import completion, legacy_completion
from ingestd.localcloud.bigquery.jobs import Job

log = structlog.get_logger(__name__)

Deliver = Callable[[dict[str, Any]], None]
_RETRY_SECONDS = 1.0


class Outbox:
    def __init__(self, deliver: Deliver | None, *, legacy: bool, threaded: bool) -> None:
        self._deliver = deliver
        self._legacy = legacy
        self._waiting: deque[tuple[Job, Callable[[], None]]] = deque()
        self._changed = Condition()
        self._delivering = Lock()
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

    def add(self, job: Job, delivered: Callable[[], None]) -> None:
        """Announce a job whose DONE row is committed; `delivered` is called once its entries are handed over."""
        if self._deliver is None:
            delivered()
            return
        with self._changed:
            self._waiting.append((job, delivered))
            self._changed.notify_all()

    def waiting(self) -> list[Job]:
        with self._changed:
            return [job for job, _ in self._waiting]

    def deliver(self) -> int:
        """Hand over what waits, oldest first; stops at the first refusal, which is tried again later."""
        if self._deliver is None:
            return 0
        count = 0
        with self._delivering:
            while self._waiting:
                job, delivered = self._waiting[0]
                for entry in self._entries(job):
                    self._deliver(entry)
                    count += 1
                with self._changed:
                    self._waiting.popleft()
                delivered()
        return count

    def _entries(self, job: Job) -> list[dict[str, Any]]:
        return [completion(job), legacy_completion(job)] if self._legacy else [completion(job)]

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopping)
                if self._stopping:
                    return
            try:
                self.deliver()
            except Exception:
                log.exception("bigquery.audit_delivery_failed")
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping, _RETRY_SECONDS)
