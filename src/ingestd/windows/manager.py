"""Windows at work: files are collected in memory, made durable in shards, and loaded together when the window is due.

One task tends each window that has files here. Its states, and what is there when the process dies in one of them:

| state      | durable                     | then                                                                   |
|------------|-----------------------------|------------------------------------------------------------------------|
| acquiring  | perhaps the lock            | unacknowledged files come back; a lock without files is swept away     |
| collecting | lock, shards so far         | files in shards wait for whoever takes over; the others come back      |
| closed     | the same, `closed`          | whoever takes over lists the shards and makes the record               |
| recorded   | the record                  | the batch goes on as every batch does; leftovers are swept away        |

Making the record is what decides: it is created once, and its list of files is the window's content. Whoever comes
second finds it, acknowledges what it holds, and carries the rest into the next sequence, a late window.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import structlog
from prometheus_client import Counter, Gauge

from ingestd.batch.journal import Held, Journal
from ingestd.batch.landing import destination
from ingestd.batch.loading import load_configuration, refuse_wildcard
from ingestd.batch.record import Kind, Phase, Record, WindowMark
from ingestd.batch.register import Register
from ingestd.batch.runner import BatchRunner
from ingestd.intake.notifications import ObjectEvent
from ingestd.intake.receipts import Receipt
from ingestd.intake.refusals import Refusals
from ingestd.intake.router import EVENTS
from ingestd.model.aside import aside
from ingestd.model.clock import Clock
from ingestd.model.errors import BadInput, IngestError, NewerVersion, Transient, UnreadableObject
from ingestd.model.objects import FileVersion, digest
from ingestd.model.tables import TableName
from ingestd.ops import tracing
from ingestd.ops.survival import surviving
from ingestd.rules.destination import Destination, DestinationError, expand_destination
from ingestd.rules.rule import Rule, pinned
from ingestd.windows.model import Arrival, WindowId, group_of, late_due, window_of
from ingestd.windows.pacing import Pacing
from ingestd.windows.pending import Message, OpenWindow, Pending
from ingestd.windows.store import Shard, WindowHead, WindowStore

log = structlog.get_logger(__name__)

OPEN = Gauge("ingestd_windows_open", "Windows this process is tending.")
PENDING = Gauge("ingestd_window_files_pending", "Files in memory that are not durable in a shard yet.")
CLOSED = Counter("ingestd_windows_closed", "Windows closed and recorded by this process.", ["why"])
LATE = Counter("ingestd_window_files_late", "Files that came after their window was closed.")
SHARDS = Counter("ingestd_window_shards_written", "Shards written.")
ERRORS = Counter("ingestd_window_errors", "Failures while tending a window; it is tried again.")
for _why in ("due", "full", "adopted"):
    CLOSED.labels(_why)

_ERROR_PAUSE = (timedelta(seconds=1), timedelta(seconds=30))
_LOOK_EVERY = timedelta(seconds=1)
_TRIES_WHEN_STOPPING = 2
_UNTIL_FRESH = timedelta(seconds=10)
MANY_FILES = 20_000  # from which on a window's files are put in order beside the event loop


@dataclass(frozen=True, slots=True)
class WindowLimits:
    flush_files: int = 2500  # a shard of this many files is written at once
    flush_after: timedelta = timedelta(seconds=5)  # the longest a file waits to become durable
    grace: timedelta = timedelta(seconds=2)  # notifications of the last files may be a little late
    late_patience: timedelta = timedelta(seconds=60)  # how long a late window collects
    lease: timedelta = timedelta(seconds=60)


class Windows:
    def __init__(
        self,
        *,
        store: WindowStore,
        journal: Journal,
        register: Register,
        runner: BatchRunner,
        refusals: Refusals,
        clock: Clock,
        project: str,
        replica: str,
        limits: WindowLimits,
        pacing: Pacing,
    ) -> None:
        self._store = store
        self._journal = journal
        self._register = register
        self._runner = runner
        self._refusals = refusals
        self._clock = clock
        self._project = project
        self._replica = replica
        self._limits = limits
        self._pacing = pacing
        self._open: dict[WindowId, OpenWindow] = {}
        self._group: asyncio.TaskGroup | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Root task: hosts the tasks that tend windows, until `stop`."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            await self._stopping.wait()
            for window in self._open.values():
                window.wake.set()

    def stop(self) -> None:
        """Make everything durable and let go: other replicas finish the windows."""
        self._stopping.set()

    def hurry(self) -> None:
        """The intake has no room left: make what is pending durable now, so that its messages can go."""
        for window in self._open.values():
            if window.pending:
                window.hurried = True
                window.wake.set()

    def occupied(self, window: WindowId) -> bool:
        """Whether another sequence of the same window is tended here."""
        return replace(window, sequence=0) in self._open

    def tending(self, name: str) -> bool:
        return any(window.window.name == name for window in self._open.values())

    @property
    def open_windows(self) -> list[OpenWindow]:
        return list(self._open.values())

    def deliver(self, event: ObjectEvent, rule: Rule, receipt: Receipt) -> Coroutine[Any, Any, None] | None:
        """Put a file into its window; its message is acknowledged once the file is durable there."""
        file = event.file
        if not self._pacing.fresh:
            receipt.retry_later(_UNTIL_FRESH)  # which window it belongs to cannot be told for sure
            return None
        try:
            refuse_wildcard(file.ref.url)
            values = {"EventID": file.event_id, "ProjectID": self._project}
            destination = expand_destination(rule, file, values)
            seconds = self._seconds(rule, event, destination)
            assert seconds is not None, "files without a window are not delivered here"
            base = window_of(rule, file, str(destination.target), seconds)
            slot = self._open.get(base)
            if slot is None:
                head = self._head(base, rule, destination.target, destination.params)
                slot = self._tend(OpenWindow(base, head, base.due + self._limits.grace))
        except (DestinationError, BadInput) as error:
            EVENTS.counts["refused"] += 1
            return self._refusals.refuse(file, str(error), [rule.name], receipt)
        except Transient:
            receipt.retry_later(_UNTIL_FRESH)  # a newer version knows how long windows of this table last
            return None
        EVENTS.counts["matched"] += 1
        if tracing.on():
            told: dict[str, tracing.Value] = {"source": file.ref.url, "rule": rule.name, "dest": base.key.dest}
            tracing.first("notification", file.event_id, file.event_time, attributes=told)
        pending = Pending.of(file, event.overwrote)
        pending.message = receipt
        self._add(slot, pending)
        receipt.forget_payload()
        return None

    def readd(self, head: WindowHead, arrivals: Sequence[Arrival], message: Message) -> None:
        """Files found in a shard that no record took: give them another chance, as if they had just arrived."""
        base = replace(head.window, sequence=0)
        slot = self._open.get(base)
        if slot is None:
            mine, first = replace(head, owner=self._replica), head.window.sequence == 0
            slot = self._tend(OpenWindow(base, mine, head.due, walked=first))
        for arrival in arrivals:
            self._add(slot, Pending.brought(arrival, message))

    def adopt(self, head: WindowHead) -> None:
        """Become the owner of a window whose owner is gone; its shards have the files."""
        base = replace(head.window, sequence=0)
        if base not in self._open:
            first = head.window.sequence == 0
            self._tend(OpenWindow(base, head, head.due, owned=True, entered=True, walked=first))

    def paced(self, event: ObjectEvent, rule: Rule) -> bool:
        """Whether files of a rule without a window collect in one for now, since their table's budget runs short."""
        if not self._pacing.active:
            return False
        try:
            destination = expand_destination(rule, event.file, {"EventID": event.file.event_id})
            return self._seconds(rule, event, destination) is not None
        except DestinationError:
            return False  # refused where it is delivered
        except Transient:
            return True  # not known for now: it waits where windows are delivered

    def _seconds(self, rule: Rule, event: ObjectEvent, destination: Destination) -> int | None:
        table = destination.table.in_project(self._project)
        return self._pacing.seconds(rule, table, event.file.event_time.timestamp())

    def _head(self, window: WindowId, rule: Rule, table: TableName, params: Any) -> WindowHead:
        example = f"gs://x/{window.key.extension}"
        load = load_configuration(rule.spec.dest, table.in_project(self._project), [example])
        load["sourceUris"] = []
        return WindowHead(
            window=window,
            owner=self._replica,
            due=window.due + self._limits.grace,
            rule=pinned(rule.spec),
            rule_url=rule.url,
            rule_name=rule.name,
            rule_hash=rule.content_hash,
            dest=str(table.partition(None)),
            load=load,
            values=dict(params),
            asynchronous=rule.spec.async_,
            group=group_of(rule, window),
        )

    def _tend(self, window: OpenWindow) -> OpenWindow:
        assert self._group is not None, "windows are delivered to only while `run` runs"
        self._open[window.base] = window
        OPEN.set(len(self._open))
        self._group.create_task(self._watch_over(window), name=f"window:{window.window.name}")
        return window

    def _add(self, window: OpenWindow, pending: Pending) -> None:
        window.add(pending, self._clock.monotonic())
        PENDING.inc()
        if len(window.pending) in (1, self._limits.flush_files) or self._full(window):
            window.wake.set()

    def _full(self, window: OpenWindow) -> bool:
        batch = window.head.rule.get("Batch") or {}
        return window.full(batch.get("MaxFiles"), batch.get("MaxBytes"))

    async def _watch_over(self, window: OpenWindow) -> None:
        """Tend the window until its time is over; failures pause and repeat."""
        failures = 0
        while True:
            try:
                if await self._tend_once(window):
                    break
                failures = 0
            except Exception as error:  # one window must not take the others down with the daemon
                failures += 1
                ERRORS.inc()
                pause = min(_ERROR_PAUSE[0] * 2 ** min(failures, 8), _ERROR_PAUSE[1])
                expected = isinstance(error, IngestError)
                log.log(
                    logging.WARNING if expected else logging.ERROR,
                    "window.failed",
                    window=window.window.name,
                    error=str(error) if expected else f"{type(error).__name__}: {error}",
                    again_in=pause,
                    exc_info=None if expected else error,
                )
                if self._stopping.is_set() and failures > _TRIES_WHEN_STOPPING:
                    break  # what is not durable comes back as a message
                await self._clock.sleep(pause)
        if self._open.get(window.base) is window:
            del self._open[window.base]
        OPEN.set(len(self._open))

    async def _tend_once(self, window: OpenWindow) -> bool:
        """Wait for something to do and do it; True when this window needs no more tending here."""
        await self._rest(window)
        window.wake.clear()
        if not window.walked:
            await self._learn_earlier(window)
        self._settle(window.take_duplicates())
        if window.pending and not window.entered:
            await self._enter(window)
        if self._stopping.is_set():
            while window.pending:
                await self._flush(window)
            return True
        if window.entered and (self._full(window) or (window.owned and self._due(window))):
            await self._close(window)
        elif window.pending and (len(window.pending) >= self._limits.flush_files or self._waited(window)):
            await self._flush(window)
        return not window.pending and self._due(window) and not (window.entered and window.owned)

    async def _enter(self, window: OpenWindow) -> None:
        """Become owner or member of the first sequence that is still open."""
        if self._due(window):
            await self._drop_known(window)
        while window.pending or window.owned:
            if window.head.group is not None:
                await self._store.open_group(window.head)
            if await self._store.acquire(window.head):
                record = await self.recorded(window.head)
                if record is None:
                    window.owned = window.entered = True
                    log.info("window.opened", window=window.window.name, event_id=window.window.event_id)
                    return
                await self._store.remove(window.window.name, ())
                await self._move_on(window, record)
                continue
            try:
                found = await self._store.read_lock(window.window.name)
            except NewerVersion:
                raise
            except UnreadableObject:
                await self._store.replace_stranger(window.head)  # nobody can own what nobody can read
                continue
            if found is None:
                continue
            head, _ = found
            window.head, window.due = head, head.due
            window.owned = head.owner == self._replica
            if not await self._store.is_closed(window.window.name):
                window.entered = True
                log.info("window.joined", window=window.window.name, event_id=window.window.event_id, owner=head.owner)
                return
            if (record := await self._await_record(window)) is not None:
                await self._move_on(window, record)

    async def _drop_known(self, window: OpenWindow) -> None:
        """Files that come after their time may be in a batch already, in whichever: no late window for those."""
        table = destination(self._record(window.head, ()))
        holders = await self._register.holders(table, [one.file() for one in window.pending])
        duplicates = window.take_those({digest(key) for key in holders})
        if duplicates:
            self._settle(duplicates)
            log.info("window.duplicates", window=window.window.name, files=len(duplicates))

    async def _learn_earlier(self, window: OpenWindow) -> None:
        """Somebody else went through the sequences before this one: what they hold must not be taken again."""
        for sequence in range(window.window.sequence):
            record = await self.recorded(replace(window.head, window=replace(window.base, sequence=sequence)))
            if record is not None:
                window.known |= await aside(len(record.known_files) > MANY_FILES, digests, record)
        window.walked = True

    async def _rest(self, window: OpenWindow) -> None:
        until = window.due - self._clock.now()
        if window.pending:
            if self._waited(window):
                return
            left = window.oldest + self._limits.flush_after.total_seconds() - self._clock.monotonic()
            until = min(until, timedelta(seconds=max(left, 0.001)))
        if until <= timedelta() or window.wake.is_set():
            return
        timer = asyncio.ensure_future(self._clock.sleep(until))
        waker = asyncio.ensure_future(window.wake.wait())
        try:
            await asyncio.wait((timer, waker), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            waker.cancel()

    def _due(self, window: OpenWindow) -> bool:
        return self._clock.now() >= window.due

    def _waited(self, window: OpenWindow) -> bool:
        waited = self._clock.monotonic() - window.oldest
        return window.hurried or waited >= self._limits.flush_after.total_seconds() or self._due(window)

    async def _flush(self, window: OpenWindow) -> None:
        """Write a shard, then look whether the window was closed meanwhile."""
        taken = window.take(self._limits.flush_files)
        try:
            window.shard += 1
            shard = f"{self._replica}-{window.shard:06d}-{int(self._clock.now().timestamp() * 1000):x}"
            await self._store.add_shard(window.head, shard, taken)
            SHARDS.inc()
            closed = await self._store.is_closed(window.window.name)
        except BaseException:
            window.put_back(taken)
            raise
        window.oldest, window.hurried = self._clock.monotonic(), False
        if not closed:
            self._settle(taken)
            return
        window.put_back(taken)
        record = await self._await_record(window)
        if record is None or (record.window and shard in record.window.shards):
            # No record: the window was empty and is gone, the shard keeps it alive. Either way these are durable.
            self._settle(window.take(len(taken)))
        else:
            await self._move_on(window, record)

    async def _close(self, window: OpenWindow) -> None:
        """Close the window and record its content; files that remain wait for its next sequence."""
        name = window.window.name
        why = "due" if self._due(window) else "full"
        await self._store.close(name)
        shards = await self._store.shards(name)
        mine = window.take(len(window.pending))
        try:
            record = await self._content(window, shards, mine)
            held = await self._runner.accept(record) if record.files else None
        except BaseException:
            window.put_back(mine)
            raise
        if held is not None:
            self._settle(mine)
            CLOSED.labels(why).inc()
            log.info("window.closed", window=name, event_id=record.event_id, files=len(record.files), why=why)
            self._start(held)
            await self._move_on(window, record)
            return
        window.put_back(mine)
        known = await self._await_record(window) if record.files else None
        if known is not None:
            await self._move_on(window, known)
        else:
            await self._store.remove(name, ())
            window.owned = window.entered = False

    def _start(self, held: Held) -> None:
        assert self._group is not None
        self._group.create_task(self._drive(held), name=f"batch:{held.record.event_id}")

    async def _drive(self, held: Held) -> None:
        """One window's batch must not take the others down: what fails here is found by the sweep."""
        try:
            await self._runner.drive(held, fresh=True)
        except Exception:
            ERRORS.inc()
            log.exception("window.batch_failed", event_id=held.record.event_id)

    async def _content(self, window: OpenWindow, shards: Sequence[Shard], mine: Sequence[Pending]) -> Record:
        """The record of everything that shards and memory hold, without what an earlier sequence took."""
        many = sum(len(shard.arrivals) for shard in shards) + len(mine) > MANY_FILES
        files = await aside(many, _files, shards, mine, frozenset(window.known))
        return self._record(window.head, files, tuple(shard.name for shard in shards))

    def _record(self, head: WindowHead, files: Sequence[FileVersion], shards: tuple[str, ...] = ()) -> Record:
        now = self._clock.now()
        return Record(
            event_id=head.window.event_id,
            kind=Kind.LOAD,
            phase=Phase.ACCEPTED,
            dest=head.dest,
            files=tuple(files),
            rule=head.rule,
            rule_url=head.rule_url,
            rule_name=head.rule_name,
            rule_hash=head.rule_hash,
            created=now,
            updated=now,
            asynchronous=head.asynchronous,
            project=self._project,
            load={**head.load, "sourceUris": [file.ref.url for file in files]},
            values=head.values | ({"GroupID": head.group.number} if head.group else {}),
            window=WindowMark(head.window.name, head.window.start, shards, head.group.name if head.group else ""),
        )

    async def recorded(self, head: WindowHead) -> Record | None:
        """The window's record, running or finished."""
        return await self._journal.known(self._record(head, ()))

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do some tidying in the background; if it fails, the next sweep repeats it."""
        assert self._group is not None
        self._group.create_task(_tolerant(work), name="window:tidy")

    async def tidy(self, record: Record) -> None:
        """A batch has ended: remove what its window left behind."""
        if record.window is not None:
            await self._store.remove(record.window.name, record.window.shards)

    async def _await_record(self, window: OpenWindow) -> Record | None:
        """Wait for whoever closed the window to record it, or do it for them. None: it was empty and is gone."""
        start = self._clock.monotonic()
        while True:
            record = await self.recorded(window.head)
            if record is not None:
                return record
            if not await self._store.is_closed(window.window.name):
                return await self.recorded(window.head)
            if self._clock.monotonic() - start >= self._limits.lease.total_seconds():
                return await self._record_for_them(window)
            await self._clock.sleep(_LOOK_EVERY)

    async def _record_for_them(self, window: OpenWindow) -> Record | None:
        record = await self._content(window, await self._store.shards(window.window.name), ())
        if not record.files:
            await self._store.remove(window.window.name, ())
            return None
        held = await self._runner.accept(record)
        if held is not None:
            CLOSED.labels("adopted").inc()
            self._start(held)
        return await self.recorded(window.head)

    async def _move_on(self, window: OpenWindow, record: Record) -> None:
        """Acknowledge what the record holds; the rest goes to the next sequence."""
        window.known |= await aside(len(record.known_files) > MANY_FILES, digests, record)
        self._settle(window.take_duplicates())
        LATE.inc(len(window.pending))
        following = window.window.next()
        due = late_due(following, self._clock.now(), self._limits.late_patience)
        window.head = replace(window.head, window=following, owner=self._replica, due=due)
        window.due, window.owned, window.entered = due, False, False
        window.files, window.size = len(window.pending), sum(one.size for one in window.pending)

    def _settle(self, settled: Sequence[Pending]) -> None:
        PENDING.dec(len(settled))
        for one in settled:
            if one.message is not None:
                one.message.ack()


def _files(shards: Sequence[Shard], mine: Sequence[Arrival], known: frozenset[bytes]) -> list[FileVersion]:
    """Each file once, in order."""
    arrivals = {one.digest: one for shard in shards for one in shard.arrivals}
    arrivals |= {one.digest: one for one in mine}
    return sorted(one.file() for digest, one in arrivals.items() if digest not in known)


def digests(record: Record) -> set[bytes]:
    return {digest(file.key) for file in record.known_files}


async def _tolerant(work: Coroutine[Any, Any, None]) -> None:
    with surviving("window:tidy", "window.tidy_failed", ERRORS.inc):
        await work
