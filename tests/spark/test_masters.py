"""What follows from where Spark runs."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from ingestd.model.errors import Fatal
from ingestd.rules.schema import RuleSpec
from ingestd.settings import Spark as SparkSettings
from ingestd.spark.session.masters import Files, Kind, configuration, master, sizes
from ingestd.spark.start import scratch_room, wants_spark

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


GIB = 1024**3


@pytest.fixture
def pod(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, float], None]:
    """A pod with these limits on a node of any size."""

    def limited(cores: int, gib: float) -> None:
        monkeypatch.setattr("ingestd.spark.session.masters.usable_cores", lambda: cores)
        monkeypatch.setattr("ingestd.spark.session.masters.usable_memory", lambda: int(gib * GIB))

    return limited


@pytest.mark.parametrize(
    ("cores", "gib", "master_url", "heap", "tasks", "mib"),
    [
        pytest.param(4, 6, "local[*]", None, 4, 3072, id="production"),
        pytest.param(2, 3, "local[*]", None, 2, 1280, id="development"),
        pytest.param(64, 6, "local[*]", None, 10, 1280, id="no limit on cores: memory decides"),
        pytest.param(64, 256, "local[*]", None, 64, 4096, id="a large machine"),
        pytest.param(4, 2, "local[*]", None, 1, 1024, id="too small"),
        pytest.param(4, 6, "local[2]", None, 2, 3072, id="tasks asked for"),
        pytest.param(4, 6, "local", None, 1, 3072, id="one task asked for"),
        pytest.param(4, 6, "local[*,3]", "3GiB", 4, 3072, id="a heap asked for"),
        pytest.param(8, 6, "local[*]", "4GiB", 2, 4096, id="a large heap asked for leaves room for fewer tasks"),
    ],
)
def test_a_local_spark_takes_what_its_container_has(
    pod: Callable[[int, float], None],
    tmp_path: Path,
    cores: int,
    gib: float,
    master_url: str,
    heap: str | None,
    tasks: int,
    mib: int,
) -> None:
    pod(cores, gib)
    settings = SparkSettings.model_validate({"master": master_url, "heap": heap})
    conf = configuration(settings, tmp_path)
    assert conf["spark.driver.memory"] == f"{mib}m"
    assert "*" not in conf["spark.master"], "Spark would count the node's cores"
    assert master(settings).cores == tasks
    assert conf["spark.sql.shuffle.partitions"] == str(tasks)
    found = sizes(settings)
    assert bool(found.problem) is (found.needed > gib * GIB)


@pytest.mark.parametrize(
    ("asked", "short"), [({}, False), ({"heap": "5GiB"}, True), ({"master": "local[16]"}, True)], ids=str
)
def test_asking_for_more_than_the_limit_is_said_with_what_helps(
    pod: Callable[[int, float], None], asked: dict[str, str], short: bool
) -> None:
    pod(4, 6)
    problem = sizes(SparkSettings.model_validate(asked)).problem
    assert bool(problem) is short
    if short:
        assert "the limit is 6144 MiB: raise the memory limit" in problem


def test_executors_on_kubernetes_run_the_daemons_image_and_end_with_its_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "namespace").write_text("ingestd-dev\n")
    monkeypatch.setattr("ingestd.spark.session.masters._SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setattr("socket.gethostname", lambda: "ingestd-6f-abc")
    settings = SparkSettings(master="k8s://https://kubernetes.default.svc", image="registry/ingestd:1")
    conf = configuration(settings, tmp_path)
    assert conf["spark.kubernetes.container.image"] == "registry/ingestd:1"
    assert conf["spark.kubernetes.namespace"] == "ingestd-dev"
    assert conf["spark.kubernetes.driver.pod.name"] == "ingestd-6f-abc"
    assert "spark.kubernetes.namespace" not in configuration(SparkSettings(master="yarn"), tmp_path)


def test_fetched_files_take_a_share_of_the_volume_that_is_really_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for total, room in ((10 * GIB, 4 * GIB), (500 * GIB, 20 * GIB)):
        monkeypatch.setattr("shutil.disk_usage", lambda _, total=total: SimpleNamespace(total=total))
        assert scratch_room(SparkSettings(), tmp_path) == room
        with capture_logs() as said:
            assert scratch_room(SparkSettings(scratch_size="12GiB"), tmp_path) == 12 * GIB
        assert [one["event"] for one in said] == (["spark.scratch_short"] if total < 12 * GIB else [])


@pytest.mark.parametrize(
    ("more", "engine", "needed"),
    [
        ({}, "spark", False),
        ({"Dest": {"Table": "d.t", "UniqueColumns": ["id"]}}, "spark", True),
        ({"Dest": {"Table": "d.t", "UniqueColumns": ["id"]}}, "bigquery", False),
        ({"Dest": {"Table": "d.t", "AllowFieldAddition": True}}, "spark", True),
        ({"Merge": {}}, "bigquery", True),
        (
            {
                "Dest": {"Table": "d.t", "UniqueColumns": ["id"], "TransientDataset": "temp"},
                "OnSuccess": [{"Action": "query", "Request": {"SQL": "SELECT 1 FROM $TempTable"}}],
            },
            "spark",
            False,
        ),
        ({"OnBadData": "quarantine rows"}, "bigquery", True),
        ({"OnSuccess": [{"Action": "spark", "Request": {"SQL": "SELECT 1", "Dest": "d.u"}}]}, "bigquery", True),
    ],
)
def test_a_jvm_is_started_ahead_only_for_rules_that_will_need_it(
    more: dict[str, Any], engine: str, needed: bool
) -> None:
    rule = RuleSpec.model_validate({"When": {"Prefix": "/x"}, "Dest": {"Table": "d.t"}, **more})
    assert wants_spark(rule, engine) is needed
