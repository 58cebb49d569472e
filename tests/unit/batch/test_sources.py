"""Sources are looked at in few calls, and what is not to be loaded drops out file by file."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.one_by_one import OneByOne
from tests.support.records import batch, info

from ingestd.batch.content import Fate
from ingestd.batch.sources import describe, look
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
        store,  # type: ignore[arg-type]
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
        range(8),
        lambda marks: "ours" in marks,
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


async def test_of_two_generations_in_one_batch_the_newest_is_loaded() -> None:
    store = stored("a.json")
    store.objects["a.json"] = info("a.json", 9)
    looked = await look(store, batch(("a.json", 7), ("a.json", 9)), range(2), lambda _: False)  # type: ignore[arg-type]
    assert set(looked.present) == {1}
    assert looked.aside[0].fate is Fate.SUPERSEDED
