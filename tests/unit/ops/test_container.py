"""What a container's limits leave of the machine."""

from pathlib import Path

import pytest

from ingestd.ops.container import usable_cores, usable_memory

GIB = 1024**3


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


@pytest.fixture(autouse=True)
def a_large_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 64 * GIB // 4096}.__getitem__)


@pytest.mark.parametrize(
    ("own", "files", "cores", "memory"),
    [
        pytest.param(
            "0::/", {"cpu.max": "400000 100000", "memory.max": str(6 * GIB)}, 4, 6 * GIB, id="a pod, version 2"
        ),
        pytest.param("0::/", {"cpu.max": "max 100000", "memory.max": "max"}, 64, 64 * GIB, id="no limits, version 2"),
        pytest.param("0::/", {"cpu.max": "50000 100000"}, 1, 64 * GIB, id="half a core"),
        pytest.param("0::/", {"cpu.max": "250000 100000"}, 3, 64 * GIB, id="two cores and a half"),
        pytest.param(
            "0::/a/b",
            {"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000", "a/b/memory.max": str(3 * GIB)},
            2,
            3 * GIB,
            id="a limit on an ancestor",
        ),
        pytest.param(
            "4:memory:/kubepods/burstable/pod1\n3:cpu,cpuacct:/kubepods/burstable/pod1\n0::/",
            {
                "cpu/cpu.cfs_quota_us": "150000",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": str(2 * GIB),
            },
            2,
            2 * GIB,
            id="a pod, version 1: its group is the root of what is mounted",
        ),
        pytest.param(
            "4:memory:/mine\n3:cpu,cpuacct:/mine",
            {
                "cpu/cpu.cfs_quota_us": "-1",
                "cpu/cpu.cfs_period_us": "100000",
                "cpu/mine/cpu.cfs_quota_us": "300000",
                "cpu/mine/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "9223372036854771712",
                "memory/mine/memory.limit_in_bytes": str(GIB),
            },
            3,
            GIB,
            id="a group of its own, version 1",
        ),
        pytest.param("", {}, 64, 64 * GIB, id="no cgroups at all"),
        pytest.param("0::/", {"cpu.max": "nonsense", "memory.max": ""}, 64, 64 * GIB, id="unreadable"),
    ],
)
def test_the_smallest_limit_above_the_process_counts(
    tmp_path: Path, own: str, files: dict[str, str], cores: int, memory: int
) -> None:
    root = written(tmp_path / "cgroup", files)
    root.mkdir(exist_ok=True)
    (tmp_path / "own").write_text(own)
    assert usable_cores(root, tmp_path / "own") == cores
    assert usable_memory(root, tmp_path / "own") == memory


def test_processors_that_the_process_is_kept_from_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3, 5})
    root = written(tmp_path, {"cpu.max": "800000 100000", "own": "0::/"})
    assert usable_cores(root, root / "own") == 2
