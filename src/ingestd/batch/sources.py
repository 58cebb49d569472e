"""Are the files still the ones that were announced?

BigQuery loads whatever a URI holds when it reads it, so an object that is overwritten around its load could be loaded
twice or under the wrong name. The order of things excludes that:

1. A batch's record exists before its sources are looked at, and they are looked at before its job is submitted.
2. A file that overwrote an earlier generation looks for the batch of that generation. None: that batch will look at its
   sources later than now, find the newer generation and give way. Not loaded yet: wait for it. Loaded: ask the job when
   it read, and by that whether it read the newer content. Rows that were prepared come from the pinned generation.

What is not there, or is not to be loaded, is set aside file by file; the others go on.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Protocol

from ingestd.batch.content import Fate, SetAside
from ingestd.batch.journal import Journal
from ingestd.batch.landing import lands_apart
from ingestd.batch.record import Phase, Record
from ingestd.model.bounded import bounded
from ingestd.model.clock import Clock
from ingestd.model.errors import Fatal, Transient
from ingestd.model.objects import FileVersion, ObjectInfo, ObjectRef
from ingestd.ports import ObjectStore, Warehouse
from ingestd.warehouse.proof import read_newer

_WAIT_FOR_EARLIER = timedelta(seconds=60)
_LOOK_EVERY = timedelta(seconds=2)
_AT_ONCE = 16
_FEW = 25  # files of one folder that are asked for one by one: a listing costs as much as a dozen of them
_SPARSE = 10  # a folder in which only one of so many objects is ours is not worth listing to its end
_MAX_CHAIN = 10


@dataclass(slots=True)
class Looked:
    """What was found: files with their sizes and checksums, and those that drop out."""

    present: dict[int, ObjectInfo] = field(default_factory=dict)
    aside: dict[int, SetAside] = field(default_factory=dict)

    def described(self, files: Sequence[FileVersion]) -> tuple[FileVersion, ...]:
        """The files, with what is now known of them."""
        known = list(files)
        for index, info in self.present.items():
            known[index] = replace(known[index], size=info.size, crc32c=info.crc32c or known[index].crc32c)
        return tuple(known)


async def look(
    store: ObjectStore, record: Record, indexes: Iterable[int], guarded: Callable[[Mapping[str, str]], bool]
) -> Looked:
    """Look at these files of the batch."""
    files = record.files
    newest: dict[ObjectRef, int] = {}
    for index, file in enumerate(files):
        known = newest.get(file.ref)
        if known is None or files[known].generation < file.generation:
            newest[file.ref] = index
    looked = Looked()
    wanted: list[int] = []
    for index in indexes:
        file = files[index]
        if newest[file.ref] != index:
            newer = files[newest[file.ref]].generation
            looked.aside[index] = SetAside(Fate.SUPERSEDED, f"{file.ref} is in the batch in generation {newer}")
        elif "*" in file.ref.name:
            why = f"{file.ref} holds a '*', which BigQuery reads as a wildcard; rename the file"
            looked.aside[index] = SetAside(Fate.REFUSED, why)
        else:
            wanted.append(index)
    found = await describe(store, [files[index].ref for index in wanted])
    for index in wanted:
        info = found.get(files[index].ref)
        verdict = _verdict(files[index], info)
        if verdict is None and info is not None and guarded(info.metadata):
            verdict = SetAside(Fate.IGNORED, "moved here by the same rule")
        if verdict is not None:
            looked.aside[index] = verdict
        elif info is not None:
            looked.present[index] = info
    return looked


def _verdict(file: FileVersion, info: ObjectInfo | None) -> SetAside | None:
    if info is None:
        return SetAside(Fate.MISSING, f"{file.ref} no longer exists")
    if info.generation > file.generation:
        return SetAside(Fate.SUPERSEDED, f"{file.ref} was overwritten by generation {info.generation}")
    if info.generation < file.generation:
        why = f"{file.ref} has generation {info.generation}, older than the announced one"
        return SetAside(Fate.MISSING, why)
    return None


async def describe(store: ObjectStore, refs: Iterable[ObjectRef]) -> dict[ObjectRef, ObjectInfo]:
    """The live objects of these names: folders with many of them are listed, others are asked for one by one."""
    folders: dict[tuple[str, str], list[str]] = defaultdict(list)
    for ref in refs:
        folder, slash, _ = ref.name.rpartition("/")
        folders[ref.bucket, folder + slash].append(ref.name)
    found: dict[ObjectRef, ObjectInfo] = {}
    single: list[ObjectRef] = []

    async def listed(item: tuple[tuple[str, str], list[str]]) -> None:
        (bucket, folder), names = item
        left = await _list(store, ObjectRef(bucket, folder), names, found)
        single.extend(ObjectRef(bucket, name) for name in left)

    await bounded([item for item in folders.items() if len(item[1]) > _FEW], listed, _AT_ONCE)
    single += [
        ObjectRef(bucket, name) for (bucket, _), names in folders.items() if len(names) <= _FEW for name in names
    ]

    async def asked(ref: ObjectRef) -> None:
        if (info := await store.stat(ref)) is not None:
            found[ref] = info

    await bounded(single, asked, _AT_ONCE)
    return found


async def _list(
    store: ObjectStore, folder: ObjectRef, names: list[str], found: dict[ObjectRef, ObjectInfo]
) -> list[str]:
    """List the part of the folder that has these names; the names beyond where listing stopped being worth it."""
    wanted = set(names)
    last = max(names)
    hits = seen = 0
    reached = ""
    async for info in store.list(folder, delimiter="/", start=min(names), end=last + "!"):
        seen += 1
        reached = info.ref.name
        if reached in wanted:
            hits += 1
            found[info.ref] = info
            if hits == len(wanted):
                return []
        if seen > _SPARSE * (hits + _FEW):
            return [name for name in names if name > reached]
    return []


class EarlierBatches(Protocol):
    """Finds the batch of a file's earlier generation."""

    async def record_of(self, batch: Record, file: FileVersion) -> Record | None:
        """The record (running or finished) of the batch that has this very generation, with the same destination."""
        ...


class SingleFileBatches:
    """For rules without windows: each generation has a batch of its own, whose name follows from it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def record_of(self, batch: Record, file: FileVersion) -> Record | None:
        alone = replace(batch, files=(file,), event_id=file.event_id, window=None)
        return await self._journal.known(alone)


@dataclass(slots=True)
class Overwrites:
    """Whether the load of an overwritten generation has read the newer one already."""

    earlier: EarlierBatches
    warehouse: Warehouse
    clock: Clock

    async def check(self, record: Record, looked: Looked) -> dict[int, SetAside]:
        """The files that need not (or must not) be loaded, since their rows are (or may be) there."""
        found: dict[int, SetAside] = {}
        for index, info in looked.present.items():
            if record.files[index].overwrote and (one := await self._check(record, index, info)) is not None:
                found[index] = one
        return found

    async def _check(self, record: Record, index: int, info: ObjectInfo) -> SetAside | None:
        file = record.files[index]
        earlier = FileVersion(file.ref, file.overwrote)
        for _ in range(_MAX_CHAIN):
            if any(other.key == earlier.key for other in record.files):
                return None  # in this very batch, where the newest generation is loaded
            batch = await self._settled(record, earlier)
            place = _place(batch, earlier) if batch else None
            if batch is None or place is None:
                return None
            aside = batch.progress.aside.get(place)
            if aside is not None and aside.fate is Fate.SUPERSEDED and batch.files[place].overwrote:
                earlier = FileVersion(file.ref, batch.files[place].overwrote)
                continue
            if batch.progress.preparing:
                return None  # whoever prepares rows reads the generation it was given, or none
            return await self._ask_job(record, file, info, batch, place)
        return None

    async def _settled(self, record: Record, earlier: FileVersion) -> Record | None:
        """The earlier generation's batch, once it is decided whether it loaded that file."""
        waited = timedelta()
        while True:
            batch = await self.earlier.record_of(record, earlier)
            if batch is None or _decided(batch, earlier):
                return batch
            if waited >= _WAIT_FOR_EARLIER:
                raise Transient(f"the load of the earlier generation {earlier.generation} is still under way")
            await self.clock.sleep(_LOOK_EVERY)
            waited += _LOOK_EVERY

    async def _ask_job(
        self, record: Record, file: FileVersion, info: ObjectInfo, batch: Record, place: int
    ) -> SetAside | None:
        if batch.phase.final and batch.rows is None:
            return None
        job_id = _job_of(batch, place)
        job = await self.warehouse.get_job(batch.own_job(job_id)) if job_id else None
        if job is None or job.failed:
            return None
        answer = read_newer(job, batch.files[place], info, _others(batch, place))
        if answer is None:
            why = (
                f"{file.ref} was overwritten with other content of the same size while job {job.ref} read it; "
                "compare the table with both versions, then `ingestd replay` the file or delete it"
            )
            if len(record.files) == 1:
                raise Fatal(why)
            return SetAside(Fate.REFUSED, why, job_id)
        if not answer:
            return None
        return SetAside(Fate.READ_EARLIER, f"read by the load of generation {batch.files[place].generation}", job_id)


def _place(batch: Record, file: FileVersion) -> int | None:
    return next((index for index, one in enumerate(batch.files) if one.key == file.key), None)


def _decided(batch: Record, file: FileVersion) -> bool:
    """Whether it is known what becomes of the file in its batch, though the batch may go on."""
    if batch.phase is not Phase.ACCEPTED or batch.progress.preparing:
        return True
    place = _place(batch, file)
    if place is None or place in batch.progress.aside:
        return True
    return not lands_apart(batch) and batch.progress.job_of(place) is not None


def _job_of(batch: Record, place: int) -> str:
    number = batch.progress.job_of(place)
    if number is not None:
        return batch.load_job(number).job_id
    aside = batch.progress.aside.get(place)
    return aside.job_id if aside is not None and aside.fate in (Fate.READ_EARLIER, Fate.LOADED) else ""


def _others(batch: Record, place: int) -> int:
    """The bytes of the other files that were loaded by the same job."""
    members = next((load.files for load in batch.progress.loads if place in load.files), ())
    return sum(batch.files[index].size for index in members if index != place)
