"""Messages of every shape: those that mean a file, those that do not, and those nobody can read."""

import base64
import json

from tests.support.e2e.world import LOADED, World
from tests.support.rule_documents import FILE, alone


def test_only_finalized_objects_are_loaded_and_the_rest_is_counted(world: World) -> None:
    world.prepared(alone(OnSuccess=[]))
    daemon = world.start()
    generation = world.upload()
    world.upload("unrelated/readme.txt", "hello")
    world.until(lambda: world.statuses() == ["done"])
    for kind in ("OBJECT_DELETE", "OBJECT_ARCHIVE", "OBJECT_METADATA_UPDATE"):
        attributes = {**world.attributes(FILE, generation + 1), "eventType": kind}
        world.publisher.publish(topic=world.topic, messages=[{"attributes": attributes}])
    world.settled()
    assert world.rows() == LOADED
    assert daemon.metric("ingestd_events_total", outcome="not_finalize") == 3
    assert daemon.metric("ingestd_events_total", outcome="no_match") == 1


def test_events_published_by_hand_work_in_the_shapes_people_know(world: World) -> None:
    """Cloud Functions' event, a CloudEvent, and the bare object resource."""
    world.prepared(alone(OnSuccess=[]))
    silent = f"{world.project}-silent"
    world.storage.create_bucket(silent, project=world.project)
    world.start()
    shapes = []
    for number, wrap in enumerate(
        (
            lambda resource: {"context": {"eventType": "google.storage.object.finalize"}, "data": resource},
            lambda resource: {"type": "google.cloud.storage.object.v1.finalized", "data": resource},
            lambda resource: resource,
        )
    ):
        name = f"data/case002/shape{number}.json"
        generation = world.upload(name, {"id": number, "name": "x"}, bucket=silent)
        shapes.append(wrap({"bucket": silent, "name": name, "generation": str(generation)}))
    world.publisher.publish(topic=world.topic, messages=[{"data": json.dumps(shape).encode()} for shape in shapes])
    world.until(lambda: world.statuses() == ["done"] * 3)
    assert world.rows() == [(number, "x") for number in range(3)]


def test_unreadable_messages_go_to_the_error_place_with_their_reason_and_do_not_stop_the_stream(world: World) -> None:
    world.prepared(alone())
    daemon = world.start()
    odd = [
        {"data": b"not json"},
        {"data": b"{}"},
        {"data": b"\xff\xfe", "attributes": {"eventType": "OBJECT_FINALIZE", "objectId": FILE, "bucketId": "b"}},
        {"data": b"{}", "attributes": {"eventType": "OBJECT_EXPLODED", "objectId": FILE, "bucketId": "b"}},
    ]
    world.publisher.publish(topic=world.topic, messages=odd)
    world.upload()
    world.ended("done")
    letters = [world.document(name) for name in world.objects("errors/messages/")]
    assert len(letters) == 4
    assert sorted(base64.b64decode(letter["Data"]) for letter in letters) == sorted(one["data"] for one in odd)
    assert all(letter["Reason"] and letter["MessageID"] for letter in letters)
    assert {letter["Subscription"] for letter in letters} == {"ingestd-notifications"}
    assert daemon.metric("ingestd_events_total", outcome="unreadable") == 4
    assert daemon.metric("ingestd_dead_letters_total", subscription="ingestd-notifications") == 4


def test_unreadable_messages_go_to_the_dead_letter_topic_when_there_is_one(world: World) -> None:
    topic, heard = world.listening("dead")
    world.start(subscriptions={"dead_letter_topic": topic})
    world.publisher.publish(topic=world.topic, messages=[{"data": b"not json", "attributes": {"mine": "yes"}}])
    (letter,) = world.pulled(heard)
    world.settled()
    assert letter.data == b"not json"
    assert letter.attributes["mine"] == "yes"
    assert "not JSON" in letter.attributes["ingestd-reason"]
    assert letter.attributes["ingestd-subscription"] == "ingestd-notifications"
    assert world.objects("errors/") == []


def test_an_audit_entry_nobody_can_read_is_a_dead_letter_too(world: World) -> None:
    topic, heard = world.listening("dead")
    daemon = world.start(subscriptions={"dead_letter_topic": topic})
    own = f"odd-{world.project}".encode()
    started = json.dumps({"protoPayload": {"metadata": {"jobChange": {"after": "RUNNING"}}}}).encode()
    world.publisher.publish(topic=world.audit_topic, messages=[{"data": own}, {"data": started}])
    letters = world.pulled(heard)
    assert own in [letter.data for letter in letters]
    world.settled()
    assert daemon.metric("ingestd_completions_total", led_to="other_entry") >= 1


def test_two_rules_for_one_file_are_an_error_that_names_both(world: World) -> None:
    world.prepared(alone(), "one.json")
    world.rule(alone(asynchronous=False), "two.json")
    world.rule(alone(Disabled=True), "sleeping.json")
    daemon = world.start()
    world.upload()
    (place,) = world.until(lambda: world.objects("errors/unrouted/"))
    world.settled()
    refusal = world.document(place)
    assert refusal["Source"] == f"gs://{world.trigger}/{FILE}"
    assert sorted(refusal["Rules"]) == ["one", "two"]
    assert "one" in refusal["Reason"]
    assert "two" in refusal["Reason"]
    assert "ingestd publish" in refusal["Fix"]
    assert daemon.metric("ingestd_events_total", outcome="ambiguous") == 1
    assert world.exists()
    assert world.rows() == []


def test_a_disabled_rule_leaves_the_file_alone(world: World) -> None:
    world.prepared(alone(Disabled=True))
    daemon = world.start()
    world.upload()
    world.until(lambda: daemon.metric("ingestd_events_total", outcome="disabled") == 1)
    world.settled()
    assert world.exists()
    assert world.rows() == []
