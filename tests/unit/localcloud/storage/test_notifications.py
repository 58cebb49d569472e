"""Bucket notifications: which events, with what in them, and that none is lost."""

import shutil
from datetime import timedelta
from pathlib import Path

import orjson
import pytest
from tests.support.manual_clock import ManualClock

from ingestd.localcloud.faults import Fault, FaultKind
from ingestd.localcloud.storage import StorageCore, StorageError
from ingestd.localcloud.storage.model import ComposeSource, Preconditions

TOPIC = "//pubsub.googleapis.com/projects/p/topics/t"


def watch(core: StorageCore, bucket: str, **fields: object) -> str:
    return core.buckets.insert_notification(bucket, {"topic": TOPIC, **fields}).id


def test_a_finalize_carries_googles_attributes_and_the_object(core: StorageCore, topic, clock: ManualClock) -> None:
    watch(core, "bucket", custom_attributes={"team": "data"})
    clock.advance(timedelta(microseconds=123456))
    version = core.write("bucket", "in/a.json", b"{}", "application/json")
    ((name, data, attributes),) = topic.messages
    assert name == "projects/p/topics/t"
    assert attributes == {
        "notificationConfig": "projects/_/buckets/bucket/notificationConfigs/1",
        "eventType": "OBJECT_FINALIZE",
        "payloadFormat": "JSON_API_V1",
        "bucketId": "bucket",
        "objectId": "in/a.json",
        "objectGeneration": str(version.generation),
        "eventTime": "2024-01-01T00:00:00.123456Z",
        "team": "data",
    }
    assert orjson.loads(data) == {
        "kind": "storage#object",
        "id": f"bucket/in/a.json/{version.generation}",
        "selfLink": "https://www.googleapis.com/storage/v1/b/bucket/o/in%2Fa.json",
        "mediaLink": (
            "https://storage.googleapis.com/download/storage/v1/b/bucket/o/in%2Fa.json"
            f"?generation={version.generation}&alt=media"
        ),
        "name": "in/a.json",
        "bucket": "bucket",
        "generation": str(version.generation),
        "metageneration": "1",
        "contentType": "application/json",
        "storageClass": "STANDARD",
        "size": "2",
        "md5Hash": "mZFLkyvTelC5g8XnyQrpOw==",
        "crc32c": version.crc32c,
        "etag": version.etag,
        "timeCreated": "2024-01-01T00:00:00.123Z",
        "updated": "2024-01-01T00:00:00.123Z",
        "timeStorageClassUpdated": "2024-01-01T00:00:00.123Z",
        "timeFinalized": "2024-01-01T00:00:00.123Z",
    }


def test_an_overwrite_tells_of_both_generations(core: StorageCore, topic) -> None:
    for bucket, ending in (("bucket", "OBJECT_DELETE"), ("versioned", "OBJECT_ARCHIVE")):
        topic.messages.clear()
        old = core.write(bucket, "n", b"1").generation
        watch(core, bucket)
        new = core.write(bucket, "n", b"2").generation
        (_, _, finalize), (_, data, ended) = topic.messages
        assert (finalize["eventType"], finalize["objectGeneration"]) == ("OBJECT_FINALIZE", str(new))
        assert finalize["overwroteGeneration"] == str(old)
        assert (ended["eventType"], ended["objectGeneration"]) == (ending, str(old))
        assert ended["overwrittenByGeneration"] == str(new)
        assert ("timeDeleted" in orjson.loads(data)) == (ending == "OBJECT_ARCHIVE")


def test_each_change_tells_its_events(core: StorageCore, topic) -> None:
    watch(core, "bucket")
    watch(core, "versioned")

    def told(action) -> list[tuple[str, str]]:
        topic.messages.clear()
        action()
        return topic.events()

    objects = core.objects
    assert told(lambda: core.write("bucket", "n", b"1")) == [("OBJECT_FINALIZE", "n")]
    assert told(lambda: objects.patch("bucket", "n", {})) == [("OBJECT_METADATA_UPDATE", "n")]
    assert told(lambda: objects.copy(("bucket", "n"), ("bucket", "m"))) == [("OBJECT_FINALIZE", "m")]
    assert told(lambda: objects.compose("bucket", "c", [ComposeSource("n")])) == [("OBJECT_FINALIZE", "c")]
    assert told(lambda: objects.move("bucket", "m", "k")) == [("OBJECT_FINALIZE", "k"), ("OBJECT_DELETE", "m")]
    assert told(lambda: objects.delete("bucket", "n")) == [("OBJECT_DELETE", "n")]
    generation = core.write("versioned", "n", b"1").generation
    assert told(lambda: objects.delete("versioned", "n")) == [("OBJECT_ARCHIVE", "n")]
    assert told(lambda: objects.delete("versioned", "n", generation)) == [("OBJECT_DELETE", "n")]
    topic.messages.clear()
    with pytest.raises(StorageError):
        core.objects.insert("bucket", "k", b"", conditions=Preconditions(generation=0))
    assert topic.messages == []


def test_configs_choose_events_names_and_payload(core: StorageCore, topic) -> None:
    watch(core, "bucket", event_types=["OBJECT_DELETE"], payload_format="NONE")
    watch(core, "bucket", object_name_prefix="in/")
    core.write("bucket", "in/a", b"")
    core.write("bucket", "out/a", b"")
    core.objects.delete("bucket", "out/a")
    assert topic.events() == [("OBJECT_FINALIZE", "in/a"), ("OBJECT_DELETE", "out/a")]
    assert topic.messages[1][1] == b""
    assert topic.messages[1][2]["payloadFormat"] == "NONE"


def test_configs_are_kept_listed_and_deleted(core: StorageCore, topic, make_core) -> None:
    first, second = watch(core, "bucket"), watch(core, "bucket", event_types=["OBJECT_FINALIZE"])
    assert [config.id for config in core.buckets.list_notifications("bucket")] == [first, second] == ["1", "2"]
    core.buckets.delete_notification("bucket", first)
    core.close()
    again = make_core()
    assert [config.id for config in again.buckets.list_notifications("bucket")] == ["2"]
    assert again.buckets.get_notification("bucket", "2").event_types == ("OBJECT_FINALIZE",)
    assert watch(again, "bucket") == "3"
    with pytest.raises(StorageError) as error:
        again.buckets.get_notification("bucket", "1")
    assert error.value.status == 404
    again.write("bucket", "n", b"")
    assert len(topic.messages) == 2


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"topic": "t"},
        {"topic": "//pubsub.googleapis.com/projects/p/subscriptions/s"},
        {"topic": TOPIC, "event_types": ["OBJECT_EXPLODE"]},
        {"topic": TOPIC, "payload_format": "XML"},
        {"topic": TOPIC, "custom_attributes": {str(number): "x" for number in range(11)}},
    ],
)
def test_a_bad_config_is_refused(core: StorageCore, body: dict[str, object]) -> None:
    with pytest.raises(StorageError) as error:
        core.buckets.insert_notification("bucket", body)
    assert error.value.status == 400
    assert core.buckets.list_notifications("bucket") == []


def test_an_eleventh_config_for_one_event_is_refused(core: StorageCore) -> None:
    for _ in range(10):
        watch(core, "bucket", event_types=["OBJECT_FINALIZE"])
    watch(core, "bucket", event_types=["OBJECT_DELETE"])
    with pytest.raises(StorageError) as error:
        watch(core, "bucket")
    assert error.value.status == 400


def test_a_failing_topic_delays_messages_and_loses_none(core: StorageCore, topic) -> None:
    watch(core, "bucket")
    topic.failing = RuntimeError("down")
    core.write("bucket", "a", b"")
    core.write("bucket", "b", b"")
    assert topic.messages == []
    assert core.deliver_notifications() == 2
    topic.failing = None
    core.write("bucket", "c", b"")
    assert topic.events() == [("OBJECT_FINALIZE", name) for name in "abc"]
    assert core.deliver_notifications() == 0
    assert len(topic.messages) == 3


def test_messages_for_a_topic_that_is_gone_are_dropped_and_counted(core: StorageCore, topic) -> None:
    watch(core, "bucket")
    topic.failing = LookupError("no such topic")
    core.write("bucket", "a", b"")
    topic.failing = None
    assert core.deliver_notifications() == 0
    assert topic.messages == []
    assert core.hooks.operations["notifications.dropped"] == 1


def test_an_undelivered_message_survives_the_death_of_the_process(
    core: StorageCore, topic, make_core, tmp_path: Path
) -> None:
    watch(core, "bucket")
    topic.failing = RuntimeError("down")
    core.write("bucket", "a", b"")
    # What a killed process leaves is its folder as it stands, write-ahead log included.
    shutil.copytree(tmp_path / "state", tmp_path / "after")
    topic.failing = None
    again = make_core(tmp_path / "after")
    assert topic.events() == [("OBJECT_FINALIZE", "a")]
    assert again.read("bucket", "a") == b""


def test_planned_faults_duplicate_and_withhold_messages(core: StorageCore, topic) -> None:
    watch(core, "bucket")
    publishing = "notifications.publish"
    core.hooks.plan.add(Fault("storage", publishing, FaultKind.DUPLICATE, resource="bucket/twice"))
    core.hooks.plan.add(Fault("storage", publishing, FaultKind.WITHHOLD, resource="bucket/late"))
    for name in ("twice", "late", "plain"):
        core.write("bucket", name, b"")
    assert [name for _, name in topic.events()] == ["twice", "twice", "plain"]
    core.hooks.plan.clear()
    assert core.deliver_notifications() == 0
    assert [name for _, name in topic.events()] == ["twice", "twice", "plain", "late"]
