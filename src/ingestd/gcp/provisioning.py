"""Making and removing a deployment's surroundings: what the acceptance kit needs of its own, and nothing else does.

Blocking, one call each. Making something that is there, or removing what is gone, is fine: a run that died half-way is
cleaned up by its names. What may not be done raises `Fatal` with Google's words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from google.api_core.exceptions import AlreadyExists, Conflict
from google.api_core.exceptions import NotFound as ApiNotFound
from google.auth.transport.requests import AuthorizedSession
from google.cloud import bigquery
from google.cloud.storage.notification import BucketNotification
from google.iam.v1 import iam_policy_pb2, policy_pb2  # type: ignore[import-untyped]

from ingestd.gcp.errors import translated
from ingestd.gcp.inspection import Inspector
from ingestd.model.errors import Fatal

_SECONDS = 60.0
_ACK_SECONDS = 60
_PUBLISHER = "roles/pubsub.publisher"
FINALIZE = "OBJECT_FINALIZE"


@dataclass(frozen=True, slots=True)
class Apis:
    """Where the services are that have no client library here; elsewhere only in tests."""

    logging: str = "https://logging.googleapis.com/v2"
    projects: str = "https://cloudresourcemanager.googleapis.com/v1"


class Provisioner(Inspector):
    """An inspector that may also touch."""

    def __init__(self, project: str, apis: Apis | None = None) -> None:
        super().__init__(project)
        self._apis = apis or Apis()

    # What may be done

    def project_permissions(self, permissions: Sequence[str]) -> frozenset[str] | None:
        """Which of these the caller has on the whole project; None on the local cloud, which refuses nobody."""
        if self.local:
            return None
        url = f"{self._apis.projects}/projects/{self.project}:testIamPermissions"
        answer = self._rest("POST", url, "ask for permissions on", self.project, {"permissions": list(permissions)})
        return frozenset(answer.get("permissions", ()))

    # Messages

    def topic_name(self, name: str) -> str:
        return f"projects/{self.project}/topics/{name}"

    def subscription_name(self, name: str) -> str:
        return f"projects/{self.project}/subscriptions/{name}"

    def create_topic(self, name: str) -> None:
        with translated("create", self.topic_name(name)):
            try:
                self._publisher.create_topic(name=self.topic_name(name), timeout=_SECONDS)
            except AlreadyExists:
                return

    def let_publish(self, topic: str, member: str) -> None:
        """Let somebody else publish to a topic of ours; who may already keeps the right."""
        full = self.topic_name(topic)
        with translated("grant publishing to", full):
            asked = iam_policy_pb2.GetIamPolicyRequest(resource=full)
            policy = self._publisher.get_iam_policy(request=asked, timeout=_SECONDS)
            policy.bindings.append(policy_pb2.Binding(role=_PUBLISHER, members=[member]))
            wanted = iam_policy_pb2.SetIamPolicyRequest(resource=full, policy=policy)
            self._publisher.set_iam_policy(request=wanted, timeout=_SECONDS)

    def create_subscription(self, name: str, topic: str) -> None:
        full = self.subscription_name(name)
        request = {"name": full, "topic": self.topic_name(topic), "ack_deadline_seconds": _ACK_SECONDS}
        with translated("create", full):
            try:
                self._subscriber.create_subscription(request=request, timeout=_SECONDS)
            except AlreadyExists:
                return

    def delete_topic(self, name: str) -> None:
        with translated("delete", self.topic_name(name)):
            try:
                self._publisher.delete_topic(topic=self.topic_name(name), timeout=_SECONDS)
            except ApiNotFound:
                return

    def delete_subscription(self, name: str) -> None:
        full = self.subscription_name(name)
        with translated("delete", full):
            try:
                self._subscriber.delete_subscription(subscription=full, timeout=_SECONDS)
            except ApiNotFound:
                return

    # The bucket's notifications

    def storage_agent(self) -> str:
        """Who publishes the project's notifications."""
        with translated("ask for the Cloud Storage service agent of", self.project):
            return f"serviceAccount:{self._storage.get_service_account_email(timeout=_SECONDS)}"

    def notify(self, bucket: str, topic: str, prefix: str) -> None:
        """Let the bucket announce finalized objects below the prefix."""
        with translated("create a notification of", f"gs://{bucket}"):
            BucketNotification(
                self._storage.bucket(bucket),
                topic,
                topic_project=self.project,
                blob_name_prefix=prefix,
                event_types=[FINALIZE],
                payload_format="JSON_API_V1",
            ).create(timeout=_SECONDS)

    def delete_notifications(self, bucket: str, topic: str) -> None:
        """Every notification of the bucket that goes to this topic."""
        with translated("delete the notifications of", f"gs://{bucket}"):
            answer = self._storage._connection.api_request(method="GET", path=f"/b/{bucket}/notificationConfigs")
            for item in answer.get("items", ()):
                if item["topic"].endswith(f"/{self.topic_name(topic)}"):
                    path = f"/b/{bucket}/notificationConfigs/{item['id']}"
                    self._storage._connection.api_request(method="DELETE", path=path)

    def delete_objects(self, bucket: str, prefix: str) -> int:
        with translated("delete objects of", f"gs://{bucket}/{prefix}"):
            deleted = 0
            for blob in self._storage.list_blobs(bucket, prefix=prefix, timeout=_SECONDS):
                try:
                    blob.delete(timeout=_SECONDS)
                except ApiNotFound:
                    continue
                deleted += 1
            return deleted

    # Tables

    def create_dataset(self, dataset: str, location: str, labels: dict[str, str]) -> None:
        made = bigquery.Dataset(f"{self.project}.{dataset}")
        made.location = location
        made.labels = labels
        with translated("create dataset", dataset):
            try:
                self._bigquery.create_dataset(made, timeout=_SECONDS)
            except Conflict:
                return

    def delete_dataset(self, dataset: str, labels: dict[str, str]) -> bool:
        """Delete the dataset if it carries these labels, and only when it is empty; whether it did."""
        with translated("delete dataset", dataset):
            try:
                found = self._bigquery.get_dataset(f"{self.project}.{dataset}", timeout=_SECONDS)
            except ApiNotFound:
                return False
            if not labels.items() <= found.labels.items():
                return False
            self._bigquery.delete_dataset(found, delete_contents=False, not_found_ok=True, timeout=_SECONDS)
            return True

    def create_table(self, dataset: str, table: str, fields: Sequence[tuple[str, str]]) -> None:
        schema = [bigquery.SchemaField(name, kind) for name, kind in fields]
        made = bigquery.Table(f"{self.project}.{dataset}.{table}", schema=schema)
        with translated("create table", f"{dataset}.{table}"):
            self._bigquery.create_table(made, exists_ok=True, timeout=_SECONDS)

    def add_column(self, dataset: str, table: str, name: str, kind: str) -> None:
        with translated("add a column to", f"{dataset}.{table}"):
            found = self._bigquery.get_table(f"{self.project}.{dataset}.{table}", timeout=_SECONDS)
            found.schema = [*found.schema, bigquery.SchemaField(name, kind)]
            self._bigquery.update_table(found, ["schema"], timeout=_SECONDS)

    def rows(self, dataset: str, table: str) -> list[tuple[Any, ...]] | None:
        """Every row, in some order; None when there is no such table."""
        with translated("read", f"{dataset}.{table}"):
            try:
                found = self._bigquery.list_rows(f"{self.project}.{dataset}.{table}", timeout=_SECONDS)
                return [tuple(row.values()) for row in found]
            except ApiNotFound:
                return None

    def tables(self, dataset: str, prefix: str) -> list[str]:
        with translated("list the tables of", dataset):
            try:
                found = list(self._bigquery.list_tables(f"{self.project}.{dataset}", timeout=_SECONDS))
            except ApiNotFound:
                return []
            return [one.table_id for one in found if one.table_id.startswith(prefix)]

    def delete_table(self, dataset: str, table: str) -> None:
        with translated("delete table", f"{dataset}.{table}"):
            self._bigquery.delete_table(f"{self.project}.{dataset}.{table}", not_found_ok=True, timeout=_SECONDS)

    # The log sink

    def create_sink(self, name: str, topic: str, log_filter: str) -> str:
        """A sink with a writer of its own; who that is, to be allowed to publish."""
        body = {
            "name": name,
            "destination": f"pubsub.googleapis.com/{self.topic_name(topic)}",
            "filter": log_filter,
            "description": "Job completions for an acceptance run of ingestd; remove it when no run is under way.",
        }
        url = f"{self._apis.logging}/projects/{self.project}/sinks?uniqueWriterIdentity=true"
        return str(self._rest("POST", url, "create log sink", name, body)["writerIdentity"])

    def delete_sink(self, name: str) -> None:
        url = f"{self._apis.logging}/projects/{self.project}/sinks/{name}"
        self._rest("DELETE", url, "delete log sink", name, gone=True)

    def _rest(
        self, method: str, url: str, doing: str, what: str, body: dict[str, Any] | None = None, *, gone: bool = False
    ) -> dict[str, Any]:
        with translated(doing, what), AuthorizedSession(self._credentials) as session:  # type: ignore[no-untyped-call]
            answer = session.request(method, url, json=body, timeout=_SECONDS)  # type: ignore[no-untyped-call]
            if gone and answer.status_code == 404:
                return {}
            if not answer.ok:
                raise Fatal(f"{doing} {what}: {answer.status_code} {_words(answer)}")
            document: dict[str, Any] = answer.json()
            return document


def _words(answer: Any) -> str:
    """What Google says is wrong, out of its error document."""
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return str(answer.text[:200])
