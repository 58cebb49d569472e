"""Routing notifications: the hot path of the intake.

Most messages are settled here, at once and without a task: events that are no uploads, and files no rule wants. Only
the attributes are looked at until a rule matches; the payload is read for files that are taken.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

import structlog
from prometheus_client import Gauge

from ingestd.intake.deadletters import DeadLetters
from ingestd.intake.notifications import FINALIZE, ObjectEvent, Unreadable, parse_notification
from ingestd.intake.receipts import Receipt
from ingestd.intake.refusals import Refusals
from ingestd.model.objects import ABSENT, FileVersion, ObjectRef
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
LAST_EVENT = Gauge("ingestd_last_event_timestamp_seconds", "Event time of the newest file seen.")

Work = Coroutine[Any, Any, None]


class Collector(Protocol):
    """Brings files to their batches: `deliver` settles the message, or answers the work that will."""

    def deliver(self, event: ObjectEvent, rule: Rule | None, receipt: Receipt) -> Work | None:
        """Take a file that a rule wants, or (without one) that the convention of success files does.

        Without a generation it is the object as it is now: hand-made messages name it and tell nothing else.
        """
        ...


class Router:
    """The notifications subscription's handler: `handle` settles the message, or answers the work that will."""

    def __init__(
        self,
        *,
        subscription: str,
        route: Callable[[str], Routing],
        collect: Collector,
        by_convention: Callable[[str, str], bool] | None = None,
        dead_letters: DeadLetters,
        refusals: Refusals,
    ) -> None:
        self._subscription = subscription
        self._route = route
        self._collect = collect
        self._by_convention = (
            by_convention  # whether a file of this bucket and name is the convention's: no rule sees it
        )
        self._dead_letters = dead_letters
        dead_letters.expect(subscription)
        self._refusals = refusals

    def handle(self, message: Message, receipt: Receipt) -> Work | None:
        attributes = message.attributes
        conventional = self._by_convention is not None and self._is_conventional(
            attributes.get("bucketId"), attributes.get("objectId")
        )
        name = attributes.get("objectId") if attributes.get("eventType") == FINALIZE else None
        if name and not conventional:
            routing = self._route(name)
            if isinstance(routing, NoMatch):
                EVENTS.counts["no_match"] += 1
                receipt.ack()
                return None
        try:
            only_named = conventional and "eventType" not in attributes and not message.data
            event = _as_it_is_now(attributes) if only_named else parse_notification(message.data, attributes)
        except Unreadable as unreadable:
            EVENTS.counts["unreadable"] += 1
            return self._dead_letters.bury(receipt, self._subscription, unreadable.reason)
        ref = event.file.ref
        if conventional or (not name and self._is_conventional(ref.bucket, ref.name)):
            return self._collect.deliver(event, None, receipt)
        if not event.finalized:
            EVENTS.counts["not_finalize"] += 1
            receipt.ack()
            return None
        if not name:
            routing = self._route(ref.name)
        if isinstance(routing, Match):
            return self._collect.deliver(event, routing.rule, receipt)
        return self._turn_away(event, routing, receipt)

    def _is_conventional(self, bucket: str | None, name: str | None) -> bool:
        return bool(self._by_convention is not None and bucket and name and self._by_convention(bucket, name))

    def _turn_away(self, event: ObjectEvent, routing: Routing, receipt: Receipt) -> Work | None:
        if isinstance(routing, Ambiguous):
            EVENTS.counts["ambiguous"] += 1
            return self._refusals.refuse(event.file, str(routing), [rule.name for rule in routing.rules], receipt)
        if isinstance(routing, Disabled):
            log.info("file.rule_disabled", source=event.file.ref.url, rule=routing.rule.name)
            EVENTS.counts["disabled"] += 1
        else:
            EVENTS.counts["no_match"] += 1
        receipt.ack()
        return None


def _as_it_is_now(attributes: Mapping[str, str]) -> ObjectEvent:
    """Hand-made messages name an object and tell nothing else."""
    return ObjectEvent(FINALIZE, FileVersion(ObjectRef(attributes["bucketId"], attributes["objectId"]), ABSENT))
