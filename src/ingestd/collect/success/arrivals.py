"""Where notifications about success files, gestures and configuration go.

A message about a success file is acknowledged when its batch is durable: as a record, or as an entry in the queue of
its ordered table. Everything after that is found again by looking. No more batches are taken at a time than can be
worked on; the others wait as unacknowledged messages.
"""

from collections import OrderedDict
from datetime import timedelta
from urllib.parse import unquote

import structlog

from ingestd.batch.journal import Held, Journal
from ingestd.batch.runner import BatchRunner
from ingestd.collect.success.background import Background
from ingestd.collect.success.configuration import Levels, ordered
from ingestd.collect.success.conventions import Conventions, Meaning, Sign
from ingestd.collect.success.destination import table_prefix
from ingestd.collect.success.interventions import Interventions
from ingestd.collect.success.lookup import ConfigLookup
from ingestd.collect.success.ordering import Ordering
from ingestd.collect.success.planning import Resolver, unresolved
from ingestd.collect.success.queue import OrderedTable
from ingestd.intake.notifications import FINALIZE, ObjectEvent
from ingestd.intake.receipts import Receipt
from ingestd.intake.router import EVENTS, LAST_EVENT, Work
from ingestd.model.clock import Clock
from ingestd.model.errors import BadInput, Fatal, Transient, UnreadableObject
from ingestd.model.fair import FairSlots
from ingestd.model.objects import ABSENT, FileVersion, ObjectRef
from ingestd.ops.survival import surviving
from ingestd.ports import ObjectStore
from ingestd.settings import Convention

log = structlog.get_logger(__name__)

_DELETED = "OBJECT_DELETE"


class SuccessArrivals:
    """`ingestd.intake.router.Collector` of success files, and a root task (`run`)."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        journal: Journal,
        runner: BatchRunner,
        conventions: Conventions,
        lookup: ConfigLookup,
        resolver: Resolver,
        ordering: Ordering,
        interventions: Interventions,
        background: Background,
        clock: Clock,
        project: str,
        at_once: int,
        remember: int,
        sweep_every: timedelta,
    ) -> None:
        self._store = store
        self._journal = journal
        self._runner = runner
        self._conventions = conventions
        self._lookup = lookup
        self._resolver = resolver
        self._ordering = ordering
        self._interventions = interventions
        self._background = background
        self._clock = clock
        self._project = project
        self._room = FairSlots(at_once)
        self._remember = remember
        self._sweep_every = sweep_every
        self._finished: OrderedDict[str, None] = OrderedDict()
        self._accepting: set[str] = set()

    async def run(self) -> None:
        """Root task: until `stop`, then until what is under way has ended."""
        await self._background.run(self._sweep_forever() if self._conventions else None)

    def stop(self) -> None:
        self._background.stop()

    def wants(self, bucket: str, name: str) -> bool:
        return self._conventions.sign(bucket, name) is not None

    def deliver(self, event: ObjectEvent, rule: None, receipt: Receipt) -> Work | None:
        ref = event.file.ref
        if event.file.generation == ABSENT:
            return self._look_and_deliver(ref, receipt)
        sign = self._conventions.sign(ref.bucket, ref.name)
        if sign is not None and event.finalized and sign.meaning is Meaning.SUCCESS:
            if event.file.key in self._finished:
                EVENTS.counts["duplicate"] += 1
                receipt.ack()
                return None
            return self._arrive(event.file, sign.convention, receipt)
        work = self._control(event, sign) if sign else None
        if work is None:
            EVENTS.counts["control" if event.finalized else "not_finalize"] += 1
            receipt.ack()
            return None
        return self._obey(work, receipt)

    async def _look_and_deliver(self, ref: ObjectRef, receipt: Receipt) -> None:
        """A message with nothing but a name means the object as it is now."""
        info = await self._store.stat(ref)
        if info is None:
            EVENTS.counts["no_match"] += 1
            log.info("success.gone", source=ref.url)
            receipt.ack()
            return
        file = FileVersion(ref, info.generation, info.size, info.created, info.crc32c)
        work = self.deliver(ObjectEvent(FINALIZE, file), None, receipt)
        if work is not None:
            await work

    def _control(self, event: ObjectEvent, sign: Sign) -> Work | None:
        """What a control file asks for; None: nothing."""
        ref = event.file.ref
        table = OrderedTable(ref.bucket, ref.name.rpartition("/")[0])
        match sign.meaning:
            case Meaning.START if event.finalized:
                return self._moved(table)
            case Meaning.GO_ON if event.finalized:
                return self._told(table, event.file)
            case Meaning.UNLOCK if event.kind == _DELETED:
                return self._told(table, event.file)
            case Meaning.CONFIG if event.finalized or event.kind == _DELETED:
                return self._wake(sign.convention, ref)
            case _:
                return None

    async def _obey(self, work: Work, receipt: Receipt) -> None:
        await work
        EVENTS.counts["control"] += 1
        receipt.ack()

    async def _moved(self, table: OrderedTable) -> None:
        self._ordering.poke(table)

    async def _told(self, table: OrderedTable, file: FileVersion) -> None:
        if not await self._interventions.gesture(table, file.generation):
            raise Transient(f"{table.url} was moved on meanwhile")
        self._ordering.poke(table)

    async def _arrive(self, file: FileVersion, convention: Convention, receipt: Receipt) -> None:
        """Make the batch durable, then acknowledge its message; a duplicate waits until the first is durable."""
        while file.key in self._accepting:
            await self._clock.sleep(timedelta(milliseconds=100))
        self._accepting.add(file.key)
        try:
            levels = await self._lookup.levels(file.ref.name, file.ref.bucket, convention)
            in_order = convention.order_per_table or ordered(levels)
            fresh = await (self._enqueue if in_order else self._begin)(file, convention, levels)
        finally:
            self._accepting.discard(file.key)
        EVENTS.counts["matched" if fresh else "duplicate"] += 1
        LAST_EVENT.set(file.event_time.timestamp())
        receipt.ack()

    async def _enqueue(self, file: FileVersion, convention: Convention, levels: Levels) -> bool:
        """Put the batch into its table's queue; False when it was there before."""
        table = await self._table(file, convention, levels)
        fresh = await self._ordering.enqueue(table, file)
        self._ordering.poke(table)
        return fresh

    async def _table(self, file: FileVersion, convention: Convention, levels: Levels) -> OrderedTable:
        """The table in whose queue the batch belongs: by its path, which has to tell the table's folder."""
        ref, regex = file.ref, convention.destination_regex
        try:
            regex = (await self._lookup.read(levels)).overrides.regex or regex
        except Fatal as error:
            log.warning("success.config_unreadable", source=ref.url, error=str(error))
        prefix = table_prefix(ref.name, root=convention.root, regex=regex)
        return OrderedTable(ref.bucket, prefix or ref.name.rpartition("/")[0])

    async def _begin(self, file: FileVersion, convention: Convention, levels: Levels) -> bool:
        """Make the batch's record, and drive it in the background; False when it was there before."""
        folder = file.ref.name.rpartition("/")[0]
        share = table_prefix(file.ref.name, root=convention.root, regex=convention.destination_regex) or folder
        await self._room.acquire(share)
        try:
            record = unresolved(file, project=self._project, clock=self._clock)
            try:
                record = await self._resolver.resolve(record, levels)
            except (BadInput, Fatal) as error:
                # It is kept as it is: the drive comes to the same, and says so in the record.
                log.warning("success.unresolved", source=file.ref.url, error=str(error))
            held = await self._runner.accept(record)
        except BaseException:
            self._room.release(share)
            raise
        if held is None:
            self._room.release(share)
            self._remember_finished(file.key)
            return False
        log.info("success.accepted", source=file.ref.url, event_id=record.event_id, files=len(record.files))
        self._background.spawn(self._drive(held, file.key, share), f"batch:{record.event_id}")
        return True

    async def _drive(self, held: Held, key: str, share: str) -> None:
        try:
            await self._runner.drive(held, fresh=True)
        finally:
            self._room.release(share)
        if held.record.phase.final:
            self._remember_finished(key)

    def _remember_finished(self, key: str) -> None:
        self._finished[key] = None
        if len(self._finished) > self._remember:
            self._finished.popitem(last=False)

    async def _wake(self, convention: Convention, config: ObjectRef) -> None:
        """Configuration was changed: batches that wait below it are tried now."""
        folder = config.name.rpartition("/")[0].rpartition("/")[0]
        below = "" if convention.config_url else f"{config.bucket}/{folder}/" if folder else f"{config.bucket}/"
        async for entry in self._journal.entries("Running/_success."):
            if entry.retry_at is None or not unquote(entry.source).startswith(below):
                continue
            try:
                held = await self._journal.read(entry.ref)
            except UnreadableObject:
                continue  # counted and told: it waits for whoever can read it
            if held is None or held.record.stamp.leased(self._clock.now()) or held.record.wait.until is None:
                continue
            log.info("success.config_changed", config=config.url, event_id=entry.event_id)
            self._background.spawn(self._runner.resume(entry.ref), f"wake:{entry.event_id}")

    async def _sweep_forever(self) -> None:
        while True:
            with surviving("sweep:ordered", "sweep.failed", what="ordered"):
                for table in await self._ordering.sweep():
                    self._ordering.poke(table)
            await self._clock.sleep(self._sweep_every)
