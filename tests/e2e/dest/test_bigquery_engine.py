"""The table of cases on BigQuery's engine: transient tables and SQL."""

from typing import Any

import pytest
from tests.e2e.dest.cases import names
from tests.e2e.dest.stage import Stage

ENGINE = "bigquery"
SETTINGS: dict[str, Any] = {}

pytestmark = pytest.mark.xdist_group("dest-bigquery")


@pytest.mark.parametrize("name", names(ENGINE))
def test_case(stage: Stage, name: str) -> None:
    stage.watch(stage.by_name[name])


def test_nothing_of_the_daemons_own_is_left(stage: Stage) -> None:
    stage.world.settled()
    assert list(stage.own_tables()) == []
