"""The journal against a replica that was frozen while others went on."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest
from tests.sim.memory_store import MemoryStore
from tests.unit.ledger.records import record

from ingestd.batch.journal import Journal, LeaseLost
from ingestd.batch.record import Phase
from ingestd.model.clock import ManualClock
from ingestd.model.objects import ObjectRef


async def test_an_end_that_comes_after_the_lease_does_not_undo_what_others_did_since() -> None:
    """A batch failed, its owner froze before it could say so; another one did, and somebody asked for another try."""
    clock = ManualClock()
    store = MemoryStore(clock)

    def journal(owner: str) -> Journal:
        return Journal(cast("Any", store), ObjectRef("ops", "j"), clock, owner=owner, lease=timedelta(seconds=60))

    frozen = await journal("a").open(record(), claim=True)
    assert frozen is not None
    frozen.record = replace(frozen.record, phase=Phase.FAILED, error="refused")
    clock.advance(timedelta(seconds=61))
    other = await journal("b").read(journal("b").running(record()))
    assert other is not None
    assert await journal("b").claim(other)
    other.record = replace(other.record, phase=Phase.FAILED, error="refused")
    await journal("b").finish(other)
    await journal("c").reopen(other.record.reopened(clock.now()))
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
