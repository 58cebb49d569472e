"""Many windows, many files: nothing that grows with them holds up the event loop."""

import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest
from tests.support.journals import replica
from tests.support.manual_clock import ManualClock
from tests.support.records import record
from tests.support.turns import turns_beside
from tests.unit.collect.windows.many import DUE, NOW, files, head, window

from ingestd.batch import journal as journals
from ingestd.batch.news import News
from ingestd.collect.windows import tender
from ingestd.collect.windows.manager import Windows
from ingestd.collect.windows.pending import OpenWindow, Pending, WindowState
from ingestd.collect.windows.replicas import Replicas
from ingestd.collect.windows.store import WindowStore
from ingestd.collect.windows.sweep import WindowSweep
from ingestd.collect.windows.tender import Tender, WindowLimits
from ingestd.model.objects import Generation, ObjectInfo, ObjectRef


def tender_of(store: WindowStore) -> Tender:
    nothing = cast("Any", None)
    return Tender(store, nothing, nothing, nothing, ManualClock(NOW), "p", "me", WindowLimits())


def windows(store: WindowStore) -> Windows:
    nothing = cast("Any", None)
    return Windows(tender_of(store), nothing, nothing, News())


class Bucket:
    """Locks of windows, mine and another replica's, and the heartbeat of that one."""

    def __init__(self, mine: int, theirs: int) -> None:
        self._infos = [
            ObjectInfo(
                ObjectRef("ops", f"batch/{window(number).name}.win"),
                Generation(1),
                1,
                NOW,
                metadata={"ingestd-owner": "me" if number < mine else "other", "ingestd-due": DUE.isoformat()},
            )
            for number in range(mine + theirs)
        ]

    async def list(self, prefix: ObjectRef, **_options: Any) -> AsyncIterator[ObjectInfo]:
        if "replicas" in prefix.name:
            yield ObjectInfo(ObjectRef("ops", "replicas/other"), Generation(1), 1, NOW)
            return
        for info in self._infos:
            yield info


async def test_a_sweep_asks_for_no_window_whether_it_is_among_all_others() -> None:
    """Mine times theirs took seconds without letting go."""
    mine, theirs = 300, 1_200
    store = cast("Any", Bucket(mine, theirs))
    kept = WindowStore(store, ObjectRef("ops", "batch"))
    here = windows(kept)
    for number in range(mine):
        here._open[window(number)] = OpenWindow(window(number), head(number), DUE)
    asked: list[str] = []
    here.tending = lambda name: bool(asked.append(name))  # type: ignore[method-assign]
    clock = ManualClock(NOW)
    replicas = Replicas(store, ObjectRef("ops", "replicas"), clock, name="me", lease=timedelta(seconds=60))
    sweep = WindowSweep(
        kept, here, cast("Any", None), replicas, clock, every=timedelta(seconds=30), lease=timedelta(seconds=60)
    )
    async with turns_beside() as turns:
        await sweep.sweep()
    assert asked == []
    assert turns.count >= (mine + theirs) // 500


class Threads:
    """Which of the functions ran beside the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.beside: list[str] = []
        self._monkeypatch = monkeypatch

    def watch(self, module: Any, name: str) -> None:
        real = getattr(module, name)

        def watched(*args: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                self.beside.append(name)
            return real(*args)

        self._monkeypatch.setattr(module, name, watched)


async def test_the_files_of_a_large_window_are_put_in_order_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = Threads(monkeypatch)
    threads.watch(tender, "_files")
    threads.watch(tender, "digests")
    monkeypatch.setattr(tender, "MANY_FILES", 1_000)
    here = tender_of(cast("Any", None))
    for count, beside in ((1_000, []), (1_001, ["_files", "digests"])):
        open_ = OpenWindow(window(0), head(0), DUE)
        content = await here.content(open_, (), [Pending.of(file, None) for file in reversed(files(count))])
        assert [file.ref for file in content.files] == [file.ref for file in files(count)]
        await here.move_on(open_, content)
        assert len(open_.known) == count
        assert threads.beside == beside


async def test_the_list_of_a_large_batch_is_written_and_read_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = Threads(monkeypatch)
    threads.watch(journals, "to_manifest")
    threads.watch(journals, "from_manifest")
    monkeypatch.setattr(journals, "_MANY_FILES", 1_000)
    _, journal = replica()
    many = replace(record(), files=tuple(files(5_000)))
    assert await journal.open(many, claim=True) is not None
    found = await journal.find(many)
    assert found is not None and len(found.record.files) == 5_000
    assert threads.beside == ["to_manifest", "from_manifest"]


async def test_files_of_an_earlier_sequence_are_left_out() -> None:
    here = tender_of(cast("Any", None))
    open_ = OpenWindow(window(0), head(0), DUE)
    first, *others = [Pending.of(file, None) for file in files(3)]
    open_.known = {first.digest}
    content = await here.content(open_, (), [first, *others])
    assert [file.ref for file in content.files] == [one.file().ref for one in others]


async def test_a_window_is_closed_before_its_shards_are_listed() -> None:
    """A member adds its shard, then looks for `closed`: one of the two sees the other only in this order."""
    calls: list[str] = []

    class Store:
        async def close(self, _name: str) -> None:
            calls.append("close")

        async def shards(self, _name: str) -> list[Any]:
            calls.append("shards")
            return []

        async def remove(self, _name: str, _shards: Any) -> None:
            calls.append("remove")

    await tender_of(cast("Any", Store())).close(
        OpenWindow(window(0), head(0), DUE, WindowState.OWNER), cast("Any", None)
    )
    assert calls == ["close", "shards", "remove"]
