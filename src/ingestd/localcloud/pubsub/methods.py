"""The unary methods both faces offer: request and response types, the resource they concern, the core call they make.

Publish, Pull and StreamingPull are not here: they have their own paths, for speed or because they wait.
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from ingestd.localcloud.pubsub import wire
from ingestd.localcloud.pubsub.core import PubSubCore
from ingestd.localcloud.pubsub.errors import invalid
from ingestd.localcloud.pubsub.wire import Empty, request_type

PUBLISHER = "google.pubsub.v1.Publisher"
SUBSCRIBER = "google.pubsub.v1.Subscriber"
SCHEMAS = "google.pubsub.v1.SchemaService"
IAM = "google.iam.v1.IAMPolicy"

SCHEMA_METHODS = (
    "CreateSchema",
    "GetSchema",
    "ListSchemas",
    "ListSchemaRevisions",
    "CommitSchema",
    "RollbackSchema",
    "DeleteSchemaRevision",
    "DeleteSchema",
    "ValidateSchema",
    "ValidateMessage",
)


@dataclass(frozen=True, slots=True)
class Method:
    """`resource` is the request's field (a dotted path) that names what the call is about."""

    service: str
    name: str
    request: Any
    response: Any
    resource: str
    call: Callable[[Any, Any], Any]

    def resource_of(self, request: Any) -> str:
        return str(attrgetter(self.resource)(request))

    def __call__(self, core: PubSubCore, request: Any) -> Any:
        result = self.call(core, request)
        return self.response() if result is None else result


def _list(kind: str, field: str, found: tuple[list[Any], str]) -> Any:
    items, token = found
    return request_type(f"List{kind}Response")(**{field: items}, next_page_token=token)


def _seek(core: PubSubCore, request: Any) -> None:
    match request.WhichOneof("target"):
        case "time":
            core.seek_to_time(request.subscription, request.time.ToMicroseconds())
        case "snapshot":
            core.seek_to_snapshot(request.subscription, request.snapshot)
        case _:
            raise invalid("A seek needs a time or a snapshot.")


def _list_topics(core: PubSubCore, r: Any) -> Any:
    return _list("Topics", "topics", core.list_topics(r.project, r.page_size, r.page_token))


def _list_topic_subscriptions(core: PubSubCore, r: Any) -> Any:
    found = core.list_topic_subscriptions(r.topic, r.page_size, r.page_token)
    return _list("TopicSubscriptions", "subscriptions", found)


def _list_topic_snapshots(core: PubSubCore, r: Any) -> Any:
    return _list("TopicSnapshots", "snapshots", core.list_topic_snapshots(r.topic, r.page_size, r.page_token))


def _list_subscriptions(core: PubSubCore, r: Any) -> Any:
    return _list("Subscriptions", "subscriptions", core.list_subscriptions(r.project, r.page_size, r.page_token))


def _list_snapshots(core: PubSubCore, r: Any) -> Any:
    return _list("Snapshots", "snapshots", core.list_snapshots(r.project, r.page_size, r.page_token))


def _test_permissions(core: PubSubCore, r: Any) -> Any:
    return wire.iam.TestIamPermissionsResponse(permissions=core.test_iam_permissions(r.resource, r.permissions))


def _fitting(r: Any) -> Any:
    if r.ByteSize() > _MOST_BYTES_OF_ACKS:
        raise invalid(f"Request payload size exceeds the limit: {_MOST_BYTES_OF_ACKS} bytes.")
    return r


def _publisher(name: str, response: Any, resource: str, call: Callable[[Any, Any], Any], request: Any = None) -> Method:
    return Method(PUBLISHER, name, request or request_type(f"{name}Request"), response, resource, call)


def _subscriber(
    name: str, response: Any, resource: str, call: Callable[[Any, Any], Any], request: Any = None
) -> Method:
    return Method(SUBSCRIBER, name, request or request_type(f"{name}Request"), response, resource, call)


def _iam(name: str, response: Any, call: Callable[[Any, Any], Any]) -> Method:
    return Method(IAM, name, getattr(wire.iam, f"{name}Request"), response, "resource", call)


_MOST_BYTES_OF_ACKS = 524_288  # https://cloud.google.com/pubsub/quotas#resource_limits
_T, _S, _SNAP = wire.Topic, wire.Subscription, wire.Snapshot
_SUB = "subscription"

_ALL = (
    _publisher("CreateTopic", _T, "name", lambda c, r: c.create_topic(r), _T),
    _publisher("UpdateTopic", _T, "topic.name", lambda c, r: c.update_topic(r.topic, r.update_mask.paths)),
    _publisher("GetTopic", _T, "topic", lambda c, r: c.get_topic(r.topic)),
    _publisher("ListTopics", request_type("ListTopicsResponse"), "project", _list_topics),
    _publisher(
        "ListTopicSubscriptions", request_type("ListTopicSubscriptionsResponse"), "topic", _list_topic_subscriptions
    ),
    _publisher("ListTopicSnapshots", request_type("ListTopicSnapshotsResponse"), "topic", _list_topic_snapshots),
    _publisher("DeleteTopic", Empty, "topic", lambda c, r: c.delete_topic(r.topic)),
    _publisher(
        "DetachSubscription",
        request_type("DetachSubscriptionResponse"),
        _SUB,
        lambda c, r: c.detach_subscription(r.subscription),
    ),
    _subscriber("CreateSubscription", _S, "name", lambda c, r: c.create_subscription(r), _S),
    _subscriber("GetSubscription", _S, _SUB, lambda c, r: c.get_subscription(r.subscription)),
    _subscriber(
        "UpdateSubscription",
        _S,
        "subscription.name",
        lambda c, r: c.update_subscription(r.subscription, r.update_mask.paths),
    ),
    _subscriber("ListSubscriptions", request_type("ListSubscriptionsResponse"), "project", _list_subscriptions),
    _subscriber("DeleteSubscription", Empty, _SUB, lambda c, r: c.delete_subscription(r.subscription)),
    _subscriber(
        "ModifyAckDeadline",
        Empty,
        _SUB,
        lambda c, r: c.modify_ack_deadline(r.subscription, _fitting(r).ack_ids, r.ack_deadline_seconds),
    ),
    _subscriber("Acknowledge", Empty, _SUB, lambda c, r: c.acknowledge(r.subscription, _fitting(r).ack_ids)),
    _subscriber("ModifyPushConfig", Empty, _SUB, lambda c, r: c.modify_push_config(r.subscription, r.push_config)),
    _subscriber("GetSnapshot", _SNAP, "snapshot", lambda c, r: c.get_snapshot(r.snapshot)),
    _subscriber("ListSnapshots", request_type("ListSnapshotsResponse"), "project", _list_snapshots),
    _subscriber("CreateSnapshot", _SNAP, "name", lambda c, r: c.create_snapshot(r.name, r.subscription, r.labels)),
    _subscriber(
        "UpdateSnapshot", _SNAP, "snapshot.name", lambda c, r: c.update_snapshot(r.snapshot, r.update_mask.paths)
    ),
    _subscriber("DeleteSnapshot", Empty, "snapshot", lambda c, r: c.delete_snapshot(r.snapshot)),
    _subscriber("Seek", request_type("SeekResponse"), _SUB, _seek),
    _iam("GetIamPolicy", wire.Policy, lambda c, r: c.get_iam_policy(r.resource)),
    _iam("SetIamPolicy", wire.Policy, lambda c, r: c.set_iam_policy(r.resource, r.policy)),
    _iam("TestIamPermissions", wire.iam.TestIamPermissionsResponse, _test_permissions),
)

METHODS = {method.name: method for method in _ALL}
