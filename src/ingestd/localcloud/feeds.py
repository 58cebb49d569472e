"""How the three services reach one another, as Google's do behind the scenes.

Storage publishes notifications, a log sink publishes BigQuery's job completions, and BigQuery reads and writes
objects. All of it goes through the cores, so faults and counters apply as to any other caller.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import orjson
import structlog

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.bigquery.files.objects import Objects, SourceObject, as_read, split_uri
from ingestd.localcloud.faults import FaultInjected, ResponseLost
from ingestd.localcloud.pubsub.core import PubSubCore
from ingestd.localcloud.pubsub.errors import Code, PubSubError
from ingestd.localcloud.storage.core import StorageCore
from ingestd.localcloud.storage.errors import StorageError

log = structlog.get_logger(__name__)

_AT_ONCE = 250  # small objects, so some megabytes at most


class Notifications:
    """Storage's way into Pub/Sub. A topic that is gone is a `LookupError`; anything else is worth another try."""

    def __init__(self, pubsub: PubSubCore) -> None:
        self._pubsub = pubsub

    def __call__(self, topic: str, data: bytes, attributes: dict[str, str]) -> None:
        try:
            self._pubsub.publish(topic, [(data, attributes, "")])
        except PubSubError as error:
            if error.code is Code.NOT_FOUND:
                raise LookupError(topic) from error
            raise

    def many(self, topic: str, messages: Sequence[tuple[bytes, dict[str, str]]]) -> None:
        """The same for several, of which all are published or none; each counts as a call of its own."""
        self._pubsub.publish(topic, [(data, attributes, "") for data, attributes in messages])
        self._pubsub.hooks.count("Publish", len(messages) - 1)


class AuditSink:
    """A log sink: every completion goes to one topic, and is lost while that topic does not exist, as Google's are."""

    def __init__(self, pubsub: PubSubCore, topic: str) -> None:
        self._pubsub = pubsub
        self._topic = topic

    def __call__(self, entry: dict[str, Any]) -> None:
        attributes = {"logging.googleapis.com/timestamp": entry["timestamp"]}
        try:
            self._pubsub.publish(self._topic, [(orjson.dumps(entry), attributes, "")])
        except PubSubError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            log.debug("localcloud.completion_dropped", topic=self._topic)


class StoredObjects(Objects):
    """The objects BigQuery loads from and extracts to.

    Many are looked up and read together, while no faults are planned: those strike single objects.
    """

    def __init__(self, storage: StorageCore) -> None:
        self._storage = storage

    def match(self, uri: str) -> list[SourceObject]:
        bucket, pattern = split_uri(as_read(uri))
        try:
            with _as_bigquery(uri):
                found = self._storage.glob(bucket, pattern) if "*" in pattern else [self._storage.stat(bucket, pattern)]
        except BigQueryError as error:
            if error.reason == "notFound":
                return []
            raise
        return [SourceObject(f"gs://{bucket}/{one.name}", one.size, one.generation) for one in found]

    def read(self, uri: str) -> bytes:
        with _as_bigquery(uri):
            return self._storage.read(*split_uri(as_read(uri)))

    def match_all(self, uris: Sequence[str]) -> Iterable[list[SourceObject]]:
        found: dict[str, SourceObject] = {}
        for bucket, names in self._together([uri for uri in uris if "*" not in uri]):
            for name, size, generation in self._storage.live(bucket, names):
                uri = f"gs://{bucket}/{name}"
                found[uri] = SourceObject(uri, size, generation)
        return [[found[uri]] if uri in found else self.match(uri) for uri in uris]

    def read_all(self, uris: Sequence[str]) -> Iterator[bytes]:
        for start in range(0, len(uris), _AT_ONCE):
            some = uris[start : start + _AT_ONCE]
            small = {
                f"gs://{bucket}/{name}": data
                for bucket, names in self._together(some)
                for name, data in self._storage.small(bucket, names)
            }
            for uri in some:
                yield small[uri] if uri in small else self.read(uri)

    def _together(self, uris: Sequence[str]) -> Iterable[tuple[str, list[str]]]:
        """Buckets, and the names asked for in each; nothing where each object needs a call of its own."""
        if len(uris) == 1 or not self._storage.hooks.plan.is_empty:
            return ()
        names: dict[str, list[str]] = {}
        for uri in uris:
            bucket, name = split_uri(as_read(uri))
            names.setdefault(bucket, []).append(name)
        return names.items()

    def write(self, uri: str, data: bytes, content_type: str) -> None:
        with _as_bigquery(uri):
            self._storage.write(*split_uri(uri), data, content_type)


@contextmanager
def _as_bigquery(uri: str) -> Iterator[None]:
    """What Storage refuses, as BigQuery tells it: a missing file by name, the rest as its own backend's trouble."""
    try:
        yield
    except StorageError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            raise BigQueryError("notFound", f"Not found: URI {uri}", uri) from error
        raise BigQueryError("backendError", f"{error.message} ({uri})", uri) from error
    except (FaultInjected, ResponseLost) as error:
        raise BigQueryError("backendError", f"{error} ({uri})", uri) from error
