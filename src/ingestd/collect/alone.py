"""A file that is a batch by itself: made durable, driven, and only then acknowledged.

A message is acknowledged when the batch's record is durable and its job submitted (asynchronous rules), or when the
batch has ended (synchronous ones). What was finished a moment ago is known to be a duplicate without asking anybody.

Files of a table whose loads are slow would keep their messages until their turn comes, and as many of them as may be in
flight would keep every other file from being pulled. So where messages are many, a batch that has to wait for its
table's turn is left as it is: durable, and found by the next sweep as if its process had died here.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from prometheus_client import Counter

from ingestd.batch.journal import LeaseLost
from ingestd.batch.load_config import new_record
from ingestd.batch.runner import BatchRunner
from ingestd.intake.notifications import ObjectEvent
from ingestd.intake.receipts import Receipt
from ingestd.intake.refusals import Refusals
from ingestd.intake.router import EVENTS, LAST_EVENT, Work
from ingestd.model.clock import Clock
from ingestd.model.errors import BadInput
from ingestd.rules.destination import DestinationError, expand_destination
from ingestd.rules.rule import Rule

log = structlog.get_logger(__name__)

LEFT = Counter(
    "ingestd_batches_left", "Batches left to a later sweep: their table was busy, and too many messages were in flight."
)


class Alone:
    def __init__(self, *, runner: BatchRunner, refusals: Refusals, project: str, clock: Clock, remember: int) -> None:
        self._runner = runner
        self._refusals = refusals
        self._project = project
        self._clock = clock
        self._remember = remember
        self._finished: OrderedDict[str, None] = OrderedDict()
        self._accepting: dict[str, asyncio.Future[None]] = {}

    def deliver(self, event: ObjectEvent, rule: Rule, receipt: Receipt) -> Work | None:
        """Take a file that a rule wants; `None` when it is settled already."""
        if event.file.key in self._finished:
            self._duplicate(receipt)
            return None
        return self._arrive(event, rule, receipt)

    def _duplicate(self, receipt: Receipt) -> None:
        EVENTS.counts["duplicate"] += 1
        receipt.ack()

    async def _arrive(self, event: ObjectEvent, rule: Rule, receipt: Receipt) -> None:
        """Accept the file once, and drive its batch; a second message waits until the first has made it durable."""
        file = event.file
        first = self._accepting.get(file.key)
        if first is not None:
            await asyncio.shield(first)
            self._duplicate(receipt)
            return
        with self._making_durable(file.key) as durable:
            try:
                destination = expand_destination(rule, file, {"EventID": file.event_id, "ProjectID": self._project})
                record = new_record(
                    rule, file, destination, project=self._project, clock=self._clock, overwrote=event.overwrote
                )
                held = await self._runner.accept(record)
            except (DestinationError, BadInput) as error:
                EVENTS.counts["refused"] += 1
                await self._refusals.refuse(file, str(error), [rule.name], receipt)
                durable.set_result(None)
                return
            durable.set_result(None)
            if held is None:
                log.info("file.duplicate", source=file.ref.url, generation=file.generation, event_id=record.event_id)
                self._duplicate(receipt)
                return
            EVENTS.counts["matched"] += 1
            LAST_EVENT.set(file.event_time.timestamp())
            if receipt.crowded and self._runner.must_wait(record):
                LEFT.inc()
                log.info("batch.left", event_id=record.event_id, dest=record.dest)
                receipt.ack()
                return
            try:
                await self._runner.drive(held, fresh=True)
            except LeaseLost:
                log.info("batch.lease_lost", event_id=record.event_id)
            if held.record.phase.final:
                self._remember_finished(file.key)
            receipt.ack()

    @contextmanager
    def _making_durable(self, key: str) -> Iterator["asyncio.Future[None]"]:
        """What other messages about the file wait for: set when it is durable, or when that failed."""
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._accepting[key] = durable
        try:
            yield durable
        except BaseException as error:
            if not durable.done():
                durable.set_exception(error if isinstance(error, Exception) else RuntimeError("interrupted"))
                durable.exception()  # nobody else may be waiting for it
            raise
        finally:
            del self._accepting[key]

    def _remember_finished(self, key: str) -> None:
        self._finished[key] = None
        if len(self._finished) > self._remember:
            self._finished.popitem(last=False)
