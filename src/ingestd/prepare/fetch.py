"""A batch's files on this machine: fetched in parallel, checked, and joined into one file as they arrive.

Many small objects become one file of their bytes and an index of where each begins, so that reading them costs one
open file and no listing. An object of another generation than the pinned one is never read: it counts as gone.

States of a fetch: a folder of its own under the scratch folder, bytes in its pack, the index in memory. Whoever dies
leaves a folder behind; `Scratch.clean` at the next start removes every folder whose process is gone.
"""

import asyncio
import base64
import errno
import os
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import google_crc32c

from ingestd.model.errors import Fatal, Throttled, Transient
from ingestd.model.objects import FileVersion
from ingestd.ports import FileStore

T = TypeVar("T")

PARALLEL = 16
PART_BYTES = 32 << 20  # larger objects are fetched in parts of this size
_PREFIX = "batch-"
_CHECK_STEP = 8 << 20


class Scratch:
    """The folder for fetched and prepared files, and how much of them there may be at once."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        self._used = 0
        self._waiting: set[asyncio.Event] = set()

    @asynccontextmanager
    async def room(self, size: int, beside: int = 0) -> AsyncIterator[Path]:
        """A folder for files of that size, when it is there; gone afterwards, with what is in it.

        `beside` is what may be written beside them. One batch alone may always do that: it is not refused for it.
        """
        if size > self.limit:
            raise Fatal(
                f"the batch's files take {size:,} bytes and spark.scratch_size allows {self.limit:,}: raise it, let "
                "fewer files load together, or let Spark read the bucket itself (spark.files: gs)"
            )
        size = min(size + beside, self.limit)
        while self._used + size > self.limit:
            self._waiting.add(freed := asyncio.Event())
            try:
                await freed.wait()
            finally:
                self._waiting.discard(freed)
        self._used += size
        folder = self.folder / f"{_PREFIX}{os.getpid()}.{_born(os.getpid())}-{uuid.uuid4().hex[:12]}"
        try:
            with no_room(self.folder):
                folder.mkdir(parents=True)
            yield folder
        finally:
            try:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            finally:
                # Without waiting: whoever is cancelled in the middle of tidying up gives its room back all the same.
                self._used -= size
                for freed in self._waiting:
                    freed.set()

    def clean(self) -> int:
        """Remove what dead processes left; answers how many folders that were."""
        found = 0
        if not self.folder.is_dir():
            return 0
        for folder in self.folder.glob(f"{_PREFIX}*-*"):
            pid, _, born = folder.name.removeprefix(_PREFIX).partition("-")[0].partition(".")
            if pid.isdigit() and not (_alive(int(pid)) and born in ("", _born(int(pid)))):
                shutil.rmtree(folder, ignore_errors=True)
                found += 1
        return found


def _alive(pid: int) -> bool:
    if pid == os.getpid():
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _born(pid: int) -> str:
    """When the process began, in ticks: in containers a new process gets a dead one's number. Empty: not told."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


class no_room:  # noqa: N801 - used as a statement
    """A full disk is a matter of time, not of the batch: it waits and is tried again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Throttled(f"no space is left in {self._folder} (spark.scratch): {error}") from error


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
        data = await self._store.fetch(file.ref, generation=file.generation)
        if data is None:
            return None
        if file.crc32c and checksum(data) != file.crc32c:
            raise Transient(f"{file.ref}#{file.generation} came with another checksum than {file.crc32c}")
        place = self._reserve(len(data))
        with no_room(self._folder):
            _write(self._target, data, place.start)
        return place

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
