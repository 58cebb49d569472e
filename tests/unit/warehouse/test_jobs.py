"""Waiting for a job: events wake, polls are there for when none comes, and hardly any of them is in vain."""

import asyncio
from datetime import timedelta
from typing import cast

from tests.support.manual_clock import ManualClock

from ingestd.model.jobs import JobKind, JobRef, JobState
from ingestd.ports import Warehouse
from ingestd.warehouse.jobs import Completions, JobRunner


class Waiting:
    """Jobs that are done when a test says so, and how often they were asked for."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.bell = Completions()
        self.jobs = JobRunner(cast("Warehouse", self), self.bell, self.clock)
        self.asked = 0
        self.done: set[str] = set()

    async def get_job(self, ref: JobRef) -> JobState:
        self.asked += 1
        return JobState(ref, JobKind.LOAD, "DONE" if ref.job_id in self.done else "RUNNING", {})

    def wait_for(self, name: str) -> "asyncio.Task[JobState]":
        self.asked = 0
        return asyncio.create_task(self.jobs.wait(JobState(JobRef("p", "US", name), JobKind.LOAD, "RUNNING", {})))

    async def pass_by(self, seconds: float, steps: int = 20) -> None:
        for _ in range(steps):
            self.clock.advance(timedelta(seconds=seconds / steps))
            for _ in range(5):
                await asyncio.sleep(0)

    async def told(self, name: str) -> None:
        task = self.wait_for(name)
        await self.pass_by(0.1)
        self.done.add(name)
        assert self.bell.announce(name)
        await task


async def test_without_events_a_job_is_polled_quickly_at_first() -> None:
    waiting = Waiting()
    task = waiting.wait_for("a")
    waiting.done.add("a")
    await waiting.pass_by(0.6)
    assert (await task).done
    assert waiting.asked == 1


async def test_where_events_come_a_job_is_not_polled_before_its_own_is_due() -> None:
    waiting = Waiting()
    await waiting.told("a")
    task = waiting.wait_for("b")
    await waiting.pass_by(3)
    assert waiting.asked == 0
    waiting.done.add("b")
    waiting.bell.announce("b")
    assert (await task).done
    assert waiting.asked == 1


async def test_an_event_that_is_lost_costs_seconds_and_no_more() -> None:
    waiting = Waiting()
    await waiting.told("a")
    task = waiting.wait_for("b")
    waiting.done.add("b")
    await waiting.pass_by(4.5)
    assert (await task).done


async def test_when_events_stop_coming_polls_are_quick_again() -> None:
    waiting = Waiting()
    await waiting.told("a")
    await waiting.pass_by(121)
    task = waiting.wait_for("b")
    waiting.done.add("b")
    await waiting.pass_by(0.6)
    assert (await task).done


async def test_an_event_that_came_before_anybody_waited_is_not_missed() -> None:
    waiting = Waiting()
    await waiting.told("a")
    assert not waiting.bell.announce("b")
    waiting.done.add("b")
    assert (await waiting.wait_for("b")).done
    assert waiting.asked == 1


async def test_an_event_that_is_early_is_followed_by_a_quick_poll() -> None:
    waiting = Waiting()
    await waiting.told("a")
    task = waiting.wait_for("b")
    await waiting.pass_by(0.1)
    waiting.bell.announce("b")
    await waiting.pass_by(0.1)
    assert waiting.asked == 1
    waiting.done.add("b")
    await waiting.pass_by(0.6)
    assert (await task).done
    assert waiting.asked == 2


async def test_events_that_nobody_waits_for_are_forgotten_one_day() -> None:
    bell = Completions()
    for number in range(5_000):
        bell.announce(f"{number}")
    assert len(bell._early) == 1_000
