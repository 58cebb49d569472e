"""The windows this process tends: files are put into theirs, and one task tends each of them (see `tender`)."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import structlog
from prometheus_client import Counter, Gauge

from ingestd.batch.journal import Held
from ingestd.batch.load_config import load_configuration, refuse_misread
from ingestd.batch.news import News
from ingestd.batch.record import Record
from ingestd.batch.rule import PinnedRule
from ingestd.collect.windows.model import Arrival, WindowId, group_of, window_of
from ingestd.collect.windows.pacing import Pacing
from ingestd.collect.windows.pending import Message, OpenWindow, Pending, WindowState
from ingestd.collect.windows.store import WindowHead
from ingestd.collect.windows.tender import PENDING, Tender, is_full
from ingestd.intake.notifications import ObjectEvent
from ingestd.intake.receipts import Receipt
from ingestd.intake.refusals import Refusals
from ingestd.intake.router import EVENTS, Work
from ingestd.model.errors import BadInput, IngestError, Transient
from ingestd.model.tables import TableName
from ingestd.ops import tracing
from ingestd.ops.survival import surviving
from ingestd.rules.destination import Destination, DestinationError, expand_destination
from ingestd.rules.rule import Rule

log = structlog.get_logger(__name__)

OPEN = Gauge("ingestd_windows_open", "Windows this process is tending.")
ERRORS = Counter("ingestd_window_errors", "Failures while tending a window; it is tried again.")

_ERROR_PAUSE = (timedelta(seconds=1), timedelta(seconds=30))
_TRIES_WHEN_STOPPING = 2
_UNTIL_FRESH = timedelta(seconds=10)


class Windows:
    def __init__(self, tender: Tender, refusals: Refusals, pacing: Pacing, news: News) -> None:
        self._tender = tender
        self.recorded = tender.recorded
        self._clock = tender.clock
        self._project = tender.project
        self._replica = tender.replica
        self._limits = tender.limits
        self._refusals = refusals
        self._pacing = pacing
        self._open: dict[WindowId, OpenWindow] = {}
        self._group: asyncio.TaskGroup | None = None
        self._stopping = asyncio.Event()
        news.ended.append(self.tidy)

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

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def hurry(self) -> None:
        """The intake has no room left: make what is pending durable now, so that its messages can go."""
        for window in self._open.values():
            window.hurry()

    def occupied(self, window: WindowId) -> bool:
        """Whether another sequence of the same window is tended here."""
        return replace(window, sequence=0) in self._open

    def tending(self, name: str) -> bool:
        return any(window.window.name == name for window in self._open.values())

    @property
    def open_windows(self) -> list[OpenWindow]:
        return list(self._open.values())

    def deliver(self, event: ObjectEvent, rule: Rule, receipt: Receipt) -> Work | None:
        """Put a file into its window; its message is acknowledged once the file is durable there."""
        file = event.file
        if not self._pacing.fresh:
            receipt.retry_later(_UNTIL_FRESH)  # which window it belongs to cannot be told for sure
            return None
        try:
            refuse_misread(file.ref.url)
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
            mine = replace(head, owner=self._replica)
            slot = self._tend(OpenWindow(base, mine, head.due, unread=head.window.sequence))
        for arrival in arrivals:
            self._add(slot, Pending.brought(arrival, message))

    def adopt(self, head: WindowHead) -> None:
        """Become the owner of a window whose owner is gone; its shards have the files."""
        base = replace(head.window, sequence=0)
        if base not in self._open:
            self._tend(OpenWindow(base, head, head.due, WindowState.OWNER, unread=head.window.sequence))

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
            rule=PinnedRule.of(rule),
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
        if len(window.pending) in (1, self._limits.flush_files) or is_full(window):
            window.wake.set()

    async def _watch_over(self, window: OpenWindow) -> None:
        """Tend the window until its time is over; failures pause and repeat."""
        failures = 0
        while True:
            try:
                if await self._tender.tend(window, self):
                    break
                failures = 0
            except Exception as error:  # one window must not take the others down with the daemon
                if isinstance(error, BadInput) and await self._refused(window, error):
                    break
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

    async def _refused(self, window: OpenWindow, error: BadInput) -> bool:
        """Trying again would change nothing: files that wait for it are refused. True when the window is not needed.

        What is durable in it stays, for whoever mends the cause; and so does what cannot even be written down.
        """
        rule = window.head.rule.name
        while window.pending:
            one = window.pending[0]
            assert one.message is not None, "files come with a message"
            try:
                await self._refusals.refuse(one.file(), str(error), [rule], one.message)
            except IngestError:
                return False
            window.take(1)
            PENDING.dec()
            EVENTS.counts["refused"] += 1
        return window.state is WindowState.ACQUIRING

    def start(self, held: Held) -> None:
        assert self._group is not None
        self._group.create_task(self._drive(held), name=f"batch:{held.record.event_id}")

    async def _drive(self, held: Held) -> None:
        """One window's batch must not take the others down: what fails here is found by the sweep."""
        try:
            await self._tender.runner.drive(held, fresh=True)
        except Exception:
            ERRORS.inc()
            log.exception("window.batch_failed", event_id=held.record.event_id)

    def later(self, work: Work) -> None:
        """Do some tidying in the background; if it fails, the next sweep repeats it."""
        assert self._group is not None
        self._group.create_task(_tolerant(work), name="window:tidy")

    async def tidy(self, record: Record) -> None:
        """A batch has ended: remove what its window left behind."""
        if record.window is not None:
            await self._tender.store.remove(record.window.name, record.window.shards)


async def _tolerant(work: Work) -> None:
    with surviving("window:tidy", "window.tidy_failed", ERRORS.inc):
        await work
