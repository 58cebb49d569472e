"""What Cloud Storage would publish about an object: for test notifications that nobody can tell from real ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson
from google.cloud import storage

from ingestd.gcp.errors import translated
from ingestd.model.objects import ObjectRef

FINALIZE = "OBJECT_FINALIZE"
_JSON_PAYLOAD = "JSON_API_V1"


@dataclass(frozen=True, slots=True)
class Announcement:
    """One message, ready to publish. `invented` when the object does not exist and its description is made up."""

    topic: str
    data: bytes
    attributes: Mapping[str, str]
    invented: bool


@dataclass(frozen=True, slots=True)
class _Config:
    """A notification config of the bucket; without one, what Google's defaults would be."""

    topic: str
    id: str = "1"
    payload_format: str = _JSON_PAYLOAD
    custom_attributes: Mapping[str, str] = field(default_factory=dict)


def announcements(project: str, ref: ObjectRef, topic: str = "") -> list[Announcement]:
    """The messages of a finalize event: one per notification config of the bucket, or one for the given topic."""
    with storage.Client(project=project) as client, translated("describe", str(ref)):
        blob = client.bucket(ref.bucket).get_blob(ref.name)
        configs = [_Config(topic)] if topic else _configs(client, ref)
    resource = _invented(ref) if blob is None else dict(blob._properties)
    return [_announcement(config, resource, invented=blob is None) for config in configs]


def finalize_topics(project: str, ref: ObjectRef) -> list[str]:
    """The topics that the bucket tells of finalized objects with this name or prefix."""
    with storage.Client(project=project) as client, translated("describe the notifications of", f"gs://{ref.bucket}"):
        return [config.topic for config in _configs(client, ref)]


def _configs(client: storage.Client, ref: ObjectRef) -> list[_Config]:
    # Not `list_notifications`: it refuses project ids that Google would not hand out but a local cloud may have.
    answer = client._connection.api_request(method="GET", path=f"/b/{ref.bucket}/notificationConfigs")
    found = []
    for config in answer.get("items", ()):
        if FINALIZE not in (config.get("event_types") or [FINALIZE]):
            continue
        if not ref.name.startswith(config.get("object_name_prefix", "")):
            continue
        topic = config["topic"].removeprefix("//pubsub.googleapis.com/")
        found.append(_Config(topic, config["id"], config["payload_format"], config.get("custom_attributes", {})))
    return found


def _announcement(config: _Config, resource: dict[str, Any], *, invented: bool) -> Announcement:
    bucket = resource["bucket"]
    attributes = {
        **config.custom_attributes,
        "notificationConfig": f"projects/_/buckets/{bucket}/notificationConfigs/{config.id}",
        "eventType": FINALIZE,
        "payloadFormat": config.payload_format,
        "bucketId": bucket,
        "objectId": resource["name"],
        "objectGeneration": str(resource["generation"]),
        "eventTime": _rfc3339(datetime.now(UTC)),
    }
    with_payload = config.payload_format == _JSON_PAYLOAD
    data = orjson.dumps(resource, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE) if with_payload else b""
    return Announcement(config.topic, data, attributes, invented)


def _invented(ref: ObjectRef) -> dict[str, Any]:
    """The resource of an object that was never written: well formed, empty, created now."""
    now = datetime.now(UTC)
    generation = str(int(now.timestamp() * 1_000_000))
    created = _rfc3339(now)
    return {
        "kind": "storage#object",
        "id": f"{ref.bucket}/{ref.name}/{generation}",
        "name": ref.name,
        "bucket": ref.bucket,
        "generation": generation,
        "metageneration": "1",
        "contentType": "application/octet-stream",
        "timeCreated": created,
        "updated": created,
        "storageClass": "STANDARD",
        "timeStorageClassUpdated": created,
        "size": "0",
        "md5Hash": "1B2M2Y8AsgTpgAmY7PhCfg==",
        "crc32c": "AAAAAA==",
    }


def _rfc3339(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
