"""Topics, subscriptions and snapshots as resources."""

from datetime import timedelta
from typing import Any

import pytest

from ingestd.localcloud.pubsub import wire
from ingestd.localcloud.pubsub.errors import Code, PubSubError

TOPIC = "projects/p/topics/events"
SUBSCRIPTION = "projects/p/subscriptions/worker"


def code_of(call: Any, *arguments: Any) -> Code:
    with pytest.raises(PubSubError) as refused:
        call(*arguments)
    return refused.value.code


def test_a_subscription_gets_googles_defaults(broker: Any) -> None:
    broker.subscription()
    config = broker.core.get_subscription(SUBSCRIPTION)
    assert config.ack_deadline_seconds == 10
    assert config.message_retention_duration.seconds == 7 * 86_400
    assert config.expiration_policy.ttl.seconds == 31 * 86_400
    assert config.state == wire.Subscription.State.Value("ACTIVE")


def test_names_are_taken_once(broker: Any) -> None:
    broker.subscription()
    assert code_of(broker.topic) is Code.ALREADY_EXISTS
    assert code_of(broker.subscription) is Code.ALREADY_EXISTS


@pytest.mark.parametrize(
    "name", ["events", "projects/p/topics/", "projects/p/topics/1x", "projects/p/topics/ab", "projects/p/topics/goog1"]
)
def test_names_that_google_refuses_are_refused(broker: Any, name: str) -> None:
    assert code_of(broker.topic, name) is Code.INVALID_ARGUMENT


def test_what_is_missing_is_not_found(broker: Any) -> None:
    assert code_of(broker.core.get_topic, TOPIC) is Code.NOT_FOUND
    assert code_of(broker.core.delete_topic, TOPIC) is Code.NOT_FOUND
    assert code_of(broker.core.get_subscription, SUBSCRIPTION) is Code.NOT_FOUND
    assert code_of(broker.core.pull, SUBSCRIPTION, 1) is Code.NOT_FOUND
    assert code_of(broker.core.acknowledge, SUBSCRIPTION, []) is Code.NOT_FOUND
    assert code_of(broker.core.get_snapshot, "projects/p/snapshots/snap") is Code.NOT_FOUND


def test_a_subscription_of_a_missing_topic_is_refused(broker: Any) -> None:
    wanted = wire.Subscription(name=SUBSCRIPTION, topic=TOPIC)
    assert code_of(broker.core.create_subscription, wanted) is Code.NOT_FOUND


@pytest.mark.parametrize(
    "fields",
    [
        {"ack_deadline_seconds": 9},
        {"ack_deadline_seconds": 601},
        {"message_retention_duration": timedelta(minutes=9)},
        {"message_retention_duration": timedelta(days=32)},
        {"retry_policy": {"minimum_backoff": timedelta(seconds=601)}},
        {"retry_policy": {"minimum_backoff": timedelta(seconds=20), "maximum_backoff": timedelta(seconds=10)}},
        {"expiration_policy": {"ttl": timedelta(hours=1)}},
        {"labels": {f"k{n}": "v" for n in range(65)}},
    ],
    ids=str,
)
def test_settings_outside_their_range_are_refused(broker: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(PubSubError) as refused:
        broker.subscription(**fields)
    assert refused.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("fields", "feature"),
    [
        ({"push_config": {"push_endpoint": "https://example.com"}}, "push subscriptions"),
        ({"bigquery_config": {"table": "p.d.t"}}, "BigQuery subscriptions"),
        ({"cloud_storage_config": {"bucket": "b"}}, "Cloud Storage subscriptions"),
    ],
)
def test_what_is_not_done_is_refused_by_name(broker: Any, fields: dict[str, Any], feature: str) -> None:
    with pytest.raises(PubSubError, match=feature) as refused:
        broker.subscription(**fields)
    assert refused.value.code is Code.UNIMPLEMENTED


def test_an_update_changes_what_its_mask_names_and_nothing_else(broker: Any) -> None:
    broker.subscription(labels={"team": "a"}, ack_deadline_seconds=20)
    wanted = wire.Subscription(name=SUBSCRIPTION, ack_deadline_seconds=60, labels={"team": "b"})
    updated = broker.core.update_subscription(wanted, ["ack_deadline_seconds"])
    assert updated.ack_deadline_seconds == 60
    assert dict(updated.labels) == {"team": "a"}
    broker.publish("a")
    broker.pull()
    broker.after(59)
    assert broker.texts() == []


def test_an_update_clears_what_is_masked_and_unset(broker: Any) -> None:
    broker.subscription(retry_policy={"minimum_backoff": timedelta(seconds=60)}, labels={"a": "b"})
    updated = broker.core.update_subscription(wire.Subscription(name=SUBSCRIPTION), ["retry_policy", "labels"])
    assert not updated.HasField("retry_policy")
    assert not updated.labels
    broker.publish("a")
    broker.nack(*broker.pull())
    assert broker.texts() == ["a"]


@pytest.mark.parametrize("path", ["filter", "enable_message_ordering", "topic", "nonsense", "detached"])
def test_what_cannot_be_changed_is_refused(broker: Any, path: str) -> None:
    broker.subscription()
    wanted = wire.Subscription(name=SUBSCRIPTION)
    assert code_of(broker.core.update_subscription, wanted, [path]) is Code.INVALID_ARGUMENT


def test_an_update_without_a_mask_is_refused(broker: Any) -> None:
    broker.topic()
    assert code_of(broker.core.update_topic, wire.Topic(name=TOPIC), []) is Code.INVALID_ARGUMENT


def test_lists_come_in_pages(broker: Any) -> None:
    made = [broker.topic(f"projects/p/topics/topic-{n:02}") for n in range(7)]
    broker.topic("projects/other/topics/elsewhere")
    seen: list[str] = []
    token = ""
    pages = 0
    while True:
        page, token = broker.core.list_topics("projects/p", 3, token)
        seen += [one.name for one in page]
        pages += 1
        if not token:
            break
    assert seen == made
    assert pages == 3


def test_a_deleted_topic_leaves_its_subscription_with_its_messages(broker: Any) -> None:
    broker.subscription()
    broker.publish("a")
    broker.core.delete_topic(TOPIC)
    assert broker.core.get_subscription(SUBSCRIPTION).topic == "_deleted-topic_"
    assert broker.texts() == ["a"]
    broker.topic()
    broker.publish("not for the old subscription")
    broker.after(10)
    assert broker.texts() == ["a"]


def test_a_detached_subscription_gets_nothing_more(broker: Any) -> None:
    broker.subscription()
    broker.publish("a")
    broker.core.detach_subscription(SUBSCRIPTION)
    assert broker.core.get_subscription(SUBSCRIPTION).detached
    assert code_of(broker.core.pull, SUBSCRIPTION, 1) is Code.FAILED_PRECONDITION
    broker.publish("b")
    assert broker.stats().backlog == 0
    assert broker.core.list_topic_subscriptions(TOPIC) == ([], "")


def test_a_deleted_subscription_lets_go_of_its_messages(broker: Any) -> None:
    broker.subscription()
    broker.publish("a" * 1000)
    broker.pull()
    broker.core.delete_subscription(SUBSCRIPTION)
    assert broker.core.stats().live_bytes == 0
    broker.subscription()
    assert broker.texts() == []


def test_policies_are_kept_but_not_enforced(broker: Any) -> None:
    broker.topic()
    policy = wire.Policy(version=1)
    policy.bindings.add(role="roles/pubsub.publisher", members=["user:a@example.com"])
    broker.core.set_iam_policy(TOPIC, policy)
    assert broker.core.get_iam_policy(TOPIC) == policy
    assert broker.core.test_iam_permissions(TOPIC, ["pubsub.topics.publish"]) == ["pubsub.topics.publish"]
    assert code_of(broker.core.get_iam_policy, "projects/p/topics/none") is Code.NOT_FOUND
