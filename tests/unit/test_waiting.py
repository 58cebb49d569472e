"""Waits of the tests themselves: they follow progress, count no time that nobody could use, and end."""

import asyncio
import itertools
import os
import subprocess
import sys

import pytest
from tests.support.processor import Usable, Use, threads
from tests.support.waiting import Patience, ended, eventually, patiently


class Machine:
    """Time that passes as told, and one thread that got so much of it."""

    def __init__(self) -> None:
        self.time = 0.0
        self.use = Use(0.0, 0.0)

    def now(self) -> float:
        return self.time

    def usable(self) -> Usable:
        return Usable(self.now, lambda: {1: self.use})

    def patience(self, **limits: float) -> Patience:
        return Patience(now=self.now, usable=self.usable(), **limits)

    def passes(self, seconds: float, ran: float = 0.0, waited: float = 0.0) -> None:
        self.time += seconds
        self.use = Use(self.use.ran + ran, self.use.waited + waited)


def test_the_deadline_begins_anew_with_every_change() -> None:
    machine = Machine()
    patience = machine.patience(still=10, hopeless=1000)
    for number in range(20):
        machine.passes(9)
        assert patience.look(number) == ""
    machine.passes(6)
    assert patience.look(19) == ""
    machine.passes(6)
    assert patience.look(19) == "nothing changed for 12 s (12 s of them usable)"


def test_a_state_that_was_there_before_is_no_progress() -> None:
    machine = Machine()
    patience = machine.patience(still=10)
    looks = itertools.cycle(("one delivered", "one returned"))
    for _ in range(12):
        machine.passes(1)
        assert patience.look(next(looks)) == ""
    machine.passes(1)
    assert patience.look(next(looks)).startswith("nothing changed for 11 s")


def test_what_moves_and_never_arrives_is_stopped() -> None:
    machine = Machine()
    patience = machine.patience(still=10, hopeless=100)
    for number in range(10):
        machine.passes(10)
        assert patience.look(number) == ""
    machine.passes(1)
    assert patience.look(10) == "not after 101 s, though something changed 0 s ago"


@pytest.mark.parametrize(
    ("ran", "waited", "counts"),
    [
        (0.0, 0.0, 10.0),  # it waits for something else
        (10.0, 0.0, 10.0),
        (1.0, 9.0, 1.0),  # starved
        (0.01, 0.05, 9.95),  # nearly idle
        (20.0, 20.0, 5.0),  # busy on two cores, with twice as many threads
        (1.0, 99.0, 0.1),  # many threads, starved
    ],
)
def test_time_without_a_processor_does_not_count(ran: float, waited: float, counts: float) -> None:
    machine = Machine()
    usable = machine.usable()
    machine.passes(10, ran, waited)
    assert usable.passed() == pytest.approx(counts)
    machine.passes(3)
    assert usable.passed() == pytest.approx(3)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how long threads waited")
def test_threads_of_children_are_counted() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        eventually(lambda: child.pid in threads(os.getpid()), "the child is not seen")
        assert threads(os.getpid())[child.pid].ran > 0
    finally:
        child.communicate()
    assert child.pid not in threads(os.getpid())


def test_a_process_that_has_ended_has_no_threads() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert threads(child.pid) == {}


def test_a_wait_that_fails_says_what_it_waited_for_and_what_there_is() -> None:
    with pytest.raises(AssertionError, match=r"nothing changed for \d+ s .*: three of four"):
        eventually(lambda: False, lambda: "three of four", still=0.01)


def test_a_wait_survives_a_description_that_cannot_be_given_yet() -> None:
    answers = iter([0, 0, 1])
    assert eventually(lambda: next(answers), lambda: 1 // 0) == 1
    with pytest.raises(AssertionError, match="modulo by zero"):
        eventually(lambda: False, lambda: 1 // 0, still=0.01)


async def test_work_that_stands_still_is_called_off() -> None:
    called_off = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            called_off.set()

    with pytest.raises(AssertionError, match=r"nothing changed.*: the state"):
        await patiently(work(), "the state", still=0.01)
    assert called_off.is_set()
    assert await patiently(asyncio.sleep(0, "done"), "nothing to wait for") == "done"


def test_the_end_of_a_process_is_its_code() -> None:
    assert ended(subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])) == 3
    with pytest.raises(AssertionError, match="sleeper has not ended"):
        sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        try:
            ended(sleeper, "sleeper has not ended", still=0.01)
        finally:
            sleeper.kill()
            sleeper.wait()
