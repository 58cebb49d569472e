"""Buckets, their settings, policies, and what is refused by name."""

from datetime import timedelta

import pytest
from tests.support.manual_clock import ManualClock

from ingestd.localcloud.storage import StorageCore, StorageError
from ingestd.localcloud.storage.model import Preconditions
from ingestd.localcloud.storage.resources import bucket_resource


def test_a_bucket_is_created_once(core: StorageCore) -> None:
    with pytest.raises(StorageError) as error:
        core.buckets.insert({"name": "bucket"})
    assert (error.value.status, error.value.reason) == (409, "conflict")


@pytest.mark.parametrize("name", ["", "A", "ab", "-abc", "abc-", "a..b", "1.2.3.4", "goog-x", "a" * 64, "a b c"])
def test_bad_bucket_names_are_refused(core: StorageCore, name: str) -> None:
    with pytest.raises(StorageError) as error:
        core.buckets.insert({"name": name})
    assert error.value.status == 400


def test_a_bucket_with_any_version_left_is_not_deleted(core: StorageCore) -> None:
    generation = core.write("versioned", "n", b"1").generation
    core.objects.delete("versioned", "n")
    with pytest.raises(StorageError) as error:
        core.buckets.delete("versioned")
    assert (error.value.status, error.value.reason) == (409, "conflict")
    core.objects.delete("versioned", "n", generation)
    core.buckets.delete("versioned")
    with pytest.raises(StorageError) as missing:
        core.buckets.get("versioned")
    assert missing.value.status == 404


def test_patching_merges_labels_and_settings(core: StorageCore, clock: ManualClock) -> None:
    core.buckets.patch("bucket", {"labels": {"a": "1", "b": "2"}, "cors": [{"origin": ["*"]}]})
    clock.advance(timedelta(seconds=1))
    patched = core.buckets.patch("bucket", {"labels": {"a": None, "c": "3"}, "versioning": {"enabled": True}})
    assert patched.settings["labels"] == {"b": "2", "c": "3"}
    assert patched.settings["cors"] == [{"origin": ["*"]}]
    assert patched.versioning
    assert patched.metageneration == 3
    assert patched.updated > patched.created
    replaced = core.buckets.update("bucket", {"labels": {"only": "1"}})
    assert replaced.settings == {"location": "US", "storageClass": "STANDARD", "labels": {"only": "1"}}


def test_bucket_writes_check_the_metageneration(core: StorageCore) -> None:
    core.buckets.patch("bucket", {"labels": {"a": "1"}}, Preconditions(metageneration=1))
    with pytest.raises(StorageError) as stale:
        core.buckets.patch("bucket", {}, Preconditions(metageneration=1))
    assert stale.value.status == 412
    with pytest.raises(StorageError) as unchanged:
        core.buckets.get("bucket", Preconditions(not_metageneration=2))
    assert unchanged.value.status == 304


@pytest.mark.parametrize(
    "setting",
    [
        {"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {"age": 1}}]}},
        {"retentionPolicy": {"retentionPeriod": "10"}},
        {"encryption": {"defaultKmsKeyName": "k"}},
        {"hierarchicalNamespace": {"enabled": True}},
        {"softDeletePolicy": {"retentionDurationSeconds": "604800"}},
        {"acl": [{"entity": "allUsers", "role": "READER"}]},
    ],
)
def test_what_is_not_implemented_is_refused_by_name(core: StorageCore, setting: dict[str, object]) -> None:
    with pytest.raises(StorageError) as error:
        core.buckets.patch("bucket", setting)
    assert error.value.status == 501
    assert core.buckets.get("bucket").metageneration == 1


def test_switched_off_settings_echoed_by_clients_are_accepted(core: StorageCore) -> None:
    core.buckets.patch(
        "bucket",
        {
            "lifecycle": {"rule": []},
            "softDeletePolicy": {"retentionDurationSeconds": "0"},
            "hierarchicalNamespace": {"enabled": False},
            "retentionPolicy": None,
        },
    )


def test_a_bucket_always_has_a_place_and_a_class(core: StorageCore) -> None:
    core.buckets.patch("bucket", {"location": None, "storageClass": None})
    assert core.buckets.get("bucket").settings == {"location": "US", "storageClass": "STANDARD"}


def test_listing_buckets_by_prefix_and_page(core: StorageCore) -> None:
    for number in range(5):
        core.buckets.insert({"name": f"many-{number}"})
    page, following = core.buckets.list("many-", limit=2)
    assert [bucket.name for bucket in page] == ["many-0", "many-1"]
    rest, end = core.buckets.list("many-", following, limit=10)
    assert [bucket.name for bucket in rest] == ["many-2", "many-3", "many-4"]
    assert end == ""


def test_the_location_is_fixed_and_shown_with_its_type(core: StorageCore) -> None:
    made = core.buckets.insert({"name": "europe", "location": "europe-west1", "storageClass": "NEARLINE"})
    shown = bucket_resource(made, "http://h", core.project_number)
    assert (shown["location"], shown["locationType"], shown["storageClass"]) == ("EUROPE-WEST1", "region", "NEARLINE")
    assert shown["projectNumber"] == str(core.project_number)
    assert core.write("europe", "n", b"").metadata.storage_class == "NEARLINE"
    with pytest.raises(StorageError) as error:
        core.buckets.patch("europe", {"location": "US"})
    assert error.value.status == 400


def test_a_policy_is_kept_and_a_stale_etag_refused(core: StorageCore) -> None:
    policy = core.buckets.get_policy("bucket")
    binding = {"role": "roles/storage.objectViewer", "members": ["allUsers"]}
    stored = core.buckets.set_policy("bucket", {**policy, "bindings": [binding]})
    assert core.buckets.get_policy("bucket") == stored
    assert stored["bindings"] == [binding]
    with pytest.raises(StorageError) as error:
        core.buckets.set_policy("bucket", {**policy, "bindings": []})
    assert error.value.status == 412
    assert core.buckets.test_permissions("bucket", ["storage.objects.get"]) == ["storage.objects.get"]
