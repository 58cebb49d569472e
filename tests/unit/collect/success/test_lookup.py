"""Finding `_config/`: one call where the store can, folder by folder where it cannot, contents once."""

import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.manual_clock import ManualClock
from tests.support.memory_store import MemoryStore

from ingestd.collect.success.configuration import LARGEST, BadConfig, configured
from ingestd.collect.success.lookup import ConfigLookup
from ingestd.localcloud.storage.globs import glob_matcher
from ingestd.model.errors import BadInput, IngestError, NotFound, TooWide, Transient
from ingestd.model.objects import ObjectInfo, ObjectRef
from ingestd.settings import Convention


class GlobStore(MemoryStore):
    """A bucket that answers patterns, as Cloud Storage does."""

    async def list(self, prefix: ObjectRef, *, glob: str = "", **options: Any) -> AsyncIterator[ObjectInfo]:
        matches = glob_matcher(glob or "**")
        async for info in super().list(prefix, **options):
            if matches.fullmatch(info.ref.name):
                yield info


class WideStore(MemoryStore):
    """A bucket with so many objects that no pattern is answered in one call, or that takes no patterns of ours."""

    asked = 0
    why: IngestError = TooWide("several calls")

    def list(self, prefix: ObjectRef, **options: Any) -> AsyncIterator[ObjectInfo]:
        if options.pop("glob", ""):
            self.asked += 1
            raise self.why
        return super().list(prefix, **options)


def filled(store: MemoryStore, **files: str) -> MemoryStore:
    for name, text in files.items():
        store.put(ObjectRef("b", name), text.encode())
    return store


async def found(lookup: ConfigLookup, convention: Convention, name: str = "in/ds/t/x/_SUCCESS") -> dict[str, Any]:
    read = await lookup.read(await lookup.levels(name, "b", convention))
    return {**read.load, "ordered": read.ordered}


@pytest.mark.parametrize("why", [TooWide("several calls"), BadInput("400 invalid matchGlob")])
async def test_a_bucket_that_is_too_wide_for_one_call_is_asked_folder_by_folder_for_a_while(why: IngestError) -> None:
    clock = ManualClock()
    store = WideStore(clock)
    store.why = why
    filled(store, **{"in/_config/load.json": '{"skipLeadingRows": 1}', "in/ds/t/_config/load.json": '{"quote": ""}'})
    filled(store, **{"in/ds/t/_config/deep/load.json": '{"quote": "x"}', "_config/load.json": '{"quote": "y"}'})
    lookup = ConfigLookup(store, clock)
    convention = Convention(bucket="b", root="in")
    for _ in range(3):
        got = await found(lookup, convention)
        assert got == {"writeDisposition": "WRITE_APPEND", "skipLeadingRows": 1, "quote": "", "ordered": False}
    assert store.asked == 1
    reads = store.operations["get"]
    await found(lookup, convention)
    assert store.operations["get"] == reads == 2  # contents are kept by generation
    filled(store, **{"in/ds/t/_config/load.json": '{"quote": "z"}', "in/ds/_config/ORDERME": ""})
    assert (await found(lookup, convention)) | {"skipLeadingRows": 0} == {
        "writeDisposition": "WRITE_APPEND", "skipLeadingRows": 0, "quote": "z", "ordered": True,
    }  # fmt: skip


@pytest.mark.parametrize("kind", [GlobStore, WideStore], ids=["one call", "folder by folder"])
async def test_only_what_lies_directly_in_config_counts(kind: type[MemoryStore]) -> None:
    clock = ManualClock()
    others = {"ds/t/_config_old/x.sql": "SELECT 1", "ds/t/_config/archive/x.sql": "SELECT 2", "ds/t/x/_config": "x"}
    lookup = ConfigLookup(filled(kind(clock), **others, **{"ds/t/_config/y.sql": "SELECT 4"}), clock)
    read = await lookup.read(await lookup.levels("ds/t/x/_SUCCESS", "b", Convention(bucket="b")))
    assert read.transform is not None
    assert read.transform.sql == "SELECT 4"


async def test_configuration_can_be_kept_where_producers_cannot_write() -> None:
    clock = ManualClock()
    store = WideStore(clock)
    filled(store, **{"ds/t/_config/load.json": '{"quote": "from a producer"}'})
    store.put(ObjectRef("safe", "conf/ds/t/_config/load.json"), b'{"quote": "s"}')
    got = await found(ConfigLookup(store, clock), Convention(bucket="b", config_url="gs://safe/conf"), "ds/t/_SUCCESS")
    assert got["quote"] == "s"


async def test_a_file_that_changes_while_it_is_read_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    store = WideStore(clock)
    filled(store, **{"ds/_config/load.json": "{}"})
    lookup = ConfigLookup(store, clock)

    async def gone(*args: Any, **kwargs: Any) -> Any:
        raise NotFound("that generation is gone")

    monkeypatch.setattr(store, "read", gone)
    with pytest.raises(Transient, match="changed while it was read"):
        await found(lookup, Convention(bucket="b"), "ds/t/_SUCCESS")


async def test_files_too_large_are_refused_before_they_are_read() -> None:
    clock = ManualClock()
    store = filled(WideStore(clock), **{"ds/_config/load.json": '{"a": "' + "x" * LARGEST})
    with pytest.raises(BadConfig, match=r"gs://b/ds/_config/load.json: 10\d+ bytes, and at most 1048576 are read"):
        await found(ConfigLookup(store, clock), Convention(bucket="b"), "ds/t/_SUCCESS")
    folders = [f"{'d/' * depth}_config/load.json" for depth in range(10)]
    store = filled(WideStore(clock), **dict.fromkeys(folders, '{"a": "' + "x" * (LARGEST - 100)))
    with pytest.raises(BadConfig, match="at most 8388608 are read"):
        await found(ConfigLookup(store, clock), Convention(bucket="b"), f"{'d/' * 9}_SUCCESS")
    assert store.operations["get"] == 0


async def test_large_files_are_parsed_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []

    def parsed(*args: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return configured(*args)

    monkeypatch.setattr("ingestd.collect.success.lookup.configured", parsed)
    clock = ManualClock()
    for text in ('{"quote": ""}', '{"quote": ""' + " " * 100_000 + "}"):
        store = filled(WideStore(clock), **{"ds/_config/load.json": text})
        assert (await found(ConfigLookup(store, clock), Convention(bucket="b"), "ds/t/_SUCCESS"))["quote"] == ""
    assert threads == [True, False]


async def test_contents_that_are_remembered_stay_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingestd.collect.success.lookup._REMEMBER", 50)
    clock = ManualClock()
    store = WideStore(clock)
    lookup = ConfigLookup(store, clock)
    for number in range(10):
        filled(store, **{f"ds{number}/_config/load.json": '{"quote": "' + str(number) + '"}'})
        await found(lookup, Convention(bucket="b"), f"ds{number}/t/_SUCCESS")
    assert sum(map(len, lookup._contents.values())) == lookup._remembered <= 50
