"""A warm driver per session, a world per test."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.daemon.processes import ForkServer, nursery
from tests.e2e.daemon.web import Web, web_server
from tests.e2e.daemon.world import World

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
    made: list[World] = []
    with nursery(fork_server, tmp_path, cloud.endpoints.environ()) as daemons:

        def make() -> World:
            project = f"t{uuid.uuid4().hex[:10]}"
            folder = tmp_path / project
            folder.mkdir()
            world = World(
                cloud,
                project,
                folder,
                daemons,
                storage=storage_client,
                publisher=publisher,
                subscriber=subscriber,
            )
            world.set_up()
            made.append(world)
            return world

        yield make
    for world in made:
        world.tear_down()


@pytest.fixture
def world(new_world: Callable[[], World]) -> World:
    return new_world()


@pytest.fixture
def web() -> Iterator[Web]:
    with web_server() as running:
        yield running
