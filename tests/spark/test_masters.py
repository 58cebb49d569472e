"""What follows from where Spark runs."""

from pathlib import Path
from typing import Any

import pytest

from ingestd.model.errors import Fatal
from ingestd.prepare.masters import Files, Kind, configuration, heap, master
from ingestd.prepare.start import wants_spark
from ingestd.rules.schema import RuleSpec
from ingestd.settings import Spark as SparkSettings

pytestmark = pytest.mark.xdist_group("spark-masters")


@pytest.mark.parametrize(
    ("url", "kind", "files"),
    [
        ("local[*]", Kind.LOCAL, Files.LOCAL),
        ("local", Kind.LOCAL, Files.LOCAL),
        ("spark://host:7077", Kind.CLUSTER, Files.GS),
        ("yarn", Kind.CLUSTER, Files.GS),
        ("k8s://https://kubernetes.default.svc", Kind.CLUSTER, Files.GS),
        ("sc://host:15002", Kind.CONNECT, Files.GS),
    ],
)
def test_a_master_says_who_fetches_the_files(url: str, kind: Kind, files: Files) -> None:
    found = master(SparkSettings(master=url))
    assert (found.kind, found.files) == (kind, files)
    assert master(SparkSettings(master=url, files="local")).files is Files.LOCAL


def test_a_master_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(Fatal, match=r"spark.master: 'mesos://x' is none of local"):
        master(SparkSettings(master="mesos://x"))


def test_the_users_own_settings_win_and_their_java_options_are_added(tmp_path: Path) -> None:
    own = {"spark.sql.shuffle.partitions": "7", "spark.driver.extraJavaOptions": "-Dx=y", "spark.custom": "1"}
    conf = configuration(SparkSettings(master="local[3]", conf=own), tmp_path)
    assert conf["spark.sql.shuffle.partitions"] == "7"
    assert conf["spark.custom"] == "1"
    assert conf["spark.driver.extraJavaOptions"].endswith(" -Dx=y")
    assert "ExitOnOutOfMemoryError" in conf["spark.driver.extraJavaOptions"]
    assert conf["spark.scheduler.mode"] == "FAIR"


@pytest.mark.parametrize(("theirs", "ours"), [("-Dx=y", True), ("-XX:+UseG1GC", False), ("-XX:+UseZGC -Dx=y", False)])
def test_a_garbage_collector_that_the_user_chose_is_the_only_one(tmp_path: Path, theirs: str, ours: bool) -> None:
    """A JVM that is told two of them does not start."""
    conf = configuration(SparkSettings(conf={"spark.driver.extraJavaOptions": theirs}), tmp_path)
    assert ("-XX:+UseParallelGC" in conf["spark.driver.extraJavaOptions"]) is ours


def test_settings_that_would_change_what_an_expression_means_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match=r"spark\.conf: spark\.sql\.ansi\.enabled has to be true.*leave it out"):
        configuration(SparkSettings(conf={"spark.sql.ansi.enabled": "false"}), tmp_path)


def test_a_cluster_reads_buckets_itself_also_those_of_an_emulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cluster = SparkSettings(master="spark://host:7077")
    assert "spark.hadoop.fs.gs.impl" in configuration(on_cluster, tmp_path)
    assert "spark.hadoop.fs.gs.impl" not in configuration(SparkSettings(), tmp_path)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9000")
    assert configuration(on_cluster, tmp_path)["spark.hadoop.fs.gs.storage.root.url"] == "http://127.0.0.1:9000"


def test_the_heap_is_a_share_of_the_memory_unless_it_is_given() -> None:
    gib = 1024**3
    assert gib <= heap(SparkSettings()) <= 4 * gib
    assert heap(SparkSettings(heap="6GiB")) == 6 * gib


@pytest.mark.parametrize(
    ("more", "engine", "needed"),
    [
        ({}, "spark", False),
        ({"Dest": {"Table": "d.t", "UniqueColumns": ["id"]}}, "spark", True),
        ({"Dest": {"Table": "d.t", "UniqueColumns": ["id"]}}, "bigquery", False),
        ({"Dest": {"Table": "d.t", "AllowFieldAddition": True}}, "spark", True),
        ({"Merge": {}}, "bigquery", True),
        ({"OnBadData": "quarantine rows"}, "bigquery", True),
        ({"OnSuccess": [{"Action": "spark", "Request": {"SQL": "SELECT 1", "Dest": "d.u"}}]}, "bigquery", True),
    ],
)
def test_a_jvm_is_started_ahead_only_for_rules_that_will_need_it(
    more: dict[str, Any], engine: str, needed: bool
) -> None:
    rule = RuleSpec.model_validate({"When": {"Prefix": "/x"}, "Dest": {"Table": "d.t"}, **more})
    assert wants_spark(rule, engine) is needed
