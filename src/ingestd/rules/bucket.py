"""Rules in a bucket: the same folder, on the object-store port. An object's generation is its version."""

from pathlib import Path

from ingestd.model.objects import ObjectRef
from ingestd.ports import ObjectStore
from ingestd.rules.source import FolderSource, RuleSource, SourceEntry

LARGEST = 16 << 20  # bytes of one file: tens of thousands of rules; what is larger is no rule, nor SQL beside one


class BucketSource:
    def __init__(self, store: ObjectStore, url: str) -> None:
        self._store = store
        self._prefix = ObjectRef.parse(url.rstrip("/") + "/")

    @property
    def root(self) -> str:
        return self._prefix.url

    async def list(self) -> list[SourceEntry]:
        return [
            SourceEntry(info.ref.url, str(info.generation))
            async for info in self._store.list(self._prefix)
            if not info.ref.name.endswith("/")
        ]

    async def read(self, url: str) -> bytes:
        data, _ = await self._store.read(ObjectRef.parse(url), largest=LARGEST)
        return data


def rule_source(url: str, store: ObjectStore, *, optional: bool = False) -> RuleSource:
    """The source a setting names: `gs://bucket/prefix`, or a folder (`optional`: which need not be there)."""
    return BucketSource(store, url) if url.startswith("gs://") else FolderSource(Path(url), optional=optional)
