"""Bucket notifications: each change of an object, told to the topics that asked for it.

Invariant: a notification is committed in the same transaction as its change and removed only after it was handed to
the publisher, so neither a crash nor a failing topic loses one. Like Google's, they arrive at least once. Messages that
wait in a row for one topic are handed over together, unless faults are planned: those strike single messages.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock, RLock
from typing import Any

import orjson
import structlog

from ingestd.localcloud.faults import FaultKind, Hooks
from ingestd.localcloud.storage.database import Database
from ingestd.localcloud.storage.errors import invalid, not_found
from ingestd.localcloud.storage.model import (
    Bucket,
    EventType,
    NotificationConfig,
    ObjectVersion,
    PayloadFormat,
    rfc3339_micros,
)
from ingestd.localcloud.storage.resources import object_resource

log = structlog.get_logger(__name__)

Publish = Callable[[str, bytes, dict[str, str]], None]
PublishMany = Callable[[str, Sequence[tuple[bytes, dict[str, str]]]], None]  # all of them, or none

TOPIC_HOST = "//pubsub.googleapis.com/"
MAX_CONFIGS = 100
MAX_CONFIGS_PER_EVENT = 10
MAX_CUSTOM_ATTRIBUTES = 10
MOST_TOGETHER = 500  # messages that are handed over at once, and
MOST_TOGETHER_BYTES = 4 * 1024 * 1024  # bytes in them


@dataclass(frozen=True, slots=True)
class Pending:
    """One message on its way to one topic."""

    id: int
    resource: str
    topic: str
    data: bytes
    attributes: dict[str, str]


class Notifier:
    """The outbox. `publish` may be called from any thread; it raises LookupError for a topic that is gone."""

    def __init__(
        self,
        database: Database,
        lock: RLock,
        hooks: Hooks,
        publish: Publish | None,
        publish_many: PublishMany | None = None,
    ) -> None:
        self._database = database
        self._lock = lock
        self._hooks = hooks
        self._publish = publish
        self._publish_many = publish_many
        self._configs = database.load_notification_configs()
        self._delivering = Lock()
        self._pending = deque(
            Pending(number, resource, topic, data, orjson.loads(attributes))
            for number, resource, topic, data, attributes in database.execute(
                "SELECT id, resource, topic, data, attributes FROM outbox ORDER BY id"
            )
        )

    def reload(self) -> None:
        """The configs as they are committed."""
        self._configs = self._database.load_notification_configs()

    def configs(self, bucket: str) -> list[NotificationConfig]:
        return list(self._configs.get(bucket, ()))

    def config(self, bucket: str, config_id: str) -> NotificationConfig:
        for config in self._configs.get(bucket, ()):
            if config.id == config_id:
                return config
        raise not_found(f"The specified notification config {config_id} does not exist.")

    def add(self, config: NotificationConfig) -> None:
        """To be called inside a transaction; limits are Google's."""
        existing = self._configs.get(config.bucket, [])
        if len(existing) >= MAX_CONFIGS:
            raise invalid(f"A bucket may have at most {MAX_CONFIGS} notification configs.")
        for event in config.event_types or tuple(EventType):
            if sum(1 for other in existing if not other.event_types or event in other.event_types) >= (
                MAX_CONFIGS_PER_EVENT
            ):
                raise invalid(f"Too many overlapping notifications. At most {MAX_CONFIGS_PER_EVENT} may send {event}.")
        self._database.put_notification_config(config)
        self._configs.setdefault(config.bucket, []).append(config)

    def remove(self, config: NotificationConfig) -> None:
        self._database.delete_notification_config(config.bucket, config.id)
        self._configs[config.bucket].remove(config)

    def forget_bucket(self, bucket: str) -> None:
        self._configs.pop(bucket, None)

    def record(self, event: EventType, version: ObjectVersion, now: int, extra: Mapping[str, str]) -> list[Pending]:
        """Write the messages of one change into the running transaction."""
        configs = self._configs.get(version.bucket)
        if not configs or self._publish is None:
            return []
        written: list[Pending] = []
        payload = b""
        resource = f"{version.bucket}/{version.name}"
        for config in configs:
            if not config.wants(event, version.name):
                continue
            with_payload = config.payload_format is PayloadFormat.JSON
            if with_payload and not payload:
                options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
                payload = orjson.dumps(object_resource(version), option=options)
            attributes = {
                **config.custom_attributes,
                "notificationConfig": f"projects/_/buckets/{config.bucket}/notificationConfigs/{config.id}",
                "eventType": event.value,
                "payloadFormat": config.payload_format.value,
                "bucketId": version.bucket,
                "objectId": version.name,
                "objectGeneration": str(version.generation),
                "eventTime": rfc3339_micros(now),
                **extra,
            }
            data = payload if with_payload else b""
            row = self._database.execute(
                "INSERT INTO outbox (resource, topic, data, attributes) VALUES (?, ?, ?, ?)",
                (resource, config.topic, data, orjson.dumps(attributes)),
            )
            written.append(Pending(int(row.lastrowid or 0), resource, config.topic, data, attributes))
        return written

    def committed(self, messages: list[Pending]) -> None:
        self._pending.extend(messages)

    @property
    def waiting(self) -> int:
        """Messages committed but not yet handed over."""
        return len(self._pending)

    def deliver(self) -> None:
        """Hand over what waits. Only one thread delivers at a time; the others' messages are picked up by it."""
        while self._pending and self._delivering.acquire(blocking=False):
            try:
                held = self._deliver_round()
            finally:
                self._delivering.release()
            if held:
                return

    def _deliver_round(self) -> bool:
        """One pass over the queue; true when messages had to stay behind."""
        held: list[Pending] = []
        failing: set[str] = set()
        while self._pending:
            messages = self._next()
            if len(messages) > 1 and messages[0].topic not in failing and self._hand_over_all(messages):
                continue
            held += (one for one in messages if one.topic in failing or not self._hand_over(one, failing))
        self._pending.extendleft(reversed(held))
        return bool(held)

    def _next(self) -> list[Pending]:
        """The message that waits longest, and those behind it that can be handed over with it."""
        pending = self._pending
        first = pending.popleft()
        taken, size = [first], len(first.data)
        if self._publish_many is None or not self._hooks.plan.is_empty:
            return taken
        while pending and pending[0].topic == first.topic and len(taken) < MOST_TOGETHER:
            size += len(pending[0].data)
            if size > MOST_TOGETHER_BYTES:
                break
            taken.append(pending.popleft())
        return taken

    def _hand_over_all(self, messages: Sequence[Pending]) -> bool:
        """False when they were refused: which of them it is about, each finds out by itself."""
        assert self._publish_many is not None
        try:
            self._publish_many(messages[0].topic, [(one.data, one.attributes) for one in messages])
        except Exception as error:  # noqa: BLE001 - told and counted with the message that it is about
            log.debug("storage.notifications_refused", topic=messages[0].topic, reason=str(error))
            return False
        with self._lock:
            self._database.forget_messages([one.id for one in messages])
        return True

    def _hand_over(self, message: Pending, failing: set[str]) -> bool:
        fault = self._hooks.message_fault("notifications.publish", message.resource)
        if fault is FaultKind.WITHHOLD or self._publish is None:
            return False
        try:
            for _ in range(2 if fault is FaultKind.DUPLICATE else 1):
                self._publish(message.topic, message.data, message.attributes)
        except LookupError:
            # Google drops messages for a topic that no longer exists; keeping them would fill the disk.
            self._hooks.operations["notifications.dropped"] += 1
            log.warning("storage.notification_dropped", topic=message.topic, resource=message.resource)
        except Exception:
            # The write it tells of is done: the message stays queued and is retried.
            self._hooks.operations["notifications.failed"] += 1
            log.warning("storage.notification_failed", topic=message.topic, resource=message.resource, exc_info=True)
            failing.add(message.topic)
            return False
        with self._lock:
            self._database.execute("DELETE FROM outbox WHERE id = ?", (message.id,))
        return True


def parse_config(bucket: Bucket, body: Mapping[str, Any]) -> NotificationConfig:
    """A config as the API describes it; the id is the bucket's next."""
    topic = body.get("topic")
    if not isinstance(topic, str) or not topic:
        raise invalid("The topic of a notification config is required.")
    topic = topic.removeprefix(TOPIC_HOST)
    parts = topic.split("/")
    if len(parts) != 4 or parts[0] != "projects" or parts[2] != "topics" or not (parts[1] and parts[3]):
        raise invalid(f"Invalid Google Cloud Pub/Sub topic. It should look like '{TOPIC_HOST}projects/*/topics/*'.")
    wanted = body.get("event_types") or []
    known = {event.value: event for event in EventType}
    if not isinstance(wanted, list) or not all(isinstance(event, str) and event in known for event in wanted):
        raise invalid(f"Unknown event types {wanted!r}; there are {', '.join(known)}.")
    prefix = body.get("object_name_prefix") or ""
    if not isinstance(prefix, str):
        raise invalid("The object name prefix of a notification config must be a text.")
    payload_format = body.get("payload_format") or PayloadFormat.JSON.value
    if not isinstance(payload_format, str) or payload_format not in set(PayloadFormat):
        raise invalid(f"Unknown payload format {payload_format!r}.")
    attributes = body.get("custom_attributes") or {}
    if not isinstance(attributes, Mapping) or not all(isinstance(value, str) for value in attributes.values()):
        raise invalid("The custom attributes of a notification config must be texts by name.")
    if len(attributes) > MAX_CUSTOM_ATTRIBUTES:
        raise invalid(f"A notification config may have at most {MAX_CUSTOM_ATTRIBUTES} custom attributes.")
    return NotificationConfig(
        id=str(bucket.next_notification),
        bucket=bucket.name,
        topic=topic,
        event_types=tuple(known[event] for event in wanted),
        object_name_prefix=prefix,
        custom_attributes=dict(attributes),
        payload_format=PayloadFormat(payload_format),
    )
