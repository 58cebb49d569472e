"""The REST face (v1 JSON), for `gcloud pubsub` and for curl: paths and JSON bodies become the gRPC face's requests."""

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import orjson
from google.protobuf import json_format

from ingestd.localcloud.http import Request, Response
from ingestd.localcloud.pubsub import wire
from ingestd.localcloud.pubsub.errors import Code, PubSubError, invalid, unsupported
from ingestd.localcloud.pubsub.methods import METHODS
from ingestd.localcloud.pubsub.service import Service


@dataclass(frozen=True, slots=True)
class Route:
    """`field` of the request takes the resource name of the path."""

    verb: str
    pattern: re.Pattern[str]
    method: str
    field: str


def _route(verb: str, path: str, method: str, field: str) -> Route:
    pattern = re.escape(path).replace(r"\*", "[^/:]+").replace(">", ")").replace("<", "(?P<name>")
    return Route(verb, re.compile(f"/v1/{pattern}"), method, field)


_TOPIC = "<projects/*/topics/*>"
_SUBSCRIPTION = "<projects/*/subscriptions/*>"
_SNAPSHOT = "<projects/*/snapshots/*>"

_ROUTES = (
    _route("PUT", _TOPIC, "CreateTopic", "name"),
    _route("PATCH", _TOPIC, "UpdateTopic", "topic.name"),
    _route("GET", _TOPIC, "GetTopic", "topic"),
    _route("DELETE", _TOPIC, "DeleteTopic", "topic"),
    _route("GET", "<projects/*>/topics", "ListTopics", "project"),
    _route("POST", f"{_TOPIC}:publish", "Publish", "topic"),
    _route("GET", f"{_TOPIC}/subscriptions", "ListTopicSubscriptions", "topic"),
    _route("GET", f"{_TOPIC}/snapshots", "ListTopicSnapshots", "topic"),
    _route("PUT", _SUBSCRIPTION, "CreateSubscription", "name"),
    _route("PATCH", _SUBSCRIPTION, "UpdateSubscription", "subscription.name"),
    _route("GET", _SUBSCRIPTION, "GetSubscription", "subscription"),
    _route("DELETE", _SUBSCRIPTION, "DeleteSubscription", "subscription"),
    _route("GET", "<projects/*>/subscriptions", "ListSubscriptions", "project"),
    _route("POST", f"{_SUBSCRIPTION}:pull", "Pull", "subscription"),
    _route("POST", f"{_SUBSCRIPTION}:acknowledge", "Acknowledge", "subscription"),
    _route("POST", f"{_SUBSCRIPTION}:modifyAckDeadline", "ModifyAckDeadline", "subscription"),
    _route("POST", f"{_SUBSCRIPTION}:modifyPushConfig", "ModifyPushConfig", "subscription"),
    _route("POST", f"{_SUBSCRIPTION}:detach", "DetachSubscription", "subscription"),
    _route("POST", f"{_SUBSCRIPTION}:seek", "Seek", "subscription"),
    _route("PUT", _SNAPSHOT, "CreateSnapshot", "name"),
    _route("PATCH", _SNAPSHOT, "UpdateSnapshot", "snapshot.name"),
    _route("GET", _SNAPSHOT, "GetSnapshot", "snapshot"),
    _route("DELETE", _SNAPSHOT, "DeleteSnapshot", "snapshot"),
    _route("GET", "<projects/*>/snapshots", "ListSnapshots", "project"),
    *(
        route
        for resource in (_TOPIC, _SUBSCRIPTION, _SNAPSHOT)
        for route in (
            _route("GET", f"{resource}:getIamPolicy", "GetIamPolicy", "resource"),
            _route("POST", f"{resource}:setIamPolicy", "SetIamPolicy", "resource"),
            _route("POST", f"{resource}:testIamPermissions", "TestIamPermissions", "resource"),
        )
    ),
)

_SCHEMAS = re.compile(r"/v1/projects/[^/]+/schemas(?:[/:].*)?")
_REQUESTS = {"Publish": wire.PublishRequest, "Pull": wire.PullRequest}


class RestFace:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def handle(self, request: Request) -> Response:
        try:
            return Response(200, await self._answer(request), {"content-type": "application/json; charset=UTF-8"})
        except PubSubError as error:
            return _refusal(error)

    async def _answer(self, request: Request) -> bytes:
        path = unquote(request.path)
        for route in _ROUTES:
            if route.verb == request.method and (match := route.pattern.fullmatch(path)):
                return await self._call(route.method, _request(route, match.group("name"), request))
        if _SCHEMAS.fullmatch(path):
            raise unsupported("schemas")
        raise PubSubError(Code.NOT_FOUND, f"There is no {request.method} {path}.")

    async def _call(self, method: str, message: Any) -> bytes:
        if method == "Publish":
            return orjson.dumps({"messageIds": await self._service.publish(message)})
        if method == "Pull":
            pulled = await self._service.pull(message, None)
            response = wire.PullResponse.FromString(pulled.body)
        else:
            response = await self._service.call(METHODS[method], message)
        return orjson.dumps(json_format.MessageToDict(response))


def _request(route: Route, name: str, request: Request) -> Any:
    """The protobuf request: body first, then query parameters, then the name from the path, which wins."""
    message = (_REQUESTS.get(route.method) or METHODS[route.method].request)()
    try:
        body = request.json()
        if request.method in ("POST", "PUT", "PATCH") and body:
            json_format.ParseDict(body, message, ignore_unknown_fields=False)
        fields = message.DESCRIPTOR.fields_by_name
        for key, value in request.query.items():
            snake = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", key).lower()
            if snake in fields and fields[snake].message_type is None:
                converted = int(value) if snake == "page_size" else value
                setattr(message, snake, converted)
            elif snake == "update_mask":
                message.update_mask.FromJsonString(value)
    except (json_format.ParseError, orjson.JSONDecodeError, ValueError, AttributeError) as error:
        raise invalid(f"Invalid JSON payload received. {error}") from error
    target, _, nested = route.field.partition(".")
    if nested:
        setattr(getattr(message, target), nested, name)
    else:
        setattr(message, target, name)
    return message


def _refusal(error: PubSubError) -> Response:
    body: dict[str, Any] = {"code": error.http_status, "message": error.message, "status": error.code.value}
    if error.ack_failures:
        body["details"] = [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "EXACTLY_ONCE_ACKID_FAILURE",
                "domain": "pubsub.googleapis.com",
                "metadata": dict(error.ack_failures),
            }
        ]
    return Response.json({"error": body}, error.http_status)
