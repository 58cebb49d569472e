"""One world and one daemon per engine, shared by all of its cases."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.dest.stage import Stage
from tests.support.e2e.processes import ForkServer
from tests.support.e2e.world import new_worlds

from ingestd.localcloud.cloud import LocalCloud


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
    clients = {"storage": storage_client, "publisher": publisher, "subscriber": subscriber}
    with new_worlds(fork_server, tmp_path_factory.mktemp("dest"), cloud, **clients) as make:
        yield Stage(make(), request.module.ENGINE, _chosen(request), **request.module.SETTINGS)


def _chosen(request: pytest.FixtureRequest) -> set[str]:
    """The cases that this run is about."""
    items = [item for item in request.session.items if getattr(item, "module", None) is request.module]
    return {item.callspec.params["name"] for item in items if hasattr(item, "callspec")}
