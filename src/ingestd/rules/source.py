"""Where rule files come from. A local folder is read here; `gs://` prefixes implement the same Protocol elsewhere."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol


class SourceEntry(NamedTuple):
    """A file and something that changes whenever its content does."""

    url: str
    version: str


class RuleSource(Protocol):
    @property
    def root(self) -> str:
        """What every listed URL starts with; the rest of a URL names the rule."""
        ...

    async def list(self) -> Sequence[tuple[str, str]]:
        """Every file below the root, rules or not (rules may refer to SQL files), as (url, version)."""
        ...

    async def read(self, url: str) -> bytes:
        """A listed file's content."""
        ...


class FolderSource:
    """Rules in a local folder, or one rule file.

    Hidden names are passed over: editors leave them behind, and Kubernetes mounts a ConfigMap through hidden folders
    that would show every rule twice.
    """

    def __init__(self, path: Path, *, optional: bool = False) -> None:
        self._path = path
        self._optional = optional  # a folder that is not there has no rules

    @property
    def root(self) -> str:
        folder = self._path if not self._path.is_file() else self._path.parent
        return f"{folder.as_posix().rstrip('/')}/"

    async def list(self) -> Sequence[SourceEntry]:
        return await asyncio.to_thread(self._scan)

    async def read(self, url: str) -> bytes:
        return await asyncio.to_thread(Path(url).read_bytes)

    def _scan(self) -> Sequence[SourceEntry]:
        if self._path.is_file():
            return [_entry(self._path)]
        if not self._path.is_dir():
            if self._optional and not self._path.exists():
                return []
            raise FileNotFoundError(f"no such folder: {self._path}")
        found: list[SourceEntry] = []
        for folder, folders, files in os.walk(self._path, followlinks=False):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(files):
                if not name.startswith("."):
                    try:
                        found.append(_entry(Path(folder, name)))
                    except FileNotFoundError:  # removed between listing and looking
                        continue
        return found


def _entry(path: Path) -> SourceEntry:
    status = path.stat()
    return SourceEntry(path.as_posix(), f"{status.st_mtime_ns}:{status.st_size}:{status.st_ino}")
