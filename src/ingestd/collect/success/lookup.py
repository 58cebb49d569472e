"""Finding the `_config/` files above a batch: one listing per batch, contents read once per generation.

Every batch looks anew, so an edit counts from the next success file on: one listing call names all folders from the
root to the batch. A store that cannot answer that in one call is asked folder by folder from then on.

The files are untrusted: their sizes are bounded before they are read, and large ones are parsed off the event loop.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import timedelta

import structlog

from ingestd.collect.success.configuration import (
    CONFIG,
    ConfigFile,
    Configured,
    Levels,
    configured,
    folders,
    refuse_large,
    wanted,
)
from ingestd.model.aside import aside
from ingestd.model.clock import Clock
from ingestd.model.errors import BadInput, NotFound, TooWide, Transient
from ingestd.model.objects import ObjectRef
from ingestd.ports import ObjectStore
from ingestd.settings import Convention

log = structlog.get_logger(__name__)

_SPECIAL = frozenset("*?[]{}\\,")
_LONGEST_GLOB = 2000
_REMEMBER = 64 << 20  # bytes of contents
PARSED_ASIDE = 16 << 10  # bytes
_ONE_BY_ONE = timedelta(minutes=10)


class ConfigLookup:
    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._contents: OrderedDict[ConfigFile, bytes] = OrderedDict()
        self._remembered = 0  # bytes
        self._wide: dict[str, float] = {}  # buckets that are asked folder by folder, and until when

    async def levels(self, name: str, bucket: str, convention: Convention) -> Levels:
        """The files of every `_config/` that counts for the object, from the root to its own directory."""
        places = [self._place(folder, bucket, convention) for folder in folders(name, convention.root)]
        files = await self._list(places)
        return [tuple(sorted(files.get(place, ()))) for place in places]

    async def read(self, levels: Levels) -> Configured:
        """What the files say; raises `BadConfig`."""
        chosen = wanted(levels)
        refuse_large(chosen)
        contents = dict(zip(chosen, await asyncio.gather(*map(self._content, chosen)), strict=True))
        return await aside(sum(map(len, contents.values())) > PARSED_ASIDE, configured, levels, contents)

    def _place(self, folder: str, bucket: str, convention: Convention) -> ObjectRef:
        if not convention.config_url:
            return ObjectRef(bucket, f"{folder}{CONFIG}/")
        return ObjectRef.parse(convention.config_url) / f"{folder.removeprefix(convention.root)}{CONFIG}/"

    async def _list(self, places: Sequence[ObjectRef]) -> Mapping[ObjectRef, list[ConfigFile]]:
        bucket = places[0].bucket
        pattern = "{" + ",".join(f"{place.name}*" for place in places) + "}"
        fit = not any(_SPECIAL & set(place.name) for place in places) and len(pattern) <= _LONGEST_GLOB
        if fit and self._wide.get(bucket, 0.0) <= self._clock.monotonic():
            try:
                return await self._listed(ObjectRef(bucket, ""), pattern if len(places) > 1 else pattern[1:-1])
            except (TooWide, BadInput) as error:  # or it takes no such pattern
                log.info("config.listed_one_by_one", bucket=bucket, folders=len(places), why=str(error))
                self._wide[bucket] = self._clock.monotonic() + _ONE_BY_ONE.total_seconds()
        found: dict[ObjectRef, list[ConfigFile]] = {}
        for listed in await asyncio.gather(*(self._listed(place) for place in places)):
            found |= listed
        return found

    async def _listed(self, prefix: ObjectRef, glob: str = "") -> dict[ObjectRef, list[ConfigFile]]:
        found: dict[ObjectRef, list[ConfigFile]] = {}
        options = {"glob": glob} if glob else {"delimiter": "/"}
        async for info in self._store.list(prefix, **options):
            folder, slash, base = info.ref.name.rpartition("/")
            if base:
                place = ObjectRef(info.ref.bucket, folder + slash)
                found.setdefault(place, []).append(ConfigFile(info.ref, info.generation, info.size))
        return found

    async def _content(self, file: ConfigFile) -> bytes:
        known = self._contents.get(file)
        if known is not None:
            self._contents.move_to_end(file)
            return known
        try:
            data, _ = await self._store.read(file.ref, generation=file.generation)
        except NotFound:
            raise Transient(f"{file.ref} changed while it was read") from None
        if file not in self._contents:
            self._contents[file] = data
            self._remembered += len(data)
        while self._remembered > _REMEMBER:
            self._remembered -= len(self._contents.popitem(last=False)[1])
        return data
