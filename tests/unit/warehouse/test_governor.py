"""Loads keep within BigQuery's quotas, waits are visible, and the day's budget lasts the day."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.virtual_time import VirtualClock, VirtualLoop, run

from ingestd.model.errors import Throttled
from ingestd.model.tables import parse_table
from ingestd.warehouse.budget import DAY, MOST, SHORT, Budget, Pace, stretch, sustainable
from ingestd.warehouse.governor import QuotaGovernor, QuotaLimits

TABLE = parse_table("p.d.t")
OTHER = parse_table("p.d.other")
ENDLESS = timedelta(days=3)


def live(
    story: Callable[[QuotaGovernor, VirtualClock], Coroutine[Any, Any, None]],
    uptime: timedelta = timedelta(),
    **limits: Any,
) -> None:
    loop = VirtualLoop()
    clock = VirtualClock(loop, uptime=uptime)

    async def main() -> None:
        await story(QuotaGovernor(clock, QuotaLimits(**{"patience": ENDLESS, "margin": timedelta(), **limits})), clock)

    run(main(), loop)


async def admitted(governor: QuotaGovernor, clock: VirtualClock, count: int, **options: Any) -> list[float]:
    times: list[float] = []

    async def one() -> None:
        await governor.admit(TABLE, **options)
        times.append(clock.monotonic())

    await asyncio.gather(*(one() for _ in range(count)))
    return sorted(times)


@pytest.mark.parametrize(("partitioned", "allowed"), [(False, 5), (True, 50)])
def test_no_ten_seconds_see_more_changes_than_allowed(partitioned: bool, allowed: int) -> None:
    async def story(governor: QuotaGovernor, clock: VirtualClock) -> None:
        times = await admitted(governor, clock, allowed * 4 + 1, partitioned=partitioned)
        assert times[allowed - 1] == 0.0, "a burst within the limit does not wait"
        for index, moment in enumerate(times[allowed:]):
            assert moment - times[index] >= 10
        assert times[-1] == pytest.approx(40)

    live(story)


def test_one_table_never_waits_for_another() -> None:
    async def story(governor: QuotaGovernor, clock: VirtualClock) -> None:
        await admitted(governor, clock, 5)
        await governor.admit(OTHER)
        assert clock.monotonic() == 0

    live(story)


def test_the_day_holds_no_more_loads_than_its_budget() -> None:
    async def story(governor: QuotaGovernor, clock: VirtualClock) -> None:
        times = await admitted(governor, clock, 45)
        for index, moment in enumerate(times[20:]):
            assert moment - times[index] >= DAY

    live(story, table_day=20)


def test_a_share_of_the_budget_is_a_share_of_every_limit() -> None:
    async def story(governor: QuotaGovernor, clock: VirtualClock) -> None:
        times = await admitted(governor, clock, 11)
        assert times[1] == 0
        assert times[2] == 10
        assert times[10] >= DAY
        assert governor.status()["tables"][0]["limit"] == 10

    live(story, table_day=20, share=0.5)


def test_a_long_wait_is_handed_back_with_a_time_that_is_kept() -> None:
    async def story(governor: QuotaGovernor, clock: VirtualClock) -> None:
        await admitted(governor, clock, 5)
        until = []
        for number in range(12):
            with pytest.raises(Throttled) as caught:
                await governor.admit(TABLE, key=f"job {number}")
            assert caught.value.until is not None
            until.append((caught.value.until - clock.now()).total_seconds())
        assert until == sorted(until)
        assert until == pytest.approx([10] * 5 + [20] * 5 + [30] * 2), "each got a time of its own"
        assert governor.status()["reserved"] == 12
        await clock.sleep(timedelta(seconds=until[-1]))
        before = clock.monotonic()
        await governor.admit(TABLE, key="job 11")
        assert clock.monotonic() == before, "whoever comes back in time does not wait again"

    live(story, patience=timedelta(seconds=5))


def test_those_who_come_late_for_their_turn_do_not_come_all_at_once() -> None:
    async def story(governor: QuotaGovernor, clock: VirtualClock) -> None:
        await admitted(governor, clock, 5)
        for number in range(15):
            with pytest.raises(Throttled):
                await governor.admit(TABLE, key=f"job {number}")
        await clock.sleep(timedelta(seconds=100))
        times: list[float] = []
        for number in range(15):
            try:
                await governor.admit(TABLE, key=f"job {number}")
            except Throttled:
                await clock.sleep(timedelta(seconds=10))
                await governor.admit(TABLE, key=f"job {number}")
            times.append(clock.monotonic())
        for index, moment in enumerate(times[5:]):
            assert moment - times[index] >= 10

    live(story, patience=timedelta(seconds=5))


def test_a_reservation_nobody_comes_for_is_given_back() -> None:
    async def story(governor: QuotaGovernor, clock: VirtualClock) -> None:
        await admitted(governor, clock, 3)
        with pytest.raises(Throttled):
            await governor.admit(TABLE, key="lost")
        used = governor.status()["tables"][0]["used_today"]
        await clock.sleep(timedelta(days=1, hours=1))
        await governor.admit(TABLE)
        assert governor.status()["reserved"] == 0
        assert governor.status()["tables"][0]["used_today"] == used - 3

    live(story, table_day=3, patience=timedelta(seconds=11))


def test_what_bigquery_refuses_closes_the_table_for_a_while_and_widens_its_windows() -> None:
    async def story(governor: QuotaGovernor, clock: VirtualClock) -> None:
        await governor.admit(TABLE)
        assert governor.stretch(TABLE) == 1.0
        governor.throttled(TABLE, clock.now() + timedelta(seconds=30))
        assert governor.stretch(TABLE) == 2.0
        assert governor.stretch(OTHER) == 1.0
        await governor.admit(TABLE)
        assert clock.monotonic() == 30
        await clock.sleep(timedelta(hours=2))
        assert governor.stretch(TABLE) == 1.0

    live(story)


@pytest.mark.parametrize("days", [0, 1, 8, 4000])
def test_a_node_may_have_been_up_for_any_time(days: int) -> None:
    async def story(governor: QuotaGovernor, clock: VirtualClock) -> None:
        await governor.admit(TABLE)
        assert governor.status()["tables"][0]["stretch"] == governor.stretch(TABLE) == 1.0
        governor.throttled(TABLE, clock.now() + timedelta(seconds=30))
        assert governor.stretch(TABLE) == 2.0
        await governor.admit(TABLE)
        await clock.sleep(timedelta(days=20))
        assert governor.stretch(TABLE) == 1.0

    live(story, timedelta(days=days))


def test_a_cancelled_wait_gives_its_place_back() -> None:
    async def story(governor: QuotaGovernor, clock: VirtualClock) -> None:
        await admitted(governor, clock, 5)
        waiter = asyncio.ensure_future(governor.admit(TABLE))
        await asyncio.sleep(1)
        assert governor.status()["waiting"] == 1
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
        assert governor.status()["waiting"] == 0
        assert governor.status()["tables"][0]["used_today"] == 5

    live(story)


def test_switched_off_it_lets_everything_pass() -> None:
    async def story(governor: QuotaGovernor, clock: VirtualClock) -> None:
        await admitted(governor, clock, 3000)
        assert clock.monotonic() == 0
        assert governor.stretch(TABLE) == 1.0

    live(story, enabled=False)


def test_tables_that_are_not_written_any_more_are_forgotten() -> None:
    async def story(governor: QuotaGovernor, clock: VirtualClock) -> None:
        for number in range(100):
            await governor.admit(parse_table(f"p.d.t{number}"))
        await clock.sleep(timedelta(days=2, hours=1))
        await governor.admit(TABLE)
        assert len(governor.status()["tables"]) == 1

    live(story)


usages = st.lists(st.tuples(st.floats(1, DAY), st.integers(1, 400)), max_size=12).map(sorted)


@given(st.integers(1, 3000), usages)
def test_the_sustainable_rate_never_meets_the_limit(limit: int, used: list[tuple[float, int]]) -> None:
    rate = sustainable(limit, used)
    available = limit - sum(count for _, count in used)
    for seconds, count in used:
        assert rate * seconds <= max(available, 0) + 1e-6
        available += count
    assert rate <= limit / DAY


@given(st.integers(1, 3000), usages, st.tuples(st.floats(1, DAY), st.integers(1, 100)))
def test_more_use_never_narrows_windows(limit: int, used: list[tuple[float, int]], more: tuple[float, int]) -> None:
    before, after = stretch(limit, used), stretch(limit, sorted([*used, more]))
    assert 1.0 <= before <= after <= MOST


def test_windows_keep_their_length_while_there_is_plenty() -> None:
    assert stretch(1500, []) == 1.0
    assert stretch(1500, [(DAY, 200)]) == 1.0
    assert stretch(1500, [(DAY, 1000)]) > SHORT
    assert stretch(1500, [(DAY, 1500)]) == MOST


@settings(max_examples=30, deadline=None)
@given(st.floats(5, 300), st.integers(0, 1200), st.floats(0, 0.9))
def test_windows_of_any_length_make_the_budget_last_the_day(window: float, used: int, age: float) -> None:
    """Play a day of windows that are widened as told: the budget is never used up, so nothing ever waits for it."""
    budget = Budget(1500)
    now = DAY
    budget.take(now - age * DAY, used)
    end = now + DAY
    while now < end:
        assert budget.next(now) == now, "no load had to wait for the daily quota"
        budget.take(now)
        now += window * budget.stretch(now, window)
    assert budget.used(now) <= 1500


@given(st.lists(st.floats(0, 30), min_size=1, max_size=60))
def test_a_pace_holds_for_any_arrivals(gaps: list[float]) -> None:
    pace, now, times = Pace(5, 10.0), 0.0, []
    for gap in gaps:
        now += gap
        moment = pace.next(now)
        pace.take(moment)
        times.append(moment)
    for index, moment in enumerate(times[5:]):
        assert moment - times[index] >= 10.0 - 1e-9
