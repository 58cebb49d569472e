"""Telling the daemon of a file as Cloud Storage would have: for files whose notification is lost, or never was sent.

The message is the one that Cloud Storage publishes, so whatever takes it (a topic, or the router of this very process)
cannot tell the difference, and a file that turns out to be known is dropped as a duplicate.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Protocol, Self, cast

import orjson
import structlog

from ingestd.intake.notifications import FINALIZE
from ingestd.intake.receipts import Desk, Receipt
from ingestd.model.bounded import bounded
from ingestd.model.errors import IngestError
from ingestd.model.objects import ObjectInfo
from ingestd.ports import Message, PlainMessage, Publisher

log = structlog.get_logger(__name__)

_PER_CALL = 500  # of the 1,000 that Pub/Sub takes: names and metadata may be long, and a call has 10 MB
_CALLS_AT_ONCE = 4

Handle = Callable[[Message, Receipt], Coroutine[Any, Any, None] | None]


@dataclass(slots=True)
class Told:
    """What became of announcements: taken (durable, or refused with a reason), or given back."""

    taken: int = 0
    returned: int = 0
    why: str = ""  # the last reason for giving one back

    def __iadd__(self, other: Self) -> Self:
        self.taken += other.taken
        self.returned += other.returned
        self.why = other.why or self.why
        return self


class Announcer(Protocol):
    async def announce(self, objects: Iterable[ObjectInfo]) -> Told: ...


def message_of(info: ObjectInfo, now: datetime) -> Message:
    """The notification of this very generation."""
    ref, created = info.ref, _rfc3339(info.created)
    attributes = {
        "notificationConfig": f"projects/_/buckets/{ref.bucket}/notificationConfigs/ingestd-backfill",
        "eventType": FINALIZE,
        "payloadFormat": "JSON_API_V1",
        "bucketId": ref.bucket,
        "objectId": ref.name,
        "objectGeneration": str(info.generation),
        "eventTime": _rfc3339(now),
    }
    resource = {
        "kind": "storage#object",
        "id": f"{ref.bucket}/{ref.name}/{info.generation}",
        "name": ref.name,
        "bucket": ref.bucket,
        "generation": str(info.generation),
        "metageneration": str(info.metageneration),
        "contentType": info.content_type or "application/octet-stream",
        "timeCreated": created,
        "updated": created,
        "size": str(info.size),
        "crc32c": info.crc32c,
        **({"metadata": info.metadata} if info.metadata else {}),
    }
    return PlainMessage("", orjson.dumps(resource), attributes)


class Publishing:
    """Publishes to a topic, many at a time, and waits for each call, so that a failure is seen."""

    def __init__(self, publisher: Publisher, topic: str, now: Callable[[], datetime]) -> None:
        self._publisher = publisher
        self._topic = topic
        self._now = now

    async def announce(self, objects: Iterable[ObjectInfo]) -> Told:
        told = Told()

        async def publish(some: Sequence[ObjectInfo]) -> None:
            messages = [message_of(info, self._now()) for info in some]
            try:
                await self._publisher.publish_all(self._topic, [(one.data, one.attributes) for one in messages])
            except IngestError as error:
                told.returned += len(some)
                told.why = str(error)
            else:
                told.taken += len(some)

        await bounded(batched(objects, _PER_CALL), publish, _CALLS_AT_ONCE)
        return told


class InProcess:
    """Hands files to the router of this process and waits until each is durable, or given back."""

    def __init__(self, handle: Handle, now: Callable[[], datetime], *, at_once: int = 200) -> None:
        self._handle = handle
        self._now = now
        self._at_once = at_once

    async def announce(self, objects: Iterable[ObjectInfo]) -> Told:
        told = Told()

        async def one(info: ObjectInfo) -> None:
            receipt = _Receipt(message_of(info, self._now()))
            try:
                work = self._handle(receipt.message, receipt)
                if work is not None:
                    await work
                taken = await receipt.outcome
            except IngestError as error:
                log.warning("announcement.failed", source=info.ref.url, error=str(error))
                taken, told.why = False, str(error)
            if taken:
                told.taken += 1
            else:
                told.returned += 1

        await bounded(objects, one, self._at_once)
        return told


class _Receipt(Receipt):
    """Stands for a message that nobody will deliver again: whoever announced it finds the file the next time."""

    __slots__ = ("outcome",)

    def __init__(self, message: Message) -> None:
        super().__init__(cast("Desk", None), message)
        self.outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    @property
    def crowded(self) -> bool:
        return False  # whoever announces files waits for as many as it can, and for each to its end

    def ack(self) -> None:
        self._settle(taken=True)

    def retry_later(self, delay: timedelta) -> None:
        del delay
        self._settle(taken=False)

    def _settle(self, *, taken: bool) -> None:
        self.settled = True
        if not self.outcome.done():
            self.outcome.set_result(taken)


def batched(objects: Iterable[ObjectInfo], size: int) -> Iterator[list[ObjectInfo]]:
    waiting = iter(objects)
    while some := list(islice(waiting, size)):
        yield some


def _rfc3339(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
