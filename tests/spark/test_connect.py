"""The daemon on a Spark Connect server, by changing one setting."""

import pytest
from tests.spark.own_process import run_scenario

pytestmark = [pytest.mark.xdist_group("spark-connect"), pytest.mark.timeout(1800)]


def test_connect_prepares_batches_runs_refuses_cancels_and_notices_a_dead_server() -> None:
    run_scenario("connect")
