"""Topics, subscriptions and snapshots as resources: defaults, limits, update masks, and what is refused honestly.

A resource of record is its own protobuf message, so what a client stored is what it reads back. `Settings` is what the
delivery side reads off a subscription, computed once per change.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from google.protobuf.duration_pb2 import Duration

from ingestd.localcloud.pubsub import names, wire
from ingestd.localcloud.pubsub.errors import PubSubError, invalid, unsupported
from ingestd.localcloud.pubsub.filters import Predicate, compile_filter

SECOND_US = 1_000_000
MINUTE = 60
DAY = 86_400

MAX_LABELS = 64
SNAPSHOT_LIFE_US = 7 * DAY * SECOND_US
MIN_SNAPSHOT_LIFE_US = 3_600 * SECOND_US

_DEFAULT_ACK_DEADLINE = 10
_DEFAULT_RETENTION = 7 * DAY
_DEFAULT_TTL = 31 * DAY
_DEFAULT_DELIVERY_ATTEMPTS = 5
_DEFAULT_MIN_BACKOFF = 10
_DEFAULT_MAX_BACKOFF = 600

_TOPIC_UPDATES = frozenset({"labels", "message_retention_duration", "message_storage_policy"})
_SUBSCRIPTION_UPDATES = frozenset(
    {
        "ack_deadline_seconds",
        "dead_letter_policy",
        "enable_exactly_once_delivery",
        "expiration_policy",
        "labels",
        "message_retention_duration",
        "push_config",
        "retain_acked_messages",
        "retry_policy",
    }
)
_SNAPSHOT_UPDATES = frozenset({"labels", "expire_time"})

_TOPIC_UNSUPPORTED = {
    "kms_key_name": "customer-managed encryption keys",
    "schema_settings": "schemas",
    "ingestion_data_source_settings": "ingestion topics",
    "message_transforms": "message transforms",
    "tags": "resource tags",
}
_SUBSCRIPTION_UNSUPPORTED = {
    "bigquery_config": "BigQuery subscriptions",
    "cloud_storage_config": "Cloud Storage subscriptions",
    "bigtable_config": "Bigtable subscriptions",
    "message_transforms": "message transforms",
    "tags": "resource tags",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """A subscription as its queue sees it."""

    ack_deadline: int
    ordered: bool
    exactly_once: bool
    retain_acked: bool
    retention_us: int
    predicate: Predicate | None
    dead_letter_topic: str
    max_delivery_attempts: int  # 0 without a dead-letter policy
    min_backoff: float | None
    max_backoff: float
    detached: bool

    @classmethod
    def of(cls, subscription: Any) -> "Settings":
        dead = subscription.dead_letter_policy.dead_letter_topic
        retrying = subscription.HasField("retry_policy")
        return cls(
            ack_deadline=subscription.ack_deadline_seconds,
            ordered=subscription.enable_message_ordering,
            exactly_once=subscription.enable_exactly_once_delivery,
            retain_acked=subscription.retain_acked_messages,
            retention_us=microseconds(subscription.message_retention_duration),
            predicate=compile_filter(subscription.filter),
            dead_letter_topic=dead,
            max_delivery_attempts=subscription.dead_letter_policy.max_delivery_attempts if dead else 0,
            min_backoff=seconds(subscription.retry_policy.minimum_backoff) if retrying else None,
            max_backoff=seconds(subscription.retry_policy.maximum_backoff),
            detached=subscription.detached,
        )

    def backoff(self, attempts: int) -> float:
        """Seconds before the next delivery after `attempts` of them: exponential, or none without a retry policy."""
        if self.min_backoff is None:
            return 0.0
        return min(self.min_backoff * 2.0 ** min(max(attempts - 1, 0), 32), self.max_backoff)


def microseconds(duration: Duration) -> int:
    return duration.seconds * SECOND_US + duration.nanos // 1000


def seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


def new_topic(topic: Any) -> Any:
    """The topic as it is stored, or a refusal."""
    names.check(topic.name, "topics")
    topic = _copy(topic)
    _complete_topic(topic)
    return topic


def new_subscription(subscription: Any) -> Any:
    """The subscription as it is stored, or a refusal. Its topic's existence is the core's to check."""
    names.check(subscription.name, "subscriptions")
    names.check(subscription.topic, "topics")
    subscription = _copy(subscription)
    subscription.detached = False
    _complete_subscription(subscription)
    return subscription


def updated_topic(current: Any, wanted: Any, paths: Iterable[str]) -> Any:
    topic = _merge(current, wanted, paths, _TOPIC_UPDATES, "topic")
    _complete_topic(topic)
    return topic


def updated_subscription(current: Any, wanted: Any, paths: Iterable[str]) -> Any:
    subscription = _merge(current, wanted, paths, _SUBSCRIPTION_UPDATES, "subscription")
    _complete_subscription(subscription)
    return subscription


def updated_snapshot(current: Any, wanted: Any, paths: Iterable[str]) -> Any:
    snapshot = _merge(current, wanted, paths, _SNAPSHOT_UPDATES, "snapshot")
    check_labels(snapshot.labels)
    return snapshot


def check_labels(labels: Any) -> None:
    if len(labels) > MAX_LABELS:
        raise invalid(f"A resource has at most {MAX_LABELS} labels.")
    for key, value in labels.items():
        if not 0 < len(key) <= 63 or len(value) > 63:
            raise invalid(f"Invalid label: keys have 1 to 63 characters, values at most 63 (label={key}).")


def _complete_topic(topic: Any) -> None:
    _refuse(topic, _TOPIC_UNSUPPORTED)
    check_labels(topic.labels)
    topic.state = wire.Topic.State.Value("ACTIVE")
    if topic.HasField("message_retention_duration"):
        _check_range("message_retention_duration", seconds(topic.message_retention_duration), 10 * MINUTE, 31 * DAY)


def _complete_subscription(subscription: Any) -> None:
    _refuse(subscription, _SUBSCRIPTION_UNSUPPORTED)
    if subscription.push_config.push_endpoint:
        raise unsupported("push subscriptions")
    check_labels(subscription.labels)
    subscription.state = wire.Subscription.State.Value("ACTIVE")
    if subscription.ack_deadline_seconds == 0:
        subscription.ack_deadline_seconds = _DEFAULT_ACK_DEADLINE
    _check_range("ack_deadline_seconds", subscription.ack_deadline_seconds, 10, 600)
    retention = subscription.message_retention_duration
    if microseconds(retention) == 0:
        retention.seconds = _DEFAULT_RETENTION
    _check_range("message_retention_duration", seconds(retention), 10 * MINUTE, 31 * DAY)
    if not subscription.HasField("expiration_policy"):
        subscription.expiration_policy.ttl.seconds = _DEFAULT_TTL
    elif subscription.expiration_policy.HasField("ttl") and seconds(subscription.expiration_policy.ttl) < DAY:
        raise invalid("The expiration policy's ttl is at least one day.")
    if not subscription.dead_letter_policy.dead_letter_topic:
        subscription.ClearField("dead_letter_policy")
    else:
        policy = subscription.dead_letter_policy
        names.check(policy.dead_letter_topic, "topics")
        policy.max_delivery_attempts = policy.max_delivery_attempts or _DEFAULT_DELIVERY_ATTEMPTS
        _check_range("max_delivery_attempts", policy.max_delivery_attempts, 5, 100)
    if subscription.HasField("retry_policy"):
        retry = subscription.retry_policy
        if not retry.HasField("minimum_backoff"):
            retry.minimum_backoff.seconds = _DEFAULT_MIN_BACKOFF
        if not retry.HasField("maximum_backoff"):
            retry.maximum_backoff.seconds = _DEFAULT_MAX_BACKOFF
        _check_range("minimum_backoff", seconds(retry.minimum_backoff), 0, 600)
        _check_range("maximum_backoff", seconds(retry.maximum_backoff), 0, 600)
        if seconds(retry.minimum_backoff) > seconds(retry.maximum_backoff):
            raise invalid("minimum_backoff must not be greater than maximum_backoff.")
    compile_filter(subscription.filter)


def _check_range(what: str, value: float, low: float, high: float) -> None:
    """Google's own wording, since people search for it."""
    if value < low:
        raise invalid(
            f"The value for {what} is too small. You passed {value:g} in the request, but the minimum value is {low:g}."
        )
    if value > high:
        raise too_large(what, value, high)


def too_large(what: str, value: float, high: float) -> PubSubError:
    return invalid(
        f"The value for {what} is too large. "
        f"You passed {value:.15g} in the request, but the maximum value is {high:.15g}."
    )


def _refuse(resource: Any, features: dict[str, str]) -> None:
    for descriptor, _ in resource.ListFields():
        if descriptor.name in features:
            raise unsupported(features[descriptor.name])


def _merge(current: Any, wanted: Any, paths: Iterable[str], allowed: frozenset[str], kind: str) -> Any:
    """`current` with the masked top-level fields of `wanted`; a masked field that is unset there is cleared."""
    result = _copy(current)
    paths = list(paths)
    if not paths:
        raise invalid("The update_mask must be specified and non-empty.")
    for path in paths:
        field, _, rest = path.partition(".")
        if field not in wanted.DESCRIPTOR.fields_by_name:
            raise invalid(f"Invalid update_mask: a {kind} has no field {field}.")
        if field not in allowed:
            raise invalid(f"Invalid update_mask provided in the request: the {field} of a {kind} cannot be changed.")
        if rest and field != "labels":
            _merge_nested(result, wanted, field, rest)
            continue
        result.ClearField(field)
        single = type(wanted)()
        single.CopyFrom(wanted)
        for other in wanted.DESCRIPTOR.fields_by_name:
            if other != field:
                single.ClearField(other)
        result.MergeFrom(single)
    return result


def _merge_nested(result: Any, wanted: Any, field: str, rest: str) -> None:
    source, target = getattr(wanted, field), getattr(result, field)
    if rest not in source.DESCRIPTOR.fields_by_name:
        raise invalid(f"Invalid update_mask: {field} has no field {rest}.")
    target.ClearField(rest)
    descriptor = source.DESCRIPTOR.fields_by_name[rest]
    if descriptor.message_type is None:
        setattr(target, rest, getattr(source, rest))
    elif source.HasField(rest):
        getattr(target, rest).CopyFrom(getattr(source, rest))


def _copy(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy
