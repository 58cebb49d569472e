"""Bytes over the wire: simple, multipart and resumable uploads; downloads whole, in ranges, and unzipped on the way."""

import asyncio
import base64
import binascii
import re
from collections.abc import Awaitable
from email.utils import formatdate
from typing import Any
from urllib.parse import quote

from ingestd.formats.textfiles import CorruptGzipError, gunzip
from ingestd.localcloud.http import Request, Response
from ingestd.localcloud.storage.core import StorageCore
from ingestd.localcloud.storage.errors import StorageError, invalid, not_found, range_not_satisfiable, required
from ingestd.localcloud.storage.model import Checksums, ObjectMetadata, ObjectVersion, UploadStatus
from ingestd.localcloud.storage.object_ops import ObjectContent
from ingestd.localcloud.storage.resources import object_resource
from ingestd.localcloud.storage.server.multipart import parse_multipart
from ingestd.localcloud.storage.server.wire import (
    Call,
    answer,
    base_url,
    body_of,
    check_etags,
    checksums,
    conditions,
    integer,
    parse_json,
    refuse_unsupported,
    text,
)

# Larger bodies are read and written in a thread, so that one big file does not hold up every other request.
THREADED = 1 << 20

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


class MediaRoutes:
    def __init__(self, core: StorageCore) -> None:
        self._core = core

    # Uploads.

    def upload(self, request: Request, bucket: str) -> Call:
        """`/upload/storage/v1/b/{bucket}/o`"""
        query = request.query
        if upload_id := query.get("upload_id"):
            return self._session(request, upload_id)
        kind = query.get("uploadType") or request.headers.get("x-goog-upload-protocol", "")
        if request.method not in {"POST", "PUT"}:
            raise not_found()
        refuse_unsupported(request)
        if kind == "media":
            name = query.get("name") or _missing_name()
            data = body_of(request)
            return self._insert(request, bucket, name, {}, data, request.headers.get("content-type"))
        if kind == "multipart":
            return self._multipart(request, bucket)
        if kind == "resumable":
            resource = parse_json(body_of(request))
            name = query.get("name") or text(resource, "name") or _missing_name()
            return Call("uploads.start", f"{bucket}/{name}", lambda: self._start(request, bucket, name, resource))
        raise invalid(f"Unknown upload type {kind!r}.", parameter="uploadType")

    def _multipart(self, request: Request, bucket: str) -> Call:
        parts = parse_multipart(request.headers.get("content-type", ""), body_of(request))
        if len(parts) != 2:
            raise invalid(f"A multipart upload has two parts, metadata and media; this one has {len(parts)}.")
        described, media = parts
        resource = parse_json(described.body)
        name = request.query.get("name") or text(resource, "name") or _missing_name()
        data = media.body
        if media.headers.get("content-transfer-encoding", "").lower() == "base64":
            try:
                data = base64.b64decode(data)
            except binascii.Error as error:
                raise invalid("The media part is not valid base64.") from error
        return self._insert(request, bucket, name, resource, data, media.headers.get("content-type"))

    def _insert(
        self, request: Request, bucket: str, name: str, resource: dict[str, Any], data: bytes, media_type: str | None
    ) -> Call:
        metadata = _metadata(request, resource, media_type)
        wanted = conditions(request.query)
        claimed = checksums(request, resource)

        def insert() -> Response:
            version = self._core.objects.insert(bucket, name, data, metadata, wanted, claimed)
            return answer(request, self._resource(request, version))

        run = insert if len(data) < THREADED else lambda: asyncio.to_thread(insert)
        return Call("objects.insert", f"{bucket}/{name}", run)

    def _start(self, request: Request, bucket: str, name: str, resource: dict[str, Any]) -> Response:
        length = request.headers.get("x-upload-content-length")
        if length is not None and not length.isdigit():
            raise invalid(f"Invalid X-Upload-Content-Length {length!r}.")
        upload_id = self._core.uploads.start(
            bucket,
            name,
            _metadata(request, resource, request.headers.get("x-upload-content-type")),
            conditions(request.query),
            checksums(request, resource),
            int(length) if length is not None else None,
        )
        location = (
            f"{base_url(request)}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&name={quote(name, safe='')}"
            f"&upload_id={upload_id}"
        )
        return Response(200, b"", {"location": location, "x-guploader-uploadid": upload_id})

    def _session(self, request: Request, upload_id: str) -> Call:
        upload = self._core.uploads.describe(upload_id)
        resource = f"{upload.bucket}/{upload.name}"
        if request.method == "DELETE":
            return Call("uploads.cancel", resource, lambda: self._cancel(upload_id))
        if request.method not in {"PUT", "POST"}:
            raise not_found()
        data = request.body
        claimed = checksums(request, {})
        spec = request.headers.get("content-range")
        if spec is None:
            return self._piece(request, resource, upload_id, 0, data, len(data), claimed)
        match = _CONTENT_RANGE.fullmatch(spec.strip())
        if match is None:
            raise invalid(f"Failed to parse Content-Range header {spec!r}.")
        first, last, whole = match.groups()
        total = None if whole == "*" else int(whole)
        if first is None:
            return Call(
                "uploads.status",
                resource,
                lambda: self._progress(request, self._core.uploads.status(upload_id, total)),
            )
        announced = int(last) - int(first) + 1
        if announced != len(data):
            raise invalid(
                f"Invalid request.  There were {len(data)} byte(s) in the request body.  There should have been"
                f" {announced} byte(s) (starting at offset {first} and ending at offset {last}) according to the"
                " Content-Range header."
            )
        return self._piece(request, resource, upload_id, int(first), data, total, claimed)

    def _piece(
        self,
        request: Request,
        resource: str,
        upload_id: str,
        offset: int,
        data: bytes,
        total: int | None,
        claimed: Checksums,
    ) -> Call:
        def write() -> Response:
            return self._progress(request, self._core.uploads.write(upload_id, offset, data, total, claimed))

        run = write if len(data) < THREADED else lambda: asyncio.to_thread(write)
        return Call("uploads.write", resource, run)

    def _progress(self, request: Request, status: UploadStatus) -> Response:
        if status.result is not None:
            return answer(request, self._resource(request, status.result))
        headers = {"range": f"bytes=0-{status.received - 1}"} if status.received else {}
        if request.headers.get("x-guploader-no-308", "").lower() == "yes":
            return Response(200, b"", {**headers, "x-http-status-code-override": "308"})
        return Response(308, b"", headers)

    def _cancel(self, upload_id: str) -> Response:
        self._core.uploads.cancel(upload_id)
        return Response(499)

    @staticmethod
    def _resource(request: Request, version: ObjectVersion) -> dict[str, Any]:
        base = base_url(request)
        return object_resource(version, base, base)

    # Downloads.

    def download(self, request: Request, bucket: str, name: str) -> Call:
        return Call("objects.get", f"{bucket}/{name}", lambda: self._download(request, bucket, name))

    def _download(self, request: Request, bucket: str, name: str) -> Response | Awaitable[Response]:
        refuse_unsupported(request)
        query = request.query
        content = self._core.objects.open(bucket, name, integer(query, "generation"), conditions(query))
        if content.handle is None or request.method == "HEAD":
            return _serve(request, content)
        return asyncio.to_thread(_serve, request, content)


def _missing_name() -> str:
    raise required("name")


def _metadata(request: Request, resource: dict[str, Any], media_type: str | None) -> ObjectMetadata:
    """The object's metadata; the type of the media itself counts where the resource names none."""
    merged = {**resource}
    if merged.get("contentType") is None and media_type:
        merged["contentType"] = media_type
    if encoding := request.query.get("contentEncoding"):
        merged["contentEncoding"] = encoding
    return ObjectMetadata.parse(merged)


def _serve(request: Request, content: ObjectContent) -> Response:
    version = content.version
    meta = version.metadata
    try:
        check_etags(request, version)
    except StorageError:
        content.close()
        raise
    headers = _headers(version)
    if meta.content_encoding == "gzip":
        accepted = "gzip" in request.headers.get("accept-encoding", "")
        if not accepted and "no-transform" not in (meta.cache_control or ""):
            return _unzipped(content, headers)
    if meta.content_encoding is not None:
        headers["content-encoding"] = meta.content_encoding
    wanted = request.headers.get("range")
    match = _RANGE.fullmatch(wanted.strip()) if wanted else None
    if match is None or match.groups() == ("", ""):
        if request.method == "HEAD":
            content.close()
            return Response(200, b"", {**headers, "content-length": str(version.size)})
        return Response(200, content.read(), headers)
    first, last = match.groups()
    size = version.size
    if first:
        start, stop = int(first), min(int(last) + 1 if last else size, size)
    else:
        start, stop = max(size - int(last), 0), size
    if start >= stop:
        content.close()
        error = range_not_satisfiable()
        return Response.json(error.body(), 416, {"content-range": f"bytes */{size}"})
    headers["content-range"] = f"bytes {start}-{stop - 1}/{size}"
    return Response(206, content.read(start, stop), headers)


def _headers(version: ObjectVersion) -> dict[str, str]:
    meta = version.metadata
    hashes = f"crc32c={version.crc32c}" + (f",md5={version.md5}" if version.md5 else "")
    headers = {
        "content-type": meta.content_type or "application/octet-stream",
        "accept-ranges": "bytes",
        "etag": version.etag,
        "last-modified": formatdate(version.updated / 1_000_000, usegmt=True),
        "x-goog-generation": str(version.generation),
        "x-goog-metageneration": str(version.metageneration),
        "x-goog-hash": hashes,
        "x-goog-storage-class": meta.storage_class or "STANDARD",
        "x-goog-stored-content-encoding": meta.content_encoding or "identity",
        "x-goog-stored-content-length": str(version.size),
    }
    optional = {
        "cache-control": meta.cache_control,
        "content-disposition": meta.content_disposition,
        "content-language": meta.content_language,
    }
    headers |= {header: value for header, value in optional.items() if value is not None}
    return headers


def _unzipped(content: ObjectContent, headers: dict[str, str]) -> Response:
    """Decompressive transcoding: ranges do not apply, and the stored hash is not that of what is sent."""
    data = content.read()
    try:
        data = gunzip(".gz", data)
    except CorruptGzipError:
        headers["content-encoding"] = "gzip"
        return Response(200, data, headers)
    headers["warning"] = "214 UploadServer gunzipped"
    del headers["accept-ranges"]
    return Response(200, data, headers)
