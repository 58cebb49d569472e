"""An open window in memory: the files that arrived here and are not durable yet."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from ingestd.windows.model import Arrival, WindowId
from ingestd.windows.store import WindowHead


class Message(Protocol):
    """What brought a file here; there may be a million of them, so it is kept as it is, without a closure around it."""

    def ack(self) -> None: ...


@dataclass(slots=True)
class Pending(Arrival):
    """A file, and the message to acknowledge once the file is durable: one object for both, to be small."""

    message: Message | None = None

    @classmethod
    def brought(cls, arrival: Arrival, message: Message) -> "Pending":
        pending = cls(*arrival.to_json())
        pending.message = message
        return pending


@dataclass(slots=True)
class OpenWindow:
    """`base` is the slot files are put in; `head.window` is the sequence of it that is open now."""

    base: WindowId
    head: WindowHead
    due: datetime
    owned: bool = False
    pending: list[Pending] = field(default_factory=list)
    files: int = 0
    size: int = 0
    oldest: float = 0.0  # monotonic time of the first pending file
    entered: bool = False  # the lock is ours or we have joined it
    known: set[bytes] = field(default_factory=set)  # digests of files in sequences that are closed
    walked: bool = True  # `known` has every sequence before this one; not yet so for a window that was taken over
    hurried: bool = False  # flush without waiting
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    shard: int = 0

    @property
    def window(self) -> WindowId:
        return self.head.window

    def add(self, pending: Pending, now: float) -> None:
        if not self.pending:
            self.oldest = now
        self.pending.append(pending)
        self.files += 1
        self.size += pending.size

    def take(self, limit: int) -> list[Pending]:
        taken, self.pending = self.pending[:limit], self.pending[limit:]
        return taken

    def take_duplicates(self) -> list[Pending]:
        """Files that an earlier sequence of this window holds already."""
        return self.take_those(self.known)

    def take_those(self, digests: set[bytes]) -> list[Pending]:
        if not digests:
            return []
        taken = [one for one in self.pending if one.digest in digests]
        if taken:
            self.pending = [one for one in self.pending if one.digest not in digests]
        return taken

    def put_back(self, taken: list[Pending]) -> None:
        self.pending = taken + self.pending

    def full(self, max_files: int | None, max_bytes: int | None) -> bool:
        return (max_files is not None and self.files >= max_files) or (max_bytes is not None and self.size >= max_bytes)
