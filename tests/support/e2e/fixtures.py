"""A warm driver per session, a world per test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.e2e.processes import ForkServer
from tests.support.e2e.web import Web, web_server
from tests.support.e2e.world import World, new_worlds

from ingestd.localcloud.cloud import LocalCloud


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture
def new_world(
    cloud: LocalCloud,
    fork_server: ForkServer,
    tmp_path: Path,
    storage_client: Any,
    publisher: Any,
    subscriber: Any,
) -> Iterator[Callable[[], World]]:
    """`new_world()` makes a project of its own; for tests that need several."""
    clients = {"storage": storage_client, "publisher": publisher, "subscriber": subscriber}
    with new_worlds(fork_server, tmp_path, cloud, **clients) as make:
        yield make


@pytest.fixture
def world(new_world: Callable[[], World]) -> World:
    return new_world()


@pytest.fixture
def web() -> Iterator[Web]:
    with web_server() as running:
        yield running
