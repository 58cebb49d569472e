"""Where the local Cloud Storage keeps an object, for tests that damage or miss the file."""

from pathlib import Path

from ingestd.localcloud.storage import StorageCore


def stored_file(core: StorageCore, bucket: str, name: str) -> Path | None:
    """The file a large object is stored in, or None for one kept in the database."""
    version = core.stat(bucket, name)
    return None if version.file is None else core._state.payloads.path(version.file)
