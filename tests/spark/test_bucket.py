"""A Spark that reads the bucket itself, as on a cluster."""

import pytest
from tests.spark.own_process import run_scenario

pytestmark = [pytest.mark.xdist_group("spark-cluster"), pytest.mark.timeout(1800)]


def test_files_are_read_from_the_bucket_and_prepared_ones_written_to_it() -> None:
    run_scenario("bucket")
