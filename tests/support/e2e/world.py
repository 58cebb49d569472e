"""One test's own corner of the cloud: a project with the daemon's buckets, topics and subscriptions, and its rules.

Everything is done with Google's clients over the wire. Only the waiting looks straight into the local cloud, where
looking costs nothing and disturbs nothing (a query of ours would be one more completion in the audit feed).
"""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from google.api_core.exceptions import DeadlineExceeded, NotFound
from google.cloud import bigquery
from google.cloud.storage.notification import BucketNotification
from tests.support.e2e.processes import Daemon, ForkServer, Nursery, nursery
from tests.support.google import bigquery_client
from tests.support.rule_documents import FILE, ROWS
from tests.support.waiting import eventually

from ingestd.localcloud.cloud import LocalCloud

SCHEMA = [bigquery.SchemaField("id", "INTEGER"), bigquery.SchemaField("name", "STRING")]
LOADED = [(1, "a"), (2, "b")]


# Short enough that a test waits for nothing, long enough for a busy machine.
QUICK: dict[str, Any] = {
    "recovery": {"lease": "2s", "sweep_every": "300ms", "retry_first": "300ms", "retry_longest": "1s"},
    "jobs": {"poll_every": "500ms", "retry_pause": "100ms", "throttle_pause": "200ms", "quota_pause": "500ms"},
    "intake": {"concurrent_pulls": 1, "ack_deadline": "10s"},
    "http": {"host": "127.0.0.1", "port": 0},
    "logging": {"format": "json"},
    "load_state": {"enabled": False},  # tests/e2e/ledger is about it; elsewhere effects are counted
    "drain": "5s",
}


class World:
    def __init__(
        self,
        cloud: LocalCloud,
        project: str,
        folder: Path,
        daemons: Nursery,
        *,
        storage: Any,
        publisher: Any,
        subscriber: Any,
    ) -> None:
        self.cloud = cloud
        self.project = project
        self.folder = folder
        self._daemons = daemons
        self.storage = storage
        self.publisher = publisher
        self.subscriber = subscriber
        self.trigger = f"{project}-trigger"
        self.ops = f"{project}-ops"
        self.config = f"{project}-config"
        self.topic = f"projects/{project}/topics/storage-notifications"
        self.notifications = f"projects/{project}/subscriptions/ingestd-notifications"
        self.completions = f"projects/{project}/subscriptions/ingestd-completions"
        self.audit_topic = f"projects/{cloud.project}/topics/bigquery-completions"
        self.bigquery = bigquery_client(cloud.endpoints.bigquery, project)
        self._settings = 0

    def set_up(self) -> None:
        self.publisher.create_topic(name=self.topic)
        for name, topic in ((self.notifications, self.topic), (self.completions, self.audit_topic)):
            self.subscriber.create_subscription(name=name, topic=topic)
        for bucket in (self.trigger, self.ops, self.config):
            self.storage.create_bucket(bucket, project=self.project)
        self.notify(self.trigger)
        self.bigquery.create_dataset("bqtail")

    def tear_down(self) -> None:
        for name in (self.notifications, self.completions):
            self.subscriber.delete_subscription(subscription=name)
        self.bigquery.close()

    # What is there before the daemon

    def notify(self, bucket: str, payload: str = "JSON_API_V1") -> None:
        """Let the bucket announce its changes on the daemon's topic."""
        watched = self.storage.bucket(bucket)
        BucketNotification(
            watched, "storage-notifications", topic_project=self.project, payload_format=payload
        ).create()

    def table(self, name: str = "bqtail.dummy", schema: Any = SCHEMA) -> None:
        self.bigquery.create_table(bigquery.Table(f"{self.project}.{name}", schema=schema))

    def rule(self, document: Any, name: str = "rule.json") -> None:
        text = document if isinstance(document, str) else json.dumps(document)
        self.storage.bucket(self.config).blob(f"rules/{name}").upload_from_string(text)

    def prepared(self, document: Any, name: str = "rule.json") -> None:
        """The usual table, and one rule."""
        self.table()
        self.rule(document, name)

    def settings(self, **changes: Any) -> Path:
        """A settings file; sections given are merged into the quick ones."""
        document: dict[str, Any] = {"project": self.project, "rules": {"url": f"gs://{self.config}/rules"}}
        for part in (QUICK, changes):
            for key, value in part.items():
                document[key] = {**document.get(key, {}), **value} if isinstance(value, dict) else value
        self._settings += 1
        file = self.folder / f"settings{self._settings}.yaml"
        file.write_text(yaml.safe_dump(document))
        return file

    # Daemons

    def start(
        self, *, wait: bool = True, dies_after: tuple[str, int] | None = None, mortal: bool = False, **changes: Any
    ) -> Daemon:
        daemon = self._daemons.fork(self.settings(**changes), dies_after=dies_after, mortal=mortal)
        if wait:
            daemon.started()
        return daemon

    def command(self, environ: Mapping[str, str] | None = None, **changes: Any) -> Daemon:
        """`ingestd run --config …` itself."""
        daemon = self._daemons.command(self.settings(**changes), **(environ or {}))
        daemon.started()
        return daemon

    # Files, messages, tables

    def upload(self, name: str = FILE, *rows: Any, bucket: str = "") -> int:
        """Upload rows as NDJSON (or text as it is); its generation."""
        text = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows or ROWS)
        blob = self.storage.bucket(bucket or self.trigger).blob(name)
        blob.upload_from_string(text, content_type="application/json")
        return int(blob.generation)

    def attributes(self, name: str, generation: int, bucket: str = "") -> dict[str, str]:
        return {
            "eventType": "OBJECT_FINALIZE",
            "payloadFormat": "NONE",
            "bucketId": bucket or self.trigger,
            "objectId": name,
            "objectGeneration": str(generation),
            "notificationConfig": f"projects/_/buckets/{bucket or self.trigger}/notificationConfigs/1",
            "eventTime": "2024-05-01T12:00:00.000000Z",
        }

    def announce(self, name: str, generation: int, times: int = 1) -> None:
        """The same finalize event again, each time as a message of its own."""
        message = {"attributes": self.attributes(name, generation)}
        self.publisher.publish(topic=self.topic, messages=[message] * times)

    def read(self, name: str, bucket: str = "") -> bytes:
        return bytes(self.storage.bucket(bucket or self.ops).blob(name).download_as_bytes())

    def document(self, name: str, bucket: str = "") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.read(name, bucket))
        return found

    def exists(self, name: str = FILE, bucket: str = "") -> bool:
        return bool(self.storage.bucket(bucket or self.trigger).blob(name).exists())

    def objects(self, prefix: str, bucket: str = "") -> list[str]:
        return [one.name for one in self.cloud.storage.glob(bucket or self.ops, f"{prefix}*")]

    def rows(self, table: str = "bqtail.dummy") -> list[tuple[Any, ...]]:
        try:
            return sorted(tuple(row.values()) for row in self.bigquery.list_rows(f"{self.project}.{table}"))
        except NotFound:
            return []

    def jobs(self, kind: str = "") -> list[Any]:
        """The project's jobs, oldest first."""
        found = [job for job in self.bigquery.list_jobs() if job.job_type == kind or not kind]
        return sorted(found, key=lambda job: job.created)

    def records(self, folder: str = "Done") -> list[dict[str, Any]]:
        names = [name for name in self.objects(f"journal/{folder}/") if name.endswith(".run")]
        return [self.document(name) for name in names]

    def statuses(self) -> list[str]:
        return sorted(record["Status"] for record in self.records())

    def pulled(self, subscription: str, count: int = 1) -> list[Any]:
        """At least so many messages of a subscription of the test's own."""
        messages: list[Any] = []

        def enough() -> bool:
            try:
                answer = self.subscriber.pull(subscription=subscription, max_messages=100, timeout=1, retry=None)
            except DeadlineExceeded:
                return len(messages) >= count
            messages.extend(received.message for received in answer.received_messages)
            if answer.received_messages:
                ids = [received.ack_id for received in answer.received_messages]
                self.subscriber.acknowledge(subscription=subscription, ack_ids=ids)
            return len(messages) >= count

        eventually(enough, lambda: f"{len(messages)} messages on {subscription}")
        return messages

    def listening(self, topic: str = "listened") -> tuple[str, str]:
        """A topic of the test's own and a subscription to it."""
        name = f"projects/{self.project}/topics/{topic}"
        subscription = f"projects/{self.project}/subscriptions/{topic}"
        self.publisher.create_topic(name=name)
        self.subscriber.create_subscription(name=subscription, topic=name)
        return name, subscription

    def end_leases(self, dead: Daemon) -> None:
        """Let the messages of a dead daemon come back now, instead of after Pub/Sub's ten seconds."""
        for subscription, ack_ids in dead.leases().items():
            self.subscriber.modify_ack_deadline(subscription=subscription, ack_ids=ack_ids, ack_deadline_seconds=0)

    # Waiting

    def until(self, done: Callable[[], Any]) -> Any:
        return eventually(done, self.describe, signs=self.signs)

    def loaded(self, rows: list[tuple[Any, ...]] = LOADED, table: str = "bqtail.dummy") -> None:
        self.until(lambda: self.rows(table) == rows)

    def settled(self) -> None:
        """Wait until nothing is pending anywhere: no record, no task, no message."""
        self.until(self.quiet)

    def ended(self, *statuses: str) -> None:
        """Wait until the batches have ended so, and nothing is pending."""
        self.until(lambda: self.statuses() == [*statuses])
        self.settled()

    def windows_settled(self) -> None:
        """The same, and that no window is open."""
        self.until(lambda: not self.objects("batch/") and self.quiet())

    def quiet(self) -> bool:
        pending = self.objects("journal/Running/") or self.objects("tasks/")
        return not pending and not self.backlog(self.notifications) and not self.backlog(self.completions)

    def backlog(self, subscription: str) -> int:
        """Unacknowledged messages, leased ones included."""
        stats = self.cloud.pubsub.stats().subscriptions
        return next(one.backlog for one in stats if one.name == subscription)

    def delivered(self, subscription: str) -> int:
        stats = self.cloud.pubsub.stats().subscriptions
        return next(one.delivered for one in stats if one.name == subscription)

    def signs(self) -> list[Any]:
        """What changes when anything gets on. Not in which generation: leases are renewed while nothing happens."""
        names = [self.objects("", bucket) for bucket in (self.ops, self.trigger)]
        backlogs = [self.backlog(self.notifications), self.backlog(self.completions)]
        return [names, backlogs, self._daemons.told()]

    def describe(self) -> dict[str, Any]:
        return {
            "running": self.records("Running"),
            "done": self.statuses(),
            "tasks": self.objects("tasks/"),
            "backlog": [self.backlog(self.notifications), self.backlog(self.completions)],
            "rows": self.rows(),
        }


@contextmanager
def new_worlds(server: ForkServer, folder: Path, cloud: LocalCloud, **clients: Any) -> Iterator[Callable[[], World]]:
    """What makes worlds, each a project of its own; they and their daemons are gone at the end."""
    made: list[World] = []
    with nursery(server, folder, cloud.endpoints.environ()) as daemons:

        def make() -> World:
            project = f"t{uuid.uuid4().hex[:10]}"
            (folder / project).mkdir()
            world = World(cloud, project, folder / project, daemons, **clients)
            world.set_up()
            made.append(world)
            return world

        yield make
    for world in made:
        world.tear_down()


@contextmanager
def at_once(size: int) -> Iterator[ThreadPoolExecutor]:
    """Several stories side by side; leaving waits for all of them."""
    with ThreadPoolExecutor(size) as pool:
        yield pool
