"""Reading GCS object notifications, in every shape that reaches the topic.

Google publishes attributes with the object resource (`JSON_API_V1`) or without it (`NONE`). People who test by hand
publish Cloud Functions events and CloudEvents. All of them become an `ObjectEvent`; what is none of them raises
`Unreadable` with a reason, and never anything else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from ingestd.model.objects import EPOCH, LATEST, FileVersion, Generation, ObjectRef, generation_time
from ingestd.model.stored import instant, number

FINALIZE = "OBJECT_FINALIZE"

# Cloud Functions (v1) and CloudEvents (Eventarc) names for the same four events.
_EVENT_TYPES = {
    "google.storage.object.finalize": FINALIZE,
    "google.storage.object.delete": "OBJECT_DELETE",
    "google.storage.object.archive": "OBJECT_ARCHIVE",
    "google.storage.object.metadataUpdate": "OBJECT_METADATA_UPDATE",
    "google.cloud.storage.object.v1.finalized": FINALIZE,
    "google.cloud.storage.object.v1.deleted": "OBJECT_DELETE",
    "google.cloud.storage.object.v1.archived": "OBJECT_ARCHIVE",
    "google.cloud.storage.object.v1.metadataUpdated": "OBJECT_METADATA_UPDATE",
}
_KNOWN = frozenset(_EVENT_TYPES.values())
_LONGEST_NAME, _LONGEST_BUCKET, _LARGEST = 1024, 222, 5 << 40  # bytes, characters, bytes: Cloud Storage's own limits


class Unreadable(Exception):  # noqa: N818 - a verdict on the message
    """The message is not an event we know; `reason` is for the person who reads the dead letters."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True)  # not frozen: made for every message of a file that is taken, and freezing triples its cost
class ObjectEvent:
    """Something happened to one generation of an object."""

    kind: str
    file: FileVersion
    overwrote: Generation | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def finalized(self) -> bool:
        return self.kind == FINALIZE


def parse_notification(data: bytes, attributes: Mapping[str, str]) -> ObjectEvent:
    kind, name = attributes.get("eventType"), attributes.get("objectId")
    if kind is not None and name is not None:
        return _from_attributes(kind, name, data, attributes)
    document = _object(data)
    kind = kind or attributes.get("ce-type") or _text(document, "type") or _text(document, "eventType")
    if not kind and isinstance(document.get("context"), dict):
        kind = _text(document["context"], "eventType")
    resource = document.get("data") if isinstance(document.get("data"), dict) else document
    assert isinstance(resource, dict)
    return _from_resource(_EVENT_TYPES.get(kind, kind) if kind else FINALIZE, resource, attributes)


def _from_attributes(kind: str, name: str, data: bytes, attributes: Mapping[str, str]) -> ObjectEvent:
    resource: dict[str, Any] = {}
    if data and attributes.get("payloadFormat") != "NONE":
        resource = _object(data)
    return _event(
        _EVENT_TYPES.get(kind, kind),
        attributes.get("bucketId") or resource.get("bucket"),
        name,
        _generation(attributes.get("objectGeneration")) or _generation(resource.get("generation")),
        resource,
        attributes.get("overwroteGeneration"),
    )


def _from_resource(kind: str, resource: dict[str, Any], attributes: Mapping[str, str]) -> ObjectEvent:
    generation = _generation(resource.get("generation"))
    overwrote = attributes.get("overwroteGeneration")
    return _event(kind, resource.get("bucket"), resource.get("name"), generation, resource, overwrote)


def _event(
    kind: str,
    bucket: object,
    name: object,
    generation: Generation | None,
    resource: dict[str, Any],
    overwrote: str | None,
) -> ObjectEvent:
    if kind not in _KNOWN:
        raise Unreadable(f"unknown event type {kind!r}")
    if not bucket or not name or not isinstance(bucket, str) or not isinstance(name, str):
        raise Unreadable("the event names no bucket or no object")
    if (4 * len(name) > _LONGEST_NAME and len(name.encode()) > _LONGEST_NAME) or len(bucket) > _LONGEST_BUCKET:
        raise Unreadable(f"no object can have the name that the event gives: {bucket[:60]!r}, {name[:60]!r}…")
    if generation is None:
        raise Unreadable("the event carries no object generation")
    created = _instant(resource.get("timeCreated")) or generation_time(generation)
    file = FileVersion(
        ObjectRef(bucket, name), generation, _size(resource.get("size")), created, _text(resource, "crc32c")
    )
    metadata = resource.get("metadata")
    own = {str(key): str(value) for key, value in metadata.items()} if isinstance(metadata, dict) else {}
    return ObjectEvent(kind, file, _generation(overwrote) if overwrote else None, own)


def _size(value: object) -> int:
    """What is more than Cloud Storage's largest object is no size, and counts as unknown: sizes are added up."""
    found = number(value)
    return found if 0 <= found <= _LARGEST else 0


def _object(data: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Unreadable(f"the payload is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise Unreadable(f"the payload is a JSON {type(document).__name__}, not an object")
    return document


def _text(document: dict[str, Any], key: str) -> str:
    value = document.get(key)
    return value if isinstance(value, str) else ""


def _generation(value: object) -> Generation | None:
    found = 0 if isinstance(value, bool) else number(value)
    return Generation(found) if found > 0 else None


def _instant(value: object) -> datetime | None:
    """A moment that windows can be reckoned from; others count as not given."""
    found = instant(value)
    return found if found is not None and EPOCH <= found < LATEST else None
