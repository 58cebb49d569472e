"""Messages nobody can read: set aside with their reason, never looping, never stopping the stream."""

import base64
from datetime import timedelta

import orjson
import structlog
from prometheus_client import Counter

from ingestd.batch.news import News
from ingestd.intake.receipts import Receipt
from ingestd.model.clock import Clock
from ingestd.model.errors import BadInput, IngestError
from ingestd.model.objects import ObjectRef
from ingestd.ports import ObjectStore, Publisher

log = structlog.get_logger(__name__)

DEAD_LETTERS = Counter("ingestd_dead_letters", "Messages set aside as unreadable.", ["subscription"])

_AGAIN = timedelta(seconds=60)
_REASON_LIMIT = 1000  # bytes: Pub/Sub allows 1,024 per attribute value


class DeadLetters:
    """To a topic when one is configured, else to an object under `ErrorURL`.

    So does what the topic does not take: a message may have as many attributes as Pub/Sub allows, before ours come.
    """

    def __init__(
        self, publisher: Publisher, store: ObjectStore, clock: Clock, news: News, *, topic: str, folder: ObjectRef
    ) -> None:
        self._publisher = publisher
        self._store = store
        self._clock = clock
        self._topic = topic
        self._folder = folder
        self._news = news

    def expect(self, subscription: str) -> None:
        """Show the subscription's counter from the start: a rise is only seen from a zero that was there before."""
        DEAD_LETTERS.labels(subscription)

    async def bury(self, receipt: Receipt, subscription: str, reason: str) -> None:
        message = receipt.message
        try:
            if not (self._topic and await self._published(receipt, subscription, reason)):
                await self._store.create(self._place(message.message_id), self._document(receipt, subscription, reason))
        except IngestError as error:
            log.warning("intake.dead_letter_failed", message_id=message.message_id, error=str(error))
            receipt.retry_later(_AGAIN)
            return
        DEAD_LETTERS.labels(subscription).inc()
        log.warning("intake.dead_letter", subscription=subscription, message_id=message.message_id, reason=reason)
        for listener in self._news.buried:
            listener(subscription, message.message_id, reason)
        receipt.ack()

    async def _published(self, receipt: Receipt, subscription: str, reason: str) -> bool:
        message = receipt.message
        extra = {"ingestd-reason": _cut(reason), "ingestd-subscription": subscription}
        try:
            await self._publisher.publish(self._topic, message.data, {**message.attributes, **extra})
        except BadInput as error:
            log.warning("intake.dead_letter_refused", message_id=message.message_id, error=str(error))
            return False
        return True

    def _place(self, message_id: str) -> ObjectRef:
        return self._folder / f"messages/{self._clock.now():%Y-%m-%d}/{message_id or 'unnamed'}.json"

    def _document(self, receipt: Receipt, subscription: str, reason: str) -> bytes:
        message = receipt.message
        document = {
            "Reason": reason,
            "Subscription": subscription,
            "MessageID": message.message_id,
            "Attributes": dict(message.attributes),
            "Data": base64.b64encode(message.data).decode(),
            "Text": message.data.decode("utf-8", "replace"),
        }
        return orjson.dumps(document, option=orjson.OPT_INDENT_2)


def _cut(reason: str) -> str:
    return reason.encode(errors="replace")[:_REASON_LIMIT].decode(errors="ignore")
