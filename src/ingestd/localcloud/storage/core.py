"""Cloud Storage as a plain synchronous object on a folder: exact semantics, no network, no event loop.

`buckets`, `objects` and `uploads` carry the operations of the API under the API's names. Any thread may call any of
them; each is atomic, counted, subject to planned faults, and durable once it returned.
"""

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from ingestd.localcloud.faults import Hooks
from ingestd.localcloud.storage.bucket_ops import Buckets
from ingestd.localcloud.storage.database import Database
from ingestd.localcloud.storage.globs import wildcard_matcher
from ingestd.localcloud.storage.listing import list_page
from ingestd.localcloud.storage.model import ListQuery, ObjectMetadata, ObjectVersion, Preconditions
from ingestd.localcloud.storage.notifications import Publish, PublishMany
from ingestd.localcloud.storage.object_ops import Objects
from ingestd.localcloud.storage.state import State, StorageSettings
from ingestd.localcloud.storage.upload_ops import Uploads
from ingestd.model.clock import Clock


class StorageCore:
    """One project's Cloud Storage under `root`.

    `publish(topic, data, attributes)` receives notifications, from whatever thread made the change; the topic is
    `projects/p/topics/t`. Without it notification configs are stored but stay silent. `publish_many(topic, messages)`
    receives those that wait for one topic at once.
    """

    def __init__(
        self,
        root: Path,
        *,
        project: str,
        clock: Clock,
        hooks: Hooks | None = None,
        publish: Publish | None = None,
        publish_many: PublishMany | None = None,
        settings: StorageSettings | None = None,
        database: type[Database] = Database,
    ) -> None:
        self.project = project
        self.project_number = int.from_bytes(hashlib.sha256(project.encode()).digest()[:5], "big") + 10**11
        self.hooks = hooks or Hooks("storage")
        self._state = State(
            root,
            clock=clock,
            hooks=self.hooks,
            publish=publish,
            publish_many=publish_many,
            settings=settings or StorageSettings(),
            database=database,
        )
        self.buckets = Buckets(self._state, project)
        self.objects = Objects(self._state)
        self.uploads = Uploads(self._state, self.objects)
        self.deliver_notifications()

    def close(self) -> None:
        with self._state.lock:
            self._state.database.close()

    def deliver_notifications(self) -> int:
        """Retry what could not be handed over (a failing topic, a withheld message); returns what still waits."""
        self._state.notifier.deliver()
        return self._state.notifier.waiting

    def together(self) -> AbstractContextManager[None]:
        """What this thread changes in the block is committed at its end, as one; each operation still succeeds or is
        refused by itself. None of it was done when an error leaves the block.
        """
        return self._state.together()

    @property
    def service_account(self) -> str:
        return f"service-{self.project_number}@gs-project-accounts.iam.gserviceaccount.com"

    # For the other services of the local cloud, in process.

    def stat(self, bucket: str, name: str, generation: int | None = None) -> ObjectVersion:
        return self.objects.get(bucket, name, generation)

    def read(self, bucket: str, name: str, generation: int | None = None) -> bytes:
        return self.objects.open(bucket, name, generation).read()

    def live(self, bucket: str, names: Sequence[str]) -> list[tuple[str, int, int]]:
        """Name, size and generation of those that exist."""
        with self._state.lock:
            found = self._state.database.live(bucket, names)
        self.hooks.count("objects.get", len(found), cost="B")
        return found

    def small(self, bucket: str, names: Sequence[str]) -> list[tuple[str, bytes]]:
        """Name and content of those that exist and are kept inside the database."""
        with self._state.lock:
            found = self._state.database.small(bucket, names)
        self.hooks.count("objects.get", len(found), cost="B")
        return found

    def write(
        self,
        bucket: str,
        name: str,
        data: bytes,
        content_type: str = "application/octet-stream",
        if_generation: int | None = None,
    ) -> ObjectVersion:
        return self.objects.insert(
            bucket, name, data, ObjectMetadata(content_type=content_type), Preconditions(generation=if_generation)
        )

    def glob(self, bucket: str, pattern: str) -> list[ObjectVersion]:
        """Live objects whose name matches; `*` stands for any characters, slashes included."""
        matcher = wildcard_matcher(pattern)
        found: list[ObjectVersion] = []
        query = ListQuery(prefix=pattern.partition("*")[0])
        with self.hooks.operation("objects.list", bucket, cost="A"), self._state.lock:
            self._state.bucket(bucket)
            while True:
                page = list_page(self._state.database, bucket, query)
                found += (version for version in page.items if matcher.fullmatch(version.name))
                if not page.next_page_token:
                    return found
                query = ListQuery(prefix=query.prefix, page_token=page.next_page_token)
