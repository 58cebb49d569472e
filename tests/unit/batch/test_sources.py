"""Sources are looked at in few calls, and what is not to be loaded drops out file by file."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.batch.test_record import record

from ingestd.batch.content import Fate, Load, Progress, SetAside
from ingestd.batch.record import Phase, Record
from ingestd.batch.sources import Looked, Overwrites, describe, look
from ingestd.model.clock import SystemClock
from ingestd.model.errors import Fatal, Transient
from ingestd.model.jobs import JobKind, JobRef, JobState
from ingestd.model.objects import FileVersion, Generation, ObjectInfo, ObjectRef

T0 = datetime(2024, 5, 1, 12, tzinfo=UTC)
ROW = Generation(7)


def info(name: str, generation: int = 7, size: int = 3, created: datetime = T0, **metadata: str) -> ObjectInfo:
    return ObjectInfo(ObjectRef("b", name), Generation(generation), size, created, "crc", metadata=metadata)


@dataclass
class Store:
    """Counts what it is asked: a listing answers pages of a thousand."""

    objects: dict[str, ObjectInfo] = field(default_factory=dict)
    stats: int = 0
    listed: int = 0
    pages: int = 0

    async def stat(self, ref: ObjectRef, **_: Any) -> ObjectInfo | None:
        self.stats += 1
        return self.objects.get(ref.name)

    async def list(
        self, prefix: ObjectRef, *, delimiter: str = "", start: str = "", end: str = ""
    ) -> AsyncIterator[ObjectInfo]:
        on_page = 1000
        for name in sorted(self.objects):
            if not name.startswith(prefix.name) or delimiter in name[len(prefix.name) :] or not start <= name < end:
                continue
            if on_page == 1000:
                self.pages += 1
                on_page = 0
            on_page += 1
            self.listed += 1
            yield self.objects[name]


def stored(*names: str) -> Store:
    return Store({name: info(name) for name in names})


def batch(*files: tuple[str, int]) -> Record:
    known = tuple(FileVersion(ObjectRef("b", name), Generation(generation)) for name, generation in files)
    return replace(record(1), files=known)


async def test_many_files_of_a_folder_cost_a_few_listings() -> None:
    names = [f"in/{number:05d}.json" for number in range(5000)]
    store = stored(*names, "in/zzz.json", "in/deeper/x.json", "other.json")
    found = await describe(store, [ObjectRef("b", name) for name in names])  # type: ignore[arg-type]
    assert len(found) == 5000
    assert (store.stats, store.pages) == (0, 5)


async def test_few_files_are_asked_for_one_by_one() -> None:
    store = stored(*[f"in/{number}.json" for number in range(3000)])
    found = await describe(store, [ObjectRef("b", "in/7.json"), ObjectRef("b", "in/gone.json")])  # type: ignore[arg-type]
    assert [ref.name for ref in found] == ["in/7.json"]
    assert (store.stats, store.pages) == (2, 0)


async def test_a_crowded_folder_is_not_listed_to_its_end() -> None:
    store = stored(*[f"in/{number:06d}.json" for number in range(100_000)])
    wanted = [f"in/{number:06d}.json" for number in range(0, 100_000, 2500)]
    found = await describe(store, [ObjectRef("b", name) for name in wanted])  # type: ignore[arg-type]
    assert len(found) == len(wanted)
    assert store.listed < 1000
    assert store.stats < len(wanted)


async def test_each_file_gets_its_own_verdict() -> None:
    store = stored("a.json", "newer.json", "older.json", "moved.json")
    store.objects["newer.json"] = info("newer.json", 9)
    store.objects["older.json"] = info("older.json", 5)
    store.objects["moved.json"] = info("moved.json", 7, ours="yes")
    looked = await look(
        store,  # type: ignore[arg-type]
        batch(("a.json", 7), ("gone.json", 7), ("newer.json", 7), ("older.json", 7), ("moved.json", 7), ("w*.json", 7)),
        range(6),
        lambda marks: "ours" in marks,
    )
    assert set(looked.present) == {0}
    assert {index: one.fate for index, one in looked.aside.items()} == {
        1: Fate.MISSING,
        2: Fate.SUPERSEDED,
        3: Fate.MISSING,
        4: Fate.IGNORED,
        5: Fate.REFUSED,
    }


async def test_of_two_generations_in_one_batch_the_newest_is_loaded() -> None:
    store = stored("a.json")
    store.objects["a.json"] = info("a.json", 9)
    looked = await look(store, batch(("a.json", 7), ("a.json", 9)), range(2), lambda _: False)  # type: ignore[arg-type]
    assert set(looked.present) == {1}
    assert looked.aside[0].fate is Fate.SUPERSEDED


class Clock(SystemClock):
    """Waiting takes no time."""

    async def sleep(self, duration: timedelta) -> None:
        return None


@dataclass
class Others:
    """Other batches, and the jobs of all."""

    batches: list[Record]
    jobs: dict[str, JobState] = field(default_factory=dict)

    async def record_of(self, batch: Record, file: FileVersion) -> Record | None:
        return next((one for one in self.batches if any(known.key == file.key for known in one.files)), None)

    async def get_job(self, ref: JobRef) -> JobState | None:
        return self.jobs.get(ref.job_id)


def job(ref: JobRef, started: int, ended: int, size: int = 0) -> JobState:
    return JobState(
        ref,
        JobKind.LOAD,
        "DONE",
        {},
        statistics={"load": {"inputFileBytes": str(size)}},
        started=T0 + timedelta(seconds=started),
        ended=T0 + timedelta(seconds=ended),
    )


def newer(size: int = 3, others: int = 1) -> tuple[Record, Looked]:
    """A batch whose first file overwrote generation 5 at T0."""
    record = batch(("a.json", 7), *((f"z{number}.json", 7) for number in range(others)))
    files = (replace(record.files[0], overwrote=Generation(5), size=size), *record.files[1:])
    return replace(record, files=files), Looked({0: info("a.json", 7, size)})


def earlier(phase: Phase = Phase.DONE, progress: Progress | None = None, **changes: Any) -> Record:
    found = replace(batch(("a.json", 5), ("y.json", 5)), event_id="5", phase=phase, rows=2)
    files = (replace(found.files[0], size=3, crc32c="old"), replace(found.files[1], size=40))
    done = progress or Progress(loads=(Load(2, (0, 1), 2, 43),), jobs=2)
    return replace(found, files=files, progress=done, **changes)


async def check(others: Others, record: Record, looked: Looked) -> dict[int, SetAside]:
    return await Overwrites(others, others, Clock()).check(record, looked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("started", "ended", "fate"), [(1, 5, Fate.READ_EARLIER), (-5, -1, None), (-1, 1, Fate.REFUSED)]
)
async def test_a_file_is_not_loaded_again_when_the_earlier_load_read_it(
    started: int, ended: int, fate: Fate | None
) -> None:
    before = earlier()
    ref = before.load_job(2)
    others = Others([before], {ref.job_id: job(ref, started, ended, size=43)})
    found = await check(others, *newer())
    assert [one.fate for one in found.values()] == ([fate] if fate else [])
    if fate is Fate.READ_EARLIER:
        assert found[0].job_id == ref.job_id


async def test_sizes_tell_which_of_two_contents_a_job_of_many_files_read() -> None:
    before = earlier()
    ref = before.load_job(2)
    for read, fate in ((43, None), (51, Fate.READ_EARLIER), (77, Fate.REFUSED)):
        others = Others([before], {ref.job_id: job(ref, -1, 1, size=read)})
        found = await check(others, *newer(size=11))
        assert [one.fate for one in found.values()] == ([fate] if fate else [])


async def test_alone_in_its_batch_an_undecidable_file_waits_for_a_person() -> None:
    before = earlier()
    ref = before.load_job(2)
    with pytest.raises(Fatal, match="same size"):
        await check(Others([before], {ref.job_id: job(ref, -1, 1, size=77)}), *newer(others=0))


async def test_a_load_under_way_is_waited_for() -> None:
    under_way = earlier(Phase.ACCEPTED, Progress(jobs=1))
    with pytest.raises(Transient, match="still under way"):
        await check(Others([replace(under_way, rows=None)]), *newer())
    staged = earlier(Phase.ACCEPTED, staged=True)
    with pytest.raises(Transient, match="still under way"):
        await check(Others([staged]), *newer())


async def test_a_file_that_was_set_aside_holds_nobody_up() -> None:
    gone = earlier(Phase.ACCEPTED, Progress(aside={0: SetAside(Fate.MISSING, "gone")}, jobs=1), rows=None)
    assert await check(Others([gone]), *newer()) == {}


async def test_the_generation_before_the_one_before_is_asked_too() -> None:
    """Generation 5 gave way to 7, but the load of generation 3 was still reading."""
    skipped = earlier(Phase.SUPERSEDED, Progress(aside={0: SetAside(Fate.SUPERSEDED, "newer")}), rows=None)
    skipped = replace(skipped, files=(replace(skipped.files[0], overwrote=Generation(3)), skipped.files[1]))
    first = replace(earlier(), event_id="3")
    first = replace(first, files=(replace(first.files[0], generation=Generation(3)), first.files[1]))
    ref = first.load_job(2)
    found = await check(Others([skipped, first], {ref.job_id: job(ref, 1, 5)}), *newer())
    assert found[0].fate is Fate.READ_EARLIER
