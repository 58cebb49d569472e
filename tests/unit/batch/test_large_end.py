"""A batch of very many files holds up nobody: what is done between two turns of the event loop is bounded.

Counted are calls that Python makes in the event loop's thread, not seconds: they are the same on a busy machine.
"""

import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from types import FrameType
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, Histogram, Summary
from tests.support.journals import replica
from tests.support.manual_clock import ManualClock
from tests.support.memory_store import MemoryStore
from tests.support.records import START, done, pinned_rule
from tests.support.records import record as record_of

from ingestd.actions import move
from ingestd.actions.context import ActionContext, ActionSettings, Step
from ingestd.batch.content import Chunk, Load, Progress
from ingestd.batch.journal import Entry, Held, Journal
from ingestd.batch.news import News
from ingestd.batch.overwrites import Overwrites
from ingestd.batch.phases import Phase
from ingestd.batch.post_actions import PostActions
from ingestd.batch.record import Record
from ingestd.batch.report import fates_of
from ingestd.batch.rule_metrics import Times
from ingestd.batch.runner import BatchRunner
from ingestd.batch.sources import Looked, describe
from ingestd.batch.trails import Reading, Trail, Trails
from ingestd.batch.underway import UnderWay, _Seen
from ingestd.console.feed import Feed
from ingestd.ledger.writer import LoadStateWriter
from ingestd.model.objects import FileVersion, Generation, ObjectInfo, ObjectRef
from ingestd.ops.history import FILES_REMEMBERED, History
from ingestd.ops.latencies import observe_all
from ingestd.ports import Copy
from ingestd.rules.actions import MoveRequest
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


async def test_the_files_of_a_large_batch_are_moved_beside_the_event_loop() -> None:
    record = large()
    there = [ObjectInfo(file.ref, file.generation, file.size, START) for file in record.files]
    there[5] = replace(there[5], generation=Generation(FILES + 9))
    asked: list[int] = []

    class Moving:
        async def stat_all(self, refs: list[ObjectRef]) -> list[Any]:
            asked.append(len(refs))
            return there

        async def copy_all(self, copies: list[Copy]) -> list[Generation]:
            asked.append(len(copies))
            return [Generation(1)] * len(copies)

        async def delete_all(self, deletions: list[Any]) -> list[bool]:
            asked.append(len(deletions))
            return [True] * len(deletions)

    store, settings = cast("Any", Moving()), ActionSettings("p")
    more = dict.fromkeys(("warehouse", "publisher", "http", "jobs", "progress"), cast("Any", None))
    ctx = ActionContext(store=store, settings=settings, event_id="1", dest="d.t", files=record.files, **more)
    step = Step(2, "move")
    request = MoveRequest(SourceURLs=[file.ref.url for file in record.files], DestURL="gs://done/x")
    turns = Turns()
    with turns.counted():
        outcome = await move.run(ctx, step, request)
    assert outcome.details == {"objects": {"moved": FILES - 1, "superseded": 1}}
    assert asked == [FILES, FILES - 1, FILES - 1]
    assert turns.most < MOST


def entry_of(number: int) -> Entry:
    event = f"9{number}"
    return Entry(ObjectRef("ops", f"j/Running/d.t/{event}.run"), event, "accepted", "", None, None, START, START)


def running(number: int, files: Sequence[FileVersion]) -> tuple[Entry, Record]:
    return entry_of(number), record_of(*files, event_id=f"9{number}")


def under_way(seen: _Seen, records: Mapping[ObjectRef, Record]) -> UnderWay:
    """As if it had just looked."""

    class Reading:
        async def read(self, ref: ObjectRef) -> Held:
            return Held(records[ref], Generation(1))

    async def now(_table: object) -> _Seen:
        return seen

    found = UnderWay(cast("Any", Reading()), ManualClock(START), project="p")
    cast("Any", found)._now = now
    return found


def before(files: Iterable[FileVersion]) -> list[FileVersion]:
    return [replace(file, generation=Generation(0)) for file in files]


@pytest.mark.parametrize(
    ("batches", "each"), [(1_000, 100), (2, FILES)], ids=["many small batches", "a few as large as this one"]
)
async def test_a_large_batch_is_compared_with_others_in_pieces(batches: int, each: int) -> None:
    record = large()
    others = dict(running(number, before(record.files[number : number + each])) for number in range(batches))
    known = under_way(_Seen(several=list(others)), {entry.ref: one for entry, one in others.items()})
    names = {file.ref: file.generation for file in record.files}
    for _ in range(2):  # names of small batches are remembered: then nothing has to be read, or waited for
        turns = Turns()
        with turns.counted():
            found = await known.earlier(record, names)
        assert {ref: len(some) for ref, some in found.items()} == {
            entry.ref: len(one.files) for entry, one in others.items()
        }
        assert turns.most < MOST


async def test_a_large_batch_is_compared_with_files_that_load_alone_beside_the_event_loop() -> None:
    record = large()
    alone = {file.ref: [(Generation(0), entry_of(number))] for number, file in enumerate(record.files)}
    names = {file.ref: file.generation for file in record.files}
    turns = Turns()
    with turns.counted():
        found = await under_way(_Seen(alone=alone), {}).earlier(record, names)
    assert len(found) == FILES
    assert turns.most < MOST


async def test_a_small_batch_does_not_go_through_the_files_of_a_large_one() -> None:
    record = large()
    entry, other = running(1, before(record.files))
    known = under_way(_Seen(several=[entry]), {entry.ref: other})
    names = {record.files[7].ref: Generation(9)}
    turns = Turns()
    with turns.counted():
        assert await known.earlier(record, names) == {entry.ref: set(names)}
    assert turns.most < 1_000


async def test_what_was_overwritten_in_a_large_batch_is_found_beside_the_event_loop() -> None:
    record = replace(large(), phase=Phase.ACCEPTED, progress=Progress(), event_id="1")
    clock, journal = replica(START)
    trails = Trails(cast("Any", MemoryStore(clock)), journal)
    entry = entry_of(1)
    other = record_of(
        *before(record.files), event_id="91", progress=Progress(loads=(Load(1, tuple(range(FILES)), 1, 1),))
    )

    class Whereabouts:
        async def whereabouts(self, _place: ObjectRef) -> Record:
            return other

    facts = Reading("j", Generation(0), 3, "", START - timedelta(hours=2), START - timedelta(hours=1), None)
    await trails.note(record, {record.files[5].ref: Trail(readings=(facts,))})
    known = under_way(_Seen(several=[entry]), {entry.ref: other})
    overwrites = Overwrites(known, trails, cast("Any", Whereabouts()), clock)
    infos = {place: ObjectInfo(file.ref, file.generation, 10, START) for place, file in enumerate(record.files)}

    async def nothing() -> None: ...

    async def again(indexes: list[int]) -> Looked:
        asked.append(indexes)
        return Looked({index: infos[index] for index in indexes})

    asked: list[list[int]] = []
    turns = Turns()
    with turns.counted():
        assert await overwrites.check(record, Looked(infos), nothing, again) == {}
        await replace(overwrites, underway=under_way(_Seen(), {})).note_gone(record, record.files)
    assert asked == [[5]]
    noted = await trails.of(record, [record.files[5].ref])
    assert [one.generation for one in noted[record.files[5].ref].versions] == [record.files[5].generation]
    assert turns.most < MOST


async def test_a_large_batch_whose_files_stand_differently_is_written_beside_the_event_loop() -> None:
    _, journal = replica(START)
    record = large()
    chunks = tuple(Chunk(job, tuple(range(job, FILES, 2))) for job in (0, 1))
    turns = Turns()
    with turns.counted():
        assert await journal.open(replace(record, progress=Progress(chunks=chunks, jobs=2)), claim=True)
    assert turns.most < MOST


async def test_the_sources_of_a_large_batch_are_sorted_by_folder_beside_the_event_loop() -> None:
    refs = [ObjectRef("b", f"{number // 20}/{number}") for number in range(FILES)]
    infos = [ObjectInfo(ref, Generation(1), 1, START) for ref in refs]

    class Asked:
        async def stat_all(self, asked: list[ObjectRef]) -> list[ObjectInfo]:
            assert len(asked) == FILES
            return infos

    turns = Turns()
    with turns.counted():
        found = await describe(cast("Any", Asked()), refs)
    assert len(found) == FILES
    assert turns.most < MOST


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
