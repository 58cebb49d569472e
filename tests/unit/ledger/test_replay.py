"""Files that go back from quarantine: each once, however often the command is cut off and repeated."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import orjson
import pytest
from tests.support.manual_clock import ManualClock
from tests.support.memory_store import MemoryStore
from tests.support.records import record

from ingestd.batch.content import Fate, Progress, SetAside
from ingestd.batch.journal import Journal
from ingestd.batch.phases import Phase
from ingestd.ledger.replay import Asked, Replayed, Replayer, Selection
from ingestd.model.errors import PreconditionFailed, Transient
from ingestd.model.objects import EPOCH, Generation, ObjectRef

SOURCE = ObjectRef("data", "in/a.json")
KEPT = ObjectRef("ops", "bad/in/a.json")
REASON = ObjectRef("ops", "bad/in/a.json.reason.json")


class Cut(MemoryStore):
    """A store from which the command is cut off: before its next deletion, or before its next copy."""

    before = ""

    async def delete(self, ref: ObjectRef, *, if_generation: Generation | None = None) -> bool:
        self._cut("delete")
        return await super().delete(ref, if_generation=if_generation)

    async def copy(self, source: ObjectRef, target: ObjectRef, **more: Any) -> Generation:
        self._cut("copy")
        await asyncio.sleep(0)  # others have their turn
        return await super().copy(source, target, **more)

    def _cut(self, what: str) -> None:
        if self.before == what:
            raise Transient("cut off")


@pytest.fixture
def store() -> Cut:
    store = Cut(ManualClock())
    store.put(KEPT, b"{}")
    store.put(REASON, orjson.dumps({"Source": SOURCE.url, "EventID": "1", "Message": "bad"}))
    return store


async def restore(store: Cut) -> list[Replayed]:
    clock = ManualClock()
    journal = cast("Journal", None)
    replayer = Replayer(cast("Any", store), journal, clock, notes=ObjectRef("ops", "notes"))
    return [one async for one in replayer.quarantined(ObjectRef("ops", "bad/"), Selection(), Asked("ann", "mended"))]


def left(store: Cut) -> list[str]:
    return list(store.names("ops", "bad/"))


@pytest.mark.parametrize(
    ("selection", "opened"),
    [
        (Selection(since=EPOCH), False),
        (Selection(rule="r"), False),
        (Selection(event_ids=[record().event_id]), True),
        (Selection([record().files[0].ref]), True),
    ],
)
async def test_a_batch_whose_rows_may_be_there_is_opened_only_by_name(selection: Selection, opened: bool) -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    journal = Journal(cast("Any", store), ObjectRef("ops", "j"), clock, owner="a", lease=timedelta(seconds=60))
    held = await journal.open(record(), claim=True)
    assert held is not None
    unsure = Progress(aside={0: SetAside(Fate.REFUSED, "nobody can tell", "a_job")})
    held.record = replace(held.record, phase=Phase.FAILED, progress=unsure)
    await journal.finish(held)
    replayer = Replayer(cast("Any", store), journal, clock, notes=ObjectRef("ops", "notes"))
    (done,) = [one async for one in replayer.batches(selection, Asked("ann", "looked"))]
    assert done.skipped is not opened
    assert ("compare the table with the file" in done.what) is not opened
    assert bool(store.names("ops", "j/Running/")) is opened


async def test_a_file_goes_back_and_leaves_nothing_behind(store: Cut) -> None:
    (done,) = await restore(store)
    assert not done.skipped
    assert store.content(SOURCE) == b"{}"
    assert left(store) == []


async def test_a_file_that_went_back_and_was_loaded_since_does_not_go_back_again(store: Cut) -> None:
    store.before = "delete"
    with pytest.raises(Transient):
        await restore(store)
    assert store.content(SOURCE) == b"{}"
    store.before = ""
    await store.delete(SOURCE)  # loaded, and deleted by its rule
    (again,) = await restore(store)
    assert again.skipped
    assert "was put back before" in again.what
    assert store.names("data") == [], "it would be loaded a second time"
    assert left(store) == [KEPT.name, REASON.name], "a person decides"


async def test_a_file_that_went_back_and_is_still_there_is_tidied_up(store: Cut) -> None:
    store.before = "delete"
    with pytest.raises(Transient):
        await restore(store)
    store.before, generation = "", (await store.read(SOURCE))[1].generation
    (again,) = await restore(store)
    assert not again.skipped
    assert left(store) == []
    assert (await store.read(SOURCE))[1].generation == generation


async def test_of_two_who_put_a_file_back_at_once_one_does(store: Cut) -> None:
    one, other = await asyncio.gather(restore(store), restore(store))
    told = [*one, *other]
    assert sum(not done.skipped for done in told) == 1, told
    assert store.operations["rewrite"] == 1
    assert left(store) == []


async def test_a_file_that_could_not_be_put_back_goes_back_the_next_time(store: Cut) -> None:
    store.before = "copy"
    with pytest.raises(Transient):
        await restore(store)
    store.before = ""
    (again,) = await restore(store)
    assert not again.skipped
    assert store.content(SOURCE) == b"{}"
    assert left(store) == []


async def test_a_copy_whose_answer_was_lost_and_that_was_loaded_since_is_not_made_again(store: Cut) -> None:
    """The second try of the same call meets the first one's copy, which its rule then loads and deletes."""
    plain = MemoryStore.copy

    async def lost(self: MemoryStore, source: ObjectRef, target: ObjectRef, **more: Any) -> Generation:
        await plain(self, source, target, **more)
        await MemoryStore.delete(self, target)
        raise PreconditionFailed("there is something")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cut, "copy", lost)
        await restore(store)
    (again,) = await restore(store)
    assert again.skipped
    assert "may have been loaded" in again.what
    assert store.names("data") == [], "it would be loaded a second time"


async def test_a_newer_upload_is_left_alone_and_the_file_stays_where_it_is(store: Cut) -> None:
    store.put(SOURCE, b"newer")
    for _ in range(2):
        (done,) = await restore(store)
        assert done.skipped
        assert "uploaded again" in done.what
    assert store.content(SOURCE) == b"newer"
    assert left(store) == [KEPT.name, REASON.name]
    await store.delete(SOURCE)
    (done,) = await restore(store)
    assert not done.skipped
