"""Bringing dead letters back: what can be read goes to the topic it is meant for, what cannot stays where it is.

Dead letters are of two kinds: those that this daemon set aside as unreadable, and those that Pub/Sub itself moved there
because a subscription has a dead-letter policy and its messages could not be dealt with for long. The latter are good.

A message is published first and acknowledged then. Dying between the two publishes it again the next time, and the
daemon drops what it has loaded: repeating the command is harmless. What stays is given back at the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from ingestd.intake.audit import parse_audit
from ingestd.intake.notifications import Unreadable, parse_notification
from ingestd.ports import Message, Publisher, Subscription

_PER_CALL = 500
_LEASE = timedelta(seconds=600)
_ADDED = ("ingestd-", "CloudPubSubDeadLetter", "googclient_")  # attributes of those who moved the message
_SHOWN = 10


class Feed(StrEnum):
    NOTIFICATIONS = "notifications"
    COMPLETIONS = "completions"


@dataclass(slots=True)
class Drained:
    """What was found, and went where."""

    back: dict[Feed, int] = field(default_factory=lambda: dict.fromkeys(Feed, 0))
    unreadable: int = 0
    examples: list[dict[str, str]] = field(default_factory=list)  # of those that stay, with the reason

    @property
    def total(self) -> int:
        return sum(self.back.values())

    def to_json(self) -> dict[str, Any]:
        return {
            **{str(feed): number for feed, number in self.back.items()},
            "unreadable": self.unreadable,
            "examples": self.examples,
        }


def meant_for(message: Message) -> Feed:
    """Whose message it is; `Unreadable` with the reason when it is nobody's."""
    try:
        parse_notification(message.data, message.attributes)
    except Unreadable as unreadable:
        reason = unreadable
    else:
        return Feed.NOTIFICATIONS
    try:
        parse_audit(message.data, message.attributes)
    except Unreadable:
        raise reason from None
    return Feed.COMPLETIONS


async def drain(
    subscription: Subscription,
    publisher: Publisher,
    topics: Mapping[Feed, str],
    *,
    dry_run: bool,
    limit: int = 1_000_000,
) -> Drained:
    """Bring back up to `limit` messages; in a dry run, only say which ones would go where."""
    told, seen, staying = Drained(), set[str](), list[str]()
    try:
        while len(seen) < limit:
            pulled = await subscription.pull(_PER_CALL)
            fresh = [one for one in pulled if one.message_id not in seen]
            staying += [one.ack_id for one in pulled if one.message_id in seen]
            if not fresh:
                break  # nothing is left but what stays
            seen |= {one.message_id for one in fresh}
            good: dict[Feed, list[Message]] = {}
            for message in fresh:
                try:
                    feed = meant_for(message)
                    if feed not in topics:
                        raise Unreadable(f"{feed} have no topic to go to")  # noqa: TRY301 - it stays like the others
                    good.setdefault(feed, []).append(message)
                except Unreadable as unreadable:
                    staying.append(message.ack_id)
                    told.unreadable += 1
                    if len(told.examples) < _SHOWN:
                        told.examples.append({"message_id": message.message_id, "reason": unreadable.reason})
            for feed, messages in good.items():
                if dry_run:
                    staying += [one.ack_id for one in messages]
                else:
                    await _bring_back(subscription, publisher, topics[feed], messages)
                told.back[feed] += len(messages)
            if staying:
                await subscription.extend(staying, _LEASE)
    finally:
        if staying:
            await subscription.extend(staying, timedelta())
    return told


async def _bring_back(
    subscription: Subscription, publisher: Publisher, topic: str, messages: Sequence[Message]
) -> None:
    await publisher.publish_all(topic, [(one.data, _own(one.attributes)) for one in messages])
    await subscription.ack([one.ack_id for one in messages])


def _own(attributes: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in attributes.items() if not key.startswith(_ADDED)}
