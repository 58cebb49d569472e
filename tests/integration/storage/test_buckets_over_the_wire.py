"""Buckets, policies and notifications with Google's client."""

import json
from uuid import uuid4

import pytest
import requests
from google.api_core import exceptions
from google.cloud import storage

from ingestd.localcloud.faults import FaultKind
from ingestd.localcloud.storage import StorageSettings


def test_the_life_of_a_bucket(client: storage.Client) -> None:
    name = f"life-{uuid4().hex[:8]}"
    made = client.bucket(name)
    made.storage_class = "NEARLINE"
    made.labels = {"team": "data"}
    client.create_bucket(made, location="europe-west3")
    with pytest.raises(exceptions.Conflict):
        client.create_bucket(name)
    seen = client.get_bucket(name)
    assert (seen.location, seen.location_type, seen.storage_class) == ("EUROPE-WEST3", "region", "NEARLINE")
    assert seen.labels == {"team": "data"}
    assert (seen.metageneration, seen.versioning_enabled) == (1, False)
    assert seen.project_number > 0
    seen.versioning_enabled = True
    seen.labels = {"team": "platform", "tier": "1"}
    seen.patch(if_metageneration_match=1)
    assert client.get_bucket(name).labels == {"team": "platform", "tier": "1"}
    with pytest.raises(exceptions.PreconditionFailed):
        seen.patch(if_metageneration_match=1)
    assert name in [bucket.name for bucket in client.list_buckets(prefix="life-", page_size=1)]
    seen.blob("n").upload_from_string("x")
    with pytest.raises(exceptions.Conflict, match="not empty"):
        seen.delete()
    seen.delete(force=True)
    assert client.lookup_bucket(name) is None
    with pytest.raises(exceptions.NotFound):
        client.get_bucket(name)


def test_the_emulator_variable_is_all_a_client_needs(service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", service.url)
    client = storage.Client.create_anonymous_client()
    client.project = "test-project"
    bucket = client.create_bucket(f"emulated-{uuid4().hex[:8]}")
    bucket.blob("n").upload_from_string("x")
    assert bucket.blob("n").download_as_text() == "x"
    with client.batch():
        bucket.delete_blob("n")
    bucket.delete()
    client.close()


def test_a_policy_round_trip(bucket: storage.Bucket) -> None:
    policy = bucket.get_iam_policy(requested_policy_version=3)
    policy.bindings.append({"role": "roles/storage.objectViewer", "members": {"allUsers"}})
    bucket.set_iam_policy(policy)
    roles = {binding["role"] for binding in bucket.get_iam_policy().bindings}
    assert "roles/storage.objectViewer" in roles
    permissions = ["storage.objects.get", "storage.objects.list"]
    assert bucket.test_iam_permissions(permissions) == permissions


def test_unsupported_settings_answer_501(bucket: storage.Bucket) -> None:
    bucket.add_lifecycle_delete_rule(age=1)
    with pytest.raises(exceptions.MethodNotImplemented, match="lifecycle"):
        bucket.patch()


def test_object_retention_is_refused_at_creation(client: storage.Client) -> None:
    with pytest.raises(exceptions.MethodNotImplemented, match="object retention"):
        client.create_bucket("retained-bucket", enable_object_retention=True)
    assert client.lookup_bucket("retained-bucket") is None


def test_the_service_account_and_the_layout(client: storage.Client, bucket: storage.Bucket, service) -> None:
    assert client.get_service_account_email().endswith("@gs-project-accounts.iam.gserviceaccount.com")
    layout = requests.get(f"{service.url}/storage/v1/b/{bucket.name}/storageLayout", timeout=60).json()
    assert layout == {
        "kind": "storage#storageLayout",
        "bucket": bucket.name,
        "location": "US",
        "locationType": "multi-region",
        "hierarchicalNamespace": {"enabled": False},
    }


def test_notification_configs_and_what_they_send(bucket: storage.Bucket, service) -> None:
    config = bucket.notification(
        topic_name="uploads",
        topic_project="other-project",
        event_types=["OBJECT_FINALIZE", "OBJECT_DELETE"],
        blob_name_prefix="in/",
        custom_attributes={"team": "data"},
        payload_format="JSON_API_V1",
    )
    config.create()
    assert config.notification_id == "1"
    (listed,) = bucket.list_notifications()
    assert (listed.topic_name, listed.topic_project) == ("uploads", "other-project")
    assert (listed.event_types, listed.blob_name_prefix) == (["OBJECT_FINALIZE", "OBJECT_DELETE"], "in/")
    assert bucket.get_notification("1").custom_attributes == {"team": "data"}
    service.published.clear()
    blob = bucket.blob("in/a")
    blob.upload_from_string("1")
    first = blob.generation
    blob.upload_from_string("2")
    bucket.blob("out/a").upload_from_string("ignored")
    blob.metadata = {"ignored": "too"}
    blob.patch()
    sent = [(m.attributes["eventType"], m.attributes["objectGeneration"]) for m in service.published]
    assert sent == [
        ("OBJECT_FINALIZE", str(first)),
        ("OBJECT_FINALIZE", str(blob.generation)),
        ("OBJECT_DELETE", str(first)),
    ]
    message = service.published[1]
    assert message.topic == "projects/other-project/topics/uploads"
    assert message.attributes["overwroteGeneration"] == str(first)
    assert message.attributes["notificationConfig"] == f"projects/_/buckets/{bucket.name}/notificationConfigs/1"
    assert json.loads(message.data)["name"] == "in/a"
    listed.delete()
    blob.upload_from_string("3")
    assert len(service.published) == 3
    assert not listed.exists()


def test_a_lost_answer_still_notifies(bucket: storage.Bucket, service) -> None:
    bucket.notification(topic_name="topic", topic_project="project").create()
    service.published.clear()
    service.fault("objects.insert", FaultKind.DROP_RESPONSE, times=1)
    url = f"{service.url}/upload/storage/v1/b/{bucket.name}/o?uploadType=media&name=n"
    with pytest.raises(requests.exceptions.RequestException):
        requests.post(url, data=b"x", timeout=60)
    assert [message.attributes["objectId"] for message in service.published] == ["n"]


def test_the_write_limit_of_one_name_can_be_switched_on(tmp_path, service) -> None:
    limited = type(service)(tmp_path, StorageSettings(writes_per_second=1.0))
    limited.start()
    try:
        client = limited.client()
        bucket = client.create_bucket("limited")
        bucket.blob("n").upload_from_string("1", retry=None)
        with pytest.raises(exceptions.TooManyRequests, match="exceeded the rate limit for object mutation"):
            bucket.blob("n").upload_from_string("2", retry=None)
        with pytest.raises(exceptions.TooManyRequests) as refused:
            bucket.blob("n").delete(retry=None)
        assert refused.value.errors[0]["reason"] == "rateLimitExceeded"
        bucket.blob("m").upload_from_string("1", retry=None)
        client.close()
    finally:
        limited.stop()
