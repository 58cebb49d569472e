"""One warm Spark session for all tests here: a JVM costs seconds and memory, so a single worker runs them all.

`session` is PySpark's own, for what only needs rows; `spark` is the daemon's way to it, for what awaits.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.batches import Batches

from ingestd.gcp.connect import Clients, connect
from ingestd.settings import Spark as SparkSettings
from ingestd.spark.session.engine import Engine
from ingestd.spark.session.masters import master
from ingestd.spark.session.session import Spark
from ingestd.spark.start import open_engine
from ingestd.spark.warmup import warm_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Unless a test has a group of its own, it shares this folder's session, and so its worker."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("spark"))
        if item.path.is_relative_to(here) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(1800))  # stops the hopeless; a busy machine starts JVMs in minutes


@pytest.fixture(scope="session")
def spark_settings(tmp_path_factory: pytest.TempPathFactory) -> SparkSettings:
    return SparkSettings(master="local[2]", heap=1536 * 1024**2, scratch=tmp_path_factory.mktemp("scratch"))


@pytest.fixture(scope="session")
def engine(spark_settings: SparkSettings) -> Iterator[Engine]:
    """A session that is up and warm until the last test here is done."""
    opened = open_engine(spark_settings)
    try:
        warm_up(opened, master(spark_settings), times=1)
        yield opened
    finally:
        opened.close()


@pytest.fixture
def session(engine: Engine) -> "SparkSession":
    """A session with views and SQL settings of its own."""
    return engine.session.newSession()


@pytest.fixture
def spark(engine: Engine) -> Spark:
    """The daemon's Spark on the shared session."""
    return Spark.over(engine)


@pytest.fixture
def batches(spark: Spark, tmp_path: Path) -> Batches:
    return Batches(spark, tmp_path)


@pytest.fixture
async def clients(emulators: None) -> AsyncIterator[Clients]:
    async with connect("test-project") as opened:
        yield opened
