"""Keeps one Spark session up: starts it when wanted, notices when it is dead or hung, replaces it.

    off ──wanted──► starting ──up and proven──► ready ──dead, hung, stopped──► broken ──pause──► starting
                       └───── did not come up, or prepares nothing ────────────┘
    any ──close──► closed

A start that nobody waits for any more, or that takes longer than it may, is called off: its process is killed,
wherever it had got to.

A session is given up in one order only: first `lost` is set (calls that wait for it end with `SessionLost`), then the
process is killed (which frees their threads), then PySpark's memory of it is cleared, then the next one may start: two
sessions never live at once. Pauses double up to a bound, and start over after a session that was ready for longer than
that bound. Nothing of a session outlives it but files: attempts under way start again in a new folder.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar

import structlog

from ingestd.model.errors import Fatal, IngestError, Throttled, Transient
from ingestd.spark.session import progress
from ingestd.spark.session.engine import Engine, Work
from ingestd.spark.session.failures import SessionLost, explain, translate
from ingestd.spark.session.startup import CalledOff, Startup

log = structlog.get_logger(__name__)

A = TypeVar("A")
T = TypeVar("T")

_LOOK_EVERY = 0.25  # seconds; only asks the kernel whether the process is there
_CALL_OFF_PATIENCE = 5.0
_CLOSE_PATIENCE = 8.0  # in order, a session ends in a second or two
_KILL_PATIENCE = 15.0


class State(StrEnum):
    OFF = "off"
    STARTING = "starting"
    READY = "ready"
    BROKEN = "broken"
    CLOSED = "closed"


class Living:
    """A session that is up, and the news of its end."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.lost = asyncio.Event()
        self.ended = asyncio.Event()  # its process is gone, too
        self.why = ""
        self.suspect = asyncio.Event()  # a call found it dead: look at once
        self.stuck = asyncio.Event()  # a call cannot be stopped: nothing else ends it
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="spark:control")

    async def ask(self, fn: Callable[[], None]) -> None:
        """A short question to the session, beside the calls' own threads."""
        await asyncio.get_running_loop().run_in_executor(self._threads, fn)

    async def look(self) -> Work:
        """What it works on, if it answers."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, _look, self.engine)

    def release(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class Pauses:
    """How long to wait before the next session: a failure that comes back at once is not helped by hurry."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def after(self, lived: float) -> float:
        """The pause after a session that was ready for so many seconds."""
        if lived > self._longest:
            self._next = self._first
        pause = min(self._next, self._longest)
        self._next = 2 * pause
        return pause


class Supervisor:
    def __init__(
        self,
        open_engine: Callable[[Startup], Engine],
        warm_up: Callable[[Engine], None] | None = None,
        *,
        start_timeout: timedelta,
        heartbeat: timedelta,
        heartbeat_timeout: timedelta,
        restart_first: timedelta,
        restart_longest: timedelta,
    ) -> None:
        self._open = open_engine
        self._warm_up = warm_up
        self._start_timeout = start_timeout
        self._heartbeat = heartbeat.total_seconds()
        self._heartbeat_timeout = heartbeat_timeout.total_seconds()
        self._pauses = Pauses(restart_first.total_seconds(), restart_longest.total_seconds())
        self._wanted = asyncio.Event()
        self._changed = asyncio.Condition()
        self._stopping = asyncio.Event()
        self._opening = threading.Lock()
        self.state = State.OFF
        self.problem = ""
        self.living: Living | None = None
        self.work = Work()

    @classmethod
    def over(cls, engine: Engine) -> "Supervisor":
        """A session that somebody else keeps: ready from the start, not watched, and not ended by us."""
        hour = timedelta(hours=1)
        kept = cls(
            lambda _: engine,
            start_timeout=hour,
            heartbeat=hour,
            heartbeat_timeout=hour,
            restart_first=hour,
            restart_longest=hour,
        )
        kept.state = State.READY
        kept.living = Living(engine)
        kept.want()
        return kept

    def want(self) -> None:
        """Somebody needs Spark: start it in the background."""
        self._wanted.set()
        progress.WANTED.set(1)

    @property
    def wanted(self) -> bool:
        return self._wanted.is_set()

    async def ready(self, patience: timedelta) -> Living:
        """The living session, waiting for it to come up; an error that says what keeps it from that."""
        self.want()
        if self.state is State.READY and self.living is not None:
            return self.living
        async with self._changed:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience.total_seconds()):
                    await self._changed.wait_for(lambda: self.state in (State.READY, State.CLOSED) or self._hopeless)
        if self.state is State.READY and self.living is not None:
            return self.living
        if self.state is State.CLOSED:
            raise Transient("the daemon is stopping")
        if self._hopeless:
            raise Fatal(self.problem)
        raise Transient(f"no Spark session yet ({self.state}){': ' if self.problem else ''}{self.problem}")

    @property
    def _hopeless(self) -> bool:
        """Starting failed in a way that only a person can mend."""
        return self.state is State.BROKEN and self._fatal

    _fatal = False

    async def run(self) -> None:
        """The root task: ends after `close`, with nothing left behind."""
        try:
            while await self._either(self._wanted):
                living = await self._start()
                began = time.monotonic()
                if living is not None:
                    reason = await self._watch(living)
                    await self._give_up(living, reason)
                    if self._stopping.is_set():
                        break
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pauses.after(time.monotonic() - began)):
                        await self._stopping.wait()
                        break
        finally:
            if self.living is not None:
                self.living.why = "stopped"
                cold = self.state is State.STARTING  # nobody has used it yet: there is nothing to put in order
                await asyncio.shield(self._end(self.living, orderly=not cold))
            await self._enter(State.CLOSED)

    def close(self) -> None:
        """End the session in an orderly way; `run` returns when that is done."""
        self._stopping.set()

    async def _either(self, event: asyncio.Event) -> bool:
        """Wait for the event; False when the supervisor is closed instead."""
        if self._stopping.is_set():
            return False
        waits = [asyncio.create_task(event.wait()), asyncio.create_task(self._stopping.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        return not self._stopping.is_set()

    async def _start(self) -> Living | None:
        """A session that is up and warm; None when it did not come up, or the daemon stops."""
        await self._enter(State.STARTING)
        log.info("spark.starting")
        began = time.monotonic()
        try:
            engine = await self._opened()
            living = Living(engine)
            self.living = living
            if self._warm_up is not None:
                await self._warm(living)
        except Exception as error:  # noqa: BLE001 - whatever it was, the next try may do
            if self._stopping.is_set():
                log.info("spark.not_wanted", why="the daemon stops", seconds=_since(began))
                return None  # what is up of it is ended by `run`
            self._fatal = isinstance(error, Fatal)
            self.problem = str(error)
            progress.LOST.labels("not started").inc()
            log.error("spark.not_started", error=self.problem, seconds=_since(began))  # noqa: TRY400
            if self.living is not None:
                await self._end(self.living, orderly=False)
            await self._enter(State.BROKEN)
            return None
        seconds = time.monotonic() - began
        self.problem = ""
        progress.STARTED.inc()
        progress.START_SECONDS.set(seconds)
        log.info("spark.ready", application=engine.application, seconds=round(seconds, 1))
        await self._enter(State.READY)
        return living

    async def _opened(self) -> Engine:
        """The engine, opened in a thread. When that takes too long, `Transient`; when the daemon stops first,
        `CalledOff`: either way nothing of it is left."""
        startup = Startup()
        opening = _in_thread(self._open_alone, startup)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            both: set[asyncio.Future[Any]] = {opening, stopping}
            await asyncio.wait(both, timeout=self._start_timeout.total_seconds(), return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                return opening.result()
            await _call_off(startup, opening)
            if not stopping.done():
                raise Transient(self._too_late("up", await _in_thread(startup.last_words)))
        except asyncio.CancelledError:
            await asyncio.shield(_call_off(startup, opening))
            raise
        finally:
            stopping.cancel()
        raise CalledOff

    def _open_alone(self, startup: Startup) -> Engine:
        """One start at a time: PySpark remembers one session, and a start that was called off still tidies up."""
        with self._opening:
            startup.check()
            engine = _in_our_words(self._open, startup)
            try:
                startup.check()
            except CalledOff:
                engine.kill()  # it came up when nobody waited for it any more
                raise
            return engine

    async def _warm(self, living: Living) -> None:
        """Warm-up ends early when the session dies, when it takes too long, or when the daemon stops under it."""
        assert self._warm_up is not None
        warming = _in_thread(_in_our_words, self._warm_up, living.engine)
        # Whoever stops waiting for it does not care how it ends, and nobody shall complain that none asked.
        warming.add_done_callback(lambda done: done.cancelled() or done.exception())
        watching = asyncio.create_task(self._watch(living))
        try:
            both: set[asyncio.Future[Any]] = {warming, watching}
            await asyncio.wait(both, timeout=self._start_timeout.total_seconds(), return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                last_words = await _in_thread(living.engine.last_words)
                raise Transient(f"the session {watching.result()} while it warmed up: {last_words}")
            if not warming.done():
                raise Transient(self._too_late("warm", await _in_thread(living.engine.last_words)))
        finally:
            watching.cancel()
        failure = warming.exception()
        if isinstance(failure, SessionLost):
            raise failure
        if failure is not None:
            # A session that cannot do its first work is not ready, whatever it looks like.
            kind = Transient if isinstance(failure, Transient | Throttled) else Fatal
            raise kind(f"Spark is up, but no batch can be prepared on it: {failure}") from failure

    def _too_late(self, what: str, last_words: str) -> str:
        return (
            f"Spark was not {what} after {self._start_timeout} (spark.start_timeout): {last_words or 'it was silent'}"
        )

    async def _watch(self, living: Living) -> str:
        """Returns the reason when the session has to be given up: stopped, died, hung."""
        loop = asyncio.get_running_loop()
        answered = loop.time()
        beat: asyncio.Task[None] | None = None
        next_beat = loop.time() + self._heartbeat
        try:
            while not self._stopping.is_set():
                if not living.engine.alive:
                    return "died"
                if living.stuck.is_set():
                    living.why = "a call could not be stopped"
                    return "hung"
                if living.suspect.is_set():
                    living.suspect.clear()
                    next_beat = loop.time()
                if beat is not None and beat.done():
                    error = beat.exception()
                    if error is not None:
                        living.why = str(error)
                        return "died"
                    beat = None
                    answered = loop.time()
                if beat is None and loop.time() >= next_beat:
                    next_beat = loop.time() + self._heartbeat
                    answered = loop.time()
                    beat = asyncio.create_task(self._beat(living))
                if beat is not None and loop.time() - answered > self._heartbeat_timeout:
                    return "hung"
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_EVERY):
                        await living.suspect.wait()
            return "stopped"
        finally:
            if beat is not None:
                beat.cancel()

    async def _beat(self, living: Living) -> None:
        self.work = await living.look()
        progress.show(self.work)

    async def _give_up(self, living: Living, reason: str) -> None:
        last_words = await _in_thread(living.engine.last_words)
        details = "out of memory" if "OutOfMemoryError" in last_words else living.why
        living.why = reason + (f": {details}" if details else "")
        if reason != "stopped":
            progress.LOST.labels(reason).inc()
            log.error("spark.lost", reason=living.why, last_words=last_words)
            self.problem = f"the session {living.why}"
            self._fatal = False
            await self._enter(State.BROKEN)
        await self._end(living, orderly=reason == "stopped")

    async def _end(self, living: Living, *, orderly: bool) -> None:
        living.lost.set()
        self.living = None
        self.work = Work()
        progress.show(self.work)
        engine = living.engine
        try:
            if not orderly or not await _done(engine.close, _CLOSE_PATIENCE):
                if orderly:
                    progress.LOST.labels("hung").inc()
                    log.warning("spark.not_closed", application=engine.application, patience=_CLOSE_PATIENCE)
                if not await _done(engine.kill, _KILL_PATIENCE):
                    log.error("spark.not_killed", application=engine.application, patience=_KILL_PATIENCE)
        finally:
            living.release()
            living.ended.set()

    async def _enter(self, state: State) -> None:
        async with self._changed:
            self.state = state
            progress.UP.set(1 if state is State.READY else 0)
            self._changed.notify_all()


def _since(began: float) -> float:
    return round(time.monotonic() - began, 1)


def _in_our_words(fn: Callable[[A], T], argument: A) -> T:
    """Failures as the daemon speaks of them. In the thread that met them: the words may have to be asked of the JVM."""
    try:
        return fn(argument)
    except IngestError:
        raise
    except Exception as error:
        raise translate(error) from error


def _look(engine: Engine) -> Work:
    try:
        engine.beat()
        return engine.work()
    except Exception as error:
        raise Transient(explain(error)) from error  # the same


def _in_thread(fn: Callable[..., T], *arguments: Any) -> "asyncio.Future[T]":
    """In a thread of its own, which nobody has to wait for: what hangs in it keeps neither the loop nor the exit."""
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()

    def work() -> None:
        try:
            outcome.set_result(fn(*arguments))
        except BaseException as error:  # noqa: BLE001 - it is told to whoever waits
            outcome.set_exception(error)

    threading.Thread(target=work, name="spark:start", daemon=True).start()
    return asyncio.wrap_future(outcome)


async def _done(fn: Callable[[], None], patience: float) -> bool:
    """Whether it was done in time; a failure of it is raised."""
    doing = _in_thread(fn)
    doing.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.wait({doing}, timeout=patience)
    if doing.done():
        doing.result()
    return doing.done()


async def _call_off(startup: Startup, opening: "asyncio.Future[Engine]") -> None:
    """Kill what is being started; the thread that waits for it ends with that, and what it says does not matter."""
    opening.add_done_callback(lambda done: done.cancelled() or done.exception())
    await _in_thread(startup.call_off)
    await asyncio.wait({opening}, timeout=_CALL_OFF_PATIENCE)
    if opening.done() and not opening.cancelled() and opening.exception() is None:
        await _in_thread(opening.result().kill)  # it was up at the very same moment
