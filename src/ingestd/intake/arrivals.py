"""A file's way in: parsed, matched, made durable, and on its way.

The handler settles most messages at once, without a task: events that are no uploads, files no rule wants, and files
that were finished a moment ago. Everything else becomes a batch, and its message is acknowledged only when the batch's
record is durable (asynchronous rules) or the batch has ended (synchronous ones).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
import structlog
from prometheus_client import Counter, Gauge

from ingestd.batch.journal import LeaseLost
from ingestd.batch.loading import new_record
from ingestd.batch.record import Record
from ingestd.batch.runner import BatchRunner
from ingestd.intake.deadletters import DeadLetters
from ingestd.intake.notifications import ObjectEvent, Unreadable, parse_notification
from ingestd.intake.receipts import Receipt
from ingestd.model.clock import Clock
from ingestd.model.errors import BadInput
from ingestd.model.objects import FileVersion, ObjectRef, event_id
from ingestd.ports import Message, ObjectStore
from ingestd.rules.destination import DestinationError, expand_destination
from ingestd.rules.matching import Ambiguous, Disabled, Match, NoMatch, Routing
from ingestd.rules.rule import Rule

log = structlog.get_logger(__name__)

EVENTS = Counter("ingestd_events", "Object notifications received, by what became of them.", ["outcome"])
LAST_EVENT = Gauge("ingestd_last_event_timestamp_seconds", "Event time of the newest file seen.")
_OUTCOMES = ("matched", "no_match", "disabled", "ambiguous", "not_finalize", "duplicate", "refused", "unreadable")
COUNTS = {outcome: EVENTS.labels(outcome) for outcome in _OUTCOMES}


class Arrivals:
    def __init__(
        self,
        *,
        subscription: str,
        route: Callable[[str], Routing],
        runner: BatchRunner,
        store: ObjectStore,
        dead_letters: DeadLetters,
        errors: ObjectRef,
        project: str,
        clock: Clock,
        remember: int,
    ) -> None:
        self._subscription = subscription
        self._route = route
        self._runner = runner
        self._store = store
        self._dead_letters = dead_letters
        self._errors = errors
        self._project = project
        self._clock = clock
        self._remember = remember
        self._finished: OrderedDict[str, None] = OrderedDict()
        self._accepting: dict[str, asyncio.Future[None]] = {}

    def handle(self, message: Message, receipt: Receipt) -> Coroutine[Any, Any, None] | None:
        """The notifications subscription's handler."""
        try:
            event = parse_notification(message.data, message.attributes)
        except Unreadable as unreadable:
            COUNTS["unreadable"].inc()
            return self._dead_letters.bury(receipt, self._subscription, unreadable.reason)
        if not event.finalized:
            self._settle(receipt, "not_finalize")
            return None
        routing = self._route(event.file.ref.name)
        if isinstance(routing, NoMatch):
            self._settle(receipt, "no_match")
            return None
        if isinstance(routing, Match):
            if event.file.key in self._finished:
                self._settle(receipt, "duplicate")
                return None
            return self._arrive(event, routing.rule, receipt)
        if isinstance(routing, Disabled):
            log.info("file.rule_disabled", source=event.file.ref.url, rule=routing.rule.name)
            self._settle(receipt, "disabled")
            return None
        return self._refuse_ambiguous(event, routing, receipt)

    def _settle(self, receipt: Receipt, outcome: str) -> None:
        COUNTS[outcome].inc()
        receipt.ack()

    async def _refuse_ambiguous(self, event: ObjectEvent, routing: Ambiguous, receipt: Receipt) -> None:
        COUNTS["ambiguous"].inc()
        await self._refuse(event.file, str(routing), [rule.name for rule in routing.rules])
        receipt.ack()

    async def _arrive(self, event: ObjectEvent, rule: Rule, receipt: Receipt) -> None:
        """Accept the file once; a second message about it waits until the first has made it durable."""
        key = event.file.key
        first = self._accepting.get(key)
        if first is not None:
            await asyncio.shield(first)
            self._settle(receipt, "duplicate")
            return
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._accepting[key] = durable
        try:
            await self._accept(event, rule, receipt, durable)
        except BaseException as error:
            if not durable.done():
                durable.set_exception(error if isinstance(error, Exception) else RuntimeError("interrupted"))
                durable.exception()  # nobody else may be waiting for it
            raise
        finally:
            del self._accepting[key]

    async def _accept(self, event: ObjectEvent, rule: Rule, receipt: Receipt, durable: "asyncio.Future[None]") -> None:
        file = event.file
        try:
            record = self._record(event, rule)
        except (DestinationError, BadInput) as error:
            COUNTS["refused"].inc()
            await self._refuse(file, str(error), [rule.name])
            durable.set_result(None)
            receipt.ack()
            return
        held = await self._runner.accept(record)
        durable.set_result(None)
        if held is None:
            log.info("file.duplicate", source=file.ref.url, generation=file.generation, event_id=record.event_id)
            self._settle(receipt, "duplicate")
            return
        COUNTS["matched"].inc()
        LAST_EVENT.set(file.event_time.timestamp())
        try:
            await self._runner.drive(held, fresh=True)
        except LeaseLost:
            log.info("batch.lease_lost", event_id=record.event_id)
        if held.record.phase.final:
            self._remember_finished(file.key)
        receipt.ack()

    def _record(self, event: ObjectEvent, rule: Rule) -> Record:
        file = event.file
        values = {"EventID": file.event_id, "ProjectID": self._project}
        destination = expand_destination(rule, file, values)
        return new_record(rule, file, destination, project=self._project, clock=self._clock, overwrote=event.overwrote)

    async def _refuse(self, file: FileVersion, reason: str, rules: list[str]) -> None:
        """A file that cannot be routed is kept in sight: one document under `ErrorURL/unrouted/`."""
        log.error("file.refused", source=file.ref.url, reason=reason, rules=rules)
        document = {
            "Source": file.ref.url,
            "Generation": str(file.generation),
            "Time": file.event_time,
            "Reason": reason,
            "Rules": rules,
            "Fix": f"correct the rules, then run: ingestd publish {file.ref.url}",
        }
        place = self._errors / f"unrouted/{event_id(file.key)}.json"
        await self._store.create(place, orjson.dumps(document, option=orjson.OPT_INDENT_2))

    def _remember_finished(self, key: str) -> None:
        self._finished[key] = None
        if len(self._finished) > self._remember:
            self._finished.popitem(last=False)
