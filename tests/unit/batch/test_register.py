"""The register: each file belongs to one batch, whoever asks at the same time, whatever gets lost, however long ago."""

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.manual_clock import ManualClock
from tests.support.memory_store import MemoryStore
from tests.support.turns import turns_beside

from ingestd.batch import register as register_module
from ingestd.batch.register import Register, batch_name
from ingestd.model.errors import NewerVersion, Transient
from ingestd.model.objects import ABSENT, FileVersion, Generation, ObjectInfo, ObjectRef
from ingestd.model.tables import parse_table

ROOT = ObjectRef("ops", "journal/register")
TABLE = parse_table("p.d.t")
BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)


def file(number: int, *, after: timedelta = timedelta(), folder: str = "data") -> FileVersion:
    moment = BEGIN + after
    generation = Generation(int(moment.timestamp() * 1_000_000) + number)
    return FileVersion(ObjectRef("b", f"{folder}/f{number}.json"), generation, 10, moment)


class Slow(MemoryStore):
    """Each call takes its own time, so that whoever asks at once gets in each other's way; some answers are lost."""

    def __init__(self, seed: int = 0, *, lost: float = 0.0) -> None:
        super().__init__(ManualClock())
        self.chance = random.Random(seed)
        self.lost = lost

    async def pause(self) -> None:
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)

    async def stat(self, ref: ObjectRef, **kwargs: Any) -> ObjectInfo | None:
        await self.pause()
        return await super().stat(ref, **kwargs)

    async def read(self, ref: ObjectRef, **kwargs: Any) -> tuple[bytes, ObjectInfo]:
        await self.pause()
        return await super().read(ref, **kwargs)

    async def create(self, ref: ObjectRef, data: bytes, **kwargs: Any) -> Generation:
        await self.pause()
        written = await super().create(ref, data, **kwargs)
        await self.pause()
        if self.chance.random() < self.lost:
            raise Transient("the answer was lost")
        return written

    async def list(self, prefix: ObjectRef, **kwargs: Any) -> AsyncIterator[ObjectInfo]:
        await self.pause()
        async for info in super().list(prefix, **kwargs):
            yield info


@pytest.mark.parametrize("seed", range(40))
async def test_each_file_belongs_to_one_batch_whoever_enters_it_at_the_same_time(seed: int) -> None:
    store = Slow(seed, lost=0.3)
    replicas = [Register(store, ROOT) for _ in range(3)]
    chance = random.Random(f"batches {seed}")
    files = [file(n, after=timedelta(minutes=20 * n)) for n in range(8)]
    loaded: dict[str, set[str]] = {one.key: set() for one in files}

    async def drive(batch: str) -> None:
        """What a batch does, by whichever replica, until it got an answer."""
        mine = chance.sample(files, k=chance.randint(1, 6))
        while True:
            try:
                others = await chance.choice(replicas).enter(TABLE, batch, mine)
                break
            except Transient:
                continue
        for one in mine:
            if one.key not in others:
                loaded[one.key].add(batch)

    await asyncio.gather(*(drive(f"batch{number}") for number in range(9)))
    assert all(len(batches) <= 1 for batches in loaded.values()), loaded
    held = await Register(store, ROOT).holders(TABLE, files)
    assert held == {key: next(iter(batches)) for key, batches in loaded.items() if batches}, "whom it names has it"


async def test_entering_again_changes_nothing_and_costs_no_write() -> None:
    store = Slow()
    files = [file(n) for n in range(3)]
    assert await Register(store, ROOT).enter(TABLE, "first", files) == {}
    written = store.operations["insert"]
    assert await Register(store, ROOT).enter(TABLE, "first", files) == {}
    assert await Register(store, ROOT).enter(TABLE, "second", files) == {one.key: "first" for one in files}
    assert store.operations["insert"] == written == 1


async def test_a_page_whose_answer_was_lost_is_found_to_be_ones_own() -> None:
    store = Slow(lost=1.0)
    register = Register(store, ROOT)
    with pytest.raises(Transient):
        await register.enter(TABLE, "first", [file(1)])
    store.lost = 0.0
    assert await register.enter(TABLE, "first", [file(1), file(2)]) == {}
    assert await register.enter(TABLE, "second", [file(1), file(2)]) == {file(1).key: "first", file(2).key: "first"}


async def test_tables_are_told_apart_and_partitions_of_one_are_not() -> None:
    register = Register(Slow(), ROOT)
    await register.enter(parse_table("p.d.t$20260101"), "first", [file(1)])
    assert await register.enter(parse_table("p.d.other"), "second", [file(1)]) == {}
    assert await register.enter(parse_table("p.d.t$20260102"), "third", [file(1)]) == {file(1).key: "first"}


async def test_generations_of_one_name_are_told_apart() -> None:
    register = Register(Slow(), ROOT)
    first, second = file(1), FileVersion(file(1).ref, Generation(file(1).generation + 1))
    await register.enter(TABLE, "first", [first])
    assert await register.enter(TABLE, "second", [first, second]) == {first.key: "first"}


async def test_batches_that_come_together_share_a_page() -> None:
    store = Slow()
    register = Register(store, ROOT)
    await asyncio.gather(*(register.enter(TABLE, f"b{n}", [file(n, folder=f"f{n}")]) for n in range(100)))
    assert store.operations["insert"] <= 3
    assert await Register(store, ROOT).holders(TABLE, [file(7, folder="f7")]) == {file(7, folder="f7").key: "b7"}


async def test_large_batches_get_pages_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_module, "_MANY_FILES", 100)
    store = Slow()
    register = Register(store, ROOT)
    batches = [[file(60 * n + place) for place in range(60)] for n in range(4)]
    await asyncio.gather(*(register.enter(TABLE, f"b{n}", files) for n, files in enumerate(batches)))
    assert store.operations["insert"] == 4
    for n, files in enumerate(batches):
        assert await Register(store, ROOT).holders(TABLE, files) == {one.key: f"b{n}" for one in files}


async def test_a_large_batch_does_not_hold_up_everybody_else() -> None:
    store = Slow()
    files = [file(number) for number in range(60_000)]
    async with turns_beside() as turns:
        assert await Register(store, ROOT).enter(TABLE, "a", files) == {}
        assert turns.count > 200, "its files are looked at beside the event loop"
        turns.count = 0
        assert len(await Register(store, ROOT).enter(TABLE, "b", files)) == len(files)
        assert turns.count > 200


async def test_one_failure_does_not_spread_to_those_who_came_along() -> None:
    store = Slow(lost=1.0)
    register = Register(store, ROOT)
    asked = [asyncio.create_task(register.enter(TABLE, f"b{n}", [file(n)])) for n in range(5)]
    first, *others = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(first, Transient), "all others came along with it"
    assert len(store.names(ROOT.bucket)) == 1
    assert others == [{}, {}, {}, {}], "the page was written: they found themselves on it"


async def test_finding_a_file_costs_the_same_whatever_its_age_and_however_much_came_since() -> None:
    store = Slow()
    writer = Register(store, ROOT)
    for day in range(20):
        for minute in range(0, 60, 4):
            moment = timedelta(days=day, minutes=minute)
            await writer.enter(TABLE, f"{day}-{minute}", [file(n, after=moment) for n in range(50)])
    for day in (0, 19):
        before = dict(store.operations)
        wanted = file(7, after=timedelta(days=day, minutes=32))
        assert await Register(store, ROOT).holders(TABLE, [wanted]) == {wanted.key: f"{day}-32"}
        used = {what: count - before.get(what, 0) for what, count in store.operations.items()}
        assert used["list"] == 1
        assert used["get"] <= 1


async def test_a_process_that_asks_again_sees_what_others_entered_since() -> None:
    store = Slow()
    mine, theirs = Register(store, ROOT), Register(store, ROOT)
    assert await mine.holders(TABLE, [file(1)]) == {}
    await theirs.enter(TABLE, "theirs", [file(1)])
    assert await mine.holders(TABLE, [file(1)]) == {file(1).key: "theirs"}


@pytest.mark.parametrize(
    "content", [b"", b"junk", b"[]", b"7", b'{"schema_version": 1}', b'{"schema_version": 1, "Batches": [3]}']
)
async def test_whatever_else_lies_there_is_passed_over(content: bytes) -> None:
    store = Slow()
    folder = "journal/register/p.d.t/2026-01-01T12"
    for name in ("", "notes.txt", "000000.json", "x/000000.json"):
        store.put(ObjectRef("ops", f"{folder}/{name}"), content, {"ingestd-generations": "x"})
    register = Register(store, ROOT)
    assert await register.enter(TABLE, "first", [file(1)]) == {}
    assert await Register(store, ROOT).enter(TABLE, "second", [file(1)]) == {file(1).key: "first"}


async def test_a_page_of_a_newer_version_holds_up_only_what_it_may_have() -> None:
    store = Slow()
    folder = ROOT / "p.d.t/2026-01-01T12"
    await store.create(folder / "000000.json", b'{"schema_version": 2}', if_generation=ABSENT)
    register = Register(store, ROOT)
    with pytest.raises(NewerVersion):
        await register.enter(TABLE, "first", [file(1)])
    assert await register.enter(TABLE, "later", [file(1, after=timedelta(hours=1))]) == {}


async def test_memory_stays_bounded_over_many_tables_and_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingestd.batch.register._LOGS", 5)
    monkeypatch.setattr("ingestd.batch.register._CACHED", 200)
    register = Register(Slow(), ROOT)
    for hour in range(40):
        await register.enter(TABLE, f"b{hour}", [file(n, after=timedelta(hours=hour)) for n in range(5)])
    assert len(register._logs) <= 5
    assert sum(len(blob) for page in register._read.values() for _, blob in page) <= 200
    assert await register.enter(TABLE, "again", [file(1)]) == {file(1).key: "b0"}


async def test_a_record_that_expired_and_is_created_again_is_another_batch() -> None:
    """A page outlives the record: a duplicate that comes months later creates the record at the same place."""
    register = Register(Slow(), ROOT)
    first, again = batch_name("d.t/2026-01-01/7", "5f1"), batch_name("d.t/2026-01-01/7", "6a2")
    await register.enter(TABLE, first, [file(1)])
    assert await register.enter(TABLE, first, [file(1)]) == {}
    assert await register.enter(TABLE, again, [file(1)]) == {file(1).key: "d.t/2026-01-01/7"}
    unborn = batch_name("d.t/2026-01-01/7", "")  # saved meanwhile by a version that knows nothing of this
    assert await register.enter(TABLE, unborn, [file(1)]) == {}
