"""One world and one daemon per engine, shared by all of its cases."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.daemon.processes import ForkServer, nursery
from tests.e2e.daemon.world import World
from tests.e2e.dest.stage import Stage

from ingestd.localcloud.cloud import LocalCloud


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def stage(
    request: pytest.FixtureRequest,
    cloud: LocalCloud,
    fork_server: ForkServer,
    tmp_path_factory: pytest.TempPathFactory,
    storage_client: Any,
    publisher: Any,
    subscriber: Any,
) -> Iterator[Stage]:
    """The stage of the module's `ENGINE`, with its `SETTINGS`."""
    folder = tmp_path_factory.mktemp("dest")
    with nursery(fork_server, folder, cloud.endpoints.environ()) as daemons:
        world = World(
            cloud,
            f"t{uuid.uuid4().hex[:10]}",
            folder,
            daemons,
            storage=storage_client,
            publisher=publisher,
            subscriber=subscriber,
        )
        world.set_up()
        yield Stage(world, request.module.ENGINE, _chosen(request), **request.module.SETTINGS)
    world.tear_down()


def _chosen(request: pytest.FixtureRequest) -> set[str]:
    """The cases that this run is about."""
    items = [item for item in request.session.items if getattr(item, "module", None) is request.module]
    return {item.callspec.params["name"] for item in items if hasattr(item, "callspec")}
