"""The wire face of buckets: their settings, IAM policies, notification configs and layout."""

from collections.abc import Callable
from typing import Any

from ingestd.localcloud.http import Request, Response
from ingestd.localcloud.storage.core import StorageCore
from ingestd.localcloud.storage.errors import not_found, required, unsupported
from ingestd.localcloud.storage.model import Bucket
from ingestd.localcloud.storage.resources import bucket_resource, location_type, notification_resource
from ingestd.localcloud.storage.server.wire import (
    Call,
    answer,
    base_url,
    conditions,
    integer,
    json_body,
    refuse_unsupported,
)

UNSUPPORTED_PARTS = {
    "acl": "bucket ACLs",
    "anywhereCaches": "Anywhere Cache",
    "defaultObjectAcl": "default object ACLs",
    "folders": "folders",
    "lockRetentionPolicy": "retention policies",
    "managedFolders": "managed folders",
    "operations": "long-running operations",
    "relocate": "bucket relocation",
    "restore": "soft delete",
}


class BucketRoutes:
    def __init__(self, core: StorageCore) -> None:
        self._core = core

    def collection(self, request: Request) -> Call:
        """`/b`"""
        if request.method == "GET":
            return Call("buckets.list", self._core.project, lambda: self._list(request))
        if request.method == "POST":
            resource = json_body(request)
            return Call("buckets.insert", str(resource.get("name", "")), lambda: self._insert(request, resource))
        raise not_found()

    def item(self, request: Request, name: str) -> Call:
        """`/b/{bucket}`"""
        handlers: dict[str, tuple[str, Callable[[Request, str], Response]]] = {
            "GET": ("buckets.get", self._get),
            "PATCH": ("buckets.patch", self._patch),
            "PUT": ("buckets.update", self._update),
            "DELETE": ("buckets.delete", self._delete),
        }
        if request.method not in handlers:
            raise not_found()
        method, handler = handlers[request.method]
        return Call(method, name, lambda: handler(request, name))

    def part(self, request: Request, name: str, rest: list[str]) -> Call:
        """`/b/{bucket}/{rest…}`, everything but objects"""
        verb = request.method
        match rest:
            case ["iam"] if verb == "GET":
                return self._call("buckets.getIamPolicy", request, name, lambda: self._core.buckets.get_policy(name))
            case ["iam"] if verb == "PUT":
                return self._call(
                    "buckets.setIamPolicy",
                    request,
                    name,
                    lambda: self._core.buckets.set_policy(name, json_body(request)),
                )
            case ["iam", "testPermissions"] if verb == "GET":
                return self._call("buckets.testIamPermissions", request, name, lambda: self._test(request, name))
            case ["storageLayout"] if verb == "GET":
                return self._call("buckets.getStorageLayout", request, name, lambda: self._layout(name))
            case ["notificationConfigs"] if verb == "GET":
                return self._call("notifications.list", request, name, lambda: self._notifications(request, name))
            case ["notificationConfigs"] if verb == "POST":
                return self._call("notifications.insert", request, name, lambda: self._notify(request, name))
            case ["notificationConfigs", config_id] if verb == "GET":
                return self._call(
                    "notifications.get",
                    request,
                    name,
                    lambda: notification_resource(
                        self._core.buckets.get_notification(name, config_id), base_url(request)
                    ),
                )
            case ["notificationConfigs", config_id] if verb == "DELETE":
                return Call("notifications.delete", name, lambda: self._unnotify(name, config_id))
            case ["managedFolders"] if verb == "GET":
                # There are none, since making one is refused: the empty list is the truth.
                return self._call("managedFolders.list", request, name, lambda: {"kind": "storage#managedFolders"})
            case [part, *_] if part in UNSUPPORTED_PARTS:
                raise unsupported(UNSUPPORTED_PARTS[part])
        raise not_found()

    def project_part(self, request: Request, rest: list[str]) -> Call:
        """`/projects/{project}/{rest…}`"""
        if rest[1:] == ["serviceAccount"] and request.method == "GET":
            value = {"kind": "storage#serviceAccount", "email_address": self._core.service_account}
            return self._call("projects.serviceAccount.get", request, rest[0], lambda: value)
        if rest[1:2] == ["hmacKeys"]:
            raise unsupported("HMAC keys")
        raise not_found()

    @staticmethod
    def _call(method: str, request: Request, resource: str, value: Callable[[], dict[str, Any]]) -> Call:
        return Call(method, resource, lambda: answer(request, value()))

    def _resource(self, request: Request, bucket: Bucket) -> dict[str, Any]:
        return bucket_resource(bucket, base_url(request), self._core.project_number)

    def _list(self, request: Request) -> Response:
        query = request.query
        if not query.get("project"):
            raise required("project")
        limit = integer(query, "maxResults") or 1000
        page, following = self._core.buckets.list(query.get("prefix", ""), query.get("pageToken", ""), limit)
        value: dict[str, Any] = {"kind": "storage#buckets"}
        if following:
            value["nextPageToken"] = following
        value["items"] = [self._resource(request, bucket) for bucket in page]
        return answer(request, value)

    def _insert(self, request: Request, resource: dict[str, Any]) -> Response:
        refuse_unsupported(request)
        if not request.query.get("project"):
            raise required("project")
        return answer(request, self._resource(request, self._core.buckets.insert(resource)))

    def _get(self, request: Request, name: str) -> Response:
        return answer(request, self._resource(request, self._core.buckets.get(name, conditions(request.query))))

    def _patch(self, request: Request, name: str) -> Response:
        refuse_unsupported(request)
        bucket = self._core.buckets.patch(name, json_body(request), conditions(request.query))
        return answer(request, self._resource(request, bucket))

    def _update(self, request: Request, name: str) -> Response:
        refuse_unsupported(request)
        bucket = self._core.buckets.update(name, json_body(request), conditions(request.query))
        return answer(request, self._resource(request, bucket))

    def _delete(self, request: Request, name: str) -> Response:
        self._core.buckets.delete(name, conditions(request.query))
        return Response(204)

    def _test(self, request: Request, name: str) -> dict[str, Any]:
        granted = self._core.buckets.test_permissions(name, request.query_list("permissions"))
        return {"kind": "storage#testIamPermissionsResponse", "permissions": list(granted)}

    def _layout(self, name: str) -> dict[str, Any]:
        bucket = self._core.buckets.get(name)
        location = bucket.settings["location"]
        return {
            "kind": "storage#storageLayout",
            "bucket": name,
            "location": location,
            "locationType": location_type(location),
            "hierarchicalNamespace": {"enabled": False},
        }

    def _notifications(self, request: Request, name: str) -> dict[str, Any]:
        items = [
            notification_resource(config, base_url(request)) for config in self._core.buckets.list_notifications(name)
        ]
        return {"kind": "storage#notifications", "items": items} if items else {"kind": "storage#notifications"}

    def _notify(self, request: Request, name: str) -> dict[str, Any]:
        config = self._core.buckets.insert_notification(name, json_body(request))
        return notification_resource(config, base_url(request))

    def _unnotify(self, name: str, config_id: str) -> Response:
        self._core.buckets.delete_notification(name, config_id)
        return Response(204)
