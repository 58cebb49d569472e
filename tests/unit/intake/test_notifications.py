"""Every shape of notification that reaches the topic becomes the same event."""

import json
from datetime import UTC, datetime

import pytest

from ingestd.intake.notifications import Unreadable, parse_notification
from ingestd.model.objects import ObjectRef

RESOURCE = {
    "kind": "storage#object",
    "id": "trigger/data/a.json/1700000000000001",
    "name": "data/a.json",
    "bucket": "trigger",
    "generation": "1700000000000001",
    "metageneration": "1",
    "timeCreated": "2023-11-14T22:13:20.000Z",
    "updated": "2023-11-14T22:13:20.000Z",
    "size": "42",
    "crc32c": "abc=",
    "metadata": {"who": "me"},
}
ATTRIBUTES = {
    "notificationConfig": "projects/_/buckets/trigger/notificationConfigs/1",
    "eventType": "OBJECT_FINALIZE",
    "payloadFormat": "JSON_API_V1",
    "bucketId": "trigger",
    "objectId": "data/a.json",
    "objectGeneration": "1700000000000001",
    "eventTime": "2023-11-14T22:13:20.000Z",
}


def test_a_notification_with_payload_carries_size_time_checksum_and_metadata() -> None:
    event = parse_notification(json.dumps(RESOURCE).encode(), ATTRIBUTES)
    assert event.finalized
    assert event.file.ref == ObjectRef("trigger", "data/a.json")
    assert event.file.generation == 1700000000000001
    assert event.file.size == 42
    assert event.file.crc32c == "abc="
    assert event.file.event_time == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert event.metadata == {"who": "me"}


def test_without_payload_the_generation_is_the_event_time() -> None:
    event = parse_notification(b"", ATTRIBUTES | {"payloadFormat": "NONE"})
    assert event.file.event_time == datetime.fromtimestamp(1700000000.000001, UTC)


def test_the_overwritten_generation_is_kept() -> None:
    event = parse_notification(b"", ATTRIBUTES | {"payloadFormat": "NONE", "overwroteGeneration": "1699"})
    assert event.overwrote == 1699


@pytest.mark.parametrize("kind", ["OBJECT_DELETE", "OBJECT_ARCHIVE", "OBJECT_METADATA_UPDATE"])
def test_other_event_types_are_known_but_do_not_finalize(kind: str) -> None:
    assert not parse_notification(b"", ATTRIBUTES | {"eventType": kind, "payloadFormat": "NONE"}).finalized


def test_a_bare_object_resource_published_by_hand_is_a_finalize() -> None:
    event = parse_notification(json.dumps(RESOURCE).encode(), {})
    assert event.finalized
    assert event.file.key == "trigger/data/a.json#1700000000000001"


def test_a_cloud_functions_event_is_understood() -> None:
    document = {"context": {"eventType": "google.storage.object.finalize"}, "data": RESOURCE}
    assert parse_notification(json.dumps(document).encode(), {}).finalized
    document["context"]["eventType"] = "google.storage.object.delete"
    assert parse_notification(json.dumps(document).encode(), {}).kind == "OBJECT_DELETE"


def test_a_structured_cloudevent_is_understood() -> None:
    document = {"specversion": "1.0", "type": "google.cloud.storage.object.v1.finalized", "data": RESOURCE}
    assert parse_notification(json.dumps(document).encode(), {}).finalized


def test_a_binary_cloudevent_is_understood() -> None:
    attributes = {"ce-type": "google.cloud.storage.object.v1.deleted"}
    assert parse_notification(json.dumps(RESOURCE).encode(), attributes).kind == "OBJECT_DELETE"


@pytest.mark.parametrize(
    ("data", "attributes", "reason"),
    [
        (b"not json", {}, "not JSON"),
        (b"[1]", {}, "not an object"),
        (b"{}", {}, "no bucket"),
        (json.dumps(RESOURCE | {"generation": "x"}).encode(), {}, "generation"),
        (b"", ATTRIBUTES | {"eventType": "OBJECT_EXPLODED"}, "unknown event type"),
        (b"", {k: v for k, v in ATTRIBUTES.items() if k != "bucketId"} | {"payloadFormat": "NONE"}, "no bucket"),
    ],
)
def test_what_is_no_event_says_why(data: bytes, attributes: dict[str, str], reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        parse_notification(data, attributes)


@pytest.mark.parametrize("size", ["1" + "0" * 400, "9" * 5000, str(2**63), str(2**63 - 1), str((5 << 40) + 1), -1, "x"])
def test_a_size_that_no_object_has_is_unknown(size: object) -> None:
    assert parse_notification(json.dumps(RESOURCE | {"size": size}).encode(), ATTRIBUTES).file.size == 0


@pytest.mark.parametrize(
    "moment", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "1950-01-01T00:00:00Z", "9500-01-01", "soon"]
)
def test_a_time_that_no_window_can_be_reckoned_from_gives_way_to_the_generation(moment: str) -> None:
    event = parse_notification(json.dumps(RESOURCE | {"timeCreated": moment}).encode(), ATTRIBUTES)
    assert event.file.event_time == datetime.fromtimestamp(1700000000.000001, UTC)


@pytest.mark.parametrize("generation", [2**63 - 1, 253_000_000_000_000_000])
def test_a_generation_beyond_all_calendars_has_a_time_all_the_same(generation: int) -> None:
    attributes = ATTRIBUTES | {"objectGeneration": str(generation), "payloadFormat": "NONE"}
    moment = parse_notification(b"", attributes).file.event_time
    assert datetime(1970, 1, 1, tzinfo=UTC) <= moment < datetime(9001, 1, 1, tzinfo=UTC)


def test_a_name_that_no_object_can_have_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="no object can have the name"):
        parse_notification(json.dumps(RESOURCE | {"name": "x" * 2000}).encode(), {})
