"""Spark's files on disk: they go with their session, and a session is told when they are gone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ingestd.spark.session import owners
from ingestd.spark.session.spill import Spill


def dead() -> str:
    """The name of an owner that has ended."""
    code = "from ingestd.spark.session import owners; print(owners.mine())"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def alive() -> str:
    """This process's parent, as its folders would be named."""
    host = owners.mine().partition(".")[0]
    return f"{host}.{os.getppid()}.{owners._born(os.getppid())}"


def test_each_session_has_folders_of_its_own_that_go_with_it(tmp_path: Path) -> None:
    roots = [tmp_path / "fast", tmp_path / "large"]
    spill = Spill.under(roots)
    assert [folder.parent for folder in spill.folders] == roots
    for folder in spill.folders:
        (folder / "blockmgr-1" / "0a").mkdir(parents=True)
    spill.remove()
    assert [list(root.iterdir()) for root in roots] == [[], []]


def test_a_new_session_removes_what_its_forerunners_and_dead_processes_left_and_nothing_else(tmp_path: Path) -> None:
    for name in (f"spill-{dead()}-abc", f"spill-{owners.mine()}-abc"):
        (tmp_path / name / "blockmgr-1").mkdir(parents=True)
    others = [f"spill-{alive()}-abc", f"batch-{owners.mine()}-abc", "spill-of-somebody", "warehouse"]
    for name in others:
        (tmp_path / name).mkdir()
    spill = Spill.under([tmp_path])
    assert {path.name for path in tmp_path.iterdir()} == {*others, spill.folders[0].name}


@pytest.mark.parametrize("what", [".", "blockmgr-1", "blockmgr-1/0a", "spark-1/pyspark-1"])
def test_whatever_spark_relies_on_is_missed(tmp_path: Path, what: str) -> None:
    """A cleaner by age takes the empty folders first, one by one."""
    spill = Spill.under([tmp_path])
    (folder,) = spill.folders
    spill.check()
    for name in ("blockmgr-1/0a", "blockmgr-1/3f", "spark-1/pyspark-1", "spark-1/other"):
        (folder / name).mkdir(parents=True)
    spill.keep(folder / "spark-1/pyspark-1")
    spill.check()
    shutil.rmtree(folder / "spark-1/other")  # Spark's own comings and goings
    spill.check()
    shutil.rmtree(folder / what)
    with pytest.raises(ConnectionError, match="cleared away"):
        spill.check()
