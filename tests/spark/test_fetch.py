"""Files on their way to Spark: whole, of the pinned generation, and no more of them than there is room for."""

import asyncio
import errno
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ingestd.gcp.rest import Rest, Tokens, connections
from ingestd.gcp.storage import GcsStore
from ingestd.gcp.threads import Threads
from ingestd.model.clock import SystemClock
from ingestd.model.errors import Fatal, Throttled, Transient
from ingestd.model.objects import FileVersion, Generation, ObjectRef
from ingestd.retry import Retrier
from ingestd.spark.files import fetch as fetching
from ingestd.spark.files.fetch import Fetched, checksum, fetch
from ingestd.spark.files.scratch import Scratch
from ingestd.spark.session import owners


class Objects:
    """Content by name, one generation each; counts what is asked for."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        self.contents = contents
        self.asked: list[tuple[str, int, int | None]] = []
        self.most = self._now = 0

    async def fetch(
        self, ref: ObjectRef, *, generation: Generation, start: int = 0, end: int | None = None, small: bool = False
    ) -> bytes | None:
        self.asked.append((ref.name, start, end))
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(0)
        self._now -= 1
        data = self.contents.get(ref.name) if generation == 1 else None
        return None if data is None else data[start:end]

    def files(self) -> list[FileVersion]:
        return [
            FileVersion(ObjectRef("b", name), Generation(1), len(data), crc32c=checksum(data))
            for name, data in self.contents.items()
        ]


def content(fetched: Fetched, index: int) -> bytes:
    place = fetched.places[index]
    return fetched.pack.read_bytes()[place.start : place.start + place.length]


async def run(store: Any, files: list[FileVersion], folder: Path) -> Fetched:
    return await fetch(store, files, folder)


async def test_files_are_joined_into_one_and_found_again(tmp_path: Path) -> None:
    store = Objects({f"{n}": os.urandom(n * 7) for n in range(100)})
    fetched = await run(store, store.files(), tmp_path)
    assert [content(fetched, n) for n in range(100)] == list(store.contents.values())
    assert fetched.size == fetched.pack.stat().st_size
    assert store.most <= fetching.PARALLEL


async def test_a_large_file_comes_in_parts_and_is_checked_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "PART_BYTES", 1000)
    store = Objects({"large": os.urandom(4500), "small": b"x"})
    fetched = await run(store, store.files(), tmp_path)
    assert content(fetched, 0) == store.contents["large"]
    assert len([asked for asked in store.asked if asked[0] == "large"]) == 5


@pytest.mark.parametrize("part", [1000, 1 << 20])
async def test_a_damaged_download_is_tried_again_and_never_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr(fetching, "PART_BYTES", part)
    store = Objects({"f": b"a" * 4500})
    files = store.files()
    store.contents["f"] = b"a" * 4499 + b"b"
    with pytest.raises(Transient, match="checksum"):
        await run(store, files, tmp_path)


async def test_another_generation_counts_as_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "PART_BYTES", 1000)
    store = Objects({"a": b"1", "b": b"2" * 3000, "c": b"3"})
    a, b, c = store.files()
    gone = [FileVersion(file.ref, Generation(7), file.size) for file in (a, b)]
    fetched = await run(store, [*gone, c], tmp_path)
    assert (fetched.gone, list(fetched.places)) == ({0, 1}, [2])


async def test_a_full_disk_is_a_matter_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fetching, "_write", full)
    store = Objects({"a": b"1"})
    with pytest.raises(Throttled, match=r"spark\.scratch"):
        await run(store, store.files(), tmp_path)


class Refusing(Objects):
    """Gives the first part of a file, and fails for the others."""

    async def fetch(
        self, ref: ObjectRef, *, generation: Generation, start: int = 0, end: int | None = None, small: bool = False
    ) -> bytes | None:
        if start:
            await asyncio.sleep(0.05)
            raise Transient("503")
        return await super().fetch(ref, generation=generation, start=start, end=end)


async def test_a_part_that_cannot_be_had_is_the_same_failure_as_a_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "PART_BYTES", 1000)
    store = Refusing({"f": b"a" * 4500})
    with pytest.raises(Transient, match="503"):
        await run(store, store.files(), tmp_path)


async def test_nothing_is_written_any_more_once_a_fetch_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is closed then, and the next batch's may have the same number: late bytes would end up in there."""
    monkeypatch.setattr(fetching, "PART_BYTES", 1000)
    written: list[bool] = []

    def slow(target: int, data: bytes, at: int) -> None:
        time.sleep(0.3)
        written.append(True)

    monkeypatch.setattr(fetching, "_write", slow)
    store = Refusing({"f": b"a" * 4500})
    with pytest.raises(Transient):
        await run(store, store.files(), tmp_path)
    assert written == [True]


async def test_only_small_files_are_written_on_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, written = threading.get_ident(), {}
    plain = fetching._write

    def watched(target: int, data: bytes, at: int) -> None:
        written[len(data)] = threading.get_ident() == loop
        plain(target, data, at)

    monkeypatch.setattr(fetching, "_write", watched)
    store = Objects({"small": b"a" * 10, "large": b"b" * (fetching._AT_ONCE + 1)})
    await run(store, store.files(), tmp_path)
    assert written == {10: True, fetching._AT_ONCE + 1: False}


async def test_batches_wait_for_room_and_leave_nothing(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, 10)
    inside: list[int] = []
    together: list[int] = []

    async def batch(size: int) -> None:
        async with scratch.room(size) as folder:
            inside.append(size)
            together.append(sum(inside))
            (folder / "file").write_bytes(b"x")
            await asyncio.sleep(0.01)
            inside.remove(size)

    await asyncio.gather(*(batch(size) for size in (6, 6, 4, 10, 1)))
    assert max(together) <= 10
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Fatal, match=r"spark\.files: gs"):
        async with scratch.room(11):
            pass


async def test_what_is_written_beside_the_files_counts_but_keeps_nobody_out(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, 10)
    async with asyncio.timeout(60), scratch.room(8, beside=8):  # more than there is, and nobody else there
        waiting = asyncio.create_task(_enter(scratch, 1))
        await asyncio.sleep(0.05)
        assert not waiting.done()
    async with asyncio.timeout(60):
        await waiting
        async with scratch.room(3, beside=2):
            await _enter(scratch, 5)


async def _enter(scratch: Scratch, size: int) -> None:
    async with scratch.room(size):
        pass


async def test_room_comes_back_however_often_its_user_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = Scratch(tmp_path, 10)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: time.sleep(0.2))

    async def batch() -> None:
        async with scratch.room(10):
            pass

    tidying = asyncio.create_task(batch())
    await asyncio.sleep(0.1)
    tidying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await tidying
    async with asyncio.timeout(60):
        await asyncio.gather(batch(), batch())


async def test_a_large_batch_gets_its_turn_however_many_small_ones_come(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, 10)
    served: list[int] = []

    async def small() -> None:
        for _ in range(50):
            async with scratch.room(6):
                served.append(6)
                await asyncio.sleep(0)

    async def large() -> None:
        await asyncio.sleep(0.01)
        async with scratch.room(10):
            served.append(10)

    await asyncio.gather(small(), small(), small(), large())
    assert served.index(10) < len(served) - 20, "it came last"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_what_dead_processes_left_is_removed_and_what_living_ones_use_is_not(tmp_path: Path) -> None:
    ended = os.fork()
    if ended == 0:
        os._exit(0)
    os.waitpid(ended, 0)
    host, pid, born = owners.mine().split(".")
    dead = f"batch-{host}.{ended}.{born}-abc"
    kept = {f"batch-{host}.{pid}.{born}-abc", "spill", "batch-x-y"}
    for name in (dead, *kept):
        (tmp_path / name).mkdir()
    assert Scratch(tmp_path, 1).clean() == 1
    assert names(tmp_path) == kept


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells when a process began")
async def test_a_process_with_the_number_of_a_dead_one_is_not_taken_for_it(tmp_path: Path) -> None:
    """In a container every start has the same process id, and a pod's folder outlives its containers."""
    scratch = Scratch(tmp_path, 10)
    async with scratch.room(1) as used:
        own = owners.mine()
        host, pid, born = own.split(".")
        before = tmp_path / used.name.replace(own, f"{host}.{pid}.{int(born) - 1}")
        before.mkdir()
        assert Scratch(tmp_path, 10).clean() == 1
        assert list(tmp_path.iterdir()) == [used]


def test_what_another_machine_uses_is_left_alone_until_it_is_old(tmp_path: Path) -> None:
    """A disk that machines share: whether their processes live cannot be seen from here."""
    used, old = (tmp_path / f"batch-elsewhere.{pid}.77-abc" for pid in (4, 5))
    for folder in (used, old):
        folder.mkdir()
    long_ago = time.time() - owners.ABANDONED - 1
    os.utime(old, (long_ago, long_ago))
    assert Scratch(tmp_path, 1).clean() == 1
    assert names(tmp_path) == {used.name}


async def test_the_real_client_moves_parts_and_files(
    storage_client: Any, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "PART_BYTES", 100_000)
    threads = Threads("fetch", 8)
    async with connections(8, silence=30) as calls:
        rest = Rest(calls, Tokens(storage_client._credentials, threads))
        store = GcsStore(storage_client, rest, threads, Retrier(clock=SystemClock()))
        contents = [os.urandom(250_000), b"", b"\x1f\x8b not decoded", os.urandom(90_000)]
        files = []
        for number, data in enumerate(contents):
            (tmp_path / "file").write_bytes(data)
            ref = ObjectRef(bucket, f"f{number}")
            generation = await store.upload(ref, tmp_path / "file")
            files.append(FileVersion(ref, generation, len(data), crc32c=checksum(data)))
        files.append(FileVersion(ObjectRef(bucket, "f0"), Generation(1), 5))
        fetched = await fetch(store, files, tmp_path)
        assert [content(fetched, number) for number in range(4)] == contents
        assert fetched.gone == {4}
        whole = await store.fetch(files[3].ref, generation=files[3].generation)
        assert whole == contents[3], "one of which nobody knows that it is small"
    await threads.close()
