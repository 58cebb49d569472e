"""What the doctor makes of what it finds."""

from dataclasses import replace
from datetime import timedelta

import pytest

from ingestd.cli.checkup import CONSUME, WRITE, Check, Mark, bucket, locations, near, notification, sink, subscription
from ingestd.gcp.inspection import BucketFacts, NotificationFacts, SinkFacts, SubscriptionFacts

TOPIC = "projects/p/topics/t"
GOOD = SubscriptionFacts(
    name="projects/p/subscriptions/s",
    topic=TOPIC,
    ack_deadline=timedelta(seconds=60),
    retention=timedelta(days=31),
    expires_after=None,
    dead_letter_topic="projects/p/topics/dead",
    push=False,
    filter="",
    granted=frozenset(CONSUME),
)


def test_a_bucket_must_be_there_and_permit_the_work() -> None:
    granted = frozenset(WRITE)
    assert bucket("files in", "b", BucketFacts("b", "EU", granted), WRITE, location="EU").mark is Mark.OK
    missing = bucket("files in", "b", BucketFacts("b", "EU", granted - {WRITE[-1]}), WRITE, location="EU")
    assert (missing.mark, missing.found) == (Mark.FAILED, "not permitted: storage.objects.delete")
    assert "roles/storage.objectUser" in missing.fix
    gone = bucket("files in", "b", None, WRITE, location="EU")
    assert "buckets create gs://b --location=EU" in gone.fix


@pytest.mark.parametrize(
    ("changes", "mark", "fix"),
    [
        ({"granted": frozenset()}, Mark.FAILED, "roles/pubsub.subscriber"),
        ({"push": True}, Mark.FAILED, "--push-endpoint=''"),
        ({"topic": "_deleted-topic_"}, Mark.FAILED, "anew"),
        ({"expires_after": timedelta(days=31)}, Mark.WARNING, "--expiration-period=never"),
        ({"retention": timedelta(hours=1)}, Mark.WARNING, "--message-retention-duration=31d"),
        ({"dead_letter_topic": ""}, Mark.WARNING, "--dead-letter-topic="),
    ],
)
def test_a_subscription_that_loses_or_blocks_messages_is_noticed(
    changes: dict[str, object], mark: Mark, fix: str
) -> None:
    assert [one.mark for one in subscription("n", "s", GOOD, topic="t")] == [Mark.OK]
    found = subscription("n", "s", replace(GOOD, **changes), topic="t")  # type: ignore[arg-type]
    assert found[-1].mark is mark
    assert fix in found[-1].fix


@pytest.mark.parametrize(
    ("configs", "mark", "words"),
    [
        ([], Mark.FAILED, "none goes to"),
        ([("projects/p/topics/other", (), "", "JSON_API_V1")], Mark.FAILED, "only to projects/p/topics/other"),
        ([(TOPIC, ("OBJECT_DELETE",), "", "JSON_API_V1")], Mark.FAILED, "nothing of OBJECT_FINALIZE"),
        ([(TOPIC, (), "", "NONE")], Mark.WARNING, "no payload"),
        ([(TOPIC, (), "", "JSON_API_V1")] * 2, Mark.WARNING, "2 configurations"),
        ([(TOPIC, ("OBJECT_FINALIZE",), "in/", "JSON_API_V1")], Mark.OK, "only below in/"),
        ([(TOPIC, (), "", "JSON_API_V1")], Mark.OK, "to t"),
    ],
)
def test_a_bucket_that_does_not_tell_of_its_files_is_noticed(
    configs: list[tuple[str, tuple[str, ...], str, str]], mark: Mark, words: str
) -> None:
    found = notification("b", [NotificationFacts(*one) for one in configs], TOPIC)
    assert found.mark is mark
    assert words in found.found


def test_a_sink_must_bring_bigquerys_entries_to_the_topic() -> None:
    good = SinkFacts("s", f"pubsub.googleapis.com/{TOPIC}", 'metadata."@type"="BigQueryAuditMetadata"', False, "writer")
    assert sink([good], TOPIC).mark is Mark.OK
    assert sink(None, TOPIC).mark is Mark.SKIPPED
    assert sink([replace(good, disabled=True)], TOPIC).found == "s is disabled"
    assert sink([replace(good, filter="resource.type=gce")], TOPIC).mark is Mark.WARNING
    assert sink([replace(good, destination="storage.googleapis.com/b")], TOPIC).mark is Mark.FAILED


@pytest.mark.parametrize(
    ("dataset", "place", "loads"),
    [
        ("EU", "EU", True),
        ("EU", "EUROPE-WEST1", True),
        ("europe-west1", "EUROPE-WEST1", True),
        ("US", "ASIA-EAST1", True),
        ("EU", "US", False),
        ("europe-west1", "EU", False),
        ("us-central1", "US-EAST1", False),
    ],
)
def test_bigquery_loads_only_from_nearby(dataset: str, place: str, loads: bool) -> None:
    assert near(dataset, place) is loads
    (check,) = locations({"d": dataset}, {"b": place}, "p")
    assert check.mark is (Mark.OK if loads else Mark.WARNING)
    assert [*locations({"d": None}, {}, "p")] == [
        Check("dataset d", Mark.FAILED, "there is no such dataset", "bq mk --dataset --location=US p:d")
    ]
