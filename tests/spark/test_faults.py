"""The daemon's Spark outlives the JVM under it."""

import pytest
from tests.spark.own_process import run_scenario

pytestmark = pytest.mark.xdist_group("spark-faults")


def test_a_jvm_that_is_killed_or_hangs_while_it_writes_is_noticed_and_replaced() -> None:
    run_scenario("faults", "early")


def test_a_jvm_that_dies_after_the_write_costs_nothing_and_a_starved_one_says_so() -> None:
    run_scenario("faults", "late")
