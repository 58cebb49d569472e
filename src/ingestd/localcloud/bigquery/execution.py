"""One run of one job: its cursor, its transaction, and the commit that makes its work and its DONE row one fact.

Invariants: rows change only inside `writing`, which one job at a time holds; `finish` writes the DONE row into the same
transaction; a job that was cancelled before `finish` leaves nothing behind.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock, RLock
from typing import Any

import duckdb

from ingestd.formats.errors import BigQueryError, ErrorProto
from ingestd.localcloud.bigquery.catalog import Catalog
from ingestd.localcloud.bigquery.commit_watch import clear, mark
from ingestd.localcloud.bigquery.files.objects import Objects
from ingestd.localcloud.bigquery.jobs import Job, JobStore, KnownKeys, QueryResult
from ingestd.localcloud.bigquery.quota import Quotas
from ingestd.localcloud.bigquery.settings import BigQuerySettings
from ingestd.model.clock import Clock


class WriterLock:
    """Held by whoever changes rows or metadata. `generation` moves whenever someone has held it."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._depth = 0
        self.generation = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.generation += 1
        self._lock.release()


class Cancelled(Exception):  # noqa: N818 - a wish granted, not a defect
    """The job was asked to stop before its work was committed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job reports besides its rows."""

    statistics: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[ErrorProto] = ()
    configuration: Mapping[str, Any] | None = None
    result: QueryResult | None = None


@dataclass(slots=True)
class Run:
    """What a job's code works with."""

    job: Job
    conn: duckdb.DuckDBPyConnection
    catalog: Catalog
    objects: Objects
    clock: Clock
    settings: BigQuerySettings
    data_lock: WriterLock
    quotas: Quotas
    known: KnownKeys
    jobs: Callable[[], Iterable[Mapping[str, Any]]]  # the project's jobs, for INFORMATION_SCHEMA.JOBS
    _cancelled: bool = False
    _gate: Lock = field(default_factory=Lock)
    finished: Job | None = None
    applied: int = 0  # transactions the SQL engine committed for this job
    _sealed: bool = False

    def cancel(self) -> None:
        """Ask the run to stop; once its commit has begun this changes nothing."""
        with self._gate:
            if self.finished is None and not self._sealed:
                self._cancelled = True
                self.conn.interrupt()

    def check_cancelled(self) -> None:
        if self._cancelled:
            raise Cancelled

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def applying(self, *, last: bool) -> None:
        """The SQL engine is about to commit a change. After the last one the job can no longer be cancelled."""
        if self.finished is not None:
            return  # the DONE row is part of the same transaction
        with self._gate:
            self.check_cancelled()
            self._sealed = last
        mark(self.conn, self.job.key)
        self.applied += 1

    @contextmanager
    def writing(self) -> Iterator[Catalog]:
        """The only place where a job changes rows: one transaction, one writer at a time."""
        with self.data_lock:
            self.check_cancelled()
            self.conn.begin()
            try:
                yield self.catalog
                self.conn.commit()
            except BaseException:
                self.finished = None
                rollback(self.conn)
                raise

    def finish(self, outcome: Outcome) -> None:
        """Write the DONE row into the open transaction."""
        with self._gate:
            self.check_cancelled()
            self.finished = self.job.done(
                self.clock.now(),
                warnings=outcome.warnings,
                statistics=outcome.statistics,
                configuration=outcome.configuration,
                result=outcome.result,
            )
        JobStore(self.conn).insert(self.finished)
        if self.applied:
            clear(self.conn, self.job.key)


def rollback(conn: duckdb.DuckDBPyConnection) -> None:
    """Leave the transaction, if one is open."""
    try:
        conn.rollback()
    except duckdb.TransactionException:
        return


def settle(conn: duckdb.DuckDBPyConnection) -> None:
    """Finish what a `fetchone` left open: DuckDB streams Arrow only from a connection with no open result."""
    conn.execute("SELECT 1").fetchall()


def as_bigquery(error: duckdb.Error) -> BigQueryError:
    """A DuckDB complaint that no one translated: the caller's data or statement does not fit."""
    first = str(error).partition("\n")[0]
    return BigQueryError("invalid", first)
