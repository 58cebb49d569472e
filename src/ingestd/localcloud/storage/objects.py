"""The objects of the local Cloud Storage by `gs://` URI, for the services that load from it and extract to it."""

from dataclasses import dataclass

from ingestd.localcloud.storage.core import StorageCore
from ingestd.localcloud.storage.errors import StorageError, invalid


@dataclass(frozen=True, slots=True)
class SourceObject:
    uri: str
    size: int
    generation: int


def split_uri(uri: str) -> tuple[str, str]:
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    if not uri.startswith("gs://") or not bucket or not name:
        raise invalid(f"Not a Cloud Storage URI: {uri!r}")
    return bucket, name


class StorageObjects:
    """A `*` in the object name stands for any characters, slashes included."""

    def __init__(self, core: StorageCore) -> None:
        self._core = core

    def match(self, uri: str) -> list[SourceObject]:
        """The objects a URI names, in name order; none when nothing matches or the bucket does not exist."""
        bucket, pattern = split_uri(uri)
        try:
            versions = self._core.glob(bucket, pattern) if "*" in pattern else [self._core.stat(bucket, pattern)]
        except StorageError as error:
            if error.status == 404:
                return []
            raise
        return [SourceObject(f"gs://{bucket}/{found.name}", found.size, found.generation) for found in versions]

    def read(self, uri: str) -> bytes:
        return self._core.read(*split_uri(uri))

    def write(self, uri: str, data: bytes, content_type: str) -> None:
        bucket, name = split_uri(uri)
        self._core.write(bucket, name, data, content_type)
