"""Routing notifications: the hot path of the intake.

Most messages are settled here, at once and without a task: events that are no uploads, and files no rule wants. Only
the attributes are looked at until a rule matches; the payload is read for files that are taken.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

import structlog

from ingestd.intake.deadletters import DeadLetters
from ingestd.intake.notifications import FINALIZE, ObjectEvent, Unreadable, parse_notification
from ingestd.intake.receipts import Receipt
from ingestd.intake.refusals import Refusals
from ingestd.model.objects import ObjectRef
from ingestd.ops.tally import Tally
from ingestd.ports import Message
from ingestd.rules.matching import Ambiguous, Disabled, Match, NoMatch, Routing
from ingestd.rules.rule import Rule

log = structlog.get_logger(__name__)

EVENTS = Tally(
    "ingestd_events",
    "Object notifications received, by what became of them.",
    "outcome",
    ("matched", "no_match", "disabled", "ambiguous", "not_finalize", "duplicate", "refused", "unreadable", "control"),
)

Work = Coroutine[Any, Any, None]
Deliver = Callable[[ObjectEvent, Rule, Receipt], Work | None]


class SuccessFiles(Protocol):
    """Takes the files that mean something to the `_SUCCESS` convention; no rule sees those."""

    def wants(self, bucket: str, name: str) -> bool: ...

    def deliver(self, event: ObjectEvent, receipt: Receipt) -> Work | None: ...

    def deliver_named(self, ref: ObjectRef, receipt: Receipt) -> Work | None:
        """Take a message that names an object and nothing else, as hand-made ones do."""
        ...


class Router:
    """The notifications subscription's handler: `handle` settles the message, or answers the work that will."""

    def __init__(
        self,
        *,
        subscription: str,
        route: Callable[[str], Routing],
        deliver: Deliver,
        dead_letters: DeadLetters,
        refusals: Refusals,
        success: SuccessFiles | None = None,
    ) -> None:
        self._success = success
        self._subscription = subscription
        self._route = route
        self._deliver = deliver
        self._dead_letters = dead_letters
        dead_letters.expect(subscription)
        self.refusals = refusals

    def handle(self, message: Message, receipt: Receipt) -> Work | None:
        attributes = message.attributes
        if self._success is not None and self._meant_for(self._success, attributes):
            return self._to_success(self._success, message, receipt)
        name = attributes.get("objectId") if attributes.get("eventType") == FINALIZE else None
        if name:
            routing = self._route(name)
            if isinstance(routing, NoMatch):
                EVENTS.counts["no_match"] += 1
                receipt.ack()
                return None
        try:
            event = parse_notification(message.data, attributes)
        except Unreadable as unreadable:
            EVENTS.counts["unreadable"] += 1
            return self._dead_letters.bury(receipt, self._subscription, unreadable.reason)
        ref = event.file.ref
        if not name and self._success is not None and self._success.wants(ref.bucket, ref.name):
            return self._success.deliver(event, receipt)
        if not event.finalized:
            EVENTS.counts["not_finalize"] += 1
            receipt.ack()
            return None
        if not name:
            routing = self._route(event.file.ref.name)
        if isinstance(routing, Match):
            return self._deliver(event, routing.rule, receipt)
        return self._turn_away(event, routing, receipt)

    def _meant_for(self, success: SuccessFiles, attributes: Mapping[str, str]) -> bool:
        bucket, name = attributes.get("bucketId"), attributes.get("objectId")
        return bool(bucket and name and success.wants(bucket, name))

    def _to_success(self, success: SuccessFiles, message: Message, receipt: Receipt) -> Work | None:
        attributes = message.attributes
        if "eventType" not in attributes and not message.data:
            return success.deliver_named(ObjectRef(attributes["bucketId"], attributes["objectId"]), receipt)
        try:
            event = parse_notification(message.data, attributes)
        except Unreadable as unreadable:
            EVENTS.counts["unreadable"] += 1
            return self._dead_letters.bury(receipt, self._subscription, unreadable.reason)
        return success.deliver(event, receipt)

    def _turn_away(self, event: ObjectEvent, routing: Routing, receipt: Receipt) -> Work | None:
        if isinstance(routing, Ambiguous):
            EVENTS.counts["ambiguous"] += 1
            return self.refusals.refuse(event.file, str(routing), [rule.name for rule in routing.rules], receipt)
        if isinstance(routing, Disabled):
            log.info("file.rule_disabled", source=event.file.ref.url, rule=routing.rule.name)
            EVENTS.counts["disabled"] += 1
        else:
            EVENTS.counts["no_match"] += 1
        receipt.ack()
        return None
