"""Files that cannot be routed are kept in sight: one document each under `ErrorURL/unrouted/`, with the fix."""

from typing import Protocol

import orjson
import structlog

from ingestd.batch.news import News
from ingestd.model.objects import FileVersion, ObjectRef, event_id
from ingestd.ports import ObjectStore

log = structlog.get_logger(__name__)


class Message(Protocol):
    """What a file was brought by."""

    def ack(self) -> None: ...


class Refusals:
    def __init__(self, store: ObjectStore, errors: ObjectRef, news: News | None = None) -> None:
        self._store = store
        self._errors = errors
        self._news = news or News()

    def place(self, file: FileVersion) -> ObjectRef:
        return self._errors / f"unrouted/{event_id(file.key)}.json"

    async def refuse(self, file: FileVersion, reason: str, rules: list[str], receipt: Message) -> None:
        """Write the reason down, then let go of the message: trying again would change nothing."""
        document = {
            "Source": file.ref.url,
            "Generation": str(file.generation),
            "Time": file.event_time,
            "Reason": reason,
            "Rules": rules,
            "Fix": f"correct the rules, then run: ingestd publish {file.ref.url}",
        }
        await self._store.create(self.place(file), orjson.dumps(document, option=orjson.OPT_INDENT_2))
        log.error("file.refused", source=file.ref.url, reason=reason, rules=rules)
        for listener in self._news.refused:
            listener(file, reason, rules)
        receipt.ack()
