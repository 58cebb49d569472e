"""An open window in memory: its state, and the files that arrived here and are not durable yet."""

import asyncio
import math
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from ingestd.collect.windows.model import Arrival, WindowId
from ingestd.collect.windows.store import WindowHead


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


class WindowState(StrEnum):
    """Where this process stands with the sequence of a window that its files go to."""

    ACQUIRING = "acquiring"  # it has no lock, and has joined none
    MEMBER = "member"  # somebody else has the lock: it adds its files, and closes the window only when that is full
    OWNER = "owner"  # it has the lock, and closes the window when it is due or full
    CLOSING = "closing"  # it says that the window is closed, and makes the record; until that is done, again and again

    def may_become(self, state: "WindowState") -> bool:
        return state is self or state in _NEXT[self]


_NEXT: dict[WindowState, frozenset[WindowState]] = {
    WindowState.ACQUIRING: frozenset({WindowState.MEMBER, WindowState.OWNER}),
    # ACQUIRING: the next sequence, since this one is recorded, or was empty and is gone.
    WindowState.MEMBER: frozenset({WindowState.CLOSING, WindowState.ACQUIRING}),
    WindowState.OWNER: frozenset({WindowState.CLOSING, WindowState.ACQUIRING}),
    WindowState.CLOSING: frozenset({WindowState.ACQUIRING}),
}


class IllegalWindowStep(RuntimeError):  # noqa: N818 - a programming error, named for what it is
    def __init__(self, before: WindowState, after: WindowState) -> None:
        super().__init__(f"a window cannot go from {before} to {after}")


@dataclass(slots=True)
class OpenWindow:
    """`base` is the slot files are put in; `head.window` is the sequence of it that is open now."""

    base: WindowId
    head: WindowHead
    due: datetime
    state: WindowState = WindowState.ACQUIRING
    pending: list[Pending] = field(default_factory=list)
    files: int = 0
    size: int = 0
    oldest: float = 0.0  # monotonic time of the first pending file
    known: set[bytes] = field(default_factory=set)  # digests of files in sequences that are closed
    unread: int = 0  # sequences before this one that `known` does not have yet, in a window that was taken over
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    shard: int = 0

    @property
    def window(self) -> WindowId:
        return self.head.window

    @property
    def owned(self) -> bool:
        return self.state is WindowState.OWNER

    def become(self, state: WindowState) -> None:
        if not self.state.may_become(state):
            raise IllegalWindowStep(self.state, state)
        self.state = state

    def hurry(self) -> None:
        """What is pending has waited long enough, however short that was."""
        if self.pending:
            self.oldest = -math.inf
            self.wake.set()

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
