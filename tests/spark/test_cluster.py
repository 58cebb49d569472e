"""The daemon on a standalone cluster, by changing one setting: a master and its workers, one of which dies per test."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from tests.spark.own_process import run_scenario
from tests.support.e2e.fixtures import fork_server, new_world, world
from tests.support.e2e.orders import EXPECTED, TABLE, calls, set_up, upload
from tests.support.e2e.processes import Daemon
from tests.support.e2e.world import World
from tests.support.spark.connector import connector
from tests.support.spark.processes import CLUSTER_CONF, Cluster, children, kill_group, standalone_cluster
from tests.support.waiting import eventually

__all__ = ["fork_server", "new_world", "world"]

pytestmark = [pytest.mark.xdist_group("spark-cluster"), pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), workers=3) as running:
        yield running


def living(cluster: Cluster) -> list["subprocess.Popen[bytes]"]:
    return [worker for worker in cluster.workers if worker.poll() is None]


def reading(worker: "subprocess.Popen[bytes]") -> bool:
    """Whether the worker's executor has begun to read a file."""
    executors = children(worker.pid, "CoarseGrainedExecutorBackend")
    return any(children(executor, "pyspark.daemon") for executor in executors)


def preparing(daemon: Daemon) -> bool:
    return any(call["tag"].startswith("prepare/") for call in calls(daemon))


def test_a_worker_killed_in_the_middle_of_a_job_changes_no_row(cluster: Cluster) -> None:
    victim, *others = living(cluster)
    run_scenario("cluster", cluster.url, str(1 + len(others)), str(victim.pid))


def test_a_worker_killed_under_a_batch_of_the_daemon_neither_loses_nor_doubles_a_row(
    cluster: Cluster, world: World
) -> None:
    """Its workers read the bucket and write to it themselves, as on any cluster."""
    set_up(world)
    spark: dict[str, Any] = {"master": cluster.url, "warm_up": False, "heartbeat": "250ms"}
    spark["conf"] = CLUSTER_CONF | connector(world.cloud.endpoints.environ()["STORAGE_EMULATOR_HOST"])
    daemon = world.start(spark=spark, logging={"level": "debug"})
    daemon.heard("spark.ready")
    upload(world, padding=25_000)  # enough for a task on each worker
    victim = living(cluster)[0]
    # Since the session's start each executor has a Python: only the call says that a batch is under way.
    eventually(lambda: preparing(daemon) and reading(victim), lambda: f"the worker has nothing to do: {daemon.said()}")
    kill_group(victim)
    assert preparing(daemon), "the batch was over before"
    world.until(lambda: world.rows(TABLE))
    world.windows_settled()
    assert world.rows(TABLE) == EXPECTED
    assert len(world.jobs("load")) == 1
    assert world.statuses() == ["done"]
    assert not world.objects("orders/", world.trigger)
    assert any("Lost executor" in one["line"] for one in daemon.said("spark.said"))
    assert daemon.metric("ingestd_spark_sessions_started_total") == 1, "the session goes on"
