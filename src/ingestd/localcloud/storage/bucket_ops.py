"""Buckets, their settings, IAM policies and notification configs.

What the local cloud does not act on (lifecycle rules, retention, encryption) is refused by name; what changes nothing
locally (CORS, labels, logging) is stored and shown again.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from ingestd.localcloud.storage.errors import conflict, invalid, precondition_failed, unsupported
from ingestd.localcloud.storage.model import (
    NO_CONDITIONS,
    STORAGE_CLASSES,
    Bucket,
    NotificationConfig,
    Preconditions,
    metageneration_etag,
)
from ingestd.localcloud.storage.notifications import parse_config
from ingestd.localcloud.storage.state import State

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")

STORED_SETTINGS = frozenset(
    {
        "autoclass",
        "billing",
        "cors",
        "customPlacementConfig",
        "defaultEventBasedHold",
        "iamConfiguration",
        "labels",
        "location",
        "logging",
        "rpo",
        "storageClass",
        "versioning",
        "website",
    }
)
DEFAULTS = {"location": "US", "storageClass": "STANDARD"}
# Settings that are not JSON objects: a flag, texts, a list. Everything else is one.
PLAIN_SETTINGS: Mapping[str, type] = {
    "cors": list,
    "defaultEventBasedHold": bool,
    "location": str,
    "rpo": str,
    "storageClass": str,
}
UNSUPPORTED_SETTINGS = {
    "acl": "bucket ACLs",
    "defaultObjectAcl": "default object ACLs",
    "encryption": "Cloud KMS encryption",
    "hierarchicalNamespace": "hierarchical namespaces",
    "ipFilter": "IP filters",
    "lifecycle": "lifecycle rules",
    "objectRetention": "object retention",
    "retentionPolicy": "retention policies",
    "softDeletePolicy": "soft delete",
}


class Buckets:
    def __init__(self, state: State, project: str) -> None:
        self._state = state
        self._project = project

    def _operation(self, method: str, resource: str, cost: str = "") -> AbstractContextManager[None]:
        return self._state.hooks.operation(method, resource, cost=cost)

    def insert(self, resource: Mapping[str, Any]) -> Bucket:
        name = resource.get("name")
        if not isinstance(name, str) or not name:
            raise invalid("Required", parameter="name")
        check_bucket_name(name)
        settings = _settings(resource, DEFAULTS)
        with self._operation("buckets.insert", name, "A"), self._state.change() as change:
            if name in self._state.buckets:
                raise conflict("Your previous request to create the named bucket succeeded and you already own it.")
            bucket = Bucket(name, change.now, change.now, 1, settings, self._default_policy())
            self._save(bucket)
            return bucket

    def get(self, name: str, conditions: Preconditions = NO_CONDITIONS) -> Bucket:
        with self._operation("buckets.get", name, "B"), self._state.lock:
            return self._selected(name, conditions)

    def list(self, prefix: str = "", after: str = "", limit: int = 1000) -> tuple[list[Bucket], str]:
        """A page in name order, and the name to continue after (empty at the end)."""
        with self._operation("buckets.list", self._project, "A"), self._state.lock:
            names = sorted(name for name in self._state.buckets if name.startswith(prefix) and name > after)
            page = [self._state.buckets[name] for name in names[:limit]]
            return page, page[-1].name if len(names) > limit else ""

    def patch(self, name: str, resource: Mapping[str, Any], conditions: Preconditions = NO_CONDITIONS) -> Bucket:
        with self._operation("buckets.patch", name, "A"), self._state.change() as change:
            bucket = self._selected(name, conditions)
            return self._revised(bucket, _settings(resource, bucket.settings), change.now)

    def update(self, name: str, resource: Mapping[str, Any], conditions: Preconditions = NO_CONDITIONS) -> Bucket:
        with self._operation("buckets.update", name, "A"), self._state.change() as change:
            bucket = self._selected(name, conditions)
            kept = {key: bucket.settings[key] for key in DEFAULTS}
            return self._revised(bucket, _settings(resource, kept), change.now)

    def delete(self, name: str, conditions: Preconditions = NO_CONDITIONS) -> None:
        with self._operation("buckets.delete", name), self._state.change():
            self._selected(name, conditions)
            if not self._state.database.is_empty(name):
                raise conflict("The bucket you tried to delete is not empty.")
            self._state.database.delete_bucket(name)
            del self._state.buckets[name]
            self._state.notifier.forget_bucket(name)

    # IAM: kept and shown, never enforced; the local cloud has no callers to tell apart.

    def get_policy(self, name: str) -> dict[str, Any]:
        with self._operation("buckets.getIamPolicy", name, "B"), self._state.lock:
            return self._policy(self._selected(name, NO_CONDITIONS))

    def set_policy(self, name: str, policy: Mapping[str, Any]) -> dict[str, Any]:
        with self._operation("buckets.setIamPolicy", name, "A"), self._state.change() as change:
            bucket = self._selected(name, NO_CONDITIONS)
            if (etag := policy.get("etag")) and etag != metageneration_etag(bucket.metageneration):
                raise precondition_failed()
            bindings = policy.get("bindings") or []
            if not isinstance(bindings, list) or not all(isinstance(binding, Mapping) for binding in bindings):
                raise invalid("The bindings of a policy are a list of roles and members.")
            kept = {"version": policy.get("version", 1), "bindings": bindings}
            bucket = replace(bucket, iam=kept, metageneration=bucket.metageneration + 1, updated=change.now)
            self._save(bucket)
            return self._policy(bucket)

    def test_permissions(self, name: str, permissions: Sequence[str]) -> Sequence[str]:
        with self._operation("buckets.testIamPermissions", name, "B"), self._state.lock:
            self._selected(name, NO_CONDITIONS)
            return permissions

    # Notification configs.

    def insert_notification(self, name: str, resource: Mapping[str, Any]) -> NotificationConfig:
        with self._operation("notifications.insert", name, "A"), self._state.change():
            bucket = self._selected(name, NO_CONDITIONS)
            config = parse_config(bucket, resource)
            self._state.notifier.add(config)
            self._save(replace(bucket, next_notification=bucket.next_notification + 1))
            return config

    def get_notification(self, name: str, config_id: str) -> NotificationConfig:
        with self._operation("notifications.get", name, "B"), self._state.lock:
            self._selected(name, NO_CONDITIONS)
            return self._state.notifier.config(name, config_id)

    def list_notifications(self, name: str) -> Sequence[NotificationConfig]:
        with self._operation("notifications.list", name, "B"), self._state.lock:
            self._selected(name, NO_CONDITIONS)
            return self._state.notifier.configs(name)

    def delete_notification(self, name: str, config_id: str) -> None:
        with self._operation("notifications.delete", name, "A"), self._state.change():
            self._selected(name, NO_CONDITIONS)
            self._state.notifier.remove(self._state.notifier.config(name, config_id))

    def _selected(self, name: str, conditions: Preconditions) -> Bucket:
        bucket = self._state.bucket(name)
        conditions.check_metageneration(bucket.metageneration)
        return bucket

    def _save(self, bucket: Bucket) -> None:
        self._state.database.put_bucket(bucket)
        self._state.buckets[bucket.name] = bucket

    def _revised(self, bucket: Bucket, settings: Mapping[str, Any], now: int) -> Bucket:
        if settings.get("location") != bucket.settings["location"]:
            raise invalid("The location of a bucket cannot be changed.")
        bucket = replace(bucket, settings=settings, metageneration=bucket.metageneration + 1, updated=now)
        self._save(bucket)
        return bucket

    def _default_policy(self) -> dict[str, Any]:
        owners = [f"projectEditor:{self._project}", f"projectOwner:{self._project}"]
        readers = [f"projectViewer:{self._project}"]
        return {
            "version": 1,
            "bindings": [
                {"role": "roles/storage.legacyBucketOwner", "members": owners},
                {"role": "roles/storage.legacyBucketReader", "members": readers},
            ],
        }

    @staticmethod
    def _policy(bucket: Bucket) -> dict[str, Any]:
        return {
            "kind": "storage#policy",
            "resourceId": f"projects/_/buckets/{bucket.name}",
            "etag": metageneration_etag(bucket.metageneration),
            **bucket.iam,
        }


def check_bucket_name(name: str) -> None:
    if (
        not _NAME.fullmatch(name)
        or any(len(part) > 63 or not part for part in name.split("."))
        or _ADDRESS.fullmatch(name)
        or name.startswith("goog")
    ):
        raise invalid(f"Invalid bucket name: '{name}'")


def _settings(resource: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """JSON merge patch of a bucket's settings; labels and the other nested settings merge key by key."""
    merged = dict(current)
    for key, value in resource.items():
        if key in UNSUPPORTED_SETTINGS:
            if _asks_for_something(key, value):
                raise unsupported(UNSUPPORTED_SETTINGS[key])
        elif key in STORED_SETTINGS:
            if value is None:
                if key not in DEFAULTS:  # a bucket always has a place and a class
                    merged.pop(key, None)
            elif not isinstance(value, PLAIN_SETTINGS.get(key, dict)):
                raise invalid(f"Invalid value for field {key}.")
            elif isinstance(value, Mapping):
                combined = _merge(merged.get(key) or {}, value)
                merged[key] = combined
            else:
                merged[key] = value
    if not merged.get("labels", True):
        del merged["labels"]
    merged["location"] = merged["location"].upper()
    if merged["storageClass"] not in STORAGE_CLASSES:
        raise invalid(f"The storage class {merged['storageClass']!r} is not valid.")
    return merged


def _merge(current: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(current)
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = _merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def _asks_for_something(key: str, value: Any) -> bool:
    """Whether an unsupported setting is really being switched on; clients echo switched-off ones back."""
    if not isinstance(value, Mapping):
        return bool(value)
    if key == "softDeletePolicy":
        return str(value.get("retentionDurationSeconds", "0")) != "0"
    if key == "hierarchicalNamespace":
        return bool(value.get("enabled"))
    if key == "lifecycle":
        return bool(value.get("rule"))
    return bool(value)
