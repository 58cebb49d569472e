"""Names of many finished batches in one object, of which a few kilobytes are read to find one.

A segment has an entry per file of the records of some days: a hash of its name, the day and the id of its batch. They
lie in buckets of the same size, by their hash; so the place of a name's bucket follows from the segment's labels, which
a listing tells, and finding it takes one ranged read however many names there are.

    <first day>.<last day>.<written>-<random>.idx     (labels: version, names, buckets, room, days left out)

A name that very many of the batches have is only said to be frequent: then its days are listed, and what is read are
the records that have it.

Each bucket begins with a digest of itself, its number, the segment's name and labels. Whatever is damaged, cut off or
came here from elsewhere does not fit it, and the days of such a segment count as not written down.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from hashlib import blake2b
from secrets import token_hex

from ingestd.model.errors import UnreadableObject
from ingestd.model.objects import ObjectInfo, ObjectRef
from ingestd.model.stored import check_version, number, reading

SCHEMA_VERSION = 1
ENTRY = 18  # bytes: 8 of the name's hash, 8 of the batch's id, 2 of the day (counted from the segment's first)
_HASH = 8
_DIGEST = 16
_COUNT = 2
LARGEST = 256 << 20  # bytes of a segment: a million names take 30 MB, and 150 where all of them are frequent
_FILL = 64  # entries per bucket, about
_FREQUENT = 64  # batches; all buckets are as large as the largest
_MANY = (1 << 64) - 1  # stands for the batches of a frequent name: no batch has this id
_MOST_LEFT_OUT = 100  # days; a label's size is limited
_NAMED = re.compile(r"(\d{4}-\d\d-\d\d)\.(\d{4}-\d\d-\d\d)\.(\d{4}-\d\d-\d\d)-[0-9a-f]+\.idx")
_DAY = timedelta(days=1)

Batch = tuple[date, int]  # its day and its id


@dataclass(frozen=True, slots=True)
class Segment:
    info: ObjectInfo
    first: date
    last: date
    written: date
    names: int
    buckets: int
    room: int  # entries that a bucket has space for
    left_out: frozenset[date]  # days between first and last that are not in it

    @classmethod
    def of(cls, info: ObjectInfo) -> "Segment":
        """What a listing tells of it; `UnreadableObject` when that makes no sense."""
        labels = info.metadata
        with reading(info.ref):
            check_version({"schema_version": number(labels.get("ingestd-version"))}, SCHEMA_VERSION)
            named = _NAMED.fullmatch(info.ref.name.rpartition("/")[2])
            if named is None:
                raise ValueError("a name that no segment has")
            found = cls(
                info,
                first=date.fromisoformat(named[1]),
                last=date.fromisoformat(named[2]),
                written=date.fromisoformat(named[3]),
                names=number(labels.get("ingestd-names")),
                buckets=number(labels.get("ingestd-buckets")),
                room=number(labels.get("ingestd-room")),
                left_out=frozenset(date.fromisoformat(one) for one in labels.get("ingestd-left-out", "").split()),
            )
            if found.first > found.last or found.buckets < 1 or found.room < 0:
                raise ValueError("labels that no segment has")
            if info.size > LARGEST:
                raise ValueError(f"{info.size} bytes, and at most {LARGEST} are read")
            if info.size != found.buckets * found.slot:
                raise ValueError(f"{info.size} bytes, not {found.buckets} buckets of {found.slot}")
        return found

    @property
    def slot(self) -> int:
        """Bytes of a bucket."""
        return _DIGEST + _COUNT + self.room * ENTRY

    def covers(self, day: date) -> bool:
        return self.first <= day <= self.last and day not in self.left_out

    def bucket_of(self, hashed: bytes) -> int:
        return _bucket(hashed, self.buckets)

    def matches(self, data: bytes, hashed: bytes) -> list[Batch] | None:
        """The batches that have the name, by its bucket; None when they are too many to be told."""
        entries = self._entries(data, self.bucket_of(hashed))
        found = [self._batch(one) for one in _split(entries) if one[:_HASH] == hashed]
        return None if any(batch == _MANY for _, batch in found) else found

    def all(self, data: bytes) -> tuple[dict[Batch, bytes], set[bytes]]:
        """By the whole of the segment: the names of each batch, as hashes in a row, and names that are frequent.

        A batch whose names are all frequent is not there.
        """
        found: dict[Batch, bytearray] = {}
        frequent: set[bytes] = set()
        for bucket in range(self.buckets):
            for one in _split(self._entries(data[bucket * self.slot : (bucket + 1) * self.slot], bucket)):
                batch = self._batch(one)
                if batch[1] == _MANY:
                    frequent.add(one[:_HASH])
                else:
                    found.setdefault(batch, bytearray()).extend(one[:_HASH])
        return {batch: bytes(names) for batch, names in found.items()}, frequent

    def _entries(self, data: bytes, bucket: int) -> bytes:
        if len(data) != self.slot or data[:_DIGEST] != _digest(self._seal, bucket, data[_DIGEST:]):
            raise UnreadableObject(f"{self.info.ref}: bucket {bucket} is damaged, or not of this segment")
        count = int.from_bytes(data[_DIGEST : _DIGEST + _COUNT], "big")
        return data[_DIGEST + _COUNT :][: count * ENTRY]

    def _batch(self, entry: bytes) -> Batch:
        return self.first + _DAY * int.from_bytes(entry[-2:], "big"), int.from_bytes(entry[_HASH : 2 * _HASH], "big")

    @property
    def _seal(self) -> str:
        return _sealed(self.info.ref.name.rpartition("/")[2], self.info.metadata)


@dataclass(slots=True)
class Draft:
    """A segment to be: the names of batches of these days."""

    first: date
    last: date
    batches: dict[Batch, bytes] = field(default_factory=dict)
    left_out: set[date] = field(default_factory=set)
    frequent: set[bytes] = field(default_factory=set)

    @property
    def names(self) -> int:
        return sum(map(len, self.batches.values())) // _HASH

    def shorten(self) -> None:
        """End before what its labels cannot tell: what comes then is for another segment."""
        if len(self.left_out) > _MOST_LEFT_OUT:
            self.last = max(self.first, sorted(self.left_out)[_MOST_LEFT_OUT] - _DAY)
            self.left_out = {day for day in self.left_out if day <= self.last}
            self.batches = {batch: names for batch, names in self.batches.items() if batch[0] <= self.last}

    def written(self, today: date) -> tuple[str, dict[str, str], bytes]:
        """Its name, labels and content."""
        names = self.names
        count = max(1, names // _FILL)
        buckets = [bytearray() for _ in range(count)]
        for (day, batch), hashes in self.batches.items():
            if day in self.left_out:
                continue
            where = batch.to_bytes(8, "big") + (day - self.first).days.to_bytes(2, "big")
            for at in range(0, len(hashes), _HASH):
                hashed = hashes[at : at + _HASH]
                buckets[_bucket(hashed, count)] += hashed + where
        for hashed in self.frequent:
            buckets[_bucket(hashed, count)] += hashed + _MANY.to_bytes(8, "big") + bytes(2)
        buckets = [_with_frequent(bucket) for bucket in buckets]
        room = max(map(len, buckets)) // ENTRY
        labels = {
            "ingestd-version": str(SCHEMA_VERSION),
            "ingestd-names": str(names),
            "ingestd-buckets": str(count),
            "ingestd-room": str(room),
            "ingestd-left-out": " ".join(sorted(day.isoformat() for day in self.left_out)),
        }
        name = f"{self.first}.{self.last}.{today}-{token_hex(4)}.idx"
        seal = _sealed(name, labels)
        content = bytearray()
        for place, bucket in enumerate(buckets):
            body = (len(bucket) // ENTRY).to_bytes(_COUNT, "big") + bucket.ljust(room * ENTRY, b"\0")
            content += _digest(seal, place, body) + body
        return name, labels, bytes(content)


def hash_of(ref: ObjectRef) -> bytes:
    return blake2b(f"{ref.bucket}/{ref.name}".encode("utf-8", "surrogatepass"), digest_size=_HASH).digest()


def hashes_of(refs: Iterable[ObjectRef]) -> bytes:
    """Each name once: a batch may have several generations of one."""
    return b"".join(dict.fromkeys(map(hash_of, refs)))


def _bucket(hashed: bytes, buckets: int) -> int:
    return int.from_bytes(hashed, "big") * buckets >> (8 * _HASH)


def _with_frequent(bucket: bytearray) -> bytearray:
    """The bucket, one entry in it standing for all of a name that is frequent."""
    if len(bucket) <= _FREQUENT * ENTRY:
        return bucket
    entries = list(_split(bytes(bucket)))
    times = Counter(one[:_HASH] for one in entries)
    times.update({one[:_HASH]: _FREQUENT for one in entries if one[_HASH : 2 * _HASH] == _MANY.to_bytes(8, "big")})
    kept = [one for one in entries if times[one[:_HASH]] <= _FREQUENT]
    marks = [hashed + _MANY.to_bytes(8, "big") + bytes(2) for hashed, count in times.items() if count > _FREQUENT]
    return bytearray(b"".join([*kept, *marks]))


def _split(entries: bytes) -> Iterator[bytes]:
    return (entries[at : at + ENTRY] for at in range(0, len(entries), ENTRY))


def _sealed(name: str, labels: Mapping[str, str]) -> str:
    return "|".join([name, *(labels.get(f"ingestd-{one}", "") for one in ("version", "buckets", "room", "left-out"))])


def _digest(seal: str, bucket: int, body: bytes | bytearray) -> bytes:
    hashed = blake2b(body, digest_size=_DIGEST)
    hashed.update(f"{seal}|{bucket}".encode("utf-8", "surrogatepass"))
    return hashed.digest()
