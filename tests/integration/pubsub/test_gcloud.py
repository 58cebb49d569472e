"""`gcloud pubsub`, as it is, against the local REST face."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.google import gcloud_environment

from ingestd.localcloud.pubsub import wire

pytestmark = pytest.mark.sdk

Gcloud = Callable[..., Any]


@pytest.fixture(scope="module")
def gcloud(local_pubsub: Any, tmp_path_factory: pytest.TempPathFactory) -> Gcloud:
    command = shutil.which("gcloud")
    if command is None:
        pytest.skip("needs the Google Cloud SDK: there is no gcloud on the PATH")
    config: Path = tmp_path_factory.mktemp("gcloud")
    environment = os.environ | {
        **gcloud_environment(config),
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB": f"http://127.0.0.1:{local_pubsub.server.rest_port}/",
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_CORE_PROJECT": "gcloud-project",
    }

    def run(*arguments: str) -> Any:
        done = subprocess.run(
            [command, "pubsub", *arguments, "--format=json"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout.strip() else None

    return run


def test_topics_subscriptions_publish_and_pull(gcloud: Gcloud) -> None:
    gcloud("topics", "create", "orders", "--labels=team=a")
    assert [one["name"] for one in gcloud("topics", "list")] == ["projects/gcloud-project/topics/orders"]
    gcloud("subscriptions", "create", "worker", "--topic=orders", "--ack-deadline=30")
    published = gcloud("topics", "publish", "orders", "--message=hello", "--attribute=colour=red")
    (pulled,) = gcloud("subscriptions", "pull", "worker", "--auto-ack", "--limit=5")
    assert pulled["message"]["messageId"] == published["messageIds"][0]
    assert pulled["message"]["attributes"] == {"colour": "red"}


def test_updates_seeks_and_deletes(gcloud: Gcloud, local_pubsub: Any) -> None:
    topic, subscription = "projects/gcloud-project/topics/events", "projects/gcloud-project/subscriptions/reader"
    core = local_pubsub.core
    core.create_topic(wire.Topic(name=topic))
    core.create_subscription(wire.Subscription(name=subscription, topic=topic, retain_acked_messages=True))
    core.publish(topic, [(b"again", {}, "")])
    core.acknowledge(subscription, [one.ack_id for one in core.pull(subscription, 10)])
    gcloud("subscriptions", "update", "reader", "--ack-deadline=45", "--update-labels=a=b")
    described = gcloud("subscriptions", "describe", "reader")
    assert described["ackDeadlineSeconds"] == 45
    assert described["labels"] == {"a": "b"}
    gcloud("subscriptions", "seek", "reader", "--time=2024-01-01T00:00:00Z")
    assert [one.data for one in core.pull(subscription, 10)] == [b"again"]
    gcloud("subscriptions", "delete", "reader")
    assert core.list_topic_subscriptions(topic) == ([], "")
