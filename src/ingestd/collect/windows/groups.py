"""Groups of batches: `OnDone` runs once, after every batch of the group has ended, failed ones included.

A group is over when no window that belongs to it is open, no record of it is running, and its time has passed (plus the
patience that late files get). Its actions then run like a route's, under a record of their own, whose creation is what
makes them run once. A batch of files later than that still loads, but the group is not run again.
"""

import asyncio
from dataclasses import replace
from datetime import timedelta

import structlog
from prometheus_client import Counter

from ingestd.batch.journal import Held, Journal
from ingestd.batch.marks import WindowMark
from ingestd.batch.news import News
from ingestd.batch.phases import Phase
from ingestd.batch.record import Kind, Record
from ingestd.batch.runner import BatchRunner
from ingestd.batch.stamp import Stamp
from ingestd.collect.windows.store import Everything, WindowHead, WindowStore
from ingestd.model.clock import Clock
from ingestd.model.errors import UnreadableObject
from ingestd.model.objects import event_id
from ingestd.ops.survival import surviving

log = structlog.get_logger(__name__)

GROUPS = Counter("ingestd_groups_done", "Groups of batches whose OnDone actions were begun.")


class Groups:
    def __init__(
        self,
        store: WindowStore,
        journal: Journal,
        runner: BatchRunner,
        clock: Clock,
        news: News,
        *,
        patience: timedelta,
    ) -> None:
        self._store = store
        self._journal = journal
        self._runner = runner
        self._clock = clock
        self._patience = patience
        news.ended.append(self.tidy)

    async def look_at(self, everything: Everything) -> None:
        """Run `OnDone` of every group that is over."""
        now = self._clock.now()
        due = {name for name, moment in everything.groups.items() if now >= moment + self._patience}
        if not due:
            return
        due -= {one.lock.metadata.get("ingestd-group", "") for one in everything.windows if one.lock is not None}
        async for entry in self._journal.entries():
            due.discard(entry.group)
        for name in sorted(due):
            with surviving("groups", "group.failed", group=name):
                await self._finish(name)

    async def finish(self, name: str) -> None:
        """Run `OnDone` now: whoever asks knows that all batches of the group have ended, and that no more come."""
        await self._finish(name)

    async def tidy(self, record: Record) -> None:
        """A group's own actions have ended."""
        if record.kind is Kind.ROUTE and record.window is not None:
            await self._store.remove_group(record.window.name.removeprefix(GROUP_PREFIX))

    async def _finish(self, name: str) -> None:
        try:
            head = await self._store.read_group(name)
        except UnreadableObject:
            return  # counted and told: it is left alone
        if head is None or head.group is None:
            return
        held = await self._runner.accept(self._record(name, head))
        if held is None:
            await self._store.remove_group(name)
            return
        GROUPS.inc()
        log.info("group.done", group=name)
        await self._drive(held)

    async def _drive(self, held: Held) -> None:
        # Bounded, so that one slow action does not hold up the sweep: the record is durable and is adopted later.
        try:
            async with asyncio.timeout(self._journal.lease.total_seconds()):
                await self._runner.drive(held)
        except TimeoutError:
            log.warning("group.slow", group=held.record.event_id)

    def _record(self, name: str, head: WindowHead) -> Record:
        assert head.group is not None
        now = self._clock.now()
        actions = ((head.rule.document.get("Batch") or {}).get("Group") or {}).get("OnDone") or []
        return Record(
            event_id=event_id(f"group:{name}"),
            kind=Kind.ROUTE,
            phase=Phase.LOADED,
            dest=head.dest,
            files=(),
            rule=replace(head.rule, document={"OnSuccess": actions}),
            created=now,
            stamp=Stamp(now),
            values=head.values | {"GroupID": head.group.number},
            trigger=WindowMark(f"{GROUP_PREFIX}{name}", head.group.number),
        )


GROUP_PREFIX = "group:"
