"""Which objects of a success file's directory are its data.

Left out are the control files, what Spark and Hadoop keep for themselves (names that start with `_` or `.`), empty
objects, and directories below that have a success file of their own: those are batches of their own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ingestd.model.objects import FileVersion, Generation, ObjectInfo, ObjectRef
from ingestd.ports import ObjectStore
from ingestd.settings import Convention

BACKFILL, LOCK, BACKLOG = "_BACKFILL", "_bqlock", "_backlog"


class LeftOut(StrEnum):
    CONTROL = "a control file"
    HIDDEN = "hidden: its name, or a folder's, starts with '_' or '.'"
    EMPTY = "empty"
    NESTED = "in a directory with a success file of its own"


@dataclass(frozen=True, slots=True)
class Listed:
    """One look at the directory."""

    files: tuple[FileVersion, ...]
    left_out: dict[str, LeftOut]  # by name
    success: Generation | None  # of the success file, as it is now

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


async def look(store: ObjectStore, success: ObjectRef, convention: Convention) -> Listed:
    folder = success.name.rpartition("/")[0]
    prefix = ObjectRef(success.bucket, f"{folder}/" if folder else "")
    return select([info async for info in store.list(prefix)], success, convention)


def select(objects: Sequence[ObjectInfo], success: ObjectRef, convention: Convention) -> Listed:
    """The data among all objects below the directory, in name order."""
    folder = success.name[: len(success.name) - len(convention.success_filename)]
    nested = _nested(objects, folder, convention)
    files: list[FileVersion] = []
    left_out: dict[str, LeftOut] = {}
    generation: Generation | None = None
    for info in objects:
        if info.ref == success:
            generation = info.generation
            left_out[info.ref.name] = LeftOut.CONTROL
        elif (why := _why_not(info, folder, convention, nested)) is not None:
            left_out[info.ref.name] = why
        else:
            files.append(FileVersion(info.ref, info.generation, info.size, info.created, info.crc32c))
    return Listed(tuple(files), left_out, generation)


def _nested(objects: Iterable[ObjectInfo], folder: str, convention: Convention) -> frozenset[str]:
    """The folders below that are batches of their own."""
    if convention.nested == "include":
        return frozenset()
    found = set()
    for info in objects:
        below, _, base = info.ref.name[len(folder) :].rpartition("/")
        if below and base == convention.success_filename and not any(map(hidden, below.split("/"))):
            found.add(below)
    return frozenset(found)


def _why_not(info: ObjectInfo, folder: str, convention: Convention, nested: frozenset[str]) -> LeftOut | None:
    parts = info.ref.name[len(folder) :].split("/")
    if parts[-1] in control_files(convention):
        return LeftOut.CONTROL
    if any(map(hidden, parts)):
        return LeftOut.HIDDEN
    if not parts[-1] or info.size == 0:
        return LeftOut.EMPTY
    if nested and any("/".join(parts[:depth]) in nested for depth in range(1, len(parts))):
        return LeftOut.NESTED
    return None


def control_files(convention: Convention) -> frozenset[str]:
    return frozenset({convention.success_filename, BACKFILL, LOCK, convention.start_backfill_filename} - {""})


def hidden(part: str) -> bool:
    """What Spark and Hadoop pass over, too; `_key=value` is a partition's folder."""
    return part.startswith(".") or (part.startswith("_") and "=" not in part)
