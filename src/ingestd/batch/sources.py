"""Are the files still the ones that were announced?

A batch's record exists before its sources are looked at, and they are looked at before its job is submitted; and again
once the job has ended (see `overwrites`). What is not there, or is not to be loaded, is set aside file by file; the
others go on. A bucket that does not answer for some of the files holds the others up only for a while.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ingestd.batch.content import Fate, SetAside
from ingestd.batch.load_config import misread
from ingestd.batch.record import Record
from ingestd.model.aside import aside
from ingestd.model.bounded import bounded
from ingestd.model.errors import BadInput, Fatal, IngestError, NotFound, raise_first
from ingestd.model.objects import FileVersion, ObjectInfo, ObjectRef
from ingestd.ports import ObjectStore

OWN_MOVE = "moved here by the same rule"  # records keep it: `explain` goes by it
_AT_ONCE = 16
MANY_FILES = 20_000  # of a batch: from there on they are gone through beside the event loop
_FEW = 25  # files of one folder that are asked for by name: a listing costs as much as a dozen of them
_SPARSE = 10  # a folder in which only one of so many objects is ours is not worth listing to its end


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


def without(
    record: Record, gone: Collection[int], failed: Mapping[int, IngestError], *, patient: bool
) -> dict[int, SetAside]:
    """Let the others of the batch go on without these; raises what they wait for, or what no file is left without.

    A bucket that is not there, or a name that there cannot be, does not come back in a while; a permission may.
    """
    for error in failed.values():
        if not isinstance(error, (BadInput, NotFound) if patient else (BadInput, Fatal)):
            raise error
    if all(index in gone or index in record.progress.aside for index in range(len(record.files))):
        raise_first(failed.values(), but=BadInput)
        raise_first(failed.values())
    return {index: SetAside(Fate.FAILED, str(error)) for index, error in failed.items()}


def choose(files: Sequence[FileVersion], indexes: Sequence[int]) -> tuple[Looked, list[int]]:
    """Those of a batch's files that are worth looking at; the others drop out."""
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
        elif why := misread(file.ref.url):
            looked.aside[index] = SetAside(Fate.REFUSED, why)
        else:
            wanted.append(index)
    return looked, wanted


def judge(
    looked: Looked,
    wanted: Sequence[int],
    files: Sequence[FileVersion],
    found: Mapping[ObjectRef, ObjectInfo],
    guarded: Callable[[ObjectInfo], bool],
) -> None:
    """Take in what was found of these files; one that is `guarded` was put there by the batch's own rule."""
    for index in wanted:
        info = found.get(files[index].ref)
        verdict = _verdict(files[index], info)
        if verdict is None and info is not None and guarded(info):
            verdict = SetAside(Fate.IGNORED, OWN_MOVE)
        if verdict is not None:
            looked.aside[index] = verdict
        elif info is not None:
            looked.present[index] = info


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
    """The live objects of these names."""
    found, failed = await described(store, refs)
    raise_first(failed.values())
    return found


async def described(
    store: ObjectStore, refs: Iterable[ObjectRef]
) -> tuple[dict[ObjectRef, ObjectInfo], dict[ObjectRef, IngestError]]:
    """The live objects of these names, and what came of asking for others.

    Folders with many of them are listed, others are asked for by name.
    """
    wanted = list(refs)
    heavy = len(wanted) > MANY_FILES
    folders, single = await aside(heavy, _by_folder, wanted)
    found: dict[ObjectRef, ObjectInfo] = {}
    failed: dict[ObjectRef, IngestError] = {}

    async def listed(item: tuple[tuple[str, str], list[str]]) -> None:
        (bucket, folder), names = item
        try:
            left = await _list(store, ObjectRef(bucket, folder), names, found)
        except IngestError as error:
            failed.update((ObjectRef(bucket, name), error) for name in names)
            return
        single.extend(ObjectRef(bucket, name) for name in left)

    await bounded(folders, listed, _AT_ONCE)
    outcomes = await store.stat_all(single) if len(single) > 1 else [await _stat(store, ref) for ref in single]
    await aside(heavy, _sort, single, outcomes, found, failed)
    return found, failed


def _sort(
    asked: Sequence[ObjectRef],
    outcomes: Sequence[ObjectInfo | IngestError | None],
    found: dict[ObjectRef, ObjectInfo],
    failed: dict[ObjectRef, IngestError],
) -> None:
    for ref, outcome in zip(asked, outcomes, strict=True):
        if isinstance(outcome, ObjectInfo):
            found[outcome.ref] = outcome
        elif isinstance(outcome, IngestError):
            failed[ref] = outcome


async def _stat(store: ObjectStore, ref: ObjectRef) -> ObjectInfo | IngestError | None:
    try:
        return await store.stat(ref)
    except IngestError as error:
        return error


def _by_folder(refs: Iterable[ObjectRef]) -> tuple[list[tuple[tuple[str, str], list[str]]], list[ObjectRef]]:
    """Folders (with their buckets) that are worth listing, with the names wanted there; and the names elsewhere."""
    folders: dict[tuple[str, str], list[str]] = defaultdict(list)
    for ref in refs:
        folder, slash, _ = ref.name.rpartition("/")
        folders[ref.bucket, folder + slash].append(ref.name)
    few = (item for item in folders.items() if len(item[1]) <= _FEW)
    single = [ObjectRef(bucket, name) for (bucket, _), names in few for name in names]
    return [item for item in folders.items() if len(item[1]) > _FEW], single


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
