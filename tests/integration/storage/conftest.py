"""A real local Cloud Storage on loopback, and Google's own client pointed at it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest
from google.cloud import storage
from tests.support.background import Background
from tests.support.google import PROJECT, storage_client

from ingestd.localcloud.faults import Fault, FaultKind, Hooks
from ingestd.localcloud.http import HttpServer
from ingestd.localcloud.storage import StorageCore, StorageSettings
from ingestd.localcloud.storage.server import make_handler
from ingestd.model.clock import SystemClock


@dataclass(slots=True)
class Published:
    topic: str
    data: bytes
    attributes: dict[str, str]


@dataclass
class LocalStorage:
    """The service in a thread of its own, so that blocking clients can call it."""

    root: Path
    settings: StorageSettings = field(default_factory=StorageSettings)
    published: list[Published] = field(default_factory=list)
    hooks: Hooks = field(default_factory=lambda: Hooks("storage"))

    def start(self) -> None:
        self.core = StorageCore(
            self.root,
            project=PROJECT,
            clock=SystemClock(),
            hooks=self.hooks,
            publish=lambda topic, data, attributes: self.published.append(Published(topic, data, attributes)),
            settings=self.settings,
        )
        self._beside = Background("local-storage")
        self._server = HttpServer(make_handler(self.core))
        self._beside.run(self._server.start())

    def stop(self) -> None:
        self._beside.run(self._server.stop())
        self._beside.close()
        self.core.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.port}"

    def client(self) -> storage.Client:
        return storage_client(self.url)

    def fault(self, method: str, kind: FaultKind = FaultKind.FAIL, **fields: object) -> None:
        self.hooks.plan.add(Fault("storage", method, kind, **fields))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStorage]:
    running = LocalStorage(tmp_path_factory.mktemp("storage"))
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def client(service: LocalStorage) -> Iterator[storage.Client]:
    made = service.client()
    yield made
    made.close()


@pytest.fixture
def bucket(service: LocalStorage, client: storage.Client) -> Iterator[storage.Bucket]:
    yield client.create_bucket(f"bucket-{uuid4().hex[:12]}")
    service.hooks.plan.clear()


@pytest.fixture
def versioned(client: storage.Client) -> storage.Bucket:
    made = client.bucket(f"versioned-{uuid4().hex[:12]}")
    made.versioning_enabled = True
    made.create()
    return made
