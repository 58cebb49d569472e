"""The same table of cases on Spark: files are prepared before the load, and the tables end up the same."""

from typing import Any

import pytest
from tests.e2e.dest.cases import names
from tests.e2e.dest.stage import Stage

ENGINE = "spark"
# A short life with small jobs: compiling little costs least.
SETTINGS: dict[str, Any] = {
    "spark": {
        "master": "local[2]",
        "heap": "1536MiB",
        "start": "always",
        "warm_up": False,
        "conf": {
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.codegen.wholeStage": "false",
        },
    }
}

pytestmark = [pytest.mark.xdist_group("dest-spark"), pytest.mark.timeout(1800)]


@pytest.mark.parametrize("name", names(ENGINE))
def test_case(stage: Stage, name: str) -> None:
    stage.watch(stage.by_name[name])


def test_nothing_of_the_daemons_own_is_left(stage: Stage) -> None:
    stage.world.settled()
    assert list(stage.own_tables()) == []
