"""The daemon on a standalone cluster, by changing one setting."""

import pytest
from tests.spark.own_process import run_scenario

pytestmark = pytest.mark.xdist_group("spark-cluster")


def test_a_worker_killed_in_the_middle_of_a_job_changes_no_row() -> None:
    run_scenario("cluster")
