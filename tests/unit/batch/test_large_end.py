"""The end of a batch of very many files holds up nobody: what is done between two turns of the event loop is bounded.

Counted are calls that Python makes in the event loop's thread, not seconds: they are the same on a busy machine.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from types import FrameType
from typing import Any, cast

from prometheus_client import CollectorRegistry, Histogram, Summary
from tests.support.journals import replica
from tests.support.manual_clock import ManualClock
from tests.support.memory_store import MemoryStore
from tests.support.records import START, done, pinned_rule

from ingestd.batch.journal import Held, Journal
from ingestd.batch.news import News
from ingestd.batch.post_actions import PostActions
from ingestd.batch.record import Record
from ingestd.batch.report import fates_of
from ingestd.batch.rule_metrics import Times
from ingestd.batch.runner import BatchRunner
from ingestd.console.feed import Feed
from ingestd.ledger.writer import LoadStateWriter
from ingestd.model.objects import FileVersion, Generation, ObjectRef
from ingestd.ops.history import FILES_REMEMBERED, History
from ingestd.ops.latencies import observe_all
from ingestd.settings import Settings

FILES = 60_000  # three times as many as are gone through at a stretch
MOST = 45_000  # calls between two turns: less than one per file. Files are remembered 10,000 at a stretch, 4 calls each


class Turns:
    """The most calls that were made between two turns of the event loop, in its own thread."""

    def __init__(self) -> None:
        self.most = 0
        self._calls = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        loop = cast("Any", asyncio.get_running_loop())
        once = loop._run_once

        def turn() -> None:
            self._turned()
            once()

        loop._run_once = turn
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)
            loop._run_once = once
            self._turned()

    def _turned(self) -> None:
        self.most = max(self.most, self._calls)
        self._calls = 0

    def _called(self, _frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            self._calls += 1


def large(count: int = FILES) -> Record:
    files = [
        FileVersion(
            ObjectRef("b", f"in/{number:06d}.json"), Generation(number + 1), 10, START - timedelta(seconds=number)
        )
        for number in range(count)
    ]
    return done(*files, rule=pinned_rule({"Dest": {"Table": "d.t"}, "OnSuccess": [{"Action": "delete"}]}))


async def test_counting_calls_finds_what_goes_through_all_files_at_once() -> None:
    turns, record = Turns(), large()
    with turns.counted():
        await asyncio.sleep(0)
        Times.of(record, START)
    assert turns.most > FILES


async def test_what_is_reported_of_a_large_batch_is_gone_through_beside_the_event_loop() -> None:
    clock, journal = replica(START)
    runner = BatchRunner.__new__(BatchRunner)
    news = News()
    cast("Any", runner)._news = news
    history = History()
    Feed(
        history,
        clock,
        news=news,
        journal=journal,
        runner=runner,
        windows=cast("Any", None),
        reconciler=cast("Any", None),
        pullers=(),
    )
    settings = Settings.model_validate({"project": "p"})
    cast("Any", runner)._parts = _Parts(journal, clock, settings)
    record = large()
    held = await journal.open(replace(record, phase=record.phase), claim=True)
    assert held is not None
    held.record = replace(held.record, progress=record.progress)
    turns = Turns()
    with turns.counted():
        await runner._end(held, None)
    assert turns.most < MOST
    assert history.batch_count == 1
    assert history.batch_of(record.files[-1].ref.url) is not None
    assert len(history._by_file) == min(FILES, FILES_REMEMBERED)


class _Parts:
    preparer = None

    def __init__(self, journal: Journal, clock: ManualClock, settings: Settings) -> None:
        self.journal, self.clock, self.settings = journal, clock, settings


async def test_the_actions_of_a_large_batch_are_filled_in_beside_the_event_loop() -> None:
    _, journal = replica(START)
    asked: list[int] = []

    class Deleting:
        async def delete_all(self, deletions: list[Any]) -> list[bool]:
            asked.append(len(deletions))
            return [True] * len(deletions)

    acting = PostActions(
        store=cast("Any", Deleting()),
        warehouse=cast("Any", None),
        publisher=cast("Any", None),
        http=cast("Any", None),
        jobs=cast("Any", None),
        journal=journal,
        settings=Settings.model_validate({"project": "p"}),
        keyring=cast("Any", _Keyring()),
    )
    await acting.on_success(Held(large(3), Generation(1)), None, last_try=False)  # models are made at their first use
    held = Held(large(), Generation(1))
    turns = Turns()
    with turns.counted():
        await acting.on_success(held, None, last_try=False)
    assert asked == [3, FILES]
    assert turns.most < MOST


class _Keyring:
    async def request(self, _record: Record, _steps: object, action: Any) -> Any:
        return action.action.body


async def test_the_row_of_a_large_batch_is_made_beside_the_event_loop() -> None:
    clock = ManualClock(START)
    rows: list[Any] = []

    class Table:
        async def ensure(self) -> None: ...

        async def insert(self, found: list[Any]) -> None:
            rows.extend(found)

    writer = LoadStateWriter(
        cast("Any", Table()),
        cast("Any", MemoryStore(clock)),
        clock,
        put_away=ObjectRef("ops", "LoadState"),
        replica="r",
        flush_every=timedelta(seconds=1),
    )

    async def forget() -> None:
        return None

    writer.ended(large(), forget)
    turns = Turns()
    with turns.counted():
        await writer.flush()
    assert [row["files"] for row in rows] == [FILES]
    assert turns.most < MOST


def test_many_observations_at_once_are_as_many_single_ones() -> None:
    values = sorted([0.0, 0.1, 0.1, 0.5, 2.0, 99.0])
    registry = CollectorRegistry()
    made: list[Any] = [
        kind(f"{name}_{kind.__name__.lower()}", "x", registry=registry, **more)
        for name in ("one", "all")
        for kind, more in ((Histogram, {"buckets": (0.1, 1.0)}), (Summary, {}))
    ]
    for metric in made[:2]:
        for value in values:
            metric.observe(value)
    for metric in made[2:]:
        observe_all(metric, values)
        observe_all(metric, ())
    found = [[tuple(one)[:3] for one in metric._child_samples() if "created" not in one[0]] for metric in made]
    assert found[:2] == found[2:]


def test_fates_are_counted_without_going_through_the_files() -> None:
    record = large(7)
    assert fates_of(record) == {"done": 7}
