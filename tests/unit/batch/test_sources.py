"""Sources are looked at in few calls, and what is not to be loaded drops out file by file."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.one_by_one import OneByOne
from tests.support.records import batch, info

from ingestd.batch.content import Fate
from ingestd.batch.record import Record
from ingestd.batch.sources import Looked, describe
from ingestd.batch.stages.look import Look
from ingestd.model.errors import BadInput, Fatal, NotFound, Transient
from ingestd.model.objects import ObjectInfo, ObjectRef


@dataclass
class Store(OneByOne):
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


class Nobody:
    """No other batch has to do with the files."""

    async def earlier(self, *_: Any) -> dict[Any, Any]:
        return {}

    async def of(self, *_: Any) -> dict[Any, Any]:
        return {}

    async def note(self, record: Record, notes: Any) -> None:
        assert not notes


async def look(store: Store, record: Record, *, patient: bool = True) -> Looked:
    """At all files of the batch; objects that are marked as `ours` were put there by its rule."""
    actions = SimpleNamespace(guarded=lambda _, info: "ours" in info.metadata)
    parts = SimpleNamespace(store=store, actions=actions, underway=Nobody(), trails=Nobody(), journal=None, clock=None)
    parts.patient = lambda _: patient
    drive = cast("Any", SimpleNamespace(record=record))
    return await Look(cast("Any", parts)).seen(drive, range(len(record.files)))


def stored(*names: str) -> Store:
    return Store({name: info(name) for name in names})


async def test_many_files_of_a_folder_cost_a_few_listings() -> None:
    names = [f"in/{number:05d}.json" for number in range(5000)]
    store = stored(*names, "in/zzz.json", "in/deeper/x.json", "other.json")
    found = await describe(store, [ObjectRef("b", name) for name in names])  # type: ignore[arg-type]
    assert len(found) == 5000
    assert (store.stats, store.pages) == (0, 5)


async def test_few_files_are_asked_for_by_name() -> None:
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
        store,
        batch(
            ("a.json", 7),
            ("gone.json", 7),
            ("newer.json", 7),
            ("older.json", 7),
            ("moved.json", 7),
            ("w*.json", 7),
            ("in//a.json", 7),
            ("/a.json", 7),
        ),
    )
    assert set(looked.present) == {0}
    assert {index: one.fate for index, one in looked.aside.items()} == {
        1: Fate.MISSING,
        2: Fate.SUPERSEDED,
        3: Fate.MISSING,
        4: Fate.IGNORED,
        5: Fate.REFUSED,
        6: Fate.REFUSED,
        7: Fate.REFUSED,
    }


REASONS = {
    "absent": NotFound("no such bucket"),
    "odd": BadInput("400 no bucket can be called that"),
    "forbidden": Fatal("403"),
    "shaky": Transient("503"),
}


@dataclass
class Buckets(Store):
    """Only what is in bucket `b` can be asked for."""

    async def stat(self, ref: ObjectRef, **_: Any) -> ObjectInfo | None:
        if ref.bucket in REASONS:
            raise REASONS[ref.bucket]
        return await super().stat(ref)

    async def list(
        self, prefix: ObjectRef, *, delimiter: str = "", start: str = "", end: str = ""
    ) -> AsyncIterator[ObjectInfo]:
        if prefix.bucket in REASONS:
            raise REASONS[prefix.bucket]
        async for one in super().list(prefix, delimiter=delimiter, start=start, end=end):
            yield one


async def looked_at(*buckets: str, patient: bool = True, each: int = 1) -> dict[str, str]:
    """What becomes of files in these buckets that share a batch: by bucket, its fate."""
    files = [(bucket, f"in/{bucket}{number}.json") for bucket in buckets for number in range(each)]
    record = batch(*((name, 7) for _, name in files))
    versions = zip(record.files, files, strict=True)
    record = replace(record, files=tuple(replace(one, ref=ObjectRef(*place)) for one, place in versions))
    store = Buckets({name: info(name) for _, name in files})
    looked = await look(store, record, patient=patient)
    fates = {files[index][0]: str(one.fate) for index, one in looked.aside.items()}
    return fates | {files[index][0]: "present" for index in looked.present}


@pytest.mark.parametrize("each", [1, 30], ids=["asked for", "listed"])
async def test_a_bucket_that_is_not_there_takes_only_its_own_files_out(each: int) -> None:
    assert await looked_at("b", "absent", "odd", each=each) == {"b": "present", "absent": "failed", "odd": "failed"}


@pytest.mark.parametrize("each", [1, 30], ids=["asked for", "listed"])
async def test_files_that_may_not_be_read_hold_the_others_up_for_a_while_only(each: int) -> None:
    with pytest.raises(Fatal, match="403"):
        await looked_at("b", "forbidden", each=each)
    assert await looked_at("b", "forbidden", each=each, patient=False) == {"b": "present", "forbidden": "failed"}


@pytest.mark.parametrize("patient", [True, False])
async def test_what_may_pass_in_a_moment_is_waited_for(patient: bool) -> None:
    with pytest.raises(Transient):
        await looked_at("b", "absent", "shaky", patient=patient)


@pytest.mark.parametrize("patient", [True, False])
async def test_a_batch_of_which_no_file_can_be_read_waits_as_long_as_any(patient: bool) -> None:
    for buckets, kind in ((("absent",), NotFound), (("forbidden", "odd"), Fatal), (("odd",), BadInput)):
        with pytest.raises(kind):
            await looked_at(*buckets, patient=patient)


async def test_of_two_generations_in_one_batch_the_newest_is_loaded() -> None:
    store = stored("a.json")
    store.objects["a.json"] = info("a.json", 9)
    looked = await look(store, batch(("a.json", 7), ("a.json", 9)))
    assert set(looked.present) == {1}
    assert looked.aside[0].fate is Fate.SUPERSEDED
