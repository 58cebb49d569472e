"""A batch's files on this machine: fetched in parallel, checked, and joined into one file as they arrive.

Many small objects become one file of their bytes and an index of where each begins, so that reading them costs one
open file and no listing. An object of another generation than the pinned one is never read: it counts as gone.

States of a fetch: a folder of its own under the scratch folder, bytes in its pack, the index in memory. Whoever dies
leaves a folder behind; `Scratch.clean` at the next start removes every folder whose process is gone.
"""

import asyncio
import base64
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import google_crc32c

from ingestd.model.errors import Transient
from ingestd.model.objects import FileVersion
from ingestd.ports import FileStore
from ingestd.spark.files.scratch import no_room

T = TypeVar("T")

PARALLEL = 16
PART_BYTES = 32 << 20  # larger objects are fetched in parts of this size
_AT_ONCE = 256 << 10  # bytes that are checked and written before the event loop notices
_CHECK_STEP = 8 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file's bytes are in the pack."""

    start: int
    length: int


@dataclass(slots=True)
class Fetched:
    pack: Path
    places: dict[int, Place] = field(default_factory=dict)  # by the file's place in the request
    gone: set[int] = field(default_factory=set)

    @property
    def size(self) -> int:
        return sum(place.length for place in self.places.values())


async def fetch(store: FileStore, files: Sequence[FileVersion], folder: Path) -> Fetched:
    """All files into one pack. What is gone or was overwritten is named in `Fetched.gone`."""
    fetched = Fetched(folder / "files.pack")
    with no_room(folder):
        target = os.open(fetched.pack, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fetching = _Fetching(store, target, fetched, folder)
        waiting = iter(enumerate(files))

        async def work() -> None:
            for index, file in waiting:
                await fetching.one(index, file)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(PARALLEL, len(files))):
                group.create_task(work())
    except BaseExceptionGroup as failures:
        raise _first(failures) from None
    finally:
        os.close(target)
    return fetched


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """They failed for one reason more often than for several: the first one is the answer. Parts come in a group."""
    found = failures.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


async def _to_its_end(fn: Callable[..., T], *args: Any) -> T:
    """In a thread, and not left alone by whoever is cancelled: the thread uses a file that is closed afterwards."""
    work = asyncio.get_running_loop().run_in_executor(None, fn, *args)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # whatever it was, it is not wanted any more
        raise


class _Fetching:
    def __init__(self, store: FileStore, target: int, fetched: Fetched, folder: Path) -> None:
        self._store = store
        self._target = target
        self._fetched = fetched
        self._folder = folder
        self._end = 0
        self._parts = asyncio.Semaphore(PARALLEL)

    async def one(self, index: int, file: FileVersion) -> None:
        if file.size > PART_BYTES:
            found = await self._in_parts(file)
        else:
            found = await self._whole(file)
        if found is None:
            self._fetched.gone.add(index)
        else:
            self._fetched.places[index] = found

    async def _whole(self, file: FileVersion) -> Place | None:
        data = await self._store.fetch(file.ref, generation=file.generation, small=file.size <= _AT_ONCE)
        if data is None:
            return None
        place = self._reserve(len(data))
        with no_room(self._folder):
            if len(data) <= _AT_ONCE:
                self._take(file, data, place)
            else:
                await _to_its_end(self._take, file, data, place)
        return place

    def _take(self, file: FileVersion, data: bytes, place: Place) -> None:
        if file.crc32c and checksum(data) != file.crc32c:
            raise Transient(f"{file.ref}#{file.generation} came with another checksum than {file.crc32c}")
        _write(self._target, data, place.start)

    async def _in_parts(self, file: FileVersion) -> Place | None:
        place = self._reserve(file.size)

        async def part(start: int) -> bool:
            async with self._parts:
                end = min(start + PART_BYTES, file.size)
                data = await self._store.fetch(file.ref, generation=file.generation, start=start, end=end)
                if data is None:
                    return False
                if len(data) != end - start:
                    raise Transient(f"{file.ref}#{file.generation} is not {file.size:,} bytes long")
                with no_room(self._folder):
                    await _to_its_end(_write, self._target, data, place.start + start)
                return True

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part(start)) for start in range(0, file.size, PART_BYTES)]
        if not all(task.result() for task in tasks):
            return None
        if file.crc32c and await _to_its_end(self._checksum, place) != file.crc32c:
            raise Transient(f"{file.ref}#{file.generation} came with another checksum than {file.crc32c}")
        return place

    def _reserve(self, size: int) -> Place:
        place = Place(self._end, size)
        self._end += size
        return place

    def _checksum(self, place: Place) -> str:
        value = 0
        for at in range(place.start, place.start + place.length, _CHECK_STEP):
            step = min(_CHECK_STEP, place.start + place.length - at)
            value = google_crc32c.extend(value, os.pread(self._target, step, at))
        return base64.b64encode(value.to_bytes(4, "big")).decode()


def checksum(data: bytes) -> str:
    """CRC32C as Cloud Storage writes it."""
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


def _write(target: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(target, view, at)
        view, at = view[written:], at + written
