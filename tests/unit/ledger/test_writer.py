"""The journal's witness: rows go out together, ends are told at least once, and nobody waits for them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import orjson
from tests.support.manual_clock import ManualClock
from tests.support.memory_store import MemoryStore
from tests.support.records import START, done, file, record

from ingestd.batch.content import Progress
from ingestd.batch.journal import LeaseLost
from ingestd.batch.phases import Phase
from ingestd.batch.record import Kind
from ingestd.batch.stamp import Stamp
from ingestd.ledger.table import LoadStateTable
from ingestd.ledger.writer import LoadStateWriter
from ingestd.model.errors import BadInput, Fatal, IngestError, NotFound, Transient
from ingestd.model.objects import ObjectRef

AWAY = ObjectRef("ops", "journal/LoadState")


class Table(LoadStateTable):
    """The load-state table, without BigQuery."""

    def __init__(self) -> None:
        self.written: list[Mapping[str, Any]] = []
        self.calls = 0
        self.ensured = 0
        self.trouble: IngestError | None = None
        self.refused = ""  # the batch whose row it does not take
        self._ready = False

    @property
    def name(self) -> Any:  # type: ignore[override]
        return "p.d.t"

    async def ensure(self) -> None:
        if not self._ready:
            self.ensured += 1
            self._ready = True

    async def insert(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.calls += 1
        if self.trouble is not None:
            raise self.trouble
        if self.refused and any(row["batch_key"].startswith(self.refused) for row in rows):
            raise BadInput("row 0 (invalid): no")
        self.written += rows


class Broken(MemoryStore):
    """A Cloud Storage that takes nothing."""

    async def create(self, *_: Any, **__: Any) -> Any:
        raise Transient("no")


class Setup:
    def __init__(self, store: MemoryStore | None = None, **changes: Any) -> None:
        self.clock = ManualClock()
        self.store = store or MemoryStore(self.clock)
        self.table = Table()
        self.forgotten: list[str] = []
        self.writer = LoadStateWriter(
            self.table,
            self.store,
            self.clock,
            put_away=AWAY,
            replica="r/1",
            flush_every=timedelta(seconds=5),
            **changes,
        )

    def end(self, name: str) -> None:
        ended = done(file(name))

        async def forget() -> None:
            self.forgotten.append(name)

        self.writer.ended(ended, forget)

    @property
    def states(self) -> list[tuple[str, str]]:
        return [(row["batch_key"].partition("#")[0], row["state"]) for row in self.table.written]


async def test_many_batches_make_one_write_and_each_only_its_latest_state() -> None:
    setup = Setup()
    for number in range(100):
        setup.writer.changed(record(file(f"f{number}")))
        setup.end(f"f{number}")
    await setup.writer.flush()
    assert setup.table.calls == 1
    assert setup.states == [(f"b/f{number}", "done") for number in range(100)]
    assert len(setup.forgotten) == 100


async def test_an_end_is_told_only_when_it_is_the_end_that_counts() -> None:
    """A replica that stood still saves its own end, and finds that the batch has ended otherwise."""
    setup = Setup()
    setup.writer.changed(replace(done(file("a")), phase=Phase.FAILED))
    await setup.writer.flush()
    assert setup.states == []
    setup.end("a")
    await setup.writer.flush()
    assert setup.states == [("b/a", "done")]


async def test_a_running_record_is_forgotten_only_after_its_end_is_written() -> None:
    setup = Setup()
    setup.table.trouble = Transient("down")
    setup.store = broken = Broken(setup.clock)
    setup.writer._store = broken
    setup.end("a")
    await setup.writer.flush()
    assert setup.forgotten == []
    setup.table.trouble = None
    await setup.writer.flush()
    assert (setup.states, setup.forgotten) == ([("b/a", "done")], ["a"])


async def test_rows_that_bigquery_refuses_are_put_away_and_brought_in_later() -> None:
    setup = Setup()
    setup.table.trouble = Fatal("denied")
    setup.end("a")
    await setup.writer.flush()
    assert setup.forgotten == ["a"], "a batch is not kept for the sake of its row"
    (name,) = setup.store.names("ops", "journal/LoadState/")
    assert orjson.loads(setup.store.content(ObjectRef("ops", name)))["rows"][0]["state"] == "done"
    assert await setup.writer.bring_in() == 0
    setup.table.trouble = None
    assert await setup.writer.bring_in() == 1
    assert setup.states == [("b/a", "done")]
    assert setup.store.names("ops", "journal/LoadState/") == []


async def test_one_row_that_is_refused_keeps_no_other_one_away() -> None:
    setup = Setup()
    setup.table.refused = "b/bad"
    for names in (("a", "bad", "b"), ("c",)):
        for name in names:
            setup.end(name)
        await setup.writer.flush()
    assert [await setup.writer.bring_in() for _ in range(2)] == [2, 0]
    assert sorted(name for name, _ in setup.states) == ["b/a", "b/b", "b/c"]
    (left,) = setup.store.names("ops", "journal/LoadState/")
    assert len(orjson.loads(setup.store.content(ObjectRef("ops", left)))["rows"]) == 1
    setup.table.refused = ""
    assert await setup.writer.bring_in() == 1
    assert setup.store.names("ops", "journal/LoadState/") == []


async def test_a_batch_of_which_no_row_can_be_made_keeps_no_other_one_from_being_told() -> None:
    setup = Setup()
    setup.end("a")
    broken = replace(done(file("odd")), rows=2**70)  # more than JSON's numbers are read as

    async def forget() -> None:
        setup.forgotten.append("odd")

    setup.writer.ended(broken, forget)
    setup.end("b")
    await setup.writer.flush()
    assert setup.states == [("b/a", "done"), ("b/b", "done")]
    assert setup.forgotten == ["a", "b"]


async def test_sizes_that_no_files_have_are_told_as_the_largest_number_there_is() -> None:
    setup = Setup()
    files = tuple(replace(file(name), size=2**63 - 1) for name in ("x", "y", "z"))
    setup.writer.changed(record(*files))
    await setup.writer.flush()
    assert setup.table.written[0]["bytes"] == 2**63 - 1


async def test_a_missing_table_is_made_before_the_next_rows() -> None:
    setup = Setup()
    setup.end("a")
    await setup.writer.flush()
    setup.table.trouble = NotFound("dropped")
    setup.end("b")
    await setup.writer.flush()
    setup.table.trouble = None
    setup.end("c")
    await setup.writer.flush()
    assert setup.table.ensured == 2


async def test_a_renewed_lease_is_no_new_state() -> None:
    setup = Setup()
    setup.writer.changed(record())
    await setup.writer.flush()
    setup.writer.changed(record(stamp=Stamp(START, revision=2)))
    await setup.writer.flush()
    setup.writer.changed(record(stamp=Stamp(START, revision=3), progress=Progress(jobs=1)))
    await setup.writer.flush()
    assert [row["revision"] for row in setup.table.written] == [1, 3]


async def test_an_older_state_that_is_told_late_does_not_replace_a_newer_one() -> None:
    setup = Setup()
    setup.end("data/a.json")
    setup.writer.changed(record(error="blocked"))
    await setup.writer.flush()
    assert setup.states == [("b/data/a.json", "done")]


async def test_beyond_its_bounds_it_keeps_nothing_and_forgets_nothing() -> None:
    setup = Setup(max_waiting=2)
    for name in ("a", "b", "c"):
        setup.end(name)
    await setup.writer.flush()
    assert sorted(setup.forgotten) == ["a", "b"]
    setup.end("c")  # the sweep finds both records and tells it again
    await setup.writer.flush()
    assert sorted(setup.forgotten) == ["a", "b", "c"]


async def test_routes_are_no_loads_and_a_lost_lease_is_no_trouble() -> None:
    setup = Setup()
    setup.writer.changed(record(kind=Kind.ROUTE))

    async def forget() -> None:
        raise LeaseLost("somebody else has it")

    setup.writer.ended(done(), forget)
    await setup.writer.flush()
    assert len(setup.table.written) == 1


async def test_large_rows_are_spread_over_several_requests() -> None:
    setup = Setup()
    for number in range(10):
        names = [f"{'x' * 200}/{number}/{one}" for one in range(5_000)]

        async def forget() -> None: ...

        setup.writer.ended(done(*(file(name) for name in names)), forget)
    await setup.writer.flush()
    assert len(setup.table.written) == 10
    assert 3 <= setup.table.calls <= 5


async def test_writes_are_apart_and_failures_widen_the_gap() -> None:
    setup = Setup()
    task = asyncio.ensure_future(setup.writer.run())
    try:
        setup.end("a")
        await _pass(setup.clock, 1.0)
        assert setup.table.calls == 1, "the first row after a silence does not wait for long"
        setup.end("b")
        await _pass(setup.clock, 3.0)
        assert setup.table.calls == 1
        await _pass(setup.clock, 4.0)
        assert setup.table.calls == 2
    finally:
        task.cancel()


async def _pass(clock: ManualClock, seconds: float) -> None:
    for _ in range(int(seconds * 10)):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        clock.advance(timedelta(seconds=0.1))
    for _ in range(20):
        await asyncio.sleep(0)
