"""Which objects mean something to the convention: decided by name alone, for every notification."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ingestd.collect.success.configuration import CONFIG
from ingestd.collect.success.listing import BACKFILL, BACKLOG, LOCK, hidden
from ingestd.model.objects import ObjectRef
from ingestd.settings import Convention


class Meaning(StrEnum):
    SUCCESS = "success"  # a directory is complete
    START = "start"  # the gate of an ordered table opens
    GO_ON = "go on"  # an ordered table that was stopped shall continue
    UNLOCK = "unlock"  # the same, said by deleting the lock
    CONFIG = "config"  # configuration was changed: what waits for that is tried again


@dataclass(frozen=True, slots=True)
class Sign:
    """An object with a meaning, and the convention it has it by."""

    meaning: Meaning
    convention: Convention


class Conventions:
    def __init__(self, conventions: Sequence[Convention]) -> None:
        self._all = tuple(conventions)
        self._names = frozenset(
            name
            for one in self._all
            for name in (one.success_filename, one.start_backfill_filename, BACKFILL, LOCK)
            if name
        )

    def __bool__(self) -> bool:
        return bool(self._all)

    def of(self, ref: ObjectRef) -> Convention | None:
        """The first convention whose bucket and prefix fit."""
        for one in self._all:
            if one.bucket in (ref.bucket, "*") and ref.name.startswith(one.prefix) and ref.name.startswith(one.root):
                return one
        return None

    def sign(self, bucket: str, name: str) -> Sign | None:
        """What the object means; None when it is data, or none of our business."""
        if not self._all:
            return None
        folder, _, base = name.rpartition("/")
        if base not in self._names:
            if folder.rpartition("/")[2] != CONFIG:
                return None
            convention = self._configured_by(bucket, name)
            return Sign(Meaning.CONFIG, convention) if convention else None
        convention = self.of(ObjectRef(bucket, name))
        if convention is None:
            return None
        below = folder.removeprefix(convention.root.rstrip("/")).strip("/")
        if base == convention.success_filename:
            return None if _apart(below) is not None else Sign(Meaning.SUCCESS, convention)
        if base == convention.start_backfill_filename:
            return Sign(Meaning.START, convention)
        if base in (BACKFILL, LOCK):
            return Sign(Meaning.GO_ON if base == BACKFILL else Meaning.UNLOCK, convention)
        return None

    def passed_over(self, ref: ObjectRef) -> str | None:
        """The folder for which a success file of the convention means nothing; None where it means something."""
        convention = self.of(ref)
        folder, _, base = ref.name.rpartition("/")
        if convention is None or base != convention.success_filename:
            return None
        return _apart(folder.removeprefix(convention.root.rstrip("/")).strip("/"))

    def _configured_by(self, bucket: str, name: str) -> Convention | None:
        for one in self._all:
            if one.config_url:
                ref = ObjectRef.parse(one.config_url)
                if ref.bucket == bucket and name.startswith(ref.name):
                    return one
            elif one.bucket in (bucket, "*") and name.startswith(one.root):
                return one
        return None


def _apart(folder: str) -> str | None:
    """Success files inside of what is never data (`_config`, `_backlog`, `_temporary`, `.staging`) say nothing."""
    for depth, part in enumerate(folder.split("/") if folder else ()):
        # A dataset's own name may start with an underscore.
        if hidden(part) if depth else part in (CONFIG, BACKLOG, "_temporary"):
            return part
    return None
