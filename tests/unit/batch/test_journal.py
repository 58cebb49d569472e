"""The journal against a replica that was frozen while others went on."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.journals import replica, replicas
from tests.support.manual_clock import ManualClock
from tests.support.memory_store import MemoryStore
from tests.support.records import record

from ingestd.batch.journal import Held, Journal, LeaseLost
from ingestd.batch.phases import Phase
from ingestd.batch.record import Record
from ingestd.model.errors import PreconditionFailed
from ingestd.model.objects import ObjectRef


async def test_an_end_that_comes_after_the_lease_does_not_undo_what_others_did_since() -> None:
    """A batch failed, its owner froze before it could say so; another one did, and somebody asked for another try."""
    clock, journal = replicas()
    frozen = await journal("a").open(record(), claim=True)
    assert frozen is not None
    frozen.record = replace(frozen.record, phase=Phase.FAILED, error="refused")
    clock.advance(timedelta(seconds=61))
    other = await journal("b").read(journal("b").running(record()))
    assert other is not None
    assert await journal("b").claim(other)
    other.record = replace(other.record, phase=Phase.FAILED, error="refused")
    await journal("b").finish(other)
    finished = await journal("c").finished(record())
    assert finished is not None
    await journal("c").reopen(finished.reopened(clock.now()))
    with pytest.raises(LeaseLost):
        await journal("a").finish(frozen)
    assert not await journal("c").is_finished(record()), "the new try was told to be over"


async def test_an_end_within_the_lease_costs_no_further_write() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    journal = Journal(cast("Any", store), ObjectRef("ops", "j"), clock, owner="a", lease=timedelta(seconds=60))
    held = await journal.open(record(), claim=True)
    assert held is not None
    clock.advance(timedelta(seconds=59))
    held.record = replace(held.record, phase=Phase.DONE)
    await journal.finish(held)
    assert store.operations["insert"] == 2


class _Slow:
    """Somebody's store whose next write takes its time, once it is asked to."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.writing = asyncio.Event()
        self.go_on = asyncio.Event()
        self.slow = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(self, ref: ObjectRef, data: bytes, **options: Any) -> Any:
        if self.slow:
            self.slow = False
            self.writing.set()
            await self.go_on.wait()
        return await self._store.create(ref, data, **options)


class _Told:
    """A witness that remembers what it was told: revision, and whether that was the end."""

    def __init__(self) -> None:
        self.of: list[tuple[int, bool]] = []

    def changed(self, record: Record) -> None:
        self.of.append((record.stamp.revision, record.phase.final))

    def ended(self, record: Record, forget: Any) -> None:
        self.of.append((record.stamp.revision, True))


@pytest.mark.parametrize("elsewhere", [False, True], ids=["by us", "by another replica"])
async def test_no_state_of_a_batch_looks_as_new_as_its_end(elsewhere: bool) -> None:
    """The lease is being renewed, which takes long, while the batch comes to its end."""
    clock = ManualClock()
    store, told = MemoryStore(clock), _Told()
    slow = _Slow(store)
    place, lease = ObjectRef("ops", "j"), timedelta(seconds=60)
    journal = Journal(cast("Any", slow), place, clock, owner="a", lease=lease, witness=told)
    held = await journal.open(record(), claim=True)
    assert held is not None
    slow.slow = True
    renewal = asyncio.create_task(journal.save(held))
    await slow.writing.wait()
    ended = replace(held.record, phase=Phase.DONE)
    if elsewhere:
        store.put(journal.done(ended), ended.to_json())
        ending = asyncio.create_task(journal.leave(held))
    else:
        held.record = ended
        ending = asyncio.create_task(journal.finish(held))
    for _ in range(10):
        await asyncio.sleep(0)
    slow.go_on.set()
    await asyncio.gather(renewal, ending)
    *_, (revision, final) = told.of
    assert final
    assert all(before < revision for before, _ in told.of[:-1]), told.of


class _Paused:
    """Somebody's store that stands still before it deletes anything."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.deleting = asyncio.Event()
        self.go_on = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def delete(self, ref: ObjectRef, **options: Any) -> bool:
        self.deleting.set()
        await self.go_on.wait()
        return await self._store.delete(ref, **options)


class _Failed:
    """A batch that has failed, and those who look at it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)

    def journal(self, owner: str, store: Any = None) -> Journal:
        place = ObjectRef("ops", "j")
        return Journal(cast("Any", store or self.store), place, self.clock, owner=owner, lease=timedelta(seconds=60))

    async def ended(self, held: Held | None, phase: Phase = Phase.FAILED) -> Record:
        assert held is not None
        held.record = replace(held.record, phase=phase)
        await self.journal("a").finish(held)
        finished = await self.journal("a").finished(held.record)
        assert finished is not None
        return finished

    async def places(self) -> list[str]:
        return [info.ref.name.split("/")[1] async for info in self.store.list(ObjectRef("ops", "j/"))]


async def test_a_batch_opened_again_is_in_a_place_however_long_its_opener_stands_still() -> None:
    failed = _Failed()
    ended = await failed.ended(await failed.journal("a").open(record(), claim=True))
    paused = _Paused(failed.store)
    opening = asyncio.create_task(failed.journal("cli", paused).reopen(ended.reopened(failed.clock.now())))
    await paused.deleting.wait()
    assert await failed.places() == ["Done", "Running"], (
        "`Running/` comes first: without it, dying here loses the batch"
    )
    failed.clock.advance(timedelta(seconds=61))
    sweeper = failed.journal("b")
    found = await sweeper.read(sweeper.running(record()))
    assert found is not None
    assert not await sweeper.is_finished(found.record), "it was opened again: what is under `Done/` counts no more"
    assert await sweeper.claim(found)
    await failed.ended(found, Phase.DONE)
    paused.go_on.set()
    await opening
    assert await failed.places() == ["Done"], "the end of the second try was removed for that of the first"
    known = await sweeper.known(record())
    assert known is not None
    assert known.phase is Phase.DONE


async def test_whoever_opens_a_batch_that_somebody_else_opened_since_is_told_so() -> None:
    failed = _Failed()
    ended = await failed.ended(await failed.journal("a").open(record(), claim=True))
    again = await failed.journal("cli").reopen(ended.reopened(failed.clock.now()), keep=True)
    await failed.ended(again)
    with pytest.raises(PreconditionFailed):
        await failed.journal("cli").reopen(ended.reopened(failed.clock.now()))
    assert await failed.places() == ["Done"]


async def test_a_try_that_was_opened_again_ends_although_its_opener_died_before_done_was_gone() -> None:
    failed = _Failed()
    ended = await failed.ended(await failed.journal("a").open(record(), claim=True))
    paused = _Paused(failed.store)
    opening = asyncio.create_task(failed.journal("cli", paused).reopen(ended.reopened(failed.clock.now())))
    await paused.deleting.wait()
    opening.cancel()
    held = await failed.journal("b").read(failed.journal("b").running(record()))
    await failed.ended(held, Phase.DONE)
    known = await failed.journal("b").known(record())
    assert known is not None
    assert (known.phase, await failed.places()) == (Phase.DONE, ["Done"])


async def test_the_first_end_of_a_batch_is_never_written_over() -> None:
    """A replica that comes late opens the batch once more, and ends it after it has ended."""
    _, journal = replicas()
    first = await journal("a").open(record(), claim=True)
    assert first is not None
    first.record = replace(first.record, phase=Phase.DONE, error="")
    await journal("a").finish(first)
    late = await journal("b").open(record(), claim=True)
    assert late is not None
    late.record = replace(late.record, phase=Phase.FAILED, error="came late")
    await journal("b").finish(late)
    ended = await journal("c").finished(record())
    assert ended is not None and ended.phase is Phase.DONE


async def test_the_end_that_counts_is_told_as_the_latest_state() -> None:
    """Whoever comes late has told states of revisions beyond the one that the batch ended with."""
    _, journal = replica()
    first = await journal.open(record(), claim=True)
    assert first is not None
    first.record = replace(first.record, phase=Phase.DONE)
    await journal.finish(first)
    late = await journal.open(record(), claim=True)
    assert late is not None
    for _ in range(5):
        await journal.save(late)
    told: list[Record] = []
    journal.witness = cast("Any", SimpleNamespace(ended=lambda ended, _: told.append(ended), changed=told.append))
    late.record = replace(late.record, phase=Phase.FAILED)
    await journal.finish(late)
    assert [one.phase for one in told] == [Phase.DONE]
    assert told[0].stamp.revision > late.record.stamp.revision > 5


async def test_of_two_that_claim_the_same_record_one_gets_it() -> None:
    clock, journal = replicas()
    assert await journal("gone").open(record(), claim=True) is not None
    clock.advance(timedelta(seconds=61))
    seen = [await journal(name).find(record()) for name in ("fast", "slow")]
    claimed = [await journal(name).claim(cast("Held", held)) for name, held in zip(("fast", "slow"), seen, strict=True)]
    assert claimed == [True, False]


async def test_a_record_under_somebody_elses_lease_is_not_claimed() -> None:
    clock, journal = replicas()
    assert await journal("a").open(record(), claim=True) is not None
    for wait, claimed in ((59, False), (2, True)):
        clock.advance(timedelta(seconds=wait))
        found = await journal("b").find(record())
        assert found is not None and await journal("b").claim(found) is claimed


async def test_an_end_is_taken_back_only_in_the_generation_that_was_opened_again() -> None:
    """Whoever opened the batch again stood still until its new try had ended: that end stays."""
    clock, journal = replica()
    held = await journal.open(record(), claim=True)
    assert held is not None
    held.record = replace(held.record, phase=Phase.FAILED, error="refused")
    await journal.finish(held)
    finished = await journal.finished(record())
    assert finished is not None
    again = await journal.reopen(finished.reopened(clock.now()), keep=True)
    stood_still = again.record
    again.record = replace(again.record, phase=Phase.DONE, error="")
    await journal.finish(again)
    await journal._take_back(stood_still)
    ended = await journal.finished(record())
    assert ended is not None and ended.phase is Phase.DONE
