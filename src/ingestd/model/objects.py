"""Objects in Cloud Storage and their identity: `bucket/object#generation`."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b, sha256
from typing import NewType

Generation = NewType("Generation", int)

EPOCH = datetime.fromtimestamp(0, UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)  # an event time: windows and leases are added to it, and have to fit
ABSENT = Generation(0)  # as a precondition: the object must not exist yet


@dataclass(frozen=True, slots=True, order=True)
class ObjectRef:
    bucket: str
    name: str

    @classmethod
    def parse(cls, url: str) -> "ObjectRef":
        """`gs://bucket/object`; the object name may hold anything, `#` and `?` included."""
        scheme, _, rest = url.partition("://")
        bucket, _, name = rest.partition("/")
        if scheme != "gs" or not bucket:
            raise ValueError(f"not a gs:// URL: {url!r}")
        return cls(bucket, name)

    @property
    def url(self) -> str:
        return f"gs://{self.bucket}/{self.name}"

    def __truediv__(self, part: str) -> "ObjectRef":
        """The object below this one, joined with exactly one slash."""
        base = self.name.rstrip("/")
        return ObjectRef(self.bucket, f"{base}/{part.lstrip('/')}" if base else part.lstrip("/"))

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What the store says about one generation of an object."""

    ref: ObjectRef
    generation: Generation
    size: int
    created: datetime
    crc32c: str = ""
    content_type: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    metageneration: int = 1
    headers: dict[str, str] | None = field(default=None, compare=False)
    """Encoding, language and the like; None where they were not asked for."""


@dataclass(frozen=True, slots=True, order=True)
class FileVersion:
    """One file to ingest: an object pinned to the generation that was announced."""

    ref: ObjectRef
    generation: Generation
    size: int = 0
    event_time: datetime = EPOCH
    crc32c: str = ""
    overwrote: Generation = ABSENT  # the generation it replaced, whose load may still be running

    @property
    def key(self) -> str:
        return f"{self.ref.bucket}/{self.ref.name}#{self.generation}"

    @property
    def event_id(self) -> str:
        return event_id(self.key)


def event_id(identity: str, salt: int = 0) -> str:
    """A stable id of up to 19 digits that fits INT64, since users store `$EventID` in integer columns.

    63 bits can collide once in billions of files; whoever finds an id taken by another identity takes the next `salt`.
    """
    text = identity if salt == 0 else f"{identity}~{salt}"
    return str(int.from_bytes(sha256(text.encode()).digest()[:8], "big") >> 1)


def digest(key: str) -> bytes:
    """A file's identity in 16 bytes, for the sets that tell duplicates."""
    return blake2b(key.encode(), digest_size=16).digest()


def generation_time(generation: Generation) -> datetime:
    """GCS generations are microseconds since the epoch: the event time when a notification carries no payload."""
    try:
        moment = datetime.fromtimestamp(generation / 1_000_000, UTC)
    except (OverflowError, OSError, ValueError):
        return EPOCH
    return moment if EPOCH <= moment < LATEST else EPOCH
