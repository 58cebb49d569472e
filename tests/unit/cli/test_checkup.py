"""What the doctor makes of what it finds."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from google.cloud.storage.bucket import LifecycleRuleDelete, LifecycleRuleSetStorageClass

from ingestd.batch import trails
from ingestd.cli.checkup import (
    CONSUME,
    FILL,
    PUBLISH,
    WRITE,
    Check,
    Kept,
    Mark,
    bucket,
    deletions,
    filling,
    lifecycle,
    locations,
    near,
    notification,
    publishing,
    pulling,
    sink,
    subscription,
)
from ingestd.cli.doctor import deletions_matter, kept
from ingestd.gcp.inspection import (
    BucketFacts,
    DeletionFacts,
    NotificationFacts,
    SinkFacts,
    SubscriptionFacts,
    deletions_of,
)
from ingestd.ledger.history import PUT_AWAY
from ingestd.settings import Settings

TOPIC = "projects/p/topics/t"
GOOD = SubscriptionFacts(
    name="projects/p/subscriptions/s",
    topic=TOPIC,
    ack_deadline=timedelta(seconds=60),
    retention=timedelta(days=31),
    expires_after=None,
    dead_letter_topic="",
    push=False,
    filter="",
)


def test_a_bucket_must_be_there_and_permit_the_work() -> None:
    granted = frozenset(WRITE)
    assert bucket("files in", "b", BucketFacts("b", "EU", granted), WRITE, location="EU").mark is Mark.OK
    missing = bucket("files in", "b", BucketFacts("b", "EU", granted - {WRITE[-1]}), WRITE, location="EU")
    assert (missing.mark, missing.found) == (Mark.FAILED, "not permitted: storage.objects.delete")
    assert "roles/storage.objectUser" in missing.fix
    gone = bucket("files in", "b", None, WRITE, location="EU")
    assert "buckets create gs://b --location=EU" in gone.fix


def test_what_may_be_done_is_told_from_what_is_granted() -> None:
    nothing: frozenset[str] = frozenset()
    assert pulling("notifications", "s", frozenset(CONSUME)).mark is Mark.OK
    refused = pulling("notifications", "projects/p/subscriptions/s", nothing)
    assert refused.mark is Mark.FAILED
    assert "subscriptions add-iam-policy-binding s " in refused.fix and "roles/pubsub.subscriber" in refused.fix
    assert publishing("dead-letter topic", "t", frozenset(PUBLISH)).mark is Mark.OK
    assert "roles/pubsub.publisher" in publishing("dead-letter topic", "t", nothing).fix
    assert filling("d.t", None) is None  # it may be made from a template
    assert filling("d.t", frozenset(FILL)) is None
    unfilled = filling("p.d.t", frozenset(FILL[:1]))
    assert unfilled is not None
    assert (unfilled.mark, unfilled.found) == (Mark.FAILED, "not permitted: bigquery.tables.updateData")
    assert unfilled.fix == "grant roles/bigquery.dataEditor on the dataset p.d"


@pytest.mark.parametrize(
    ("changes", "mark", "fix"),
    [
        ({"push": True}, Mark.FAILED, "--push-endpoint=''"),
        ({"topic": "_deleted-topic_"}, Mark.FAILED, "anew"),
        ({"expires_after": timedelta(days=31)}, Mark.WARNING, "--expiration-period=never"),
        ({"retention": timedelta(hours=1)}, Mark.WARNING, "--message-retention-duration=31d"),
        ({"dead_letter_topic": "projects/p/topics/dead"}, Mark.WARNING, "--clear-dead-letter-policy"),
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


@pytest.mark.parametrize(
    ("configs", "mark"),
    [
        ([(TOPIC, ("OBJECT_FINALIZE",), "", "JSON_API_V1")], Mark.WARNING),
        ([(TOPIC, ("OBJECT_FINALIZE", "OBJECT_DELETE"), "", "JSON_API_V1")], Mark.OK),
        ([(TOPIC, (one,), "", "JSON_API_V1") for one in ("OBJECT_FINALIZE", "OBJECT_DELETE")], Mark.OK),
        ([(TOPIC, (), "", "JSON_API_V1")], Mark.OK),  # without a choice it carries everything
        (
            [
                (TOPIC, ("OBJECT_FINALIZE",), "", "JSON_API_V1"),
                ("projects/p/topics/other", ("OBJECT_DELETE",), "", "JSON_API_V1"),
            ],
            Mark.WARNING,
        ),
    ],
)
def test_deletions_that_nobody_tells_of_are_a_warning_with_its_remedy(
    configs: list[tuple[str, tuple[str, ...], str, str]], mark: Mark
) -> None:
    facts = [NotificationFacts(*one) for one in configs]
    found = deletions("b", facts, TOPIC)
    assert found is not None and found.mark is mark
    assert notification("b", facts, TOPIC).mark is Mark.OK, "the remedy doubles no announcement of files"
    if mark is Mark.WARNING:
        assert "_bqlock" in found.found
        assert f"gs://b --topic={TOPIC} " in found.fix and "--event-types=OBJECT_DELETE" in found.fix


def test_where_no_notification_reaches_the_daemon_nothing_is_said_of_deletions() -> None:
    assert deletions("b", [], TOPIC) is None
    assert deletions("b", [NotificationFacts("projects/p/topics/other", (), "", "NONE")], TOPIC) is None


@pytest.mark.parametrize(
    ("success", "matter"),
    [
        ({}, False),
        ({"conventions": [{"bucket": "b"}]}, True),
        ({"conventions": [{"bucket": "*"}]}, True),
        ({"conventions": [{"bucket": "b-too"}]}, False),
        ({"conventions": [{"bucket": "other"}], "config_url": "gs://b/landing"}, True),
        ({"conventions": [{"bucket": "other", "config_url": "gs://b-too/landing"}]}, False),
    ],
)
def test_deletions_matter_in_buckets_of_a_convention(success: dict[str, object], matter: bool) -> None:
    assert deletions_matter(Settings.model_validate({"project": "p", "success": success}), "b") is matter


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


KEPT = (Kept("journal/register/", 400, "known"), Kept("journal/Done/", 38, "told", vital=False))


@pytest.mark.parametrize(
    ("deletions", "mark"),
    [
        ((), Mark.OK),
        ((DeletionFacts(60, ("journal/Done/",)), DeletionFacts(14, ("staging/",))), Mark.OK),
        ((DeletionFacts(400, ("journal/register/",)),), Mark.OK),
        ((DeletionFacts(399, ("journal/register/",)),), Mark.FAILED),
        ((DeletionFacts(60, ("journal/",)),), Mark.FAILED),  # meant for Done, and takes all
        ((DeletionFacts(60, ("journal/register/p.d.t",)),), Mark.FAILED),
        ((DeletionFacts(90),), Mark.FAILED),
        ((DeletionFacts(None),), Mark.FAILED),
        ((DeletionFacts(30, ("journal/Done/",)),), Mark.WARNING),
        ((DeletionFacts(30, ("journal/Done/",)), DeletionFacts(30)), Mark.FAILED),
        (None, Mark.SKIPPED),
    ],
)
def test_a_lifecycle_rule_must_not_delete_what_the_horizon_needs(
    deletions: tuple[DeletionFacts, ...] | None, mark: Mark
) -> None:
    check = lifecycle("ops", BucketFacts("ops", "EU", frozenset(), deletions), KEPT)
    assert check.mark is mark
    if mark is Mark.FAILED:
        assert "journal/register/ is deleted" in check.found
        assert "gs://ops" in check.fix


def test_lifecycle_rules_are_read_as_the_client_gives_them() -> None:
    """Old versions of objects are none of ours, and what changes the storage class deletes nothing."""
    rules = [
        LifecycleRuleDelete(age=60, matches_prefix=["journal/Done/"]),
        LifecycleRuleDelete(age=3, is_live=False),
        LifecycleRuleDelete(number_of_newer_versions=2),
        LifecycleRuleSetStorageClass("NEARLINE", age=30),
        LifecycleRuleDelete(created_before=date(2026, 1, 1)),
    ]
    assert list(deletions_of(rules)) == [DeletionFacts(60, ("journal/Done/",)), DeletionFacts(None)]


def test_the_doctor_asks_for_the_horizon_of_the_settings() -> None:
    settings = Settings.model_validate({"project": "p", "recovery": {"horizon": "90d"}})
    days = {one.folder: one.days for _, one in kept(settings)}
    assert days["journal/register/"] == 90
    assert days["journal/Running/"] == 38
    assert days[f"journal/{trails.FOLDER}/"] == 90  # what an earlier load has read of a file hangs on it
    assert days["journal/ordered/"] == 90
    assert days[f"journal/{PUT_AWAY}/"] == 38


@pytest.mark.parametrize(
    ("more", "days", "vital"),
    [
        ({}, 38, False),
        ({"success": {"conventions": [{"bucket": "b"}]}}, 38, True),
        ({"success": {"conventions": [{"bucket": "b"}]}, "load_state": {"enabled": False}}, 400, True),
    ],
)
def test_success_files_are_known_by_their_records_and_the_load_state(
    more: dict[str, object], days: int, vital: bool
) -> None:
    """They are in no register: what knows them must last for as long as they may be announced again."""
    settings = Settings.model_validate({"project": "p", **more})
    (done,) = (one for _, one in kept(settings) if one.folder == "journal/Done/")
    assert (done.days, done.vital) == (days, vital)


@pytest.mark.parametrize("least", [False, True])
def test_the_terraform_module_keeps_what_the_doctor_asks_for(least: bool) -> None:
    settings = Settings.model_validate({"project": "p", "success": {"conventions": [{"bucket": "b"}]}})
    check = lifecycle("p-ops", BucketFacts("p-ops", "EU", frozenset(), tuple(_terraform(least=least))), _ops(settings))
    assert check.mark is Mark.OK, check.found


def _ops(settings: Settings) -> list[Kept]:
    return [one for bucket_name, one in kept(settings) if bucket_name == "p-ops"]


def _terraform(*, least: bool) -> Iterator[DeletionFacts]:
    """The module's rules, with the days that its variables have by default, or at least."""
    folder = Path(__file__).parents[3] / "k8s/terraform"
    variables = (folder / "variables.tf").read_text()
    rules = re.findall(
        r"age += (?:var\.)?(\w+)\s+matches_prefix = \[(.*?)\]", (folder / "main.tf").read_text(), re.DOTALL
    )
    assert len(rules) == 3
    for age, prefixes in rules:
        given = rf"var\.{age} >= (\d+)" if least else rf'variable "{age}" \{{.*?default += (\d+)'
        days = int(age) if age.isdecimal() else int(re.findall(given, variables, re.DOTALL)[0])
        yield DeletionFacts(days, tuple(re.findall(r'"(.*?)"', prefixes)))
