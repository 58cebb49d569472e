"""The folder for fetched and prepared files: who may use how much of it, and what becomes of what is left there."""

import asyncio
import errno
import shutil
import uuid
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ingestd.model.errors import Fatal, Throttled
from ingestd.spark.session import owners

_PREFIX = "batch-"


class Scratch:
    """First come, first served: a large batch would wait for ever if small ones might pass it."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        self._used = 0
        self._more: dict[Path, int] = {}
        self._line: deque[asyncio.Event] = deque()

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
        await self._wait_for(size)
        folder = self.folder / f"{_PREFIX}{owners.mine()}-{uuid.uuid4().hex[:12]}"
        try:
            with no_room(self.folder):
                folder.mkdir(parents=True)
            yield folder
        finally:
            try:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            finally:
                # Without waiting: whoever is cancelled in the middle of tidying up gives its room back all the same.
                self._used -= size + self._more.pop(folder, 0)
                self._next()

    def more(self, folder: Path, size: int) -> bool:
        """So much more for what is in this folder, if it is there now: nobody waits who has room already."""
        if self._used + size > self.limit:
            return False
        self._used += size
        self._more[folder] = self._more.get(folder, 0) + size
        return True

    async def _wait_for(self, size: int) -> None:
        turn = asyncio.Event()
        self._line.append(turn)
        try:
            while self._line[0] is not turn or self._used + size > self.limit:
                turn.clear()
                await turn.wait()
            self._used += size
        finally:
            self._line.remove(turn)
            self._next()

    def _next(self) -> None:
        if self._line:
            self._line[0].set()

    def clean(self) -> int:
        """Remove what dead processes left; answers how many folders that were."""
        found = 0
        if not self.folder.is_dir():
            return 0
        for folder in self.folder.glob(f"{_PREFIX}*-*"):
            if owners.left_behind(folder, folder.name.removeprefix(_PREFIX).partition("-")[0]):
                shutil.rmtree(folder, ignore_errors=True)
                found += 1
        return found


class no_room:  # noqa: N801 - used as a statement
    """A full disk is a matter of time, not of the batch: it waits and is tried again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Throttled(f"no space is left in {self._folder} (spark.scratch): {error}") from error
