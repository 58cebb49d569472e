"""The rows of a simulated Cloud Storage in dicts; all above them (generations, preconditions, messages) is real.

SQLite remains, in memory, for what is rarely touched: buckets, notification configurations, messages on their way.
"""

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from ingestd.localcloud.storage.database import Database
from ingestd.localcloud.storage.model import ObjectVersion


class PlainDatabase(Database):
    def __init__(self, path: Path) -> None:
        super().__init__(Path(":memory:"))
        self._versions: dict[str, dict[tuple[str, int], ObjectVersion]] = defaultdict(dict)  # by bucket
        self._keys: dict[str, list[tuple[str, int]]] = defaultdict(list)  # the same, in order
        self._newest: dict[tuple[str, str], ObjectVersion] = {}
        self._payloads: dict[int, bytes] = {}
        self._numbers = count(1)
        self._writes = 0

    def transaction(self) -> "_Transaction":
        return _Transaction(self)

    def is_empty(self, bucket: str) -> bool:
        return not self._keys[bucket]

    def newest(self, bucket: str, name: str) -> ObjectVersion | None:
        return self._newest.get((bucket, name))

    def version(self, bucket: str, name: str, generation: int) -> ObjectVersion | None:
        return self._versions[bucket].get((name, generation))

    def live(self, bucket: str, names: Sequence[str]) -> list[tuple[str, int, int]]:
        return [(one.name, one.size, one.generation) for one in self._live(bucket, names)]

    def small(self, bucket: str, names: Sequence[str]) -> list[tuple[str, bytes]]:
        found = self._live(bucket, names)
        return [(one.name, self._payloads[one.payload]) for one in found if one.payload is not None]

    def _live(self, bucket: str, names: Sequence[str]) -> list[ObjectVersion]:
        found = (self._newest.get((bucket, name)) for name in names)
        return [one for one in found if one is not None and one.live]

    def put_object(self, version: ObjectVersion) -> None:
        self._writes += 1
        key, versions = (version.name, version.generation), self._versions[version.bucket]
        if key not in versions:
            insort(self._keys[version.bucket], key)
        versions[key] = version
        newest = self._newest.get((version.bucket, version.name))
        if newest is None or newest.generation <= version.generation:
            self._newest[version.bucket, version.name] = version

    def delete_object(self, version: ObjectVersion) -> None:
        self._writes += 1
        keys, key = self._keys[version.bucket], (version.name, version.generation)
        del self._versions[version.bucket][key]
        place = bisect_right(keys, key) - 1
        del keys[place]
        if self._newest[version.bucket, version.name].generation == version.generation:
            del self._newest[version.bucket, version.name]
            if place and keys[place - 1][0] == version.name:
                older = self._versions[version.bucket][keys[place - 1]]
                self._newest[version.bucket, version.name] = older
        if version.payload is not None:
            del self._payloads[version.payload]

    def put_payload(self, data: bytes) -> int:
        number = next(self._numbers)
        self._payloads[number] = data
        return number

    def read_payload(self, payload: int) -> bytes:
        return self._payloads[payload]

    def scan(self, bucket: str, start: str, after_generation: int, stop: str | None) -> Iterator[ObjectVersion]:
        keys, versions = self._keys[bucket], self._versions[bucket]
        first = bisect_right(keys, (start, after_generation))
        last = len(keys) if stop is None else bisect_right(keys, (stop, -1), first)
        return map(versions.__getitem__, keys[first:last])

    def save_generation(self, generation: int) -> None:
        """Nothing outlives the run."""


class _Transaction:
    """Whatever refuses a change does so before its first write: there is nothing to roll back."""

    __slots__ = ("_before", "_database")

    def __init__(self, database: PlainDatabase) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._before = self._database._writes

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert kind is None or self._database._writes == self._before, "a change was given up half-way"
