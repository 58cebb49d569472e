"""A real local BigQuery on loopback over objects in memory, and Google's own client pointed at it."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from google.cloud import bigquery
from tests.integration.bigquery.local import LocalBigQuery


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
