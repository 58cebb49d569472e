"""The wire face of objects: metadata, listing, copies, compositions. Bytes are `media`'s business."""

from collections.abc import Callable
from typing import Any

from ingestd.localcloud.http import Request, Response
from ingestd.localcloud.storage.core import StorageCore
from ingestd.localcloud.storage.errors import invalid, not_found, unsupported
from ingestd.localcloud.storage.model import ComposeSource, ListQuery, ObjectMetadata, ObjectVersion
from ingestd.localcloud.storage.resources import object_resource, rewrite_response
from ingestd.localcloud.storage.server.media import MediaRoutes
from ingestd.localcloud.storage.server.wire import (
    Call,
    answer,
    base_url,
    boolean,
    check_etags,
    conditions,
    integer,
    json_body,
    name_from_path,
    refuse_unsupported,
    text,
)

UNSUPPORTED_PARTS = {"acl": "object ACLs", "iam": "IAM policies of single objects", "restore": "soft delete"}


class ObjectRoutes:
    def __init__(self, core: StorageCore, media: MediaRoutes) -> None:
        self._core = core
        self._media = media

    def collection(self, request: Request, bucket: str) -> Call:
        """`/b/{bucket}/o`"""
        if request.method == "GET":
            return Call("objects.list", bucket, lambda: self._list(request, bucket))
        if request.method == "POST":
            # Uploads have their own endpoint; without media this would make an empty object behind one's back.
            raise unsupported("objects.insert without the /upload endpoint")
        raise not_found()

    def item(self, request: Request, bucket: str, name: str) -> Call:
        """`/b/{bucket}/o/{object}`"""
        resource = f"{bucket}/{name}"
        verb = request.method
        if verb == "GET":
            alt = request.query.get("alt", "json")
            if alt == "media":
                return self._media.download(request, bucket, name)
            if alt != "json":
                raise unsupported(f"alt={alt}")
            return Call("objects.get", resource, lambda: self._get(request, bucket, name))
        if verb == "DELETE":
            return Call("objects.delete", resource, lambda: self._delete(request, bucket, name))
        if verb == "PATCH":
            return Call("objects.patch", resource, lambda: self._revise(request, bucket, name, patch=True))
        if verb == "PUT":
            return Call("objects.update", resource, lambda: self._revise(request, bucket, name, patch=False))
        raise not_found()

    def part(self, request: Request, bucket: str, name: str, rest: list[str]) -> Call:
        """`/b/{bucket}/o/{object}/{rest…}`"""
        verb: dict[str, tuple[str, Callable[..., Response]]] = {
            "rewriteTo": ("objects.rewrite", self._rewrite),
            "copyTo": ("objects.copy", self._copy),
        }
        match rest:
            case ["compose"] if request.method == "POST":
                return Call("objects.compose", f"{bucket}/{name}", lambda: self._compose(request, bucket, name))
            case [("rewriteTo" | "copyTo") as kind, "b", target_bucket, "o", target] if request.method == "POST":
                method, handler = verb[kind]
                destination = (name_from_path(target_bucket), name_from_path(target))
                return Call(method, "/".join(destination), lambda: handler(request, (bucket, name), destination))
            case ["moveTo", "o", target] if request.method == "POST":
                moved = name_from_path(target)
                return Call("objects.move", f"{bucket}/{moved}", lambda: self._move(request, bucket, name, moved))
            case [part, *_] if part in UNSUPPORTED_PARTS:
                raise unsupported(UNSUPPORTED_PARTS[part])
        raise not_found()

    def resource(self, request: Request, version: ObjectVersion) -> dict[str, Any]:
        base = base_url(request)
        return object_resource(version, base, base)

    def _list(self, request: Request, bucket: str) -> Response:
        query = request.query
        if boolean(query, "softDeleted"):
            raise unsupported("soft delete")
        if query.get("filter"):
            raise unsupported("listing filters")
        match_glob = query.get("matchGlob", "")
        if match_glob and query.get("delimiter", "/") not in ("/", ""):
            raise invalid("When matchGlob is used the delimiter must be '/'.", parameter="delimiter")
        max_results = integer(query, "maxResults")
        if max_results is not None and max_results < 0:
            raise invalid(f"Invalid value '{max_results}' for maxResults.", parameter="maxResults")
        page = self._core.objects.list(
            bucket,
            ListQuery(
                prefix=query.get("prefix", ""),
                delimiter=query.get("delimiter", ""),
                start_offset=query.get("startOffset", ""),
                end_offset=query.get("endOffset", ""),
                match_glob=match_glob,
                include_trailing_delimiter=boolean(query, "includeTrailingDelimiter"),
                versions=boolean(query, "versions"),
                max_results=max_results or 1000,
                page_token=query.get("pageToken", ""),
            ),
        )
        value: dict[str, Any] = {"kind": "storage#objects"}
        if page.next_page_token:
            value["nextPageToken"] = page.next_page_token
        if page.prefixes:
            value["prefixes"] = page.prefixes
        if page.items:
            base = base_url(request)
            value["items"] = [object_resource(version, base, base) for version in page.items]
        return answer(request, value)

    def _get(self, request: Request, bucket: str, name: str) -> Response:
        query = request.query
        if boolean(query, "softDeleted"):
            raise unsupported("soft delete")
        version = self._core.objects.get(bucket, name, integer(query, "generation"), conditions(query))
        check_etags(request, version)
        return answer(request, self.resource(request, version))

    def _delete(self, request: Request, bucket: str, name: str) -> Response:
        query = request.query
        self._core.objects.delete(bucket, name, integer(query, "generation"), conditions(query))
        return Response(204)

    def _revise(self, request: Request, bucket: str, name: str, *, patch: bool) -> Response:
        refuse_unsupported(request)
        query = request.query
        revise = self._core.objects.patch if patch else self._core.objects.update
        version = revise(bucket, name, json_body(request), integer(query, "generation"), conditions(query))
        return answer(request, self.resource(request, version))

    def _copied(
        self, request: Request, source: tuple[str, str], destination: tuple[str, str], method: str
    ) -> ObjectVersion:
        refuse_unsupported(request)
        query = request.query
        body = json_body(request)
        return self._core.objects.copy(
            source,
            destination,
            metadata=ObjectMetadata.parse(body) if body else None,
            source_generation=integer(query, "sourceGeneration"),
            conditions=conditions(query),
            source_conditions=conditions(query, "ifSource"),
            method=method,
        )

    def _copy(self, request: Request, source: tuple[str, str], destination: tuple[str, str]) -> Response:
        version = self._copied(request, source, destination, "objects.copy")
        return answer(request, self.resource(request, version))

    def _rewrite(self, request: Request, source: tuple[str, str], destination: tuple[str, str]) -> Response:
        if request.query.get("rewriteToken"):
            raise invalid("Invalid rewrite token: every rewrite here is done in one call.", parameter="rewriteToken")
        version = self._copied(request, source, destination, "objects.rewrite")
        return answer(request, rewrite_response(version, self.resource(request, version)))

    def _move(self, request: Request, bucket: str, source: str, destination: str) -> Response:
        query = request.query
        version = self._core.objects.move(
            bucket,
            source,
            destination,
            conditions=conditions(query),
            source_conditions=conditions(query, "ifSource"),
        )
        return answer(request, self.resource(request, version))

    def _compose(self, request: Request, bucket: str, name: str) -> Response:
        refuse_unsupported(request)
        body = json_body(request)
        if body.get("deleteSourceObjects"):
            raise unsupported("composing with deletion of the sources")
        sources = []
        listed = body.get("sourceObjects") or []
        destination = body.get("destination") or {}
        if not isinstance(listed, list) or not isinstance(destination, dict):
            raise invalid("A compose request has a list of sourceObjects and a destination resource.")
        for entry in listed:
            if not isinstance(entry, dict) or not text(entry, "name"):
                raise invalid("Every source object of a compose request needs a name.")
            preconditions = entry.get("objectPreconditions")
            wanted = {
                "generation": entry.get("generation"),
                **(preconditions if isinstance(preconditions, dict) else {}),
            }
            numbers = {key: str(value) for key, value in wanted.items() if value is not None}
            sources.append(
                ComposeSource(entry["name"], integer(numbers, "generation"), integer(numbers, "ifGenerationMatch"))
            )
        metadata = ObjectMetadata.parse(destination)
        version = self._core.objects.compose(bucket, name, sources, metadata, conditions(request.query))
        return answer(request, self.resource(request, version))
