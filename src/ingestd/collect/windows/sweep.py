"""Windows that nobody tends are found by looking.

A window whose owner died is taken over. A shard that no record took (its writer was too late to notice that the window
was closed) has its files delivered again. What a finished batch left behind is removed.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import structlog
from prometheus_client import Counter, Gauge

from ingestd.batch.record import Record
from ingestd.collect.windows.groups import Groups
from ingestd.collect.windows.manager import Windows
from ingestd.collect.windows.replicas import Replicas
from ingestd.collect.windows.store import Found, Shard, WindowHead, WindowStore
from ingestd.collect.windows.tender import MANY_FILES, digests
from ingestd.model.aside import aside
from ingestd.model.clock import Clock
from ingestd.model.errors import NewerVersion, UnreadableObject
from ingestd.model.stored import instant
from ingestd.ops.survival import surviving

log = structlog.get_logger(__name__)

TAKEN_OVER = Counter("ingestd_windows_taken_over", "Windows adopted from a replica that is gone.")
STRANDED = Counter("ingestd_window_files_stranded", "Files found in shards that no record took, delivered again.")
SWEEP_ERRORS = Counter("ingestd_window_sweep_errors", "Window sweeps that failed and will be repeated.")
OLDEST_DUE = Gauge("ingestd_window_oldest_due_timestamp_seconds", "When the most overdue open window was due; 0: none.")

_AT_A_STRETCH = 500  # windows looked at before others get their turn


class WindowSweep:
    def __init__(
        self,
        store: WindowStore,
        windows: Windows,
        groups: Groups,
        replicas: Replicas,
        clock: Clock,
        *,
        every: timedelta,
        lease: timedelta,
    ) -> None:
        self._store = store
        self._windows = windows
        self.groups = groups
        self._replicas = replicas
        self._clock = clock
        self._every = every
        self._lease = lease

    async def run(self) -> None:
        """Root task."""
        while True:
            with surviving("sweep:windows", "window.sweep_failed", SWEEP_ERRORS.inc):
                await self.sweep()
            await self._clock.sleep(self._every)

    async def sweep(self) -> None:
        await self._replicas.observe()
        oldest: datetime | None = None
        everything = await self._store.everything()
        # Asking for each of ten thousand windows whether it is among ten thousand would hold up everybody else.
        tended = {window.window.name for window in self._windows.open_windows}
        for number, found in enumerate(everything.windows):
            if number % _AT_A_STRETCH == 0:
                await asyncio.sleep(0)
            due = _due(found)
            if due is not None:
                oldest = min(oldest, due) if oldest else due
            # Whether it is tended is asked anew (time has passed since), but only where there is something to do.
            if found.name not in tended and self._wanting(found, due) and not self._windows.tending(found.name):
                with surviving("sweep:windows", "window.look_failed", SWEEP_ERRORS.inc, window=found.name):
                    await self._look_at(found, due)
        OLDEST_DUE.set(oldest.timestamp() if oldest else 0)
        if everything.groups:
            await self.groups.look_at(everything)

    def _abandoned(self, found: Found, due: datetime | None) -> bool:
        """Nobody will tend it: there is no owner, the owner is gone, or it lets the window lie."""
        if found.lock is None or (due is not None and self._clock.now() > due + 2 * self._lease):
            return True
        return self._replicas.dead(found.lock.metadata.get("ingestd-owner", ""))

    def _wanting(self, found: Found, due: datetime | None) -> bool:
        return found.closed or self._abandoned(found, due)

    async def _look_at(self, found: Found, due: datetime | None) -> None:
        try:
            head = await self._head(found)
        except UnreadableObject:
            return  # counted and told: it is left alone
        if head is None:
            await self._store.remove(found.name, ())
            return
        record = await self._windows.recorded(head)
        if record is not None:
            await self._tidy(found, record)
        elif self._windows.occupied(head.window):
            return  # tended next, when its other sequence is done with
        elif self._abandoned(found, due):
            await self._take_over(found, head)

    async def _take_over(self, found: Found, head: WindowHead) -> None:
        mine = replace(head, owner=self._replicas.name)
        if found.lock is None:
            taken = await self._store.acquire(mine)
        else:
            taken = await self._store.take_over(mine, found.lock.generation)
        if taken:
            TAKEN_OVER.inc()
            log.info("window.taken_over", window=found.name, event_id=head.window.event_id, before=head.owner)
            self._windows.adopt(mine)

    async def _tidy(self, found: Found, record: Record) -> None:
        """The window is recorded: what its record took may go, what it did not take is delivered again."""
        merged = set(record.window.shards) if record.window else set()
        known = await aside(len(record.known_files) > MANY_FILES, digests, record)
        for name in found.shards:
            if name in merged:
                continue
            try:
                shard = await self._store.read_shard(found.name, name)
            except UnreadableObject:
                continue  # counted and told: it is left alone
            if shard is not None:
                await self._rescue(found.name, shard, known)
        if record.phase.final:
            await self._store.remove(found.name, [name for name in found.shards if name in merged])

    async def _rescue(self, window: str, shard: Shard, known: set[bytes]) -> None:
        stranded = [arrival for arrival in shard.arrivals if arrival.digest not in known]
        if not stranded:
            await self._store.remove_shards(window, [shard.name])
            return
        STRANDED.inc(len(stranded))
        log.warning("window.files_stranded", window=window, shard=shard.name, files=len(stranded))
        self._windows.readd(shard.head, stranded, _Countdown(len(stranded), lambda: self._drop(window, shard.name)))

    def _drop(self, window: str, shard: str) -> None:
        # Every file of the shard is durable elsewhere now. If we die first, the next sweep finds that out again.
        self._windows.later(self._store.remove_shards(window, [shard]))

    async def _head(self, found: Found) -> WindowHead | None:
        """What is known of the window: its lock says it, and every shard. `UnreadableObject` when none can be read."""
        unreadable: UnreadableObject | None = None
        try:
            if found.lock is not None and (lock := await self._store.read_lock(found.name)) is not None:
                return lock[0]
        except NewerVersion:
            raise
        except UnreadableObject as error:
            unreadable = error
        for name in found.shards:
            try:
                shard = await self._store.read_shard(found.name, name)
            except UnreadableObject as error:
                unreadable = error
                continue
            if shard is not None:
                return shard.head
        if unreadable is not None:
            raise unreadable
        return None


def _due(found: Found) -> datetime | None:
    return instant(found.lock.metadata.get("ingestd-due")) if found.lock else None


class _Countdown:
    """Stands for the messages of a shard's files: done when the last of them is durable elsewhere."""

    def __init__(self, count: int, done: Callable[[], None]) -> None:
        self._left = count
        self._done = done

    def ack(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._done()
