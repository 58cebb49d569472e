"""`ObjectStore` on google-cloud-storage.

The library's own retries are off: `Retrier` decides, so that it is known when an answer may have been lost. A
conditional write whose answer was lost comes back as 412 on the next attempt; each such write therefore carries a mark
of its own, and finding that mark on the object means the write was ours.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from google.api_core import exceptions as api
from google.cloud.storage import Blob, Client

from ingestd.formats.textfiles import CorruptGzipError, gunzip
from ingestd.gcp.bulk import Asked, Bulk, Rewrite, missing_bucket
from ingestd.gcp.errors import translated
from ingestd.gcp.multicall import Multicall, object_path
from ingestd.gcp.rest import Rest, download
from ingestd.gcp.threads import Threads
from ingestd.gcp.upload import upload_body, upload_path
from ingestd.model.errors import BadInput, IngestError, NotFound, PreconditionFailed, TooWide, Transient
from ingestd.model.objects import ABSENT, Generation, ObjectInfo, ObjectRef
from ingestd.model.stored import refuse_larger
from ingestd.ports import Copy, Deletion
from ingestd.retry import Retrier

WRITE_MARK = "ingestd-write"  # custom metadata of conditional writes; never shown to callers
_PAGE_FIELDS = "items(name,generation,size,timeCreated,crc32c,contentType,metadata,metageneration),nextPageToken"
_HEADERS = ("contentEncoding", "contentDisposition", "contentLanguage", "cacheControl")
_KEPT_ON_COPY = ("contentType", *_HEADERS)
_MAX_READ_RACES = 5
_GONE = 410

T = TypeVar("T")


class GcsStore:
    def __init__(
        self,
        client: Client,
        rest: Rest,
        threads: Threads,
        retrier: Retrier,
        *,
        timeout: float = 60.0,
        transfers: Threads | None = None,
    ) -> None:
        """`transfers` move whole files: the lease of a record must not wait behind them."""
        self._client = client
        self._threads = threads
        self._transfers = transfers or threads
        self._retrier = retrier
        self._timeout = timeout
        self._endpoint = client.api_endpoint.rstrip("/")
        self._rest = rest
        self._bulk = Bulk(Multicall(client._http, client.api_endpoint, timeout=timeout), threads, retrier)

    async def stat(self, ref: ObjectRef, *, generation: Generation | None = None) -> ObjectInfo | None:
        found = await self._describe(ref, generation)
        return None if found is None else _described(ref, found)

    async def read(
        self, ref: ObjectRef, *, generation: Generation | None = None, largest: int | None = None
    ) -> tuple[bytes, ObjectInfo]:
        """Content as the writer meant it: a `Content-Encoding: gzip` object is decoded. Checksums are verified."""
        for _ in range(_MAX_READ_RACES):
            info = await self.stat(ref, generation=generation)
            if info is None:
                raise NotFound(f"read {_versioned(ref, generation)}: no such object")
            refuse_larger(info, largest)
            data = await self._call("read", ref, partial(self._read, ref, info.generation))
            if data is not None:
                return data, info
            # Replaced between the two calls: describe the new generation instead.
        raise Transient(f"read {ref}: it was replaced {_MAX_READ_RACES} times while being read")

    async def create(
        self,
        ref: ObjectRef,
        data: bytes,
        *,
        if_generation: Generation | None = None,
        content_type: str = "application/json",
        metadata: Mapping[str, str] | None = None,
    ) -> Generation:
        mark = uuid.uuid4().hex if if_generation is not None else ""
        labels = {**(metadata or {}), **({WRITE_MARK: mark} if mark else {})}
        tries = 0

        url = self._endpoint + upload_path(ref.bucket, if_generation)

        async def attempt() -> Generation:
            nonlocal tries
            tries += 1
            kind, body = upload_body(ref.name, data, content_type, labels)
            try:
                with translated("write", ref.url):
                    return Generation(int((await self._rest.post(url, body, kind))["generation"]))
            except PreconditionFailed:
                if tries == 1 or not mark:
                    raise
                with translated("stat", ref.url):
                    found = await self._seen(ref, None)
                if found is None or (found.get("metadata") or {}).get(WRITE_MARK) != mark:
                    raise
                return Generation(int(found["generation"]))

        return await self._retrier.call(attempt, "storage.create", resource=ref.url)

    async def fetch(
        self, ref: ObjectRef, *, generation: Generation, start: int = 0, end: int | None = None, small: bool = False
    ) -> bytes | None:
        whole = start == 0 and end is None
        if whole and small:
            stored = await self._call("fetch", ref, lambda: self._stored(ref, generation))
            return None if stored is None else stored[0]
        span = "" if whole else f"{start}-{'' if end is None else end - 1}"

        def fetched() -> bytes | None:
            url = self._media_url(ref, generation)
            try:
                return download(self._client._http, url, span=span, timeout=self._timeout)[0]
            except api.NotFound as error:
                _refuse_missing_bucket(error)
                return None

        return await self._transfer("fetch", ref, fetched)

    async def upload(self, ref: ObjectRef, path: Path, *, content_type: str = "application/octet-stream") -> Generation:
        def send() -> Generation:
            blob = self._blob(ref)
            try:
                blob.upload_from_filename(
                    str(path), content_type=content_type, timeout=self._timeout, checksum="crc32c", retry=None
                )
            except (api.GoogleAPICallError, ValueError) as error:
                if not _session_lost(error):
                    raise
                raise Transient(f"upload {ref}: it has to begin anew: {error}") from error
            return Generation(int(blob.generation))

        return await self._transfer("upload", ref, send)

    async def delete(self, ref: ObjectRef, *, if_generation: Generation | None = None) -> bool:
        async def remove() -> bool:
            try:
                await self._rest.delete(self._endpoint + object_path(ref, ifGenerationMatch=if_generation))
            except api.NotFound as error:
                _refuse_missing_bucket(error)
                return False
            except api.PreconditionFailed:
                if await self._seen(ref, None) is None:
                    return False
                raise
            return True

        return await self._call("delete", ref, remove)

    async def copy(
        self,
        source: ObjectRef,
        target: ObjectRef,
        *,
        source_generation: Generation | None = None,
        if_generation: Generation | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Generation:
        return await self._copy(source, target, source_generation, if_generation, metadata or {})

    async def _copy(
        self,
        source: ObjectRef,
        target: ObjectRef,
        source_generation: Generation | None,
        if_generation: Generation | None,
        metadata: Mapping[str, str],
        *,
        tried: bool = False,
    ) -> Generation:
        """`tried`: it may have been made already, by a call whose answer was lost."""
        original = await self._describe(source, source_generation)
        if original is None:
            raise NotFound(f"copy {_versioned(source, source_generation)}: no such object")
        resource = _copied(original, metadata)
        pinned = self._blob(source, Generation(int(original["generation"])))
        token: str | None = None
        tries = 1 if tried else 0

        def rewrite(so_far: str | None) -> tuple[str | None, Generation | None]:
            blob = self._blob(target)
            _set_resource(blob, resource)
            try:
                more, _, _ = blob.rewrite(
                    pinned, token=so_far, if_generation_match=if_generation, timeout=self._timeout, retry=None
                )
            except api.GoogleAPICallError as error:
                if so_far is None or error.code != _GONE:
                    raise
                raise _TokenLost(f"copy to {target}: it has to begin anew: {error}") from error
            return more, None if more else Generation(int(blob.generation))

        async def attempt() -> tuple[str | None, Generation | None]:
            nonlocal tries, token
            tries += 1
            try:
                return await self._threads.run(_translating, "copy", target, lambda: rewrite(token))
            except _TokenLost:
                token = None
                raise
            except PreconditionFailed:
                if tries == 1:
                    raise
                with translated("stat", target.url):
                    found = await self._seen(target, None)
                if found is None or any(found.get(key) != original.get(key) for key in ("crc32c", "size")):
                    raise
                return None, Generation(int(found["generation"]))

        while True:
            token, generation = await self._retrier.call(attempt, "storage.copy", resource=target.url)
            if generation is not None:
                return generation
            tries = 0

    async def stat_all(self, refs: Sequence[ObjectRef]) -> list[ObjectInfo | IngestError | None]:
        found = await self._bulk.describe([Asked(ref) for ref in refs], self._described)
        return [_with_headers(ref, one) if isinstance(one, dict) else one for ref, one in zip(refs, found, strict=True)]

    async def delete_all(self, deletions: Sequence[Deletion]) -> list[bool | IngestError]:
        async def single(one: Deletion, _again: bool) -> bool:
            return await self.delete(one.ref, if_generation=one.generation)

        return await self._bulk.delete(deletions, single)

    async def copy_all(self, copies: Sequence[Copy]) -> list[Generation | IngestError]:
        known = [_resource(one.seen) if one.seen else None for one in copies]
        asked = [
            Asked(one.source, one.source_generation) for one, seen in zip(copies, known, strict=True) if seen is None
        ]
        answers = iter(await self._bulk.describe(asked, self._described))
        sources = [next(answers) if seen is None else seen for seen in known]
        outcomes: list[Generation | IngestError] = []
        rewrites: dict[int, Rewrite] = {}
        for number, (one, found) in enumerate(zip(copies, sources, strict=True)):
            if isinstance(found, dict):
                rewrites[number] = Rewrite(one, _copied(found, one.metadata))
                outcomes.append(ABSENT)  # until it is known
            else:
                missing = NotFound(f"copy {_versioned(one.source, one.source_generation)}: no such object")
                outcomes.append(missing if found is None else found)

        async def single(one: Rewrite, again: bool) -> Generation:
            copy = one.copy
            return await self._copy(
                copy.source, copy.target, copy.source_generation, copy.if_generation, copy.metadata, tried=again
            )

        for number, outcome in zip(rewrites, await self._bulk.rewrite([*rewrites.values()], single), strict=True):
            outcomes[number] = outcome
        return outcomes

    async def _described(self, asked: Asked, _again: bool) -> dict[str, Any] | None:
        return await self._describe(asked.ref, asked.generation)

    async def list(
        self, prefix: ObjectRef, *, delimiter: str = "", start: str = "", end: str = "", glob: str = ""
    ) -> AsyncIterator[ObjectInfo]:
        """One page is fetched at a time, and only when the caller gets there."""
        token = ""
        asked = {
            "prefix": prefix.name,
            "delimiter": delimiter,
            "startOffset": start,
            "endOffset": end,
            "matchGlob": glob,
            "fields": _PAGE_FIELDS if not delimiter else f"prefixes,{_PAGE_FIELDS}",
        }
        path = f"{self._endpoint}/storage/v1/b/{quote(prefix.bucket, safe='')}/o"
        while True:
            query = urlencode({key: value for key, value in (*asked.items(), ("pageToken", token)) if value})
            page = await self._call("list", prefix, partial(self._rest.get, f"{path}?{query}"))
            token = page.get("nextPageToken") or ""
            if glob and token:
                raise TooWide(f"listing {prefix} by pattern takes several calls")
            for item in page.get("items", ()):
                yield _described(ObjectRef(prefix.bucket, item["name"]), item)
            if not token:
                return

    async def _call(self, operation: str, ref: ObjectRef, fn: Callable[[], Awaitable[T]]) -> T:
        async def attempt() -> T:
            with translated(operation, ref.url):
                return await fn()

        return await self._retrier.call(attempt, f"storage.{operation}", resource=ref.url)

    async def _transfer(self, operation: str, ref: ObjectRef, fn: Callable[[], T]) -> T:
        """Whole files, in threads of their own."""

        def attempt() -> Awaitable[T]:
            return self._transfers.run(_translating, operation, ref, fn)

        return await self._retrier.call(attempt, f"storage.{operation}", resource=ref.url)

    def _blob(self, ref: ObjectRef, generation: Generation | None = None) -> Blob:
        return self._client.bucket(ref.bucket).blob(ref.name, generation=generation)

    async def _describe(self, ref: ObjectRef, generation: Generation | None) -> dict[str, Any] | None:
        return await self._call("stat", ref, lambda: self._seen(ref, generation))

    async def _seen(self, ref: ObjectRef, generation: Generation | None) -> dict[str, Any] | None:
        try:
            return await self._rest.get(self._endpoint + object_path(ref, generation=generation))
        except api.NotFound as error:
            _refuse_missing_bucket(error)
            return None

    async def _stored(self, ref: ObjectRef, generation: Generation) -> tuple[bytes, Mapping[str, str]] | None:
        try:
            return await self._rest.media(self._media_url(ref, generation))
        except api.NotFound as error:
            _refuse_missing_bucket(error)
            return None

    async def _read(self, ref: ObjectRef, generation: Generation) -> bytes | None:
        found = await self._stored(ref, generation)
        if found is None:
            return None
        content, headers = found
        if headers.get("Content-Encoding") != "gzip":
            return content
        try:
            return await asyncio.to_thread(gunzip, ".gz", content)  # bounded, which the client's own decoding is not
        except CorruptGzipError as error:
            raise BadInput(f"read {ref}: {error}") from None

    def _media_url(self, ref: ObjectRef, generation: Generation) -> str:
        return f"{self._endpoint}/download{object_path(ref, generation=generation, alt='media')}"


def _translating(operation: str, ref: ObjectRef, fn: Callable[[], T]) -> T:
    with translated(operation, ref.url):
        return fn()


class _TokenLost(Transient):
    """The service does not know the copy any more that it had begun."""


def _session_lost(error: Exception) -> bool:
    """Whether an upload in parts cannot go on, though a new one may well pass.

    The service forgot it (404, 410), or has taken less of a part than was sent: its 308 says so, which the client
    calls an error, or stumbles over with the next part.
    """
    if isinstance(error, api.GoogleAPICallError):
        return error.code in (308, 404, _GONE) and not missing_bucket(str(error.message))
    return True


def _refuse_missing_bucket(error: api.NotFound) -> None:
    """A missing object is an answer; a missing bucket is a mistake in the surroundings."""
    if missing_bucket(str(error.message)):
        raise error


def _copied(source: Mapping[str, Any], metadata: Mapping[str, str]) -> dict[str, Any]:
    """The description of a copy. A rewrite with one replaces all of it, so the source's own is carried over."""
    if not metadata:
        return {}
    resource = {key: source[key] for key in _KEPT_ON_COPY if source.get(key)}
    kept = {key: value for key, value in (source.get("metadata") or {}).items() if key != WRITE_MARK}
    return {**resource, "metadata": {**kept, **metadata}}


def _described(ref: ObjectRef, resource: Mapping[str, Any]) -> ObjectInfo:
    """What the service says of an object, without the client's object around it."""
    return ObjectInfo(
        ref=ref,
        generation=Generation(int(resource["generation"])),
        size=int(resource.get("size") or 0),
        created=datetime.fromisoformat(resource["timeCreated"]),
        crc32c=resource.get("crc32c") or "",
        content_type=resource.get("contentType") or "",
        metadata={key: value for key, value in (resource.get("metadata") or {}).items() if key != WRITE_MARK},
        metageneration=int(resource.get("metageneration") or 1),
    )


def _with_headers(ref: ObjectRef, resource: Mapping[str, Any]) -> ObjectInfo:
    headers = {key: resource[key] for key in _HEADERS if resource.get(key)}
    return replace(_described(ref, resource), headers=headers)


def _resource(info: ObjectInfo) -> dict[str, Any] | None:
    """What a copy takes from its source; None when it was not described in full."""
    if info.headers is None:
        return None
    return {"contentType": info.content_type, **info.headers, "metadata": info.metadata}


def _set_resource(blob: Blob, resource: Mapping[str, Any]) -> None:
    if not resource:
        return
    blob.content_type = resource.get("contentType")
    blob.content_encoding = resource.get("contentEncoding")
    blob.content_disposition = resource.get("contentDisposition")
    blob.content_language = resource.get("contentLanguage")
    blob.cache_control = resource.get("cacheControl")
    blob.metadata = resource["metadata"]


def _versioned(ref: ObjectRef, generation: Generation | None) -> str:
    return ref.url if generation is None else f"{ref.url}#{generation}"
