"""Looking at the daemon's surroundings without touching them: what `ingestd doctor` asks Google.

Blocking, one call each. What does not exist is None; what may not be asked raises `Fatal` with Google's words. What may
be done is asked of `testIamPermissions`, which everybody may ask: to read a resource's configuration takes more rights
than the daemon has or needs.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import google.auth
import grpc
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from google.cloud import bigquery, storage
from google.pubsub_v1 import PublisherClient, SubscriberClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from ingestd.gcp.errors import translated
from ingestd.model.errors import NotFound
from ingestd.model.tables import TableName

_LOGGING = "https://logging.googleapis.com/v2"
_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class BucketFacts:
    name: str
    location: str
    granted: frozenset[str]  # of the permissions asked for
    deletions: "tuple[DeletionFacts, ...] | None" = None  # by its lifecycle rules; None: they may not be read


@dataclass(frozen=True, slots=True)
class DeletionFacts:
    """A lifecycle rule that deletes objects: of these prefixes (none: of all) once they are so many days old."""

    days: int | None  # None: by another condition than age
    prefixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NotificationFacts:
    topic: str  # projects/…/topics/…
    events: tuple[str, ...]
    prefix: str
    payload: str


@dataclass(frozen=True, slots=True)
class SubscriptionFacts:
    """How a subscription is set up."""

    name: str
    topic: str
    ack_deadline: timedelta
    retention: timedelta
    expires_after: timedelta | None  # None: never
    dead_letter_topic: str
    push: bool
    filter: str


@dataclass(frozen=True, slots=True)
class SinkFacts:
    name: str
    destination: str
    filter: str
    disabled: bool
    writer: str


class Inspector:
    def __init__(self, project: str) -> None:
        self.project = project
        self.local = bool(os.environ.get("STORAGE_EMULATOR_HOST"))
        with translated("connect to", "Google Cloud"):
            self._credentials: Any = AnonymousCredentials() if self.local else google.auth.default(scopes=_SCOPES)[0]  # type: ignore[no-untyped-call]
            self._storage = storage.Client(project=project, credentials=self._credentials)
            self._bigquery = bigquery.Client(project=project, credentials=self._credentials, **_bigquery_options())
            self._publisher, self._subscriber = _pubsub(self._credentials)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._storage.close()
        self._bigquery.close()  # type: ignore[no-untyped-call]
        self._publisher.transport.close()  # type: ignore[no-untyped-call]
        self._subscriber.transport.close()  # type: ignore[no-untyped-call]

    def bucket(self, name: str, permissions: tuple[str, ...]) -> BucketFacts | None:
        try:
            with translated("look at", f"gs://{name}"):
                granted = self._storage.bucket(name).test_iam_permissions(list(permissions), timeout=_SECONDS)
        except NotFound:
            return None
        location, deletions = self._described(name)
        return BucketFacts(name, location, frozenset(granted), deletions)

    def _described(self, name: str) -> "tuple[str, tuple[DeletionFacts, ...] | None]":
        """Where the bucket is and what it deletes; unknown when that may not be asked."""
        try:
            with translated("look at", f"gs://{name}"):
                found = self._storage.get_bucket(name, timeout=_SECONDS)
                return str(found.location or ""), tuple(deletions_of(found.lifecycle_rules))
        except Exception:  # noqa: BLE001 - only a bonus
            return "", None

    def notifications(self, bucket: str) -> list[NotificationFacts]:
        with translated("list the notifications of", f"gs://{bucket}"):
            answer = self._storage._connection.api_request(method="GET", path=f"/b/{bucket}/notificationConfigs")
        return [
            NotificationFacts(
                item["topic"].removeprefix("//pubsub.googleapis.com/"),
                tuple(item.get("event_types", ())),
                item.get("object_name_prefix", ""),
                item.get("payload_format", ""),
            )
            for item in answer.get("items", ())
        ]

    def subscription_permissions(self, name: str, permissions: tuple[str, ...]) -> frozenset[str]:
        """Those of them that are granted: none, too, when there is no such subscription."""
        full = self._full("subscriptions", name)
        with translated("ask what is permitted on", full):
            request = {"resource": full, "permissions": list(permissions)}
            return frozenset(self._subscriber.test_iam_permissions(request, timeout=_SECONDS).permissions)

    def subscription(self, name: str) -> SubscriptionFacts | None:
        full = self._full("subscriptions", name)
        try:
            with translated("look at", full):
                found = self._subscriber.get_subscription(subscription=full, timeout=_SECONDS)
        except NotFound:
            return None
        return SubscriptionFacts(
            name=full,
            topic=found.topic,
            ack_deadline=timedelta(seconds=found.ack_deadline_seconds),
            retention=_span(found.message_retention_duration) or timedelta(days=7),
            expires_after=_expiry(found),
            dead_letter_topic=found.dead_letter_policy.dead_letter_topic,
            push=bool(found.push_config.push_endpoint),
            filter=found.filter,
        )

    def topic_permissions(self, name: str, permissions: tuple[str, ...]) -> frozenset[str]:
        """Those of them that are granted: none, too, when there is no such topic."""
        full = self._full("topics", name)
        with translated("ask what is permitted on", full):
            request = {"resource": full, "permissions": list(permissions)}
            return frozenset(self._publisher.test_iam_permissions(request, timeout=_SECONDS).permissions)

    def topic(self, name: str) -> bool:
        full = self._full("topics", name)
        try:
            with translated("look at", full):
                self._publisher.get_topic(topic=full, timeout=_SECONDS)
        except NotFound:
            return False
        return True

    def _full(self, kind: str, name: str) -> str:
        return name if name.startswith("projects/") else f"projects/{self.project}/{kind}/{name}"

    def table_permissions(self, table: TableName, permissions: tuple[str, ...]) -> frozenset[str] | None:
        """Those of them that are granted; None when there is no such table."""
        full = f"{table.project or self.project}.{table.dataset}.{table.table}"
        try:
            with translated("ask what is permitted on", full):
                answer = self._bigquery.test_iam_permissions(full, list(permissions), timeout=_SECONDS)
        except NotFound:
            return None
        return frozenset(answer.get("permissions", ()))

    def can_query(self, location: str) -> None:
        """A query that costs nothing and runs nothing: raises when jobs may not be created."""
        with translated("create a job in", self.project):
            self._bigquery.query(
                "SELECT 1", job_config=bigquery.QueryJobConfig(dry_run=True), location=location, timeout=_SECONDS
            )

    def dataset_location(self, project: str, dataset: str) -> str | None:
        try:
            with translated("look at", f"{project}.{dataset}"):
                return str(self._bigquery.get_dataset(f"{project or self.project}.{dataset}").location)
        except NotFound:
            return None

    def sinks(self) -> list[SinkFacts] | None:
        """The project's log sinks; None on the local cloud, which has none and needs none."""
        if self.local:
            return None
        with translated("list", "log sinks"), AuthorizedSession(self._credentials) as session:  # type: ignore[no-untyped-call]
            answer = session.get(f"{_LOGGING}/projects/{self.project}/sinks", timeout=_SECONDS)
            answer.raise_for_status()
            items = answer.json().get("sinks", ())
        return [
            SinkFacts(
                item["name"],
                item["destination"],
                item.get("filter", ""),
                item.get("disabled", False),
                item.get("writerIdentity", ""),
            )
            for item in items
        ]


_OF_OLD_VERSIONS = ("numNewerVersions", "daysSinceNoncurrentTime", "noncurrentTimeBefore")


def deletions_of(rules: Iterable[Mapping[str, Any]]) -> Iterator[DeletionFacts]:
    """What deletes objects that are live: our own are never old versions."""
    for rule in rules:
        condition = rule.get("condition") or {}
        old = condition.get("isLive") is False or any(one in condition for one in _OF_OLD_VERSIONS)
        if (rule.get("action") or {}).get("type") == "Delete" and not old:
            yield DeletionFacts(condition.get("age"), tuple(condition.get("matchesPrefix") or ()))


def _expiry(found: Any) -> timedelta | None:
    """A policy without a time to live means never; no policy at all means Google's 31 days."""
    if "expiration_policy" not in found:
        return timedelta(days=31)
    return _span(found.expiration_policy.ttl) or None


def _span(duration: Any) -> timedelta:
    """proto-plus gives durations as timedeltas, or nothing."""
    return duration if isinstance(duration, timedelta) else timedelta()


def _bigquery_options() -> dict[str, Any]:
    endpoint = os.environ.get("BIGQUERY_EMULATOR_HOST", "")
    if not endpoint:
        return {}
    return {"client_options": {"api_endpoint": endpoint if "://" in endpoint else f"http://{endpoint}"}}


def _pubsub(credentials: Any) -> tuple[PublisherClient, SubscriberClient]:
    endpoint = os.environ.get("PUBSUB_EMULATOR_HOST", "")
    if not endpoint:
        return PublisherClient(credentials=credentials), SubscriberClient(credentials=credentials)
    return (
        PublisherClient(transport=PublisherGrpcTransport(channel=grpc.insecure_channel(endpoint))),
        SubscriberClient(transport=SubscriberGrpcTransport(channel=grpc.insecure_channel(endpoint))),
    )
