"""Reading requests and shaping answers: query parameters, preconditions, checksums, errors.

Everything a client can get wrong on the wire is refused here, in Google's terms, before the core is asked.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import orjson

from ingestd.formats.textfiles import CorruptGzipError, gunzip
from ingestd.localcloud.faults import FaultInjected
from ingestd.localcloud.http import Request, Response
from ingestd.localcloud.storage.errors import (
    StorageError,
    invalid,
    not_modified,
    precondition_failed,
    unsupported,
)
from ingestd.localcloud.storage.model import (
    NO_CHECKSUMS,
    NO_CONDITIONS,
    Checksums,
    ObjectVersion,
    Preconditions,
)
from ingestd.localcloud.storage.server.fields import parse_fields

JSON_HEADERS = {"content-type": "application/json; charset=UTF-8"}
UNSUPPORTED_PARAMETERS = {
    "predefinedAcl": "predefined ACLs",
    "predefinedDefaultObjectAcl": "predefined ACLs",
    "destinationPredefinedAcl": "predefined ACLs",
    "kmsKeyName": "Cloud KMS encryption",
    "destinationKmsKeyName": "Cloud KMS encryption",
}
UNSUPPORTED_SWITCHES = {"softDeleted": "soft delete", "enableObjectRetention": "object retention"}


@dataclass(slots=True)
class Call:
    """A request that found its operation: the name faults know it by, what it is about, and how to do it."""

    method: str
    resource: str
    run: Callable[[], Response | Awaitable[Response]]


def boolean(query: Mapping[str, str], key: str) -> bool:
    """Clients write `true`, `True` or `1`."""
    return query.get(key, "").lower() in {"true", "1"}


def integer(query: Mapping[str, str], key: str) -> int | None:
    text = query.get(key)
    if text is None or text == "":
        return None
    try:
        return int(text)
    except ValueError as error:
        raise invalid(f"Invalid value '{text}' for query parameter '{key}'.", parameter=key) from error


def conditions(query: Mapping[str, str], prefix: str = "if") -> Preconditions:
    """The `ifGenerationMatch` family, or the source's with the prefix `ifSource`."""
    if not any(key.startswith("if") for key in query):
        return NO_CONDITIONS
    found = Preconditions(
        integer(query, f"{prefix}GenerationMatch"),
        integer(query, f"{prefix}GenerationNotMatch"),
        integer(query, f"{prefix}MetagenerationMatch"),
        integer(query, f"{prefix}MetagenerationNotMatch"),
    )
    return NO_CONDITIONS if found == NO_CONDITIONS else found


def text(resource: Mapping[str, Any], key: str) -> str | None:
    """A field that, where present, must be a string."""
    value = resource.get(key)
    if value is not None and not isinstance(value, str):
        raise invalid(f"Invalid value for field {key}: expected a string.")
    return value


def check_etags(request: Request, version: ObjectVersion) -> None:
    """HTTP's own conditions of a read. A version is a value, so checking it after the look-up is as good as before."""
    if (wanted := request.headers.get("if-match")) and not _names(wanted, version.etag):
        raise precondition_failed()
    if (known := request.headers.get("if-none-match")) and _names(known, version.etag):
        raise not_modified()


def _names(header: str, etag: str) -> bool:
    listed = {entry.strip().removeprefix("W/").strip('"') for entry in header.split(",")}
    return "*" in listed or etag in listed


def name_from_path(text: str) -> str:
    """An object or bucket name as it stands in a URL."""
    if "%" not in text:
        return text
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise invalid("Object and bucket names must be valid UTF-8.") from error


def checksums(request: Request, resource: Mapping[str, Any]) -> Checksums:
    """What the client claims its bytes hash to, in whichever of the three places it says so."""
    crc32c = text(resource, "crc32c")
    md5 = text(resource, "md5Hash") or request.headers.get("content-md5")
    if hashes := request.headers.get("x-goog-hash"):
        for entry in hashes.split(","):
            kind, _, value = entry.strip().partition("=")
            if kind == "crc32c":
                crc32c = value
            elif kind == "md5":
                md5 = value
    return Checksums(crc32c, md5) if crc32c or md5 else NO_CHECKSUMS


def refuse_unsupported(request: Request) -> None:
    for key, value in request.query.items():
        if key in UNSUPPORTED_PARAMETERS and value:
            raise unsupported(UNSUPPORTED_PARAMETERS[key])
        if key in UNSUPPORTED_SWITCHES and boolean(request.query, key):
            raise unsupported(UNSUPPORTED_SWITCHES[key])
    if "x-goog-encryption-algorithm" in request.headers or "x-goog-copy-source-encryption-algorithm" in request.headers:
        raise unsupported("customer-supplied encryption keys")


def body_of(request: Request) -> bytes:
    """The body without its transport compression."""
    if request.headers.get("content-encoding") != "gzip" or not request.body:
        return request.body
    try:
        return gunzip(".gz", request.body)
    except CorruptGzipError as error:
        raise invalid("The request body is not valid gzip data.") from error


def parse_json(data: bytes) -> dict[str, Any]:
    if not data.strip():
        return {}
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise StorageError(400, "parseError", "Parse Error") from error
    if not isinstance(value, dict):
        raise StorageError(400, "parseError", "Parse Error")
    return value


def json_body(request: Request) -> dict[str, Any]:
    return parse_json(body_of(request))


def answer(request: Request, value: Mapping[str, Any], status: int = 200) -> Response:
    if "fields=" in request.query_string and (mask := request.query.get("fields")):
        value = parse_fields(mask).select(value)
    return Response(status, orjson.dumps(value), JSON_HEADERS)


def as_storage_error(error: StorageError | FaultInjected) -> StorageError:
    if isinstance(error, StorageError):
        return error
    return StorageError(error.fault.status, error.fault.reason, error.fault.message)


def error_response(error: StorageError) -> Response:
    if error.status == 304:
        return Response(304)
    return Response.json(error.body(), error.status)


def base_url(request: Request) -> str:
    return f"http://{request.host}"
