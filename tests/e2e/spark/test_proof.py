"""A session that is up but prepares nothing is not ready, and says why: with the warm-up, and without it."""

from pathlib import Path

import pytest
from tests.support.e2e.orders import SPARK, set_up, upload
from tests.support.e2e.world import World

pytestmark = [pytest.mark.xdist_group("e2e-spark"), pytest.mark.timeout(1800)]


@pytest.fixture
def without_pandas(tmp_path: Path) -> str:
    """A folder that hides pandas from whoever has it on PYTHONPATH: the daemon, and Spark's workers."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "pandas.py").write_text("raise ModuleNotFoundError(\"No module named 'pandas'\", name='pandas')\n")
    return str(hidden)


@pytest.mark.parametrize("warm_up", [True, False])
def test_where_no_batch_can_be_prepared_the_daemon_is_not_ready_and_says_why(
    world: World, without_pandas: str, warm_up: bool
) -> None:
    set_up(world)
    settings = {**SPARK, "warm_up": warm_up, "restart_first": "1m"}
    daemon = world.command({"PYTHONPATH": without_pandas}, spark=settings)
    [told, *_] = daemon.heard("spark.not_started")
    assert "no batch can be prepared" in told["error"]
    assert "pandas" in told["error"].lower()
    refused = daemon.get("/readyz")
    assert refused.status_code == 503
    assert "pandas" in refused.text.lower()
    assert daemon.metric("ingestd_spark_up") == 0
    assert daemon.get("/healthz").status_code == 200
    upload(world)
    blocked = daemon.heard("batch.blocked")
    assert "no batch can be prepared" in blocked[0]["error"]
