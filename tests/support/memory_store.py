"""Cloud Storage in a dict: generations, preconditions, ordered listings, and what Google would charge for the calls."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime

from tests.support.one_by_one import OneByOne

from ingestd.model.clock import Clock
from ingestd.model.errors import NotFound, PreconditionFailed
from ingestd.model.objects import ABSENT, Generation, ObjectInfo, ObjectRef
from ingestd.model.stored import refuse_larger

PAGE = 1000  # objects per page of a listing: each page is an operation


class MemoryStore(OneByOne):
    """`ObjectStore`, atomic and strongly consistent."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._objects: dict[ObjectRef, tuple[bytes, ObjectInfo]] = {}
        self._names: dict[str, list[str]] = {}
        self._last = 0
        self.operations: Counter[str] = Counter()

    @property
    def class_a(self) -> int:
        return sum(count for what, count in self.operations.items() if what in ("insert", "list", "rewrite"))

    @property
    def class_b(self) -> int:
        return self.operations["get"]

    def put(self, ref: ObjectRef, data: bytes, metadata: Mapping[str, str] | None = None) -> ObjectInfo:
        """Write without asking or counting: what others put there."""
        now = self._clock.now()
        self._last = max(self._last + 1, int(now.timestamp() * 1_000_000))
        info = ObjectInfo(ref, Generation(self._last), len(data), _milliseconds(now), metadata=dict(metadata or {}))
        if ref not in self._objects:
            insort(self._names.setdefault(ref.bucket, []), ref.name)
        self._objects[ref] = (data, info)
        return info

    def names(self, bucket: str, prefix: str = "") -> Sequence[str]:
        return self._range(bucket, prefix, "", "")

    def content(self, ref: ObjectRef) -> bytes:
        return self._objects[ref][0]

    async def stat(self, ref: ObjectRef, *, generation: Generation | None = None) -> ObjectInfo | None:
        self.operations["get"] += 1
        found = self._objects.get(ref)
        return None if found is None or generation not in (None, found[1].generation) else found[1]

    async def read(
        self, ref: ObjectRef, *, generation: Generation | None = None, largest: int | None = None
    ) -> tuple[bytes, ObjectInfo]:
        self.operations["get"] += 1
        found = self._objects.get(ref)
        if found is None or generation not in (None, found[1].generation):
            raise NotFound(f"{ref} does not exist")
        refuse_larger(found[1], largest)
        return found

    async def fetch(
        self, ref: ObjectRef, *, generation: Generation, start: int = 0, end: int | None = None, small: bool = False
    ) -> bytes | None:
        self.operations["get"] += 1
        found = self._objects.get(ref)
        return found[0][start:end] if found is not None and found[1].generation == generation else None

    async def create(
        self,
        ref: ObjectRef,
        data: bytes,
        *,
        if_generation: Generation | None = None,
        content_type: str = "application/json",
        metadata: Mapping[str, str] | None = None,
    ) -> Generation:
        self.operations["insert"] += 1
        self._check(ref, if_generation)
        return self.put(ref, data, metadata).generation

    async def delete(self, ref: ObjectRef, *, if_generation: Generation | None = None) -> bool:
        self.operations["delete"] += 1
        if ref not in self._objects:
            return False
        self._check(ref, if_generation)
        del self._objects[ref]
        names = self._names[ref.bucket]
        del names[bisect_left(names, ref.name)]
        return True

    async def copy(
        self,
        source: ObjectRef,
        target: ObjectRef,
        *,
        source_generation: Generation | None = None,
        if_generation: Generation | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Generation:
        self.operations["rewrite"] += 1
        found = self._objects.get(source)
        if found is None or source_generation not in (None, found[1].generation):
            raise NotFound(f"{source} does not exist")
        self._check(target, if_generation)
        return self.put(target, found[0], {**found[1].metadata, **(metadata or {})}).generation

    async def list(
        self, prefix: ObjectRef, *, delimiter: str = "", start: str = "", end: str = ""
    ) -> AsyncIterator[ObjectInfo]:
        names = [
            name
            for name in self._range(prefix.bucket, prefix.name, start, end)
            if not delimiter or delimiter not in name[len(prefix.name) :]
        ]
        self.operations["list"] += max(1, -(-len(names) // PAGE))
        for info in [self._objects[ObjectRef(prefix.bucket, name)][1] for name in names]:
            yield info

    def _range(self, bucket: str, prefix: str, start: str, end: str) -> Sequence[str]:
        names = self._names.get(bucket, [])
        found = []
        for place in range(bisect_left(names, max(prefix, start)), len(names)):
            name = names[place]
            if not name.startswith(prefix) or (end and name >= end):
                break
            found.append(name)
        return found

    def _check(self, ref: ObjectRef, if_generation: Generation | None) -> None:
        found = self._objects.get(ref)
        if if_generation is not None and if_generation != (found[1].generation if found else ABSENT):
            raise PreconditionFailed(f"{ref} has another generation than {if_generation}")


def _milliseconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
