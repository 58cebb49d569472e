"""Sessions that hang or die at the worst moments. The engine is a stand-in: a real one would need minutes for them."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from tests.unit.spark.engines import Fake

from ingestd.model.errors import BadInput, Fatal, Transient
from ingestd.spark.session import supervisor as module
from ingestd.spark.session.engine import Engine
from ingestd.spark.session.progress import LOST, UP
from ingestd.spark.session.startup import Startup
from ingestd.spark.session.supervisor import Pauses, State, Supervisor

SHORT, LONG = timedelta(milliseconds=20), timedelta(minutes=1)


def supervisor(
    opened: Callable[[Startup], Engine], warm_up: Callable[[Engine], None] | None = None, **changes: timedelta
) -> Supervisor:
    given = {"heartbeat": SHORT, "heartbeat_timeout": LONG, "restart_first": SHORT, "restart_longest": SHORT}
    return Supervisor(opened, warm_up, **{"start_timeout": LONG, **given, **changes})


@asynccontextmanager
async def running(supervisor: Supervisor) -> AsyncIterator[Supervisor]:
    async with asyncio.TaskGroup() as roots:
        roots.create_task(supervisor.run())
        try:
            yield supervisor
        finally:
            supervisor.close()


def not_started() -> float:
    return float(LOST.labels("not started")._value.get())


async def test_a_start_that_hangs_is_called_off_and_the_next_one_comes_up() -> None:
    hung = threading.Event()
    problems: list[str] = []

    def opened(startup: Startup) -> Engine:
        if not hung.is_set():
            startup.began(hung.set, lambda: "listening, but to nobody")
            hung.wait(60)
            raise ConnectionError("its process was killed")
        problems.append(kept.problem)
        return Fake()

    kept, before = supervisor(opened, start_timeout=timedelta(milliseconds=200)), not_started()
    async with running(kept):
        assert (await kept.ready(LONG)).engine.alive
    assert not_started() > before
    assert problems[0] == "Spark was not up after 0:00:00.200000 (spark.start_timeout): listening, but to nobody"


async def test_a_session_that_comes_up_after_it_was_given_up_is_ended_and_not_met_by_the_next() -> None:
    made: list[Fake] = []
    given_up = threading.Event()

    def opened(startup: Startup) -> Engine:
        assert all(not engine.alive for engine in made), "two sessions at once"
        made.append(Fake())
        if len(made) == 1:
            startup.began(given_up.set)
            given_up.wait(60)
        return made[-1]

    kept = supervisor(opened, start_timeout=timedelta(milliseconds=200))
    async with running(kept):
        assert (await kept.ready(LONG)).engine is not made[0]
        assert made[0].killed


async def test_a_warm_up_that_hangs_costs_the_session() -> None:
    made: list[Fake] = []

    def opened(_: Startup) -> Engine:
        made.append(Fake())
        return made[-1]

    def warm_up(engine: Engine) -> None:
        if engine is made[0]:
            made[0].ended.wait(60)

    kept, before = supervisor(opened, warm_up, start_timeout=timedelta(milliseconds=200)), not_started()
    async with running(kept):
        assert (await kept.ready(LONG)).engine is not made[0]
        assert made[0].killed
    assert not_started() > before


@pytest.mark.parametrize(
    ("failure", "raised"),
    [(Fatal("no pandas"), Fatal), (BadInput("no such column"), Fatal), (OSError(28, "full"), Transient)],
)
async def test_a_session_that_prepares_nothing_is_not_ready_and_says_why(
    failure: Exception, raised: type[Exception]
) -> None:
    engine = Fake()

    def warm_up(_: Engine) -> None:
        raise failure

    kept = supervisor(lambda _: engine, warm_up, restart_first=LONG, restart_longest=LONG)
    async with running(kept):
        with pytest.raises(raised, match=r"no batch can be prepared on it: .*(no pandas|no such column|full)"):
            await kept.ready(timedelta(seconds=5) if raised is Fatal else timedelta(seconds=1))
        assert kept.state is State.BROKEN
        assert UP._value.get() == 0
        assert engine.killed


async def test_a_warm_up_that_nothing_ends_does_not_keep_the_next_session_from_coming() -> None:
    made: list[Fake] = []
    never = threading.Event()

    def opened(_: Startup) -> Engine:
        made.append(Fake())
        return made[-1]

    def warm_up(engine: Engine) -> None:
        if engine is made[0]:
            never.wait(60)

    kept = supervisor(opened, warm_up, start_timeout=timedelta(milliseconds=200))
    try:
        async with running(kept):
            assert (await kept.ready(LONG)).engine is not made[0]
    finally:
        never.set()


async def test_nobody_watches_a_session_whose_warm_up_was_cancelled() -> None:
    engine = Fake()

    def warm_up(_: Engine) -> None:
        engine.ended.wait(60)

    kept = supervisor(lambda _: engine, warm_up)
    kept.want()
    root = asyncio.create_task(kept.run())
    while kept.living is None:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.01)
    root.cancel()
    await asyncio.wait({root})
    await asyncio.sleep(0)
    assert kept.state is State.CLOSED
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_session_that_does_not_close_is_killed_and_the_daemon_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CLOSE_PATIENCE", 0.1)

    class Hung(Fake):
        def close(self) -> None:
            self.ended.wait(60)

    engine = Hung()
    kept = supervisor(lambda _: engine)
    async with running(kept):
        await kept.ready(LONG)
    assert kept.state is State.CLOSED
    assert engine.killed


async def test_the_daemon_ends_even_when_nothing_ends_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CLOSE_PATIENCE", 0.1)
    monkeypatch.setattr(module, "_KILL_PATIENCE", 0.1)
    never = threading.Event()

    class Undead(Fake):
        def close(self) -> None:
            never.wait(60)

        kill = close

    kept = supervisor(lambda _: Undead())
    try:
        async with running(kept):
            await kept.ready(LONG)
        assert kept.state is State.CLOSED
    finally:
        never.set()


async def test_sessions_that_die_as_soon_as_they_are_ready_are_started_ever_more_slowly() -> None:
    starts: list[float] = []

    class Frail(Fake):
        alive = False

    def opened(_: Startup) -> Engine:
        starts.append(time.monotonic())
        return Frail()

    kept = supervisor(opened, restart_first=SHORT, restart_longest=LONG)
    kept.want()
    async with running(kept):
        while len(starts) < 5:
            await asyncio.sleep(0.01)
    assert starts[4] - starts[0] >= (1 + 2 + 4 + 8) * SHORT.total_seconds()


def test_pauses_start_over_only_after_a_session_that_lived_for_long() -> None:
    pauses = Pauses(first=1, longest=10)
    assert [pauses.after(lived) for lived in (0, 3, 10, 0, 0, 0)] == [1, 2, 4, 8, 10, 10]
    assert [pauses.after(lived) for lived in (10.1, 0, 3)] == [1, 2, 4]


async def test_the_loop_goes_on_while_a_session_puts_its_end_into_words() -> None:
    """What went wrong may have to be asked of a JVM that hangs, and last words may still be on their way."""
    loop_thread = threading.get_ident()
    asked: list[tuple[str, bool]] = []
    made: list[Fake] = []

    class SlowError(Exception):
        def __str__(self) -> str:
            asked.append(("words", threading.get_ident() == loop_thread))
            return "slow"

    class Failing(Fake):
        def beat(self) -> None:
            raise SlowError

        def last_words(self) -> str:
            asked.append(("last words", threading.get_ident() == loop_thread))
            return ""

    def opened(_: Startup) -> Engine:
        made.append(Fake() if len(made) == 3 else Failing())
        if len(made) == 1:
            raise SlowError
        return made[-1]

    def warm_up(engine: Engine) -> None:
        if engine is made[1]:
            made[1].ended.wait(60)
        if engine is made[2]:
            raise SlowError

    kept = supervisor(opened, warm_up)
    kept.want()
    async with running(kept):
        while len(made) < 4:
            await asyncio.sleep(0.01)
    assert {what for what, _ in asked} == {"words", "last words"}
    assert [what for what, on_loop in asked if on_loop] == []
