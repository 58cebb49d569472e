"""Where object bytes live: small ones inside the database, larger ones as files.

A file reaches its final name before the commit that refers to it and leaves only after the commit that stopped doing
so. A crash in between leaves an orphan, never a hole; orphans are swept at start.
"""

import base64
import hashlib
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import google_crc32c

CHUNK = 1 << 20


def encoded_crc32c(value: int) -> str:
    return base64.b64encode(value.to_bytes(4, "big")).decode()


class Digest:
    """The two checksums Cloud Storage keeps, fed piece by piece."""

    __slots__ = ("_crc", "_md5", "size")

    def __init__(self) -> None:
        self._crc = 0
        self._md5 = hashlib.md5(usedforsecurity=False)
        self.size = 0

    def update(self, data: bytes) -> None:
        self._crc = google_crc32c.extend(self._crc, data)
        self._md5.update(data)
        self.size += len(data)

    @property
    def crc32c(self) -> str:
        return encoded_crc32c(self._crc)

    @property
    def md5(self) -> str:
        return base64.b64encode(self._md5.digest()).decode()


@dataclass(frozen=True, slots=True)
class Staged:
    """Bytes that are safe and hashed but belong to no object yet: either `inline` or `path`."""

    size: int
    crc32c: str
    md5: str | None
    inline: bytes | None = None
    path: Path | None = None
    components: int | None = None


class Payloads:
    """The folder of large payloads, and the staging area beside it."""

    def __init__(self, root: Path, *, inline_limit: int) -> None:
        self._objects = root / "objects"
        self._staging = root / "staging"
        self._objects.mkdir(parents=True, exist_ok=True)
        self._staging.mkdir(exist_ok=True)
        self.inline_limit = inline_limit

    def stage(self, data: bytes) -> Staged:
        digest = Digest()
        digest.update(data)
        if len(data) <= self.inline_limit:
            return Staged(digest.size, digest.crc32c, digest.md5, inline=data)
        path = self.scratch()
        path.write_bytes(data)
        return Staged(digest.size, digest.crc32c, digest.md5, path=path)

    def stage_file(self, path: Path, digest: Digest) -> Staged:
        """Take over a file written elsewhere on this disk, such as a finished resumable upload."""
        if digest.size <= self.inline_limit:
            data = path.read_bytes()
            return Staged(digest.size, digest.crc32c, digest.md5, inline=data)
        return Staged(digest.size, digest.crc32c, digest.md5, path=path)

    def stage_joined(self, parts: Iterable[bytes | Path], components: int) -> Staged:
        """The concatenation of several payloads. A composed object has no MD5."""
        digest = Digest()
        path = self.scratch()
        with path.open("wb") as out:
            for part in parts:
                if isinstance(part, bytes):
                    digest.update(part)
                    out.write(part)
                    continue
                with part.open("rb") as source:
                    while data := source.read(CHUNK):
                        digest.update(data)
                        out.write(data)
        if digest.size > self.inline_limit:
            return Staged(digest.size, digest.crc32c, None, path=path, components=components)
        data = path.read_bytes()
        path.unlink()
        return Staged(digest.size, digest.crc32c, None, inline=data, components=components)

    def stage_link(self, file: str, like: Staged) -> Staged:
        """A second name for an existing file's bytes: a copy costs nothing and outlives its source."""
        path = self.scratch()
        os.link(self.path(file), path)
        return Staged(like.size, like.crc32c, like.md5, path=path, components=like.components)

    def scratch(self) -> Path:
        return self._staging / secrets.token_hex(12)

    def keep(self, staged: Staged) -> str:
        """Give a staged file its final name; to be called before the commit that refers to it."""
        assert staged.path is not None
        name = secrets.token_hex(16)
        target = self.path(name)
        try:
            staged.path.rename(target)
        except FileNotFoundError:
            target.parent.mkdir(exist_ok=True)
            staged.path.rename(target)
        return name

    def discard(self, staged: Staged) -> None:
        if staged.path is not None:
            staged.path.unlink(missing_ok=True)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self.path(name).unlink(missing_ok=True)

    def path(self, name: str) -> Path:
        return self._objects / name[:2] / name

    def open(self, name: str) -> IO[bytes]:
        return self.path(name).open("rb")

    def sweep(self, referenced: set[str]) -> int:
        """Remove what a crash left behind; returns how many files."""
        orphans = [path for path in self._objects.glob("*/*") if path.name not in referenced]
        orphans.extend(self._staging.iterdir())
        for path in orphans:
            path.unlink(missing_ok=True)
        return len(orphans)
