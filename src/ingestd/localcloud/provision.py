"""The resources the daemon expects in a project, created where they are missing.

In Google's cloud an operator (or Terraform) makes them once; on a laptop `ingestd local` does, with the same names as
the defaults of the settings. Nothing that exists is changed, so it can run at every start.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus

from ingestd.localcloud.pubsub import wire
from ingestd.localcloud.pubsub.core import PubSubCore
from ingestd.localcloud.pubsub.errors import Code, PubSubError
from ingestd.localcloud.storage.core import StorageCore
from ingestd.localcloud.storage.errors import StorageError
from ingestd.localcloud.storage.notifications import TOPIC_HOST

ACK_DEADLINE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Names:
    """What the daemon's surroundings are called in a project."""

    project: str
    notifications_topic: str = "storage-notifications"
    completions_topic: str = "bigquery-completions"
    dead_letter_topic: str = "ingestd-dead-letter"
    notifications_subscription: str = "ingestd-notifications"
    completions_subscription: str = "ingestd-completions"
    dead_letter_subscription: str = "ingestd-dead-letter"
    further_buckets: tuple[str, ...] = ()
    landing_buckets: tuple[str, ...] = ()  # which notify as the trigger bucket does

    @property
    def trigger_bucket(self) -> str:
        return f"{self.project}-trigger"

    @property
    def buckets(self) -> tuple[str, ...]:
        usual = self.trigger_bucket, f"{self.project}-ops", f"{self.project}-config"
        return tuple(dict.fromkeys((*usual, *self.further_buckets, *self.landing_buckets)))

    def topic(self, name: str) -> str:
        return f"projects/{self.project}/topics/{name}"

    def subscription(self, name: str) -> str:
        return name if name.startswith("projects/") else f"projects/{self.project}/subscriptions/{name}"


def ensure_resources(names: Names, storage: StorageCore, pubsub: PubSubCore) -> None:
    """Buckets, topics, subscriptions and the notification config; the audit feed needs no more than its topic."""
    for topic in (names.notifications_topic, names.completions_topic, names.dead_letter_topic):
        with _unless_there():
            pubsub.create_topic(wire.Topic(name=names.topic(topic)))
    for subscription, topic in (
        (names.notifications_subscription, names.notifications_topic),
        (names.completions_subscription, names.completions_topic),
        (names.dead_letter_subscription, names.dead_letter_topic),
    ):
        config = wire.Subscription(
            name=names.subscription(subscription),
            topic=names.topic(topic),
            ack_deadline_seconds=ACK_DEADLINE_SECONDS,
        )
        config.expiration_policy.SetInParent()  # never expires, however long the laptop sleeps
        with _unless_there():
            pubsub.create_subscription(config)
    for bucket in names.buckets:
        with _unless_there():
            storage.buckets.insert({"name": bucket})
    notified = names.topic(names.notifications_topic)
    for bucket in (names.trigger_bucket, *names.landing_buckets):
        if all(config.topic != notified for config in storage.buckets.list_notifications(bucket)):
            storage.buckets.insert_notification(bucket, {"topic": TOPIC_HOST + notified})


@contextmanager
def _unless_there() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        if error.status != HTTPStatus.CONFLICT:
            raise
    except PubSubError as error:
        if error.code is not Code.ALREADY_EXISTS:
            raise
