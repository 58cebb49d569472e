"""Locks of windows: who puts a name on one, and who finds out that somebody else was faster."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from tests.support.manual_clock import ManualClock
from tests.support.memory_store import MemoryStore

from ingestd.batch.rule import PinnedRule
from ingestd.collect.windows.groups import Groups
from ingestd.collect.windows.model import WindowId, WindowKey
from ingestd.collect.windows.store import Everything, WindowHead, WindowStore
from ingestd.model.objects import ObjectRef


def head(clock: ManualClock, owner: str) -> WindowHead:
    window = WindowId(WindowKey("rule", "ds.t", "gs://b/folder", ".json"), 1_699_999_800, 300)
    return WindowHead(window, owner, clock.now(), PinnedRule({}, "", ""), "ds.t", {}, {}, asynchronous=False)


async def test_of_two_that_take_over_the_same_lock_one_gets_it() -> None:
    """Both have seen the lock of a replica that is gone; the slower one must not believe that it owns the window."""
    clock = ManualClock()
    store = WindowStore(cast("Any", MemoryStore(clock)), ObjectRef("ops", "batch"))
    gone = head(clock, "gone")
    assert await store.acquire(gone)
    found = await store.read_lock(gone.window.name)
    assert found is not None
    _, seen = found
    taken = [await store.take_over(replace(gone, owner=name), seen) for name in ("fast", "slow")]
    assert taken == [True, False]
    now = await store.read_lock(gone.window.name)
    assert now is not None and now[0].owner == "fast"


async def test_a_group_is_not_done_while_a_batch_of_it_runs() -> None:
    clock = ManualClock()

    class Journal:
        running = True

        async def entries(self) -> Any:
            if self.running:
                yield type("Entry", (), {"group": "g1"})

    journal, finished = Journal(), []
    groups = Groups.__new__(Groups)
    groups._clock, groups._journal, groups._patience = clock, cast("Any", journal), timedelta(seconds=10)

    async def finish(name: str) -> None:
        finished.append(name)

    groups._finish = finish  # type: ignore[method-assign]
    everything = Everything([], {"g1": clock.now() - timedelta(minutes=5)})
    await groups.look_at(everything)
    assert finished == []
    journal.running = False
    await groups.look_at(everything)
    assert finished == ["g1"]
