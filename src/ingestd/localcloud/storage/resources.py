"""Cloud Storage's JSON resources: how buckets, objects and notification configs look from outside.

Used by the server for answers and by the notifier for payloads; `base` is where the links in them point.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from ingestd.localcloud.storage.model import (
    Bucket,
    NotificationConfig,
    ObjectVersion,
    metageneration_etag,
    rfc3339,
)

GOOGLE_API = "https://www.googleapis.com"
GOOGLE_DOWNLOAD = "https://storage.googleapis.com"


@lru_cache(maxsize=4096)
def _quoted(name: str) -> str:
    return quote(name, safe="")


def object_resource(version: ObjectVersion, base: str = GOOGLE_API, download: str = GOOGLE_DOWNLOAD) -> dict[str, Any]:
    meta = version.metadata
    path = f"/storage/v1/b/{version.bucket}/o/{_quoted(version.name)}"
    created = rfc3339(version.created)
    resource: dict[str, Any] = {
        "kind": "storage#object",
        "id": f"{version.bucket}/{version.name}/{version.generation}",
        "selfLink": f"{base}{path}",
        "mediaLink": f"{download}/download{path}?generation={version.generation}&alt=media",
        "name": version.name,
        "bucket": version.bucket,
        "generation": str(version.generation),
        "metageneration": str(version.metageneration),
    }
    if meta.content_type is not None:
        resource["contentType"] = meta.content_type
    resource["storageClass"] = meta.storage_class
    resource["size"] = str(version.size)
    if version.md5 is not None:
        resource["md5Hash"] = version.md5
    if meta.content_encoding is not None:
        resource["contentEncoding"] = meta.content_encoding
    if meta.content_disposition is not None:
        resource["contentDisposition"] = meta.content_disposition
    if meta.content_language is not None:
        resource["contentLanguage"] = meta.content_language
    if meta.cache_control is not None:
        resource["cacheControl"] = meta.cache_control
    resource["crc32c"] = version.crc32c
    if version.components is not None:
        resource["componentCount"] = version.components
    resource["etag"] = version.etag
    if meta.temporary_hold is not None:
        resource["temporaryHold"] = meta.temporary_hold
    if meta.event_based_hold is not None:
        resource["eventBasedHold"] = meta.event_based_hold
    resource["timeCreated"] = created
    resource["updated"] = created if version.updated == version.created else rfc3339(version.updated)
    if version.deleted is not None:
        resource["timeDeleted"] = rfc3339(version.deleted)
    resource["timeStorageClassUpdated"] = created
    resource["timeFinalized"] = created
    if meta.custom_time is not None:
        resource["customTime"] = meta.custom_time
    if meta.custom:
        resource["metadata"] = meta.custom
    return resource


def bucket_resource(bucket: Bucket, base: str, project_number: int) -> dict[str, Any]:
    settings = dict(bucket.settings)
    iam_configuration = {
        "bucketPolicyOnly": {"enabled": False},
        "uniformBucketLevelAccess": {"enabled": False},
        "publicAccessPrevention": "inherited",
        **settings.pop("iamConfiguration", {}),
    }
    return {
        "kind": "storage#bucket",
        "selfLink": f"{base}/storage/v1/b/{bucket.name}",
        "id": bucket.name,
        "name": bucket.name,
        "projectNumber": str(project_number),
        "generation": str(bucket.created),
        "metageneration": str(bucket.metageneration),
        "locationType": location_type(settings["location"]),
        "etag": metageneration_etag(bucket.metageneration),
        "timeCreated": rfc3339(bucket.created),
        "updated": rfc3339(bucket.updated),
        "softDeletePolicy": {"retentionDurationSeconds": "0"},
        "iamConfiguration": iam_configuration,
        **settings,
    }


def location_type(location: str) -> str:
    if location in {"US", "EU", "ASIA"}:
        return "multi-region"
    return "region" if "-" in location else "dual-region"


def notification_resource(config: NotificationConfig, base: str) -> dict[str, Any]:
    resource: dict[str, Any] = {
        "kind": "storage#notification",
        "selfLink": f"{base}/storage/v1/b/{config.bucket}/notificationConfigs/{config.id}",
        "id": config.id,
        "topic": f"//pubsub.googleapis.com/{config.topic}",
        "etag": config.id,
        "payload_format": config.payload_format.value,
    }
    if config.event_types:
        resource["event_types"] = [event.value for event in config.event_types]
    if config.object_name_prefix:
        resource["object_name_prefix"] = config.object_name_prefix
    if config.custom_attributes:
        resource["custom_attributes"] = dict(config.custom_attributes)
    return resource


def rewrite_response(version: ObjectVersion, resource: Mapping[str, Any]) -> dict[str, Any]:
    """A rewrite that is done at once: no token, as Google answers small copies."""
    return {
        "kind": "storage#rewriteResponse",
        "totalBytesRewritten": str(version.size),
        "objectSize": str(version.size),
        "done": True,
        "resource": resource,
    }
