"""The wire face of the local Cloud Storage: JSON API, uploads, downloads, batches.

A request is first matched to a `Call`, which knows the name faults use; planned delays happen before it runs, and
what the core raises becomes Google's answer here and nowhere else.
"""

import asyncio
from collections.abc import Awaitable
from inspect import isawaitable

from ingestd.localcloud.faults import FaultInjected, ResponseLost
from ingestd.localcloud.http import DropConnection, Handler, Request, Response
from ingestd.localcloud.storage.core import StorageCore
from ingestd.localcloud.storage.errors import StorageError, not_found, unsupported
from ingestd.localcloud.storage.server.batch import run_batch
from ingestd.localcloud.storage.server.buckets import BucketRoutes
from ingestd.localcloud.storage.server.media import MediaRoutes
from ingestd.localcloud.storage.server.objects import ObjectRoutes
from ingestd.localcloud.storage.server.wire import Call, as_storage_error, error_response, name_from_path
from ingestd.localcloud.storage.server.xml import xml_call, xml_error

__all__ = ["make_handler"]

_UPLOADS = ("/upload/storage/v1/b/", "/resumable/upload/storage/v1/b/")
_DOWNLOAD = "/download/storage/v1/b/"
_JSON = "/storage/v1/"


def make_handler(core: StorageCore) -> Handler:
    """The handler for `ingestd.localcloud.http.HttpServer`."""
    return StorageServer(core).handle


class StorageServer:
    def __init__(self, core: StorageCore) -> None:
        self._hooks = core.hooks
        self._together = core.together
        self._buckets = BucketRoutes(core)
        self._media = MediaRoutes(core)
        self._objects = ObjectRoutes(core, self._media)

    def handle(self, request: Request) -> Response | Awaitable[Response]:
        try:
            if request.path.startswith("/batch"):
                return self._settle(request, run_batch(request, self._dispatch, self._together))
            outcome = self._dispatch(request)
        except (StorageError, FaultInjected, ResponseLost) as error:
            return _answer_error(request, error)
        return self._settle(request, outcome) if isawaitable(outcome) else outcome

    async def _settle(self, request: Request, outcome: Awaitable[Response]) -> Response:
        try:
            return await outcome
        except (StorageError, FaultInjected, ResponseLost) as error:
            return _answer_error(request, error)

    def _dispatch(self, request: Request) -> Response | Awaitable[Response]:
        call = self._resolve(request)
        if seconds := self._hooks.delay(call.method, call.resource):
            return _later(call, seconds)
        return call.run()

    def _resolve(self, request: Request) -> Call:
        path = request.path
        if request.method == "POST" and (override := request.headers.get("x-http-method-override")):
            request.method = override.upper()
        if path.startswith(_JSON):
            return self._resolve_json(request, path[len(_JSON) :].split("/"))
        if path.startswith(_DOWNLOAD):
            match path[len(_DOWNLOAD) :].split("/"):
                case [bucket, "o", name] if request.method == "GET":
                    return self._media.download(request, name_from_path(bucket), name_from_path(name))
            raise not_found()
        for prefix in _UPLOADS:
            if path.startswith(prefix):
                match path[len(prefix) :].split("/"):
                    case [bucket, "o"]:
                        return self._media.upload(request, name_from_path(bucket))
                raise not_found()
        return xml_call(request, self._media)

    def _resolve_json(self, request: Request, parts: list[str]) -> Call:
        match parts:
            case ["b", bucket, "o", name]:
                return self._objects.item(request, name_from_path(bucket), name_from_path(name))
            case ["b", bucket, "o"]:
                return self._objects.collection(request, name_from_path(bucket))
            case ["b"]:
                return self._buckets.collection(request)
            case ["b", bucket]:
                return self._buckets.item(request, name_from_path(bucket))
            case ["b", bucket, "o", name, *rest]:
                return self._objects.part(request, name_from_path(bucket), name_from_path(name), rest)
            case ["b", bucket, *rest]:
                return self._buckets.part(request, name_from_path(bucket), rest)
            case ["projects", *rest] if len(rest) > 1:
                return self._buckets.project_part(request, rest)
            case ["channels", *_]:
                raise unsupported("object change notification channels")
        raise not_found()


async def _later(call: Call, seconds: float) -> Response:
    await asyncio.sleep(seconds)
    outcome = call.run()
    return outcome if isinstance(outcome, Response) else await outcome


def _answer_error(request: Request, error: StorageError | FaultInjected | ResponseLost) -> Response:
    if isinstance(error, ResponseLost):
        raise DropConnection from error
    error = as_storage_error(error)
    is_xml = not request.path.startswith((_JSON, _DOWNLOAD, *_UPLOADS, "/batch"))
    return xml_error(error) if is_xml else error_response(error)
