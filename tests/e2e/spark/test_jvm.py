"""The daemon outlives its JVM: killed or hung in the middle of a batch, it is replaced, and the rows arrive once."""

import os
import signal
import time
from pathlib import Path

import pytest
from tests.support.e2e.orders import EXPECTED, SPARK, TABLE, calls, java, set_up, upload
from tests.support.e2e.processes import Daemon
from tests.support.e2e.world import World
from tests.support.waiting import eventually

pytestmark = [pytest.mark.xdist_group("e2e-spark"), pytest.mark.timeout(1800)]


def strike(daemon: Daemon, number: signal.Signals) -> int:
    """Send the signal to the JVM while it prepares a batch; which one it was."""
    struck = java(daemon)
    eventually(lambda: calls(daemon), lambda: f"no batch on Spark: {daemon.said()}")
    time.sleep(0.3)
    os.kill(struck, number)
    assert [call for call in calls(daemon) if call["tag"].startswith("prepare/")], "the batch was over before"
    return struck


def replaced(daemon: Daemon, struck: int, sessions: int) -> None:
    """The daemon says that Spark is gone, and is ready with another one later."""
    told = eventually(lambda: answer if (answer := daemon.get("/readyz")).status_code == 503 else None, "still ready")
    assert "spark: " in told.text, told.text
    assert daemon.get("/healthz").status_code == 200
    eventually(lambda: daemon.metric("ingestd_spark_sessions_started_total") >= sessions, daemon.said)
    eventually(lambda: daemon.get("/readyz").status_code == 200, lambda: f"not ready again: {daemon.said()}")
    assert java(daemon) != struck
    assert daemon.metric("ingestd_spark_up") == 1


def test_a_jvm_killed_and_another_hung_under_a_batch_are_replaced_and_its_rows_arrive_once(world: World) -> None:
    set_up(world)
    daemon = world.command(spark=SPARK)
    daemon.heard("spark.ready")
    assert daemon.get("/readyz").status_code == 200
    upload(world)
    for number, (blow, reason) in enumerate([(signal.SIGKILL, "died"), (signal.SIGSTOP, "hung")], 1):
        struck = strike(daemon, blow)
        replaced(daemon, struck, number + 1)
        assert daemon.metric("ingestd_spark_sessions_lost_total", reason=reason) == 1
        assert daemon.metric("ingestd_spark_calls_total", outcome="lost") == number
        assert not Path(f"/proc/{struck}").exists()
        assert world.rows(TABLE) == []

    world.until(lambda: world.rows(TABLE))
    world.windows_settled()
    assert world.rows(TABLE) == EXPECTED
    assert len(world.jobs("load")) == 1
    assert world.statuses() == ["done"]
    assert [one["attempt"] for one in daemon.said("prepare.done")] == [3]
    assert not world.objects("orders/", world.trigger)
    assert len(daemon.said("spark.lost")) == 2
    last = java(daemon)
    daemon.send(signal.SIGTERM)
    daemon.wait()
    assert not Path(f"/proc/{last}").exists(), "its JVM is still there"
