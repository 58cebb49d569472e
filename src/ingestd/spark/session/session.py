"""The daemon's Spark: one warm session, and a way to run a piece of work on it from the event loop.

`Spark.run(fn)` gives `fn` the session in a thread of its own, under a tag and in a pool that share the cores fairly.
What stays true for a caller:
- at most `max_jobs` pieces of work are on Spark at once; the others wait their turn;
- cancelling the await stops its Spark jobs, and returns only when nothing of it runs any more;
- a call that takes longer than `call_timeout` is cancelled like that and ends as `Transient`; one that does not stop
  costs the session, since whatever it still does must not meet the next attempt;
- when the session dies under it, the call ends with `SessionLost` (a `Transient`), and the next one waits for the new
  session; nothing of the old one runs any more, because its process was killed;
- only the four kinds of `ingestd.model.errors` come out.
"""

import asyncio
import itertools
import re
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from ingestd.model.errors import Fatal, IngestError, Transient
from ingestd.model.fair import FairSlots
from ingestd.spark.session import progress
from ingestd.spark.session.engine import Engine
from ingestd.spark.session.failures import SessionLost, translate
from ingestd.spark.session.supervisor import Living, State, Supervisor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger(__name__)

T = TypeVar("T")

_CANCEL_EVERY = 0.1  # seconds: a job that starts after the first cancel is cancelled, too
_CANCEL_PATIENCE = 60.0
_SETTLE_PATIENCE = 5.0
_END_PATIENCE = 10.0


@dataclass(slots=True)
class Call:
    """A piece of work on Spark."""

    tag: str
    pool: str
    began: float


class Spark:
    def __init__(
        self,
        supervisor: Supervisor,
        *,
        max_jobs: int,
        start_timeout: timedelta,
        call_timeout: timedelta,
        allowed: bool = True,
    ) -> None:
        self._supervisor = supervisor
        self._slots = FairSlots(max_jobs)
        self._threads = ThreadPoolExecutor(max_jobs, thread_name_prefix="spark:call")
        self._start_timeout = start_timeout
        self._call_timeout = call_timeout
        self._allowed = allowed
        self._numbers = itertools.count(1)
        self._calls: dict[int, Call] = {}

    @classmethod
    def over(cls, engine: Engine, *, max_jobs: int = 4, call_timeout: timedelta = timedelta(hours=1)) -> "Spark":
        """On a session that is up already and stays after us."""
        supervisor = Supervisor.over(engine)
        return cls(supervisor, max_jobs=max_jobs, start_timeout=timedelta(0), call_timeout=call_timeout)

    async def run(self, fn: Callable[["SparkSession"], T], *, tag: str, pool: str = "default", table: str = "") -> T:
        """What `fn(session)` returns, computed in a thread; `tag` names the work in Spark, `pool` whose cores it uses.

        `fn` gets a session whose temporary views and SQL settings are its own. Work of one `table` never has all of
        Spark; work of none stands for itself.
        """
        if not self._allowed:
            raise Fatal("spark.start is `never`, and this needs Spark")
        whose = table.partition("$")[0] or tag
        with progress.WAITING.track_inprogress():
            await self._slots.acquire(whose)
        try:
            with progress.WAITING.track_inprogress():
                living = await self._supervisor.ready(self._start_timeout)
            try:
                async with asyncio.timeout(self._call_timeout.total_seconds()) as limit:
                    return await self._run(living, fn, tag, pool, limit)
            except TimeoutError:
                raise Transient(
                    f"Spark was not done with {tag} after {self._call_timeout} (spark.call_timeout)"
                ) from None
        finally:
            self._slots.release(whose)

    async def _run(
        self, living: Living, fn: Callable[["SparkSession"], T], tag: str, pool: str, limit: asyncio.Timeout
    ) -> T:
        number = next(self._numbers)
        # Two calls never share a tag, since cancelling one must not reach the other. A comma ends a tag in Spark.
        call = Call(f"{_plain(tag)}-{number}", _plain(pool), time.monotonic())
        engine = living.engine

        def work() -> T:
            try:
                with engine.tagged(call.tag, call.pool) as session:
                    return fn(session)
            except IngestError:
                raise
            except Exception as error:
                failure = translate(error)  # here: it asks the JVM, which may be about to hang
                if isinstance(failure, Fatal) and not living.lost.is_set():
                    log.exception("spark.call_broke", tag=call.tag)
                raise failure from error

        self._calls[number] = call
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        lost = asyncio.create_task(living.lost.wait())
        outcome = "failed"
        try:
            with progress.RUNNING.track_inprogress():
                both: set[asyncio.Future[Any]] = {future, lost}
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not future.done():
                await _settled(future)
                await _ended(living)
            result = _result(future, living)
        except asyncio.CancelledError:
            outcome = "timed out" if limit.expired() else "cancelled"
            if not future.done():
                await _to_its_end(self._cancel(living, call, future))
            raise
        except IngestError as failure:
            if not living.lost.is_set() and not isinstance(failure, SessionLost):
                raise
            outcome = "lost"
            living.suspect.set()
            await _ended(living)
            raise SessionLost(f"the Spark session {living.why}" if living.lost.is_set() else str(failure)) from failure
        else:
            outcome = "succeeded"
            return result
        finally:
            lost.cancel()
            del self._calls[number]
            progress.CALLS.labels(outcome).inc()
            progress.SECONDS.observe(time.monotonic() - call.began)

    async def _cancel(self, living: Living, call: Call, future: "asyncio.Future[Any]") -> None:
        """Stop the call's jobs, the ones it has yet to start included, until its thread is done."""
        deadline = time.monotonic() + _CANCEL_PATIENCE
        while not future.done() and not living.lost.is_set() and time.monotonic() < deadline:
            with suppress(Exception):  # a session that does not answer is the supervisor's business
                async with asyncio.timeout(1):
                    await living.ask(lambda: living.engine.cancel(call.tag))
            await asyncio.wait({future}, timeout=_CANCEL_EVERY)
        await _settled(future)
        if not future.done():
            if not living.lost.is_set():
                living.stuck.set()
            await _ended(living)
        log.info("spark.cancelled", tag=call.tag, ended=future.done())

    @property
    def ready(self) -> bool:
        return self._supervisor.state is State.READY

    def want(self) -> None:
        """Start the session in the background, if it is not up."""
        if self._allowed:
            self._supervisor.want()

    @property
    def problem(self) -> str:
        """Why the last session did not come up or was lost; empty while all is well."""
        return self._supervisor.problem

    def missing(self) -> str:
        """What keeps Spark from working; empty when it is ready, or nobody asked for it."""
        if not self._supervisor.wanted or self.ready:
            return ""
        problem = self._supervisor.problem
        return f"spark: {self._supervisor.state}" + (f" ({problem})" if problem else "")

    def status(self) -> dict[str, Any]:
        """For `/status`: the session, and what it works on."""
        supervisor = self._supervisor
        living = supervisor.living
        work = supervisor.work
        return {
            "state": supervisor.state,
            "problem": supervisor.problem,
            "application": living.engine.application if living else "",
            "jobs": work.jobs,
            "stages": work.stages,
            "tasks": work.tasks,
            "tasks_done": work.tasks_done,
            "calls": [
                {"tag": call.tag, "pool": call.pool, "seconds": round(time.monotonic() - call.began, 1)}
                for call in self._calls.values()
            ],
        }

    async def supervise(self) -> None:
        """The root task that keeps the session up; ends after `close`."""
        try:
            await self._supervisor.run()
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """End the session when the daemon drains: call it when no work is left."""
        self._supervisor.close()


def _result(future: "asyncio.Future[T]", living: Living) -> T:
    if not future.done():
        raise SessionLost(f"the Spark session {living.why}")
    return future.result()


async def _settled(future: "asyncio.Future[Any]") -> None:
    """Wait a little for a thread whose session was taken from it; its result does not matter any more."""
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.wait({future}, timeout=_SETTLE_PATIENCE)


async def _ended(living: Living) -> None:
    """Wait until nothing of a lost session runs any more: the caller will do its work again elsewhere."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_PATIENCE):
            await living.ended.wait()


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """However often its caller is cancelled meanwhile: whoever left early would meet what still runs."""
    task = asyncio.create_task(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()


def _plain(text: str) -> str:
    return re.sub(r"[^\w.:/-]+", "_", text) or "default"
