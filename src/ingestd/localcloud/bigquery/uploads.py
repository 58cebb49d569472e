"""Bytes posted with a load job (`uploadType=multipart|resumable`): kept on disk until the job has read them.

To the loader they are ordinary objects of a reserved bucket, so an error names a file as it does in BigQuery.
"""

import os
import secrets
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.bigquery.files.objects import Objects, SourceObject

_PREFIX = "gs://bigquery-local-upload/"


class Uploads(Objects):
    """`Objects` with the posted files added. Without a folder they live in memory."""

    def __init__(self, objects: Objects, root: Path | None) -> None:
        self._objects = objects
        self._folder = root / "uploads" if root is not None else None
        self._memory: dict[str, bytes] = {}
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)

    def keep(self, data: bytes) -> str:
        """Store posted bytes durably; returns the URI a load job reads them by."""
        name = secrets.token_hex(16)
        if self._folder is None:
            self._memory[name] = data
            return _PREFIX + name
        with (self._folder / name).open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return _PREFIX + name

    def keep_only(self, uris: Collection[str]) -> None:
        """Remove what an earlier process left behind, except what unfinished jobs still read."""
        names = {uri.removeprefix(_PREFIX) for uri in uris}
        for file in self._folder.iterdir() if self._folder is not None else ():
            if file.name not in names:
                file.unlink(missing_ok=True)

    def forget(self, uri: str) -> None:
        name = uri.removeprefix(_PREFIX)
        self._memory.pop(name, None)
        if self._folder is not None and name:
            (self._folder / name).unlink(missing_ok=True)

    def match(self, uri: str) -> list[SourceObject]:
        if not uri.startswith(_PREFIX):
            return self._objects.match(uri)
        return [SourceObject(uri, len(self.read(uri)), 1)]

    def read(self, uri: str) -> bytes:
        if not uri.startswith(_PREFIX):
            return self._objects.read(uri)
        name = uri.removeprefix(_PREFIX)
        try:
            return self._memory[name] if self._folder is None else (self._folder / name).read_bytes()
        except (KeyError, FileNotFoundError) as error:
            raise BigQueryError("notFound", f"Not found: URI {uri}", uri) from error

    def match_all(self, uris: Sequence[str]) -> Iterable[list[SourceObject]]:
        return super().match_all(uris) if _posted(uris) else self._objects.match_all(uris)

    def read_all(self, uris: Sequence[str]) -> Iterable[bytes]:
        return super().read_all(uris) if _posted(uris) else self._objects.read_all(uris)

    def write(self, uri: str, data: bytes, content_type: str) -> None:
        self._objects.write(uri, data, content_type)


def _posted(uris: Sequence[str]) -> bool:
    return any(uri.startswith(_PREFIX) for uri in uris)
