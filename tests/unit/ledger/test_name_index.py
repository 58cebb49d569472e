"""The index of names: few calls whatever the journal's age, and no answer that hangs on it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY
from tests.unit.ledger.books import Books

from ingestd.batch.record import Record
from ingestd.ledger import name_keeper, name_segments
from ingestd.ledger.name_index import NameIndex, gaps
from ingestd.ledger.name_keeper import NameKeeper
from ingestd.ledger.name_segments import Draft, Segment, hash_of, hashes_of
from ingestd.model.errors import Transient, UnreadableObject
from ingestd.model.objects import EPOCH, Generation, ObjectInfo, ObjectRef

DAY = timedelta(days=1)
FOLDER = "journal/Names/d.t/"


class Kept(Books):
    """A journal whose names are written down."""

    def __init__(self) -> None:
        super().__init__()
        index = NameIndex(cast("Any", self.store), self.root, self.journal.strangers)
        self.keeper = NameKeeper(cast("Any", self.store), self.journal, index, self.clock)

    def window(self, ago: timedelta, files: int = 5) -> Record:
        day = (self.clock.now() - ago).strftime("%y%m%d%H%M")
        return self.batch(*(self.file(f"in/{day}-{part}.json", ago) for part in range(files)), start=ago)

    async def lived(self, days: int, per_day: int = 1) -> list[Record]:
        """So many days, each with its batches, and then some in which nothing happened."""
        made = []
        for _ in range(days):
            for number in range(per_day):
                made.append(self.window(timedelta(minutes=number)))
                await self.done(made[-1])
            self.clock.advance(DAY)
        self.clock.advance(4 * DAY)
        return made

    async def write_down(self) -> None:
        while await self.keeper.round():
            pass
        self.store.operations.clear()

    def objects(self, ending: str = ".idx") -> list[ObjectRef]:
        return [ObjectRef("ops", name) for name in self.store.names("ops", FOLDER) if name.endswith(ending)]

    async def knows(self, *batches: Record) -> None:
        for one in batches:
            for file in (one.files[0], one.files[-1]):
                assert await self.about(file.ref.name) == [one.event_id], file


def left_alone(why: str) -> float:
    return REGISTRY.get_sample_value("ingestd_objects_left_alone_total", {"place": "names", "why": why}) or 0.0


async def test_calls_do_not_grow_with_age() -> None:
    calls = {}
    for days in (40, 400):
        books = Kept()
        made = await books.lived(days, per_day=6)
        await books.write_down()
        await books.knows(made[0], made[len(made) // 2])
        books.store.operations.clear()
        assert await books.about(made[3].files[2].ref.name) == [made[3].event_id]
        calls[days] = dict(books.store.operations)
        assert books.store.operations["list"] <= 25, "listings of days that are not written down, and their folders"
        assert books.store.operations["get"] <= 6, "a bucket per segment, and the record"
    assert sum(calls[400].values()) <= 1.2 * sum(calls[40].values()), calls


async def test_segments_are_few_and_a_name_is_written_a_few_times() -> None:
    books = Kept()
    written = REGISTRY.get_sample_value("ingestd_name_records_read_total") or 0.0
    for _ in range(40):
        await books.lived(6, per_day=2)
        await books.write_down()
    assert len(books.objects()) <= 8
    read = (REGISTRY.get_sample_value("ingestd_name_records_read_total") or 0.0) - written
    assert read <= 40 * 12, "no record is read twice"


async def test_a_name_that_is_nowhere_is_in_no_answer() -> None:
    books = Kept()
    await books.lived(60, per_day=3)
    await books.write_down()
    assert books.objects()
    assert await books.about("in/never.json") == []


async def test_a_journal_without_an_index_is_answered_as_before() -> None:
    books = Kept()
    made = await books.lived(30)
    assert not books.objects()
    await books.knows(*made[::7])


def newer(books: Kept, ref: ObjectRef) -> None:
    books.store.put(ref, b"from the future", {"ingestd-version": "2"})


def emptied(books: Kept, ref: ObjectRef) -> None:
    books.store.put(ref, b"", {})


def garbled(books: Kept, ref: ObjectRef) -> None:
    data, info = books.store.content(ref), books.store._objects[ref][1]
    books.store.put(ref, bytes(byte ^ 255 for byte in data), info.metadata)


def cut_off(books: Kept, ref: ObjectRef) -> None:
    books.store.put(ref, books.store.content(ref)[:-20], books.store._objects[ref][1].metadata)


def of_other_days(books: Kept, ref: ObjectRef) -> None:
    """An honest segment, but of no batch: put where another one was."""
    name, labels, data = Draft(date(2023, 1, 1), date(2023, 2, 1)).written(date(2023, 3, 1))
    assert name
    books.store.put(ref, data, labels)


def relabelled(books: Kept, ref: ObjectRef) -> None:
    """A day less is left out than was."""
    labels = dict(books.store._objects[ref][1].metadata)
    books.store.put(ref, books.store.content(ref), labels | {"ingestd-left-out": "2024-01-03"})


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (newer, "newer_version"),
        (emptied, "unreadable"),
        (garbled, "unreadable"),
        (cut_off, "unreadable"),
        (of_other_days, "unreadable"),
        (relabelled, "unreadable"),
    ],
)
async def test_a_segment_that_cannot_be_read_costs_time_and_no_answer(
    damage: Callable[[Kept, ObjectRef], None], why: str
) -> None:
    books = Kept()
    made = await books.lived(60, per_day=2)
    await books.write_down()
    for ref in books.objects():
        damage(books, ref)
    before = left_alone(why)
    await books.knows(*made[::11])
    assert left_alone(why) > before
    for mark in books.journal.strangers.recent():
        assert mark.url.endswith(".idx")
    # Nor does it keep the days from being written down anew.
    books.clock.advance(9 * DAY)
    more = await books.lived(60, per_day=12)
    await books.write_down()
    await books.knows(*made[::11], *more[::40])


async def test_a_segment_that_is_too_large_is_not_read_and_its_days_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    books = Kept()
    made = await books.lived(60, per_day=2)
    await books.write_down()
    monkeypatch.setattr(name_segments, "LARGEST", 500)
    before = left_alone("unreadable")
    await books.knows(*made[::11])
    assert left_alone("unreadable") > before
    assert all("at most 500" in mark.reason for mark in books.journal.strangers.recent())


async def test_a_segment_that_is_removed_is_made_again() -> None:
    books = Kept()
    made = await books.lived(200, per_day=6)
    for _ in range(2):
        await books.write_down()
    for ref in books.objects():
        await books.store.delete(ref)
    await books.knows(made[0], made[-1])
    await books.write_down()
    assert books.objects()
    await books.knows(made[0], made[-1])
    assert books.store.operations["list"] <= 4 * 25


async def test_a_segment_that_goes_between_listing_and_reading_is_listed_instead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    books = Kept()
    made = await books.lived(60, per_day=2)
    await books.write_down()

    async def gone(*_: object, **__: object) -> None:
        return None

    monkeypatch.setattr(books.store, "fetch", gone)
    await books.knows(*made[::11])


async def test_junk_among_the_segments_is_told_and_passed_over() -> None:
    books = Kept()
    made = await books.lived(60, per_day=2)
    await books.write_down()
    for name in ("x", "x.idx", "x.late", "2024-01-01.2024-13-01.2024-01-01-ab.idx", "2024-01-01.x.late", ""):
        books.store.put(ObjectRef("ops", f"{FOLDER}{name}"), b"{}")
    before = left_alone("unreadable")
    await books.knows(*made[::11])
    assert left_alone("unreadable") >= before + 5
    await books.write_down()


async def test_a_batch_that_begins_in_a_day_that_was_written_down_is_found() -> None:
    books = Kept()
    made = await books.lived(60, per_day=2)
    await books.write_down()
    late = books.window(40 * DAY + timedelta(minutes=7))
    await books.done(late)
    assert len(books.objects(".late")) == 1
    await books.knows(late, *made[::11])
    # Later the day is written down again, and the mark goes.
    for _ in range(3):
        books.clock.advance(DAY)
        await books.write_down()
        await books.knows(late)
    assert not books.objects(".late")
    books.store.operations.clear()
    await books.knows(late)
    assert books.store.operations["list"] <= 2 * 20


async def test_a_batch_that_is_under_way_while_its_day_is_written_down_is_found_when_it_has_ended() -> None:
    books = Kept()
    stuck = books.window(timedelta(minutes=3))
    held = await books.begun(stuck)
    made = await books.lived(60, per_day=2)
    await books.write_down()
    await books.knows(stuck, *made[:3])
    await books.finished(held)
    await books.knows(stuck, *made[:3])
    assert not books.objects(".late"), "it began in time"


async def test_a_batch_that_is_opened_again_while_its_day_is_written_down_is_found_when_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    books = Kept()
    made = await books.lived(60, per_day=2)
    again = made[10]
    listing = books.keeper._listed
    reopened = []

    async def listed(*args: Any, **more: Any) -> Any:
        """After the look at what is under way, and before the one at what has ended."""
        if not reopened:
            known = await books.journal.finished(again)
            assert known is not None
            reopened.append(await books.journal.reopen(known, keep=True))
        return await listing(*args, **more)

    monkeypatch.setattr(books.keeper, "_listed", listed)
    await books.write_down()
    await books.finished(reopened[0])
    await books.knows(again, *made[::11])


async def test_a_record_that_cannot_be_read_keeps_its_day_out() -> None:
    books = Kept()
    made = await books.lived(60, per_day=2)
    bad = books.journal.done(made[20])
    data, info = await books.store.read(bad)
    books.store.put(bad, b"{}", info.metadata)
    books.store.put(ObjectRef("ops", f"{bad.name.rpartition('/')[0]}/notes.run"), b"?")
    await books.write_down()
    assert await books.about(made[20].files[1].ref.name) == []
    assert any(one.url == bad.url for one in books.journal.strangers.recent()), "whoever asks is told of it"
    books.store.put(bad, data, info.metadata)
    await books.knows(*made[18:22])


async def test_a_name_that_most_batches_have_makes_no_bucket_large() -> None:
    books = Kept()
    every = []
    for number in range(300):
        every.append(books.batch(books.file("in/current.json"), books.file(f"in/{number}.json"), start=timedelta()))
        await books.done(every[-1])
        books.clock.advance(DAY / 4)
    books.clock.advance(4 * DAY)
    await books.write_down()
    assert all(len(books.store.content(ref)) <= 300 * 2 * 18 * 3 for ref in books.objects())
    assert set(await books.about("in/current.json")) == {one.event_id for one in every}
    assert await books.about("in/7.json") == [every[7].event_id]


async def test_what_has_expired_is_dropped_when_segments_are_joined() -> None:
    books = Kept()
    made = await books.lived(60, per_day=2)
    await books.write_down()
    for one in made[:100]:
        await books.store.delete(books.journal.done(one))
    await books.lived(100, per_day=2)
    await books.write_down()
    (segment, *_) = sorted(books.objects(), key=lambda ref: ref.name)
    listed = [info async for info in books.store.list(segment)]
    assert Segment.of(listed[0]).names <= (20 + 200) * 5
    assert await books.about(made[0].files[0].ref.name) == []


async def test_of_two_that_write_down_the_same_days_either_is_read_and_one_goes() -> None:
    books = Kept()
    made = await books.lived(60, per_day=2)
    await books.write_down()
    (first,) = books.objects()
    data, info = books.store.content(first), books.store._objects[first][1]
    await books.store.delete(first)
    await books.write_down()
    books.store.put(first, data, info.metadata)
    assert len(books.objects()) == 2
    await books.knows(*made[::11])
    await books.write_down()
    assert len(books.objects()) == 1
    await books.knows(*made[::11])


async def test_whoever_dies_between_writing_and_removing_leaves_nothing_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    books = Kept()
    made = await books.lived(60, per_day=2)
    await books.write_down()
    made += await books.lived(60, per_day=4)
    with monkeypatch.context() as broken:
        broken.setattr(books.store, "delete", _refused)
        await books.keeper.round()
    assert len(books.objects()) == 2
    await books.knows(*made[::17])
    await books.write_down()
    assert len(books.objects()) == 1
    await books.knows(*made[::17])


async def _refused(*_: object, **__: object) -> bool:
    raise Transient("not now")


async def test_of_several_replicas_one_writes_down_and_once_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    books = Kept()
    await books.lived(60, per_day=2)
    rounds = []

    async def round_() -> bool:
        rounds.append(books.clock.now())
        return len(rounds) < 3

    others = [Kept() for _ in range(2)]
    for other in others:
        other.clock, other.store = books.clock, books.store
        index = NameIndex(cast("Any", books.store), books.root, books.journal.strangers)
        other.keeper = NameKeeper(cast("Any", books.store), books.journal, index, books.clock)
        cast("Any", other.keeper).round = round_
    for expected in (1, 2, 3, 3, 3):
        for other in others[: 1 if expected < 3 else 2]:
            await other.keeper.look()
        assert len(rounds) == expected
    books.clock.advance(DAY)
    assert not await others[1].keeper.look()
    assert len(rounds) == 4
    books.store.put(ObjectRef("ops", "journal/Names/round.json"), b"?")
    await others[0].keeper.look()
    assert len(rounds) == 5, "a note that cannot be read says nothing"
    monkeypatch.setattr(name_keeper, "LARGEST", 100)
    books.store.put(ObjectRef("ops", "journal/Names/round.json"), b'{"Until": "2099-01-01", "x": "%s"}' % (b"x" * 100))
    await others[0].keeper.look()
    assert len(rounds) == 6, "nor does one that is too large, and it is replaced"
    assert not await others[0].keeper.look() and len(rounds) == 6


async def test_a_round_takes_a_part_of_an_old_journal_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_keeper, "_MOST_RECORDS", 100)
    books = Kept()
    made = await books.lived(100, per_day=6)
    assert await books.keeper.round(100)
    (part,) = books.objects()
    assert part.name < f"{FOLDER}2024-01-02"
    await books.knows(made[0], made[300], made[-1])
    rounds = 1
    while await books.keeper.round(100):
        rounds += 1
        await books.knows(made[0], made[300], made[-1])
    assert 3 <= rounds <= 10
    assert len(books.objects()) <= 4


@pytest.mark.parametrize("files", [0, 1, 63, 64, 65, 5_000])
def test_every_name_of_a_segment_is_found_in_its_bucket_and_no_other(files: int) -> None:
    first = date(2024, 1, 1)
    refs = [ObjectRef("data", f"in/ä{number}.json") for number in range(files)]
    draft = Draft(first, first + 9 * DAY)
    for number, ref in enumerate(refs):
        draft.batches[first + DAY * (number % 10), 2**63 - 1 - number] = hashes_of([ref, ref])
    segment, data = made_of(draft)
    assert segment.names == files
    for number, ref in enumerate(refs):
        assert look(segment, data, ref) == [(first + DAY * (number % 10), 2**63 - 1 - number)]
    assert look(segment, data, ObjectRef("data", "other")) == []
    assert segment.all(data) == (draft.batches, set())


def test_a_segment_has_only_so_many_days_left_out_and_ends_before_the_next() -> None:
    first = date(2024, 1, 1)
    draft = Draft(first, first + 400 * DAY, left_out={first + DAY * number for number in range(0, 400, 2)})
    draft.batches = {(first + DAY, 1): hashes_of([ObjectRef("b", "a")]), (first + 399 * DAY, 2): b"12345678"}
    draft.shorten()
    segment, data = made_of(draft)
    assert (segment.last, segment.names) == (first + 199 * DAY, 1)
    assert not segment.covers(first)
    assert look(segment, data, ObjectRef("b", "a")) == [(first + DAY, 1)]
    assert sum(map(len, segment.info.metadata.values())) < 4_000, "metadata of an object takes 8 KiB at most"


def test_a_bucket_of_another_segment_is_refused() -> None:
    first = date(2024, 1, 1)
    one, data = made_of(Draft(first, first, {(first, 1): hashes_of([ObjectRef("b", "a")])}))
    other, _ = made_of(Draft(first, first + DAY, {(first, 1): hashes_of([ObjectRef("b", "a")])}))
    assert look(one, data, ObjectRef("b", "a")) == [(first, 1)]
    with pytest.raises(UnreadableObject):
        look(other, data, ObjectRef("b", "a"))


def test_days_that_no_segment_covers_are_told() -> None:
    first = date(2024, 1, 1)
    assert gaps([]) == [(None, None)]
    one, _ = made_of(Draft(first, first + 3 * DAY, left_out={first + DAY}))
    other, _ = made_of(Draft(first + 6 * DAY, first + 8 * DAY))
    assert gaps([(one, set()), (other, {first + 7 * DAY})]) == [
        (None, first),
        (first + DAY, first + 2 * DAY),
        (first + 4 * DAY, first + 6 * DAY),
        (first + 7 * DAY, first + 8 * DAY),
        (first + 9 * DAY, None),
    ]
    assert gaps([(one, set()), (replace(one, left_out=frozenset()), set())]) == [(None, first), (first + 4 * DAY, None)]


def made_of(draft: Draft) -> tuple[Segment, bytes]:
    name, labels, data = draft.written(date(2024, 6, 1))
    info = ObjectInfo(ObjectRef("ops", f"{FOLDER}{name}"), Generation(1), len(data), EPOCH, metadata=labels)
    return Segment.of(info), data


def look(segment: Segment, data: bytes, ref: ObjectRef) -> object:
    at = segment.bucket_of(hash_of(ref)) * segment.slot
    return segment.matches(data[at : at + segment.slot], hash_of(ref))
