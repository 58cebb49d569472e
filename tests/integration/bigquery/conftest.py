"""A real local BigQuery on loopback over objects in memory, and Google's own client pointed at it."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

from ingestd.localcloud.bigquery.core import BigQueryCore
from ingestd.localcloud.bigquery.files.objects import MemoryObjects
from ingestd.localcloud.bigquery.server import make_handler
from ingestd.localcloud.bigquery.settings import BigQuerySettings
from ingestd.localcloud.faults import Hooks
from ingestd.localcloud.http import HttpServer

PROJECT = "test-project"


class LocalBigQuery:
    """The service in a thread of its own, so that blocking clients can call it."""

    def __init__(self, root: Path, settings: BigQuerySettings | None = None) -> None:
        self.objects = MemoryObjects()
        self.hooks = Hooks("bigquery")
        self.audit: list[dict[str, Any]] = []
        self.core = BigQueryCore(
            root,
            project=PROJECT,
            objects=self.objects,
            hooks=self.hooks,
            on_job_done=self.audit.append,
            settings=settings or BigQuerySettings(legacy_audit=True),
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="local-bigquery")
        self._thread.start()
        self._server = HttpServer(make_handler(self.core))
        asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result(60)
        self.endpoint = f"http://127.0.0.1:{self._server.port}"

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        self.core.close()

    def put(self, uri: str, data: bytes | str) -> str:
        self.objects.write(uri, data.encode() if isinstance(data, str) else data, "application/octet-stream")
        return uri

    def client(self) -> bigquery.Client:
        return bigquery.Client(
            project=PROJECT,
            credentials=AnonymousCredentials(),
            client_options=ClientOptions(api_endpoint=self.endpoint),
        )


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBigQuery]:
    running = LocalBigQuery(tmp_path_factory.mktemp("bigquery"))
    yield running
    running.stop()


@pytest.fixture
def local(service: LocalBigQuery) -> Iterator[LocalBigQuery]:
    """The shared service, without faults left behind by a test."""
    yield service
    service.hooks.plan.clear()


@pytest.fixture(scope="session")
def client(service: LocalBigQuery) -> Iterator[bigquery.Client]:
    opened = service.client()
    yield opened
    opened.close()


@pytest.fixture
def dataset(client: bigquery.Client) -> str:
    """The name of an empty dataset of this test's own."""
    name = f"d{uuid4().hex[:10]}"
    client.create_dataset(name)
    return name
