"""What is done with one open window, step by step: enter it, make its files durable, close it, record it.

| state     | durable                     | dies then                                                               |
|-----------|-----------------------------|-------------------------------------------------------------------------|
| acquiring | perhaps the lock            | unacknowledged files come back; a lock without files is swept away      |
| member,   | lock, shards so far         | files in shards wait for whoever takes over; the others come back       |
| owner     |                             |                                                                         |
| closing   | the same, `closed`          | whoever takes over lists the shards and makes the record                |
| acquiring | the record; of the next     | the batch goes on as every batch does; leftovers are swept away         |
| again     | sequence perhaps the lock   |                                                                         |

Making the record is what decides: it is created once, and its list of files is the window's content. Whoever comes
second finds it, acknowledges what it holds, and carries the rest into the next sequence, a late window.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol

import structlog
from prometheus_client import Counter, Gauge

from ingestd.batch.journal import Held, Journal
from ingestd.batch.landing import destination
from ingestd.batch.marks import WindowMark
from ingestd.batch.phases import Phase
from ingestd.batch.placement import Placement
from ingestd.batch.record import Kind, Record
from ingestd.batch.register import Register
from ingestd.batch.runner import BatchRunner
from ingestd.batch.stamp import Stamp
from ingestd.collect.windows.model import Arrival, late_due
from ingestd.collect.windows.pending import OpenWindow, Pending, WindowState
from ingestd.collect.windows.store import Shard, WindowHead, WindowStore
from ingestd.model.aside import aside
from ingestd.model.clock import Clock
from ingestd.model.errors import NewerVersion, UnreadableObject
from ingestd.model.objects import FileVersion, digest

log = structlog.get_logger(__name__)

PENDING = Gauge("ingestd_window_files_pending", "Files in memory that are not durable in a shard yet.")
CLOSED = Counter("ingestd_windows_closed", "Windows closed and recorded by this process.", ["why"])
LATE = Counter("ingestd_window_files_late", "Files that came after their window was closed.")
SHARDS = Counter("ingestd_window_shards_written", "Shards written.")
for _why in ("due", "full", "adopted"):
    CLOSED.labels(_why)

_LOOK_EVERY = timedelta(seconds=1)
MANY_FILES = 20_000  # from which on a window's files are put in order beside the event loop


@dataclass(frozen=True, slots=True)
class WindowLimits:
    flush_files: int = 2500  # a shard of this many files is written at once
    flush_after: timedelta = timedelta(seconds=5)  # the longest a file waits to become durable
    grace: timedelta = timedelta(seconds=2)  # notifications of the last files may be a little late
    late_patience: timedelta = timedelta(seconds=60)  # how long a late window collects
    lease: timedelta = timedelta(seconds=60)


class Host(Protocol):
    """Where windows are tended."""

    @property
    def stopping(self) -> bool: ...

    def start(self, held: Held) -> None:
        """Drive a recorded batch, in the background."""
        ...


@dataclass(frozen=True, slots=True)
class Tender:
    store: WindowStore
    journal: Journal
    register: Register
    runner: BatchRunner
    clock: Clock
    project: str
    replica: str
    limits: WindowLimits

    async def tend(self, window: OpenWindow, host: Host) -> bool:
        """Wait for something to do and do it; True when this window needs no more tending here."""
        await self._rest(window)
        window.wake.clear()
        if window.unread:
            await self._learn_earlier(window)
        self._settle(window.take_duplicates())
        if window.pending and window.state is WindowState.ACQUIRING:
            await self._enter(window, host)
        if host.stopping:
            while window.pending:
                await self._flush(window, host)
            return True
        if window.state is WindowState.CLOSING or self._over(window):
            await self.close(window, host)
        elif window.pending and (len(window.pending) >= self.limits.flush_files or self._waited(window)):
            await self._flush(window, host)
        return not window.pending and self._due(window) and not window.owned

    def _over(self, window: OpenWindow) -> bool:
        """Whether it is time to close the window, and up to us."""
        if window.state is WindowState.ACQUIRING:
            return False
        return is_full(window) or (window.owned and self._due(window))

    async def _enter(self, window: OpenWindow, host: Host) -> None:
        """Become owner or member of the first sequence that is still open."""
        if self._due(window):
            await self._drop_known(window)
        ours = False
        while window.pending or ours:
            if window.head.group is not None:
                await self.store.open_group(window.head)
            if await self.store.acquire(window.head):
                record = await self.recorded(window.head)
                if record is None:
                    window.become(WindowState.OWNER)
                    log.info("window.opened", window=window.window.name, event_id=window.window.event_id)
                    return
                await self.store.remove(window.window.name, ())
                await self.move_on(window, record)
                ours = False
                continue
            try:
                found = await self.store.read_lock(window.window.name)
            except NewerVersion:
                raise
            except UnreadableObject:
                await self.store.replace_stranger(window.head)  # nobody can own what nobody can read
                continue
            if found is None:
                continue
            head, _ = found
            window.head, window.due = head, head.due
            ours = head.owner == self.replica
            if not await self.store.is_closed(window.window.name):
                window.become(WindowState.OWNER if ours else WindowState.MEMBER)
                log.info("window.joined", window=window.window.name, event_id=window.window.event_id, owner=head.owner)
                return
            if (record := await self._await_record(window, host)) is not None:
                await self.move_on(window, record)
                ours = False

    async def _drop_known(self, window: OpenWindow) -> None:
        """Files that come after their time may be in a batch already, in whichever: no late window for those."""
        table = destination(self._record(window.head, ()))
        holders = await self.register.holders(table, [one.file() for one in window.pending])
        duplicates = window.take_those({digest(key) for key in holders})
        if duplicates:
            self._settle(duplicates)
            log.info("window.duplicates", window=window.window.name, files=len(duplicates))

    async def _learn_earlier(self, window: OpenWindow) -> None:
        """Somebody else went through the sequences before this one: what they hold must not be taken again."""
        for sequence in range(window.unread):
            record = await self.recorded(replace(window.head, window=replace(window.base, sequence=sequence)))
            if record is not None:
                window.known |= await aside(len(record.known_files) > MANY_FILES, digests, record)
        window.unread = 0

    async def _rest(self, window: OpenWindow) -> None:
        until = window.due - self.clock.now()
        if window.pending:
            if self._waited(window):
                return
            left = window.oldest + self.limits.flush_after.total_seconds() - self.clock.monotonic()
            until = min(until, timedelta(seconds=max(left, 0.001)))
        if until <= timedelta() or window.wake.is_set():
            return
        timer = asyncio.ensure_future(self.clock.sleep(until))
        waker = asyncio.ensure_future(window.wake.wait())
        try:
            await asyncio.wait((timer, waker), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            waker.cancel()

    def _due(self, window: OpenWindow) -> bool:
        return self.clock.now() >= window.due

    def _waited(self, window: OpenWindow) -> bool:
        waited = self.clock.monotonic() - window.oldest
        return waited >= self.limits.flush_after.total_seconds() or self._due(window)

    async def _flush(self, window: OpenWindow, host: Host) -> None:
        """Write a shard, then look whether the window was closed meanwhile."""
        taken = window.take(self.limits.flush_files)
        try:
            window.shard += 1
            shard = f"{self.replica}-{window.shard:06d}-{int(self.clock.now().timestamp() * 1000):x}"
            await self.store.add_shard(window.head, shard, taken)
            SHARDS.inc()
            closed = await self.store.is_closed(window.window.name)
        except BaseException:
            window.put_back(taken)
            raise
        window.oldest = self.clock.monotonic()
        if not closed:
            self._settle(taken)
            return
        window.put_back(taken)
        record = await self._await_record(window, host)
        if record is None or (record.window and shard in record.window.shards):
            # No record: the window was empty and is gone, the shard keeps it alive. Either way these are durable.
            self._settle(window.take(len(taken)))
        else:
            await self.move_on(window, record)

    async def close(self, window: OpenWindow, host: Host) -> None:
        """Close the window and record its content; files that remain wait for its next sequence."""
        name = window.window.name
        window.become(WindowState.CLOSING)
        why = "due" if self._due(window) else "full"
        await self.store.close(name)
        shards = await self.store.shards(name)
        mine = window.take(len(window.pending))
        try:
            record = await self.content(window, shards, mine)
            held = await self.runner.accept(record) if record.files else None
        except BaseException:
            window.put_back(mine)
            raise
        if held is not None:
            self._settle(mine)
            CLOSED.labels(why).inc()
            log.info("window.closed", window=name, event_id=record.event_id, files=len(record.files), why=why)
            host.start(held)
            await self.move_on(window, record)
            return
        window.put_back(mine)
        known = await self._await_record(window, host) if record.files else None
        if known is not None:
            await self.move_on(window, known)
        else:
            await self.store.remove(name, ())
            window.become(WindowState.ACQUIRING)

    async def content(self, window: OpenWindow, shards: Sequence[Shard], mine: Sequence[Pending]) -> Record:
        """The record of everything that shards and memory hold, without what an earlier sequence took."""
        many = sum(len(shard.arrivals) for shard in shards) + len(mine) > MANY_FILES
        files = await aside(many, _files, shards, mine, frozenset(window.known))
        return self._record(window.head, files, tuple(shard.name for shard in shards))

    def _record(self, head: WindowHead, files: Sequence[FileVersion], shards: tuple[str, ...] = ()) -> Record:
        now = self.clock.now()
        return Record(
            event_id=head.window.event_id,
            kind=Kind.LOAD,
            phase=Phase.ACCEPTED,
            dest=head.dest,
            files=tuple(files),
            rule=head.rule,
            created=now,
            stamp=Stamp(now),
            asynchronous=head.asynchronous,
            placement=Placement(self.project),
            load={**head.load, "sourceUris": [file.ref.url for file in files]},
            values=head.values | ({"GroupID": head.group.number} if head.group else {}),
            trigger=WindowMark(head.window.name, head.window.start, shards, head.group.name if head.group else ""),
        )

    async def recorded(self, head: WindowHead) -> Record | None:
        """The window's record, running or finished."""
        return await self.journal.known(self._record(head, ()))

    async def _await_record(self, window: OpenWindow, host: Host) -> Record | None:
        """Wait for whoever closed the window to record it, or do it for them. None: it was empty and is gone."""
        start = self.clock.monotonic()
        while True:
            record = await self.recorded(window.head)
            if record is not None:
                return record
            if not await self.store.is_closed(window.window.name):
                return await self.recorded(window.head)
            if self.clock.monotonic() - start >= self.limits.lease.total_seconds():
                return await self._record_for_them(window, host)
            await self.clock.sleep(_LOOK_EVERY)

    async def _record_for_them(self, window: OpenWindow, host: Host) -> Record | None:
        record = await self.content(window, await self.store.shards(window.window.name), ())
        if not record.files:
            await self.store.remove(window.window.name, ())
            return None
        held = await self.runner.accept(record)
        if held is not None:
            CLOSED.labels("adopted").inc()
            host.start(held)
        return await self.recorded(window.head)

    async def move_on(self, window: OpenWindow, record: Record) -> None:
        """Acknowledge what the record holds; the rest goes to the next sequence."""
        window.known |= await aside(len(record.known_files) > MANY_FILES, digests, record)
        self._settle(window.take_duplicates())
        LATE.inc(len(window.pending))
        following = window.window.next()
        due = late_due(following, self.clock.now(), self.limits.late_patience)
        window.head = replace(window.head, window=following, owner=self.replica, due=due)
        window.due = due
        window.become(WindowState.ACQUIRING)
        window.files, window.size = len(window.pending), sum(one.size for one in window.pending)

    def _settle(self, settled: Sequence[Pending]) -> None:
        PENDING.dec(len(settled))
        for one in settled:
            if one.message is not None:
                one.message.ack()


def is_full(window: OpenWindow) -> bool:
    batch = window.head.rule.document.get("Batch") or {}
    return window.full(batch.get("MaxFiles"), batch.get("MaxBytes"))


def _files(shards: Sequence[Shard], mine: Sequence[Arrival], known: frozenset[bytes]) -> list[FileVersion]:
    """Each file once, in order."""
    arrivals = {one.digest: one for shard in shards for one in shard.arrivals}
    arrivals |= {one.digest: one for one in mine}
    return sorted(one.file() for digest, one in arrivals.items() if digest not in known)


def digests(record: Record) -> set[bytes]:
    return {digest(file.key) for file in record.known_files}
