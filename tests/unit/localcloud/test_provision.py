"""What the daemon expects in a project is created where it is missing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.manual_clock import ManualClock

from ingestd.localcloud.faults import Hooks
from ingestd.localcloud.provision import Names, ensure_resources
from ingestd.localcloud.pubsub import wire
from ingestd.localcloud.pubsub.core import PubSubCore
from ingestd.localcloud.storage.core import StorageCore
from ingestd.settings import Subscriptions

NAMES = Names("play")


@pytest.fixture
def pubsub() -> PubSubCore:
    return PubSubCore(None, clock=ManualClock(), hooks=Hooks("pubsub"))


@pytest.fixture
def storage(tmp_path: Path, pubsub: PubSubCore) -> Iterator[StorageCore]:
    def publish(topic: str, data: bytes, attributes: dict[str, str]) -> None:
        pubsub.publish(topic, [(data, attributes, "")])

    core = StorageCore(tmp_path, project="play", clock=ManualClock(), publish=publish)
    yield core
    core.close()


def test_an_upload_reaches_the_daemons_subscription(storage: StorageCore, pubsub: PubSubCore) -> None:
    ensure_resources(NAMES, storage, pubsub)
    storage.write("play-trigger", "orders/1.json", b"{}")
    [received] = pubsub.pull(NAMES.subscription(NAMES.notifications_subscription), 10)
    assert received.attributes["objectId"] == "orders/1.json"
    assert received.attributes["eventType"] == "OBJECT_FINALIZE"


def test_provisioning_twice_changes_nothing(storage: StorageCore, pubsub: PubSubCore) -> None:
    ensure_resources(NAMES, storage, pubsub)
    before = [bucket.metageneration for bucket in storage.buckets.list()[0]]
    ensure_resources(NAMES, storage, pubsub)
    assert [bucket.metageneration for bucket in storage.buckets.list()[0]] == before
    assert [bucket.name for bucket in storage.buckets.list()[0]] == ["play-config", "play-ops", "play-trigger"]
    assert len(storage.buckets.list_notifications("play-trigger")) == 1
    storage.write("play-trigger", "a", b"")
    assert len(pubsub.pull(NAMES.subscription(NAMES.notifications_subscription), 10)) == 1


def test_what_was_there_before_is_kept_and_the_rest_added(storage: StorageCore, pubsub: PubSubCore) -> None:
    storage.buckets.insert({"name": "play-ops", "labels": {"mine": "yes"}})
    pubsub.create_topic(wire.Topic(name=NAMES.topic(NAMES.completions_topic), labels={"mine": "yes"}))
    ensure_resources(NAMES, storage, pubsub)
    assert storage.buckets.get("play-ops").settings["labels"] == {"mine": "yes"}
    assert pubsub.get_topic(NAMES.topic(NAMES.completions_topic)).labels == {"mine": "yes"}
    assert storage.buckets.get("play-trigger")


def test_the_names_are_the_defaults_of_the_daemons_settings() -> None:
    defaults = Subscriptions()
    assert NAMES.notifications_subscription == defaults.notifications
    assert NAMES.completions_subscription == defaults.completions


def test_a_conventions_bucket_notifies_the_daemon_once_however_often_it_is_provisioned(
    storage: StorageCore, pubsub: PubSubCore
) -> None:
    names = Names("play", landing_buckets=("my-landing",))
    for _ in range(2):
        ensure_resources(names, storage, pubsub)
    storage.write("my-landing", "sales/orders/_SUCCESS", b"")
    [received] = pubsub.pull(names.subscription(names.notifications_subscription), 10)
    assert (received.attributes["bucketId"], received.attributes["objectId"]) == ("my-landing", "sales/orders/_SUCCESS")
