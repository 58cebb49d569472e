"""What was read when a file was overwritten around its load: decided from facts, and refused where they do not tell."""

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, cast

import pytest
from tests.support.manual_clock import ManualClock
from tests.support.memory_store import MemoryStore
from tests.support.records import START, batch, batch_of, info

from ingestd.batch.content import Fate, Load, Progress, SetAside
from ingestd.batch.journal import Journal
from ingestd.batch.landing import destination
from ingestd.batch.overwrites import Overwrites, changed, decided, has_read
from ingestd.batch.phases import Phase
from ingestd.batch.record import Record
from ingestd.batch.sources import Looked
from ingestd.batch.trails import Reading, Trail, Trails, Version
from ingestd.batch.underway import UnderWay
from ingestd.model.errors import Fatal, Transient
from ingestd.model.jobs import JobKind, JobRef, JobState
from ingestd.model.objects import ABSENT, FileVersion, Generation, ObjectRef

NAME = ObjectRef("b", "a.json")


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def reading(started: float, ended: float, read: int | None, **changes: Any) -> Reading:
    """A job that was meant for generation 5, of three bytes."""
    facts = Reading("j5", Generation(5), 3, "old", START + seconds(started), START + seconds(ended), read, 1)
    return replace(facts, **changes)


def newer(overwrote: int = 5) -> FileVersion:
    return FileVersion(NAME, Generation(9), overwrote=Generation(overwrote))


@pytest.mark.parametrize(
    ("started", "ended", "read", "answer"),
    [
        (1, 5, None, True),  # it was there before the job started, and still is
        (-5, -1, None, False),  # it came after the job had ended
        (-1, 1, 11, True),
        (-1, 1, 3, False),
        (-1, 1, 77, False),  # neither: another generation that came and went
        (-1, 1, None, None),  # other files of the job changed as well
        (0.05, 5, None, None),  # the clocks of two services are not that close
    ],
)
def test_times_tell_what_was_read_and_sizes_where_times_do_not(
    started: float, ended: float, read: int | None, answer: bool | None
) -> None:
    assert has_read(reading(started, ended, read), newer(), info("a.json", 9, 11), {}) is answer


def test_two_contents_of_the_same_size_cannot_be_told_apart_unless_they_are_equal() -> None:
    during = reading(-1, 1, 3)
    assert has_read(during, newer(), info("a.json", 9, 3), {}) is None
    assert has_read(replace(during, crc32c="crc"), newer(), info("a.json", 9, 3), {}) is False


def test_a_generation_in_between_may_be_what_was_read() -> None:
    during, file, live = reading(-1, 1, 11), newer(overwrote=7), info("a.json", 9, 11)

    def between(size: int, crc32c: str = "x", overwrote: int = 5) -> dict[Generation, Version]:
        return {Generation(7): Version(Generation(7), size, crc32c, Generation(overwrote))}

    assert has_read(during, file, live, between(4)) is True
    assert has_read(during, file, live, between(11)) is None
    assert has_read(during, file, live, between(0, "")) is None, "a notification without payload tells no size"
    with pytest.raises(Transient, match=r"generation 7 .* not announced"):
        has_read(during, file, live, {})
    with pytest.raises(Transient, match="generation 6 "):
        has_read(during, file, live, between(4, overwrote=6))
    after_a_deletion = newer(overwrote=ABSENT)
    assert has_read(during, after_a_deletion, live, {}) is True
    assert has_read(during, after_a_deletion, live, between(11)) is None


def job(started: float = -1, ended: float = 1, size: int = 0) -> JobState:
    return JobState(
        JobRef("p", "US", "j"),
        JobKind.LOAD,
        "DONE",
        {},
        statistics={"load": {"inputFileBytes": str(size), "outputRows": "2"}},
        started=START + seconds(started),
        ended=START + seconds(ended),
    )


def pinned(*sizes: int) -> dict[int, FileVersion]:
    return {
        number: FileVersion(ObjectRef("b", f"{number}.json"), Generation(5), size) for number, size in enumerate(sizes)
    }


def live(*found: tuple[int, int, int]) -> dict[ObjectRef, Any]:
    infos = [info(f"{number}.json", generation, size) for number, generation, size in found]
    return {one.ref: one for one in infos}


def test_a_source_that_is_still_there_after_the_job_is_what_was_read() -> None:
    assert not changed(job(size=999), pinned(3, 40), live((0, 5, 3), (1, 5, 40)))


def test_what_replaced_a_source_before_the_job_started_was_read_in_its_place() -> None:
    found = changed(job(started=1, ended=5, size=51), pinned(3, 40), live((0, 9, 11), (1, 5, 40)))
    assert list(found.unread) == [0]
    (facts,) = found.notes[ObjectRef("b", "0.json")].readings
    assert (facts.generation, facts.read, facts.rows) == (5, 11, None)


def test_bytes_tell_whether_the_pinned_content_was_read_after_all() -> None:
    assert not changed(job(size=43), pinned(3, 40), live((0, 9, 11), (1, 5, 40))).unread
    assert list(changed(job(size=51), pinned(3, 40), live((0, 9, 11), (1, 5, 40))).unread) == [0]
    alone = changed(job(size=4), pinned(3), live())
    assert list(alone.unread) == [0], "what was read came and went"
    assert not alone.notes, "nobody is left to ask"
    assert not changed(job(size=3), pinned(3), live()).unread, "it was deleted, by whomever, after it was read"


def test_two_files_that_changed_while_they_were_read_cannot_be_told_apart_by_bytes() -> None:
    found = changed(job(size=60), pinned(3, 40), live((0, 9, 20), (1, 9, 40)))
    assert [trail.readings[0].read for trail in found.notes.values()] == [None, None]
    later = changed(job(size=60, ended=-0.5), pinned(3, 40), live((0, 9, 20), (1, 9, 40)))
    assert not later.notes, "they were overwritten after the job had ended"


def test_a_batch_has_decided_when_its_job_is_proven_or_the_file_is_out() -> None:
    asked = {ObjectRef("b", "a.json"): Generation(9), ObjectRef("b", "y.json"): Generation(5)}
    loading = replace(batch(("a.json", 5), ("y.json", 5)), progress=Progress(jobs=1))
    assert not decided(loading, asked)
    proven = Progress(loads=(Load(1, (0, 1), 2, 43),), jobs=1)
    assert decided(replace(loading, progress=proven), asked)
    assert not decided(replace(loading, progress=replace(proven, staged=True)), asked), "it is not published yet"
    assert decided(replace(loading, phase=Phase.FAILING), asked)
    assert decided(replace(loading, progress=Progress(aside={0: SetAside(Fate.MISSING, "gone")})), asked)
    assert decided(replace(loading, progress=Progress(preparing=1)), asked), "it reads what was pinned, or nothing"


class Clock(ManualClock):
    """Waiting takes as long as it says, and nothing else happens meanwhile."""

    async def sleep(self, duration: timedelta) -> None:
        self.advance(duration)


@dataclass
class Surroundings:
    """A journal, and what a batch finds there."""

    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock)
        store = cast("Any", self.store)
        self.journal = Journal(store, ObjectRef("ops", "j"), self.clock, owner="a", lease=seconds(60))
        self.trails = Trails(store, self.journal)
        self.underway = UnderWay(self.journal, self.clock, project=destination(batch_of(1)).project or "")
        self.overwrites = Overwrites(self.underway, self.trails, self.journal, self.clock)
        self.gave_up = 0

    async def check(self, asking: Record, *present: int, again: Looked | None = None) -> dict[int, SetAside]:
        looked = Looked({index: info(asking.files[index].ref.name, 9, 11) for index in present})

        async def give_up() -> None:
            self.gave_up += 1

        async def look_again(indexes: list[int]) -> Looked:
            return again or Looked({index: looked.present[index] for index in indexes})

        return await self.overwrites.check(asking, looked, give_up, look_again)


def asking(*names: str) -> Record:
    return replace(batch(*((name, 9) for name in names)), event_id="9")


@pytest.mark.parametrize("files", [("a.json",), ("a.json", "y.json")])
async def test_an_earlier_generation_under_way_is_waited_for_after_saying_what_is_given_up(
    files: tuple[str, ...],
) -> None:
    around = Surroundings()
    await around.journal.open(replace(batch(*((name, 5) for name in files)), event_id="5"), claim=True)
    with pytest.raises(Transient, match="batch 5 is still loading"):
        await around.check(asking("a.json"), 0)
    assert around.gave_up == 1


@pytest.mark.parametrize("spelled", ["{0.project}.{0.dataset}.{0.table}", "{0.dataset}.{0.table}"])
@pytest.mark.parametrize("partition", ["", "$20240101"])
async def test_an_earlier_generation_is_found_however_its_rule_spelled_the_table(spelled: str, partition: str) -> None:
    around = Surroundings()
    dest = spelled.format(destination(batch_of(1))) + partition
    await around.journal.open(replace(batch(("a.json", 5)), event_id="5", dest=dest), claim=True)
    with pytest.raises(Transient, match="batch 5 is still loading"):
        await around.check(asking("a.json"), 0)


async def test_other_names_later_generations_and_the_batch_itself_hold_nobody_up() -> None:
    around = Surroundings()
    for event, file in (("1", ("b.json", 5)), ("2", ("a.json", 12)), ("9", ("a.json", 5))):
        await around.journal.open(replace(batch(file), event_id=event), claim=True)
    for event, dest in (("3", "ds.t-other"), ("4", "ds.other")):
        await around.journal.open(replace(batch(("a.json", 5)), event_id=event, dest=dest), claim=True)
    assert await around.check(asking("a.json"), 0) == {}


async def test_what_an_earlier_load_has_read_is_not_loaded_again() -> None:
    around = Surroundings()
    asker = asking("a.json", "z.json")
    await around.trails.note(asker, {NAME: Trail(readings=(reading(1, 5, None),))})
    found = await around.check(asker, 0, 1)
    assert {index: (one.fate, one.job_id, one.rows) for index, one in found.items()} == {
        0: (Fate.READ_EARLIER, "j5", 1)
    }


async def test_a_file_that_went_while_its_batch_waited_was_not_what_the_earlier_load_read() -> None:
    around = Surroundings()
    asker = asking("a.json")
    await around.trails.note(asker, {NAME: Trail(readings=(reading(1, 5, None),))})
    gone = Looked(aside={0: SetAside(Fate.SUPERSEDED, "newer")})
    assert (await around.check(asker, 0, again=gone))[0].fate is Fate.SUPERSEDED


async def test_what_cannot_be_told_is_refused_until_a_person_has_it_replayed() -> None:
    around = Surroundings()
    asker = asking("a.json")
    await around.trails.note(asker, {NAME: Trail(readings=(reading(-1, 1, None),))})
    assert (await around.check(asker, 0))[0].fate is Fate.REFUSED
    assert await around.check(replace(asker, replays=1), 0) == {}


async def test_any_number_of_earlier_loads_is_asked() -> None:
    around = Surroundings()
    asker = asking("a.json")
    before = tuple(reading(-90 + n, -80 + n, 3, job_id=f"j{n}", generation=Generation(n)) for n in range(1, 9))
    await around.trails.note(asker, {NAME: Trail(readings=(*before, reading(1, 5, None)))})
    assert (await around.check(asker, 0))[0].job_id == "j5"


@pytest.mark.parametrize(
    ("there", "noted"),
    [("nothing", 0), ("under way", 1), ("read", 1), ("later", 0)],
)
async def test_what_went_is_noted_only_where_the_load_of_an_earlier_generation_may_have_read_it(
    there: str, noted: int
) -> None:
    around = Surroundings()
    gone = batch(*((f"{number}.json", 7) for number in range(500)))
    name = gone.files[3].ref
    if there == "under way":
        await around.journal.open(replace(batch((name.name, 5), ("y.json", 5)), event_id="5"), claim=True)
    elif there == "read":
        await around.trails.note(gone, {name: Trail(readings=(reading(1, 5, 3),))})
    elif there == "later":
        await around.trails.note(gone, {name: Trail(readings=(reading(1, 5, 3, generation=Generation(8)),))})
    around.store.operations.clear()
    await around.overwrites.note_gone(replace(gone, event_id="7"), gone.files)
    assert around.store.class_a <= 4, "not one per file"
    trails = await around.trails.of(gone, [file.ref for file in gone.files])
    assert [ref for ref, trail in trails.items() if trail.versions] == [name] * noted


async def test_notes_of_many_names_are_found_by_one_listing() -> None:
    around = Surroundings()
    names = [ObjectRef("b", f"{number}.json") for number in range(500)]
    await around.trails.note(batch_of(1), {names[7]: Trail(readings=(reading(1, 5, 3),))})
    around.store.operations.clear()
    assert list(await around.trails.of(batch_of(1), names)) == [names[7]]
    assert (around.store.class_a, around.store.class_b) == (1, 1)


async def test_notes_are_kept_as_first_written_and_added_to_by_several() -> None:
    around = Surroundings()
    first = Trail((Version(Generation(6), 4, "x", Generation(5)),), (reading(1, 5, 3),))
    await around.trails.note(batch_of(1), {NAME: first})
    again = Trail((Version(Generation(7), 5, "y", Generation(6)),), (replace(reading(1, 5, 3), read=None),))
    await around.trails.note(batch_of(1), {NAME: again})
    (trail,) = (await around.trails.of(batch_of(1), [NAME])).values()
    assert [one.generation for one in trail.versions] == [6, 7]
    assert [one.read for one in trail.readings] == [3]


async def test_of_two_that_note_something_on_a_name_at_the_same_time_neither_is_forgotten() -> None:
    around = Surroundings()
    read = around.store.read

    async def read_and_pause(*args: Any, **kwargs: Any) -> Any:
        try:
            return await read(*args, **kwargs)
        finally:
            await asyncio.sleep(0)

    around.store.read = read_and_pause  # type: ignore[method-assign]
    for known in ((), ("j1", "j2")):  # the first notes on the name, and further ones
        jobs = [f"j{len(known) + number}" for number in (1, 2)]
        notes = [Trail(readings=(reading(1, 5, 3, job_id=one),)) for one in jobs]
        await asyncio.gather(*(around.trails.note(batch_of(1), {NAME: one}) for one in notes))
        (trail,) = (await around.trails.of(batch_of(1), [NAME])).values()
        assert sorted(one.job_id for one in trail.readings) == [*known, *jobs]


async def test_a_note_that_cannot_be_read_holds_up_its_own_name_and_says_where_it_is() -> None:
    around = Surroundings()
    await around.trails.note(batch_of(1), {NAME: Trail(readings=(reading(1, 5, 3),))})
    (name,) = around.store.names("ops", "j/Trail/")
    around.store.put(ObjectRef("ops", name), b'{"schema_version": 99}')
    with pytest.raises(Fatal, match=name):
        await around.trails.of(batch_of(1), [NAME])
    assert await around.trails.of(batch_of(1), [ObjectRef("b", "other.json")]) == {}


async def test_one_listing_answers_everyone_who_asked_before_it_began() -> None:
    around = Surroundings()
    underway = around.underway
    for number in range(20):
        await around.journal.open(replace(batch((f"{number}.json", 5)), event_id=str(number)), claim=True)
    around.store.operations.clear()
    asked = [underway.earlier(asking(f"{n}.json"), {ObjectRef("b", f"{n}.json"): Generation(9)}) for n in range(20)]
    found = await asyncio.gather(*asked)
    assert [len(one) for one in found] == [1] * 9 + [0] + [1] * 10, "event 9 is the one that asks"
    assert around.store.class_a <= 2
