"""One cloud, one daemon and one Spark session for the whole page; recipes are cooked side by side."""

from collections.abc import Iterator

import pytest
from tests.e2e.cookbook.kitchen import Kitchen, open_kitchen


@pytest.fixture(scope="module")
def kitchen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kitchen]:
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    chosen = {item.callspec.params["title"] for item in items if "kitchen" in item.fixturenames}
    with open_kitchen(tmp_path_factory.mktemp("cookbook"), chosen) as opened:
        yield opened
