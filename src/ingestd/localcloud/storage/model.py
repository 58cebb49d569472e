"""The nouns of Cloud Storage as values: object versions, their metadata, buckets, preconditions, notification configs.

Times are whole microseconds since the epoch, as generations are. Nothing here touches disk or network.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any

from ingestd.localcloud.storage.errors import invalid, not_modified, precondition_failed, unsupported

type_error = "Invalid value for field {field}: expected {expected}."

NO_CUSTOM: Mapping[str, str] = {}


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def rfc3339(micros: int) -> str:
    """Milliseconds, as resources show times."""
    return f"{_second(micros // 1_000_000)}.{micros // 1000 % 1000:03d}Z"


def rfc3339_micros(micros: int) -> str:
    """Microseconds, as notification attributes show times."""
    return f"{_second(micros // 1_000_000)}.{micros % 1_000_000:06d}Z"


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@lru_cache(maxsize=4096)
def object_etag(generation: int, metageneration: int) -> str:
    """Google's own construction: both numbers as a tiny protocol buffer, in base64."""
    return base64.b64encode(b"\x08" + _varint(generation) + b"\x10" + _varint(metageneration)).decode()


def metageneration_etag(metageneration: int) -> str:
    return base64.b64encode(b"\x08" + _varint(metageneration)).decode()


# The API's field name of each writable text property.
TEXT_FIELDS = {
    "contentType": "content_type",
    "contentEncoding": "content_encoding",
    "contentDisposition": "content_disposition",
    "contentLanguage": "content_language",
    "cacheControl": "cache_control",
    "customTime": "custom_time",
    "storageClass": "storage_class",
}
FLAG_FIELDS = {"temporaryHold": "temporary_hold", "eventBasedHold": "event_based_hold"}
STORAGE_CLASSES = frozenset(
    {"STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE", "REGIONAL", "MULTI_REGIONAL", "DURABLE_REDUCED_AVAILABILITY"}
)
UNSUPPORTED_OBJECT_FIELDS = {
    "acl": "object ACLs",
    "retention": "object retention",
    "contexts": "object contexts",
    "kmsKeyName": "Cloud KMS encryption",
    "customerEncryption": "customer-supplied encryption keys",
}


@dataclass(frozen=True, slots=True)
class ObjectMetadata:
    """What a writer may say about an object, beside its bytes."""

    content_type: str | None = None
    content_encoding: str | None = None
    content_disposition: str | None = None
    content_language: str | None = None
    cache_control: str | None = None
    custom_time: str | None = None
    storage_class: str | None = None
    temporary_hold: bool | None = None
    event_based_hold: bool | None = None
    custom: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, resource: Mapping[str, Any]) -> "ObjectMetadata":
        """From an API resource; output-only fields in it are ignored, as Google does."""
        return cls().patched(resource) if resource else cls()

    def patched(self, resource: Mapping[str, Any]) -> "ObjectMetadata":
        """JSON merge patch: a null removes, an absent field stays."""
        changes: dict[str, Any] = {}
        for key, value in resource.items():
            if key in TEXT_FIELDS:
                if value is not None and not isinstance(value, str):
                    raise invalid(type_error.format(field=key, expected="a string"))
                changes[TEXT_FIELDS[key]] = value
            elif key in FLAG_FIELDS:
                if value is not None and not isinstance(value, bool):
                    raise invalid(type_error.format(field=key, expected="a boolean"))
                changes[FLAG_FIELDS[key]] = value
            elif key == "metadata":
                changes["custom"] = self._custom_patched(value)
            elif value and key in UNSUPPORTED_OBJECT_FIELDS:
                raise unsupported(UNSUPPORTED_OBJECT_FIELDS[key])
        storage_class = changes.get("storage_class")
        if storage_class is not None and storage_class not in STORAGE_CLASSES:
            raise invalid(f"The storage class {storage_class!r} is not valid.")
        if (custom_time := changes.get("custom_time")) is not None:
            changes["custom_time"] = self._custom_time(custom_time)
        return replace(self, **changes)

    def _custom_patched(self, value: Any) -> Mapping[str, str]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise invalid(type_error.format(field="metadata", expected="an object"))
        merged = dict(self.custom)
        for key, text in value.items():
            if text is None:
                merged.pop(key, None)
            elif isinstance(text, str):
                merged[key] = text
            else:
                raise invalid(type_error.format(field=f"metadata.{key}", expected="a string"))
        return merged

    @staticmethod
    def _custom_time(value: str) -> str:
        try:
            moment = datetime.fromisoformat(value)
        except ValueError as error:
            raise invalid(f"Invalid value for field customTime: {value!r} is not an RFC 3339 time.") from error
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        return rfc3339(round(moment.timestamp() * 1_000_000))

    def stored(self) -> dict[str, Any]:
        """Only what is set, for the database."""
        return {name: value for name in METADATA_NAMES if (value := getattr(self, name)) not in (None, NO_CUSTOM)}


METADATA_NAMES = tuple(entry.name for entry in fields(ObjectMetadata))


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """One generation of one object, live or noncurrent (`deleted` is when it stopped being live)."""

    bucket: str
    name: str
    generation: int
    metageneration: int
    live: bool
    size: int
    crc32c: str
    md5: str | None  # composed objects have none
    created: int
    updated: int
    deleted: int | None
    components: int | None
    payload: int | None  # row of an inline payload
    file: str | None  # file of a large payload
    metadata: ObjectMetadata

    @property
    def etag(self) -> str:
        return object_etag(self.generation, self.metageneration)


@dataclass(frozen=True, slots=True)
class Preconditions:
    """The `if*Match` family. A `…NotMatch` that finds the very thing answers 304, every other miss 412."""

    generation: int | None = None
    not_generation: int | None = None
    metageneration: int | None = None
    not_metageneration: int | None = None

    def check(self, live: ObjectVersion | None, target: ObjectVersion | None) -> None:
        """`live` is the name's live version, `target` the version the request selected."""
        if self is NO_CONDITIONS:
            return
        live_generation = live.generation if live else 0
        if self.generation is not None and self.generation != live_generation:
            raise precondition_failed()
        if self.not_generation is not None:
            if live is None:
                raise precondition_failed()
            if self.not_generation == live_generation:
                raise not_modified()
        if self.metageneration is not None and (target is None or target.metageneration != self.metageneration):
            raise precondition_failed()
        if self.not_metageneration is not None:
            if target is None:
                raise precondition_failed()
            if target.metageneration == self.not_metageneration:
                raise not_modified()

    def check_metageneration(self, actual: int) -> None:
        """For buckets, which have no generation to compare."""
        if self.metageneration is not None and self.metageneration != actual:
            raise precondition_failed()
        if self.not_metageneration is not None and self.not_metageneration == actual:
            raise not_modified()

    def stored(self) -> dict[str, int | None]:
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}


NO_CONDITIONS = Preconditions()


@dataclass(frozen=True, slots=True)
class Checksums:
    """What the writer says its bytes hash to, in base64; checked before the object exists."""

    crc32c: str | None = None
    md5: str | None = None

    def check(self, crc32c: str, md5: str | None) -> None:
        if self.crc32c is not None and self.crc32c != crc32c:
            raise invalid(f'Provided CRC32C "{self.crc32c}" doesn\'t match calculated CRC32C "{crc32c}".')
        if self.md5 is not None and md5 is not None and self.md5 != md5:
            raise invalid(f'Provided MD5 hash "{self.md5}" doesn\'t match calculated MD5 hash "{md5}".')

    def merged(self, other: "Checksums") -> "Checksums":
        return Checksums(other.crc32c or self.crc32c, other.md5 or self.md5)


NO_CHECKSUMS = Checksums()


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket. `settings` holds what the API lets one configure, as its JSON; the core acts on what it implements."""

    name: str
    created: int
    updated: int
    metageneration: int
    settings: Mapping[str, Any]
    iam: Mapping[str, Any]
    next_notification: int = 1

    @property
    def versioning(self) -> bool:
        return bool((self.settings.get("versioning") or {}).get("enabled"))

    @property
    def storage_class(self) -> str:
        return str(self.settings.get("storageClass", "STANDARD"))

    @property
    def default_event_based_hold(self) -> bool:
        return bool(self.settings.get("defaultEventBasedHold"))


class EventType(StrEnum):
    FINALIZE = "OBJECT_FINALIZE"
    DELETE = "OBJECT_DELETE"
    METADATA_UPDATE = "OBJECT_METADATA_UPDATE"
    ARCHIVE = "OBJECT_ARCHIVE"


class PayloadFormat(StrEnum):
    JSON = "JSON_API_V1"
    NONE = "NONE"


@dataclass(frozen=True, slots=True)
class NotificationConfig:
    """Which events of a bucket go to which topic (`projects/p/topics/t`), and with what in them."""

    id: str
    bucket: str
    topic: str
    event_types: tuple[EventType, ...] = ()
    object_name_prefix: str = ""
    custom_attributes: Mapping[str, str] = field(default_factory=dict)
    payload_format: PayloadFormat = PayloadFormat.JSON

    def wants(self, event: EventType, name: str) -> bool:
        return (not self.event_types or event in self.event_types) and name.startswith(self.object_name_prefix)


@dataclass(frozen=True, slots=True)
class ListQuery:
    prefix: str = ""
    delimiter: str = ""
    start_offset: str = ""
    end_offset: str = ""
    match_glob: str = ""
    include_trailing_delimiter: bool = False
    versions: bool = False
    max_results: int = 1000
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class ListPage:
    items: list[ObjectVersion]
    prefixes: list[str]
    next_page_token: str = ""


@dataclass(frozen=True, slots=True)
class ComposeSource:
    name: str
    generation: int | None = None
    if_generation: int | None = None


class UploadState(StrEnum):
    OPEN = "open"
    DONE = "done"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class UploadStatus:
    """How far a resumable upload is; `result` once it made its object."""

    received: int
    result: ObjectVersion | None = None
