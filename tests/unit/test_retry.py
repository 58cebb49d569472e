"""Bounded retries on an injected clock."""

import asyncio
import random
from datetime import timedelta

import pytest
from prometheus_client import REGISTRY
from tests.support.manual_clock import ManualClock

from ingestd.model.errors import BadInput, Fatal, PreconditionFailed, Throttled, Transient
from ingestd.retry import Retrier, RetryPolicy

POLICY = RetryPolicy(attempts=4, total=timedelta(seconds=60), first_wait=timedelta(seconds=1))


class Sleepless(ManualClock):
    """Time passes by itself when somebody sleeps, and is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, duration: timedelta) -> None:
        self.slept.append(duration.total_seconds())
        self.advance(duration)


class Failing:
    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


@pytest.fixture
def clock() -> Sleepless:
    return Sleepless()


def retrier(clock: Sleepless, policy: RetryPolicy = POLICY) -> Retrier:
    return Retrier(policy, clock, random.Random(1))


async def test_a_hiccup_is_tried_again_with_growing_pauses_and_counted(clock):
    labels = {"operation": "test.op", "kind": "transient"}
    before = REGISTRY.get_sample_value("ingestd_retries_total", labels) or 0
    fn = Failing(Transient("1"), Transient("2"), Transient("3"))
    assert await retrier(clock).call(fn, "test.op") == "done"
    for pause, whole in zip(clock.slept, (1, 2, 4), strict=True):
        assert whole / 2 <= pause <= whole
    assert REGISTRY.get_sample_value("ingestd_retries_total", labels) == before + 3


async def test_attempts_are_bounded_and_the_last_error_is_raised(clock):
    fn = Failing(*(Transient(str(number)) for number in range(9)))
    with pytest.raises(Transient, match="3"):
        await retrier(clock).call(fn, "test")
    assert fn.calls == 4


async def test_total_time_is_bounded(clock):
    policy = RetryPolicy(attempts=100, total=timedelta(seconds=10), first_wait=timedelta(seconds=4))
    with pytest.raises(Transient):
        await retrier(clock, policy).call(Failing(*(Transient("x") for _ in range(99))), "test")
    assert clock.monotonic() <= 10


@pytest.mark.parametrize("error", [BadInput("x"), Fatal("x"), PreconditionFailed("x"), Throttled("x", quota=True)])
async def test_what_time_does_not_heal_soon_is_raised_at_once(clock, error):
    fn = Failing(error)
    with pytest.raises(type(error)):
        await retrier(clock).call(fn, "test")
    assert fn.calls == 1 and clock.slept == []


async def test_throttling_waits_until_the_service_said(clock):
    until = clock.now() + timedelta(seconds=33)
    assert await retrier(clock).call(Failing(Throttled("slow", until)), "test") == "done"
    assert clock.slept == [33]


async def test_a_wait_past_the_deadline_is_not_begun(clock):
    until = clock.now() + timedelta(hours=2)
    with pytest.raises(Throttled):
        await retrier(clock).call(Failing(Throttled("slow", until)), "test")
    assert clock.slept == []


async def test_cancelling_is_not_a_failure_to_retry():
    started = asyncio.Event()

    async def forever() -> None:
        started.set()
        await asyncio.sleep(3600)

    task = asyncio.create_task(Retrier().call(forever, "test"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_pauses_repeat_exactly_with_the_same_chance(clock):
    await retrier(clock).call(Failing(Transient("1"), Transient("2")), "test")
    other = Sleepless()
    await retrier(other).call(Failing(Transient("1"), Transient("2")), "test")
    assert clock.slept == other.slept


async def test_every_call_is_timed_by_service_and_method_failed_ones_and_repetitions_included(clock):
    def told(what: str) -> float:
        return REGISTRY.get_sample_value(f"ingestd_api_seconds_{what}", {"service": "shop", "method": "buy"}) or 0

    count, total = told("count"), told("sum")
    fn = Failing(Transient("1"), BadInput("2"))

    async def slow() -> str:
        clock.advance(timedelta(seconds=2))
        return await fn()

    with pytest.raises(BadInput):
        await retrier(clock).call(slow, "shop.buy")
    assert (told("count") - count, told("sum") - total) == (2, pytest.approx(4)), "the pause between them is no answer"
