"""What the readers and writers need from Cloud Storage.

A `*` in a URI stands for any run of characters, slashes included, and several slashes in a row for one, as in
BigQuery's `sourceUris`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ingestd.formats.errors import BigQueryError


@dataclass(frozen=True, slots=True)
class SourceObject:
    """One object a URI stands for. The URI is exact (no wildcard)."""

    uri: str
    size: int
    generation: int


class Objects(Protocol):
    """The objects that loads read and extracts write."""

    def match(self, uri: str) -> list[SourceObject]:
        """The objects behind a URI in name order; empty when there are none."""
        ...

    def read(self, uri: str) -> bytes: ...

    def match_all(self, uris: Sequence[str]) -> Iterable[list[SourceObject]]:
        """`match` of each; a store may have a way that is shorter for many."""
        return map(self.match, uris)

    def read_all(self, uris: Sequence[str]) -> Iterable[bytes]:
        """`read` of each, one after the other: what is not asked for is not read."""
        return map(self.read, uris)

    def write(self, uri: str, data: bytes, content_type: str) -> None: ...


def matches(pattern: str, uri: str) -> bool:
    """Whether a URI with any number of `*` covers `uri`."""
    head, *rest = pattern.split("*")
    if not rest:
        return pattern == uri
    *middle, tail = rest
    if not uri.startswith(head) or not uri.endswith(tail):
        return False
    at = len(head)
    for part in middle:
        found = uri.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return at + len(tail) <= len(uri)


def split_uri(uri: str) -> tuple[str, str]:
    """Bucket and object of a `gs://` URI."""
    bucket, slash, name = uri.removeprefix("gs://").partition("/")
    if not uri.startswith("gs://") or not bucket or not slash or not name:
        raise BigQueryError("invalid", f"Source URI must be a Google Cloud Storage location: {uri}")
    return bucket, name


def as_read(uri: str) -> str:
    """The URI as BigQuery takes it: an object whose name holds `//` cannot be read."""
    scheme, mark, path = uri.partition("://")
    return scheme + mark + re.sub("/{2,}", "/", path) if "//" in path else uri


def check_source_uri(uri: str) -> None:
    """Refuse what BigQuery refuses: other schemes, generations, more than one wildcard, a wildcard in the bucket."""
    bucket, name = split_uri(uri)
    if "*" in bucket:
        raise BigQueryError("invalid", f"Invalid source URI {uri}: wildcards are not allowed in the bucket name.")
    if name.count("*") > 1:
        raise BigQueryError("invalid", f"Invalid source URI {uri}: only one wildcard is supported per URI.")
