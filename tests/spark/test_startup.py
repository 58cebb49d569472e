"""Spark's start can be called off, wherever it has got to."""

import pytest
from tests.spark.own_process import run_scenario

from ingestd.spark.session.startup import CalledOff, Startup

pytestmark = pytest.mark.xdist_group("spark-faults")


def test_a_process_that_comes_after_the_call_is_ended_and_so_is_one_before_it() -> None:
    ended: list[str] = []
    early = Startup()
    early.check()
    early.began(lambda: ended.append("before"))
    assert ended == []
    early.call_off()
    assert ended == ["before"]
    with pytest.raises(CalledOff):
        early.check()

    late = Startup()
    late.call_off()
    with pytest.raises(CalledOff):
        late.began(lambda: ended.append("after"))
    assert ended == ["before", "after"]


def test_a_daemon_that_stops_while_spark_starts_ends_at_once_and_leaves_no_process() -> None:
    run_scenario("called_off")
