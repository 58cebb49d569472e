"""The durable log: records appended to one segment file, one `write` per request.

Invariants: a record is in the page cache before the request that caused it is answered, so SIGKILL loses nothing that
was acknowledged. A torn record at the end (the process died inside the write) was never acknowledged and is cut off.
The segment with the highest number holds the whole state: `rewrite` makes a new one from the live state and drops the
old, so the disk stays within a small multiple of what is alive.
"""

import fcntl
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import structlog

from ingestd.localcloud.pubsub.errors import Code, PubSubError

log = structlog.get_logger(__name__)

_HEADER = struct.Struct("<IIB")  # payload length, crc32 of the payload, kind


class RecordKind(IntEnum):
    """On-disk numbers: never reuse one."""

    STARTED = 1
    COUNTERS = 2
    TOPIC = 3
    TOPIC_DELETED = 4
    SUBSCRIPTION = 5
    SUBSCRIPTION_DELETED = 6
    SNAPSHOT = 7
    SNAPSHOT_DELETED = 8
    POLICY = 9
    PUBLISHED = 10
    STORED = 11
    ACKED = 12
    BACKLOG = 13
    RETAINED_BY_SUBSCRIPTION = 14
    RETAINED_BY_TOPIC = 15
    ATTEMPTS = 16


@dataclass(frozen=True, slots=True)
class Record:
    kind: RecordKind
    payload: bytes


def encode(kind: RecordKind, *parts: bytes) -> bytes:
    payload = parts[0] if len(parts) == 1 else b"".join(parts)
    return _HEADER.pack(len(payload), zlib.crc32(payload), kind) + payload


class Journal:
    """One segment, exclusively owned: a second process on the same folder is refused."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise RuntimeError(f"another process is using the Pub/Sub state in {root}") from None
        numbers = sorted(int(path.stem.removeprefix("segment-")) for path in root.glob("segment-*.log"))
        self._number = numbers[-1] if numbers else 1
        for number in numbers[:-1]:
            self._path(number).unlink()
        for unfinished in root.glob("segment-*.tmp"):
            unfinished.unlink()
        self._fd = self._open(self._path(self._number))
        self.size = os.fstat(self._fd).st_size

    def replay(self) -> Iterator[Record]:
        """Every whole record, oldest first; the file is cut after the last one."""
        data = self._path(self._number).read_bytes()
        at = 0
        while at + _HEADER.size <= len(data):
            length, crc, kind = _HEADER.unpack_from(data, at)
            end = at + _HEADER.size + length
            payload = data[at + _HEADER.size : end]
            if end > len(data) or zlib.crc32(payload) != crc:
                break
            yield Record(RecordKind(kind), payload)
            at = end
        if at < len(data):
            self._cut(data, at)

    def append(self, *records: bytes) -> None:
        """All records in one write, or none of them."""
        data = records[0] if len(records) == 1 else b"".join(records)
        try:
            written = os.write(self._fd, data)
        except OSError as error:
            raise PubSubError(Code.UNAVAILABLE, f"the Pub/Sub log cannot be written: {error}") from error
        if written != len(data):
            os.ftruncate(self._fd, self.size)
            raise PubSubError(Code.UNAVAILABLE, "the Pub/Sub log cannot be written: no space left on the disk")
        self.size += written

    def rewrite(self, records: Iterable[bytes]) -> None:
        """Replace the segment by one that holds these records; a crash leaves either the old or the new one."""
        path = self._path(self._number + 1)
        unfinished = path.with_suffix(".tmp")
        with unfinished.open("wb") as file:
            for record in records:
                file.write(record)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
        replaced = self._path(self._number)
        os.close(self._fd)
        self._number += 1
        self._fd = self._open(path)
        self.size = os.fstat(self._fd).st_size
        replaced.unlink()

    def close(self) -> None:
        os.close(self._fd)
        os.close(self._lock)

    def _cut(self, data: bytes, at: int) -> None:
        length = _HEADER.unpack_from(data, at)[0] if at + _HEADER.size <= len(data) else 0
        if at + _HEADER.size + length < len(data):
            # Not a torn tail: something overwrote the middle. Keep the evidence, go on with what is whole.
            evidence = self._path(self._number).with_suffix(".damaged")
            evidence.write_bytes(data[at:])
            log.error("pubsub.log_damaged", offset=at, dropped_bytes=len(data) - at, kept_as=str(evidence))
        else:
            log.info("pubsub.torn_record_dropped", offset=at, dropped_bytes=len(data) - at)
        os.ftruncate(self._fd, at)
        self.size = at

    def _path(self, number: int) -> Path:
        return self._root / f"segment-{number:08d}.log"

    @staticmethod
    def _open(path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
