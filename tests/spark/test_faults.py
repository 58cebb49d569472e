"""The daemon's Spark outlives the JVM under it."""

import pytest
from tests.spark.own_process import run_scenario

pytestmark = pytest.mark.xdist_group("spark-faults")


def test_a_killed_a_hung_and_a_starved_jvm_are_noticed_and_replaced() -> None:
    run_scenario("faults")
