"""Where a session with a JVM of our own keeps what does not fit in memory: folders that go when it goes.

Spark removes them when it ends in order. A JVM that is killed leaves them behind, gigabytes at times, and nobody would
ever look for them again: so each session has a folder of its own, whose name tells its owner.

A session whose folders are cleared away under it, as is usual in /tmp, answers as before and fails every batch from
then on: `check` tells.
"""

import shutil
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

from ingestd.spark.session import owners

_PREFIX = "spill-"
_BLOCKS = ("blockmgr-*", "blockmgr-*/[0-9a-f][0-9a-f]")  # made once, and taken for granted from then on


class Spill:
    def __init__(self, folders: Sequence[Path] = ()) -> None:
        """`folders` are removed with the session; none where Spark keeps its files elsewhere."""
        self.folders = tuple(folders)
        self._known: set[Path] = set()

    @classmethod
    def under(cls, roots: Iterable[Path]) -> "Spill":
        """For a new session, which is this process's only one: what earlier ones and dead processes left is removed."""
        mine, folders = owners.mine(), []
        for root in roots:
            for folder in root.glob(f"{_PREFIX}*-*"):
                owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
                if owner == mine or owners.left_behind(folder, owner):
                    shutil.rmtree(folder, ignore_errors=True)
            folders.append(root / f"{_PREFIX}{mine}-{uuid.uuid4().hex[:12]}")
            folders[-1].mkdir(parents=True)
        return cls(folders)

    def keep(self, folder: Path) -> None:
        """Spark relies on this one, too."""
        self._known.add(folder)

    def check(self) -> None:
        """`ConnectionError` when something is gone that was there at an earlier check."""
        for folder in self.folders:
            for pattern in _BLOCKS:
                self._known.update(folder.glob(pattern))
        gone = [folder for folder in self._known if not folder.is_dir()]
        if gone:
            raise ConnectionError(f"its files were cleared away: {min(gone)} is gone")

    def remove(self) -> None:
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)
